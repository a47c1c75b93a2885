mod model;

use super::*;
use crate::resolver::circuit::OPEN;
use tolerarch_support::metrics::Metrics;

const FAULT: Ending = Ending::Failed(FailureClass::Fault(Target::Registry));
const TARGET_FAULT: Ending = Ending::Failed(FailureClass::Fault(Target::RedirectTarget));

const ANONYMOUS: Access = Access {
    image: 0,
    repository: 0,
    namespace: 0,
    credential: CredentialId::ANONYMOUS,
    owner: CredentialOwner::Operator,
};

fn repository(repository: u64) -> Access {
    Access {
        image: repository,
        repository,
        ..ANONYMOUS
    }
}

fn of_pod(name: &str) -> Access {
    Access {
        credential: CredentialId::of(&[name]),
        owner: CredentialOwner::Pod,
        ..ANONYMOUS
    }
}

/// Returns the access on behalf of this namespace.
fn of(namespace: u64, access: Access) -> Access {
    Access {
        namespace,
        ..access
    }
}

fn host() -> (Arc<Host>, Metrics) {
    let metrics = Metrics::new(["a.test"]).unwrap();
    (
        Hosts::new(ResolverMetrics::register(&metrics).unwrap()).get("a.test"),
        metrics,
    )
}

fn open(metrics: &Metrics) -> bool {
    metrics
        .render()
        .unwrap()
        .contains(r#"tolerarch_registry_circuit_open{registry="a.test"} 1"#)
}

/// Makes a lookup that is already waiting for the registry.
fn begun(host: &Arc<Host>, access: Access, probe: Option<Probe>) -> Attempt {
    Attempt {
        host: Arc::clone(host),
        access,
        probe,
        has_queried: true,
    }
}

fn ended(host: &Arc<Host>, access: Access, ending: Ending) {
    begun(host, access, None).finish(ending);
}

fn failed(host: &Arc<Host>, access: Access) {
    ended(host, access, FAULT);
}

fn failed_probe(host: &Arc<Host>, access: Access) {
    begun(host, access, Some(Probe::default())).finish(FAULT);
}

fn answered(host: &Arc<Host>, access: Access) {
    ended(host, access, Ending::Failed(FailureClass::Missing));
}

fn throttled(host: &Arc<Host>, access: Access, seconds: u64) {
    let time = Duration::from_secs(seconds);
    let pauses = Pauses {
        repository: time,
        registry: time,
    };
    ended(host, access, Ending::Throttled(Target::Registry, pauses));
}

/// Begins a lookup that is a probe.
fn probe(host: &Arc<Host>, access: Access) -> Attempt {
    let attempt = host.enter(access).unwrap();
    assert!(attempt.is_probe(), "the circuit is half-open");
    attempt
}

/// Opens the circuit for a namespace by failures of three repositories.
fn fail(host: &Arc<Host>, namespace: u64) {
    (1..=3).for_each(|failing| failed(host, of(namespace, repository(failing))));
}

type Permission = Result<(), LookupError>;

const ALLOWED: Permission = Ok(());
const CIRCUIT_OPEN: Permission = Err(LookupError::CircuitOpen);
const THROTTLED: Permission = Err(LookupError::Throttled);

#[tokio::test(start_paused = true)]
async fn metric_shows_failing_until_the_next_answer() {
    let (host, metrics) = host();
    let fails = || {
        metrics
            .render()
            .unwrap()
            .contains(r#"tolerarch_registry_failing{registry="a.test"} 1"#)
    };
    assert!(!fails());
    failed(&host, repository(1));
    failed(&host, repository(1));
    assert!(fails() && !open(&metrics));
    tokio::time::advance(2 * FORGOTTEN).await;
    assert!(fails(), "there was no lookup since");
    answered(&host, repository(2));
    assert!(!fails());
}

#[tokio::test(start_paused = true)]
async fn circuit_opens_after_several_failures_and_admits_one_probe() {
    let (host, metrics) = host();
    for _ in 0..2 {
        failed(&host, repository(1));
        failed(&host, repository(2));
        answered(&host, repository(4));
    }
    failed(&host, repository(3));
    assert_eq!(
        (host.permission(repository(4)), open(&metrics)),
        (ALLOWED, false)
    );
    answered(&host, repository(4));
    fail(&host, 0);
    assert_eq!(
        (host.permission(repository(4)), open(&metrics)),
        (CIRCUIT_OPEN, true)
    );

    tokio::time::advance(OPEN / 2).await;
    failed(&host, repository(6));
    tokio::time::advance(OPEN / 2).await;
    let first = probe(&host, repository(4));
    assert_eq!(
        host.permission(repository(5)),
        CIRCUIT_OPEN,
        "one at a time"
    );
    failed_probe(&host, repository(4));
    drop(first);
    assert_eq!(host.permission(repository(5)), CIRCUIT_OPEN);
    tokio::time::advance(OPEN).await;
    drop(probe(&host, repository(5)));
    let _without_a_result = probe(&host, repository(5));
    answered(&host, repository(5));
    assert_eq!(
        (host.permission(repository(4)), open(&metrics)),
        (ALLOWED, false)
    );
}

#[tokio::test(start_paused = true)]
async fn one_repository_fails_alone() {
    let tag = |image: u64| Access {
        image,
        ..repository(1)
    };
    let (host, metrics) = host();
    for image in 1..=3 {
        assert_eq!(host.permission(tag(image)), ALLOWED);
        failed(&host, tag(image));
    }
    assert_eq!(host.permission(tag(1)), CIRCUIT_OPEN);
    answered(&host, repository(9));
    assert_eq!(
        [tag(4), repository(9)].map(|access| host.permission(access)),
        [CIRCUIT_OPEN, ALLOWED]
    );
    assert!(!open(&metrics));
    tokio::time::advance(OPEN).await;
    let first = probe(&host, tag(1));
    assert_eq!(host.permission(tag(1)), CIRCUIT_OPEN);
    failed_probe(&host, tag(1));
    drop(first);
    assert_eq!(host.permission(tag(1)), CIRCUIT_OPEN);
    tokio::time::advance(OPEN).await;
    drop(probe(&host, tag(1)));
    answered(&host, tag(1));
    assert_eq!(host.permission(tag(1)), ALLOWED);
}

#[tokio::test(start_paused = true)]
async fn one_bad_tag_fails_alone() {
    let tag = |image: u64| Access {
        image,
        repository: 1,
        ..of(7, ANONYMOUS)
    };
    let (host, metrics) = host();
    for _ in 0..2 * FAILURES {
        failed(&host, tag(1));
    }
    assert_eq!(
        [tag(1), tag(2)].map(|tag| host.permission(tag)),
        [ALLOWED; 2]
    );
    for image in 1..=3 {
        failed(&host, tag(image));
    }
    let others = [tag(9), of(8, tag(9)), of(7, repository(2))].map(|tag| host.permission(tag));
    assert_eq!(others, [CIRCUIT_OPEN, ALLOWED, ALLOWED]);
    assert!(!open(&metrics));
}

#[tokio::test(start_paused = true)]
async fn failures_open_the_circuit_for_their_namespace_only() {
    let (host, metrics) = host();
    for repository in (1..=20).map(repository) {
        failed(&host, of(7, repository));
        failed(
            &host,
            Access {
                credential: CredentialId::of(&["own"]),
                owner: CredentialOwner::Pod,
                ..of(7, repository)
            },
        );
    }
    assert_eq!(host.permission(of(7, repository(30))), CIRCUIT_OPEN);
    assert_eq!(
        (host.permission(of(8, repository(30))), open(&metrics)),
        (ALLOWED, true)
    );
    // Another namespace fails, too.
    failed(&host, of(8, repository(31)));
    assert_eq!(
        [8, 9].map(|other| host.permission(of(other, repository(30)))),
        [ALLOWED; 2]
    );
}

/// However often others fail, a namespace is refused only because of its own failures, and then gets a probe.
#[tokio::test(start_paused = true)]
async fn failing_namespaces_open_no_circuit_for_others() {
    let (host, _) = host();
    for round in 0..30 {
        for namespace in [7, 8] {
            for part in 0..3 {
                failed_probe(&host, of(namespace, repository(40 + 3 * round + part)));
            }
            assert_eq!(
                host.permission(of(namespace, repository(500))),
                CIRCUIT_OPEN,
                "{round}"
            );
        }
        assert_eq!(host.permission(of(9, repository(500))), ALLOWED, "{round}");
        // The registry answers the third namespace, and fails for the two again.
        if round % 2 == 0 {
            answered(&host, of(9, repository(500)));
        }
        tokio::time::advance(OPEN / 3).await;
    }
    fail(&host, 9);
    assert_eq!(
        [9, 10].map(|own| host.permission(of(own, repository(500)))),
        [CIRCUIT_OPEN, ALLOWED]
    );
    tokio::time::advance(OPEN).await;
    let first = probe(&host, of(9, repository(500)));
    assert_eq!(
        host.permission(of(9, repository(501))),
        CIRCUIT_OPEN,
        "one at a time"
    );
    failed_probe(&host, of(9, repository(500)));
    drop(first);
    assert_eq!(
        [9, 10].map(|own| host.permission(of(own, repository(500)))),
        [CIRCUIT_OPEN, ALLOWED]
    );
    answered(&host, of(10, repository(500)));
    let all = [7, 8, 9, 10].map(|namespace| host.permission(of(namespace, repository(500))));
    assert_eq!(all, [ALLOWED; 4]);
}

#[tokio::test(start_paused = true)]
async fn failing_redirect_target_opens_no_registry_circuit() {
    let (host, metrics) = host();
    for failing in 0..20 {
        ended(&host, of(7, repository(failing)), TARGET_FAULT);
    }
    assert_eq!(
        [7, 8].map(|namespace| host.permission(of(namespace, repository(30)))),
        [ALLOWED; 2]
    );
    assert!(!open(&metrics));
    // The registry that redirects has answered, so its circuit is closed.
    fail(&host, 8);
    assert!(open(&metrics));
    ended(&host, of(7, repository(20)), TARGET_FAULT);
    assert_eq!(
        (host.permission(of(8, repository(30))), open(&metrics)),
        (ALLOWED, false)
    );
}

#[tokio::test(start_paused = true)]
async fn many_failures_of_one_namespace_evict_no_others() {
    let (host, _) = host();
    fail(&host, 8);
    (0..1000).for_each(|failing| failed_probe(&host, of(7, repository(failing))));
    assert_eq!(host.permission(of(8, repository(50))), CIRCUIT_OPEN);
    answered(&host, of(7, repository(0)));
    assert_eq!(host.permission(of(8, repository(50))), ALLOWED);
}

#[tokio::test(start_paused = true)]
async fn unused_circuit_closes() {
    let (host, metrics) = host();
    fail(&host, 0);
    tokio::time::sleep(FORGOTTEN / 2).await;
    failed_probe(&host, repository(4));
    tokio::time::sleep(FORGOTTEN - Duration::from_secs(1)).await;
    assert!(open(&metrics), "it failed within the last minute");
    tokio::time::sleep(FORGOTTEN).await;
    assert_eq!(
        (host.permission(repository(4)), open(&metrics)),
        (ALLOWED, false)
    );
}

#[tokio::test(start_paused = true)]
async fn throttled_repository_is_paused_and_head_is_disabled() {
    let (host, _) = host();
    throttled(&host, repository(1), 7);
    host.disable_head();
    assert_eq!(
        [1, 2].map(|it| host.permission(repository(it))),
        [THROTTLED, ALLOWED]
    );
    throttled(&host, repository(2), 7);
    assert_eq!(
        (host.permission(repository(3)), host.answers_head()),
        (THROTTLED, false)
    );
    tokio::time::advance(Duration::from_secs(7)).await;
    assert_eq!(
        (host.permission(repository(1)), host.answers_head()),
        (ALLOWED, false)
    );
    tokio::time::advance(LACKS_HEAD).await;
    assert!(host.answers_head());
}

#[tokio::test(start_paused = true)]
async fn answer_ends_the_pause_of_the_registry() {
    let (host, _) = host();
    throttled(&host, of(7, repository(1)), 60);
    throttled(&host, of(8, repository(2)), 60);
    assert_eq!(host.permission(of(9, repository(3))), THROTTLED);
    answered(&host, of(9, repository(3)));
    assert_eq!(
        host.permission(of(9, repository(3))),
        THROTTLED,
        "the answer was no image"
    );
    ended(&host, of(9, repository(3)), Ending::Found);
    assert_eq!(host.permission(of(9, repository(3))), ALLOWED);
}

#[tokio::test(start_paused = true)]
async fn pods_credential_opens_no_circuit_for_others() {
    let (host, metrics) = host();
    let [a, b] = ["a", "b"].map(of_pod);
    for _ in 1..FAILURES {
        failed(&host, a);
    }
    answered(&host, a);
    for _ in 0..FAILURES {
        failed(&host, a);
        assert_eq!(host.permission(a), ALLOWED);
    }
    assert_eq!(
        [a, b, ANONYMOUS].map(|id| host.permission(id)),
        [ALLOWED; 3]
    );
    assert!(!open(&metrics));
    assert_eq!(
        [a, b].map(|of| host.patience(of)),
        [PATIENCE, Duration::MAX],
        "it has not answered since"
    );
}

#[tokio::test]
async fn evicted_host_no_longer_counts_as_open() {
    let (host, metrics) = host();
    fail(&host, 0);
    assert!(open(&metrics));
    drop(host);
    assert!(!open(&metrics));
}
