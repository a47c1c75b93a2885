use super::*;
use crate::resolver::circuit::OPEN;
use tolerarch_support::metrics::Metrics;

const ANONYMOUS: Access =
    Access { image: 0, repository: 0, namespace: 0, credential: CredentialId::ANONYMOUS, of_pod: false };

fn repository(repository: u64) -> Access {
    Access { image: repository, repository, ..ANONYMOUS }
}

fn of_pod(name: &str) -> Access {
    Access { credential: CredentialId::of(&[name]), of_pod: true, ..ANONYMOUS }
}

/// Returns the access on behalf of this namespace.
fn of(namespace: u64, access: Access) -> Access {
    Access { namespace, ..access }
}

fn host() -> (Arc<Host>, Metrics) {
    let metrics = Metrics::new(["a.test"]).unwrap();
    (Hosts::new(ResolverMetrics::register(&metrics).unwrap()).get("a.test"), metrics)
}

fn open(metrics: &Metrics) -> bool {
    metrics.render().unwrap().contains(r#"tolerarch_registry_circuit_open{registry="a.test"} 1"#)
}

fn failed(host: &Arc<Host>, access: Access) {
    host.failed(access, false);
}

/// Begins a lookup that is a probe.
fn probe(host: &Host, access: Access) -> Probe {
    host.enter(access).unwrap().expect("a circuit that is half-open")
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
async fn shows_that_it_fails_from_its_first_failure_to_its_next_answer() {
    let (host, metrics) = host();
    let fails = || metrics.render().unwrap().contains(r#"tolerarch_registry_failing{registry="a.test"} 1"#);
    assert!(!fails());
    failed(&host, repository(1));
    failed(&host, repository(1));
    assert!(fails() && !open(&metrics));
    tokio::time::advance(2 * FORGOTTEN).await;
    assert!(fails(), "nobody has asked it since");
    host.answered(repository(2));
    assert!(!fails());
}

#[tokio::test(start_paused = true)]
async fn opens_after_failures_of_several_repositories_in_a_row_and_lets_one_probe_decide() {
    let (host, metrics) = host();
    for _ in 0..2 {
        failed(&host, repository(1));
        failed(&host, repository(2));
        host.answered(repository(4));
    }
    failed(&host, repository(3));
    assert_eq!((host.permission(repository(4)), open(&metrics)), (ALLOWED, false));
    host.answered(repository(4));
    fail(&host, 0);
    assert_eq!((host.permission(repository(4)), open(&metrics)), (CIRCUIT_OPEN, true));

    tokio::time::advance(OPEN / 2).await;
    failed(&host, repository(6));
    tokio::time::advance(OPEN / 2).await;
    let first = probe(&host, repository(4));
    assert_eq!(host.permission(repository(5)), CIRCUIT_OPEN, "one at a time");
    host.failed(repository(4), true);
    drop(first);
    assert_eq!(host.permission(repository(5)), CIRCUIT_OPEN);
    tokio::time::advance(OPEN).await;
    drop(probe(&host, repository(5)));
    let _without_a_result = probe(&host, repository(5));
    host.answered(repository(5));
    assert_eq!((host.permission(repository(4)), open(&metrics)), (ALLOWED, false));
}

#[tokio::test(start_paused = true)]
async fn one_repository_fails_alone() {
    let tag = |image: u64| Access { image, ..repository(1) };
    let (host, metrics) = host();
    for image in 1..=3 {
        assert_eq!(host.permission(tag(image)), ALLOWED);
        failed(&host, tag(image));
    }
    assert_eq!(host.permission(tag(1)), CIRCUIT_OPEN);
    host.answered(repository(9));
    assert_eq!([tag(4), repository(9)].map(|access| host.permission(access)), [CIRCUIT_OPEN, ALLOWED]);
    assert!(!open(&metrics));
    tokio::time::advance(OPEN).await;
    let first = probe(&host, tag(1));
    assert_eq!(host.permission(tag(1)), CIRCUIT_OPEN);
    host.failed(tag(1), true);
    drop(first);
    assert_eq!(host.permission(tag(1)), CIRCUIT_OPEN);
    tokio::time::advance(OPEN).await;
    drop(probe(&host, tag(1)));
    host.answered(tag(1));
    assert_eq!(host.permission(tag(1)), ALLOWED);
}

#[tokio::test(start_paused = true)]
async fn one_bad_tag_fails_alone() {
    let tag = |image: u64| Access { image, repository: 1, ..of(7, ANONYMOUS) };
    let (host, metrics) = host();
    for _ in 0..2 * FAILURES {
        failed(&host, tag(1));
    }
    assert_eq!([tag(1), tag(2)].map(|tag| host.permission(tag)), [ALLOWED; 2]);
    for image in 1..=3 {
        failed(&host, tag(image));
    }
    let others = [tag(9), of(8, tag(9)), of(7, repository(2))].map(|tag| host.permission(tag));
    assert_eq!(others, [CIRCUIT_OPEN, ALLOWED, ALLOWED]);
    assert!(!open(&metrics));
}

#[tokio::test(start_paused = true)]
async fn failures_of_one_namespace_open_the_circuit_for_that_one_only() {
    let (host, metrics) = host();
    for repository in (1..=20).map(repository) {
        failed(&host, of(7, repository));
        failed(&host, Access { credential: CredentialId::of(&["own"]), of_pod: true, ..of(7, repository) });
    }
    assert_eq!(host.permission(of(7, repository(30))), CIRCUIT_OPEN);
    assert_eq!((host.permission(of(8, repository(30))), open(&metrics)), (ALLOWED, true));
    // Another namespace fails, too.
    failed(&host, of(8, repository(31)));
    assert_eq!(host.permission(of(9, repository(30))), CIRCUIT_OPEN);
}

/// Tenants may fail as often as they like: the others find out for themselves, and no more often than the tenants fail.
#[tokio::test(start_paused = true)]
async fn namespaces_that_fail_cannot_keep_the_circuit_open_for_others() {
    let (host, _) = host();
    fail(&host, 7);
    failed(&host, of(8, repository(4)));
    for round in 0..30 {
        for namespace in [7, 8] {
            host.failed(of(namespace, repository(40 + round)), true);
            assert_eq!(host.permission(of(namespace, repository(50))), CIRCUIT_OPEN, "{round}");
        }
        let expected = if round < 3 { CIRCUIT_OPEN } else { ALLOWED };
        assert_eq!(host.permission(of(9, repository(50))), expected, "{round}");
        tokio::time::advance(OPEN / 3).await;
    }
    let first = probe(&host, of(9, repository(50)));
    let both = [9, 10].map(|namespace| host.permission(of(namespace, repository(50))));
    assert_eq!(both, [CIRCUIT_OPEN, ALLOWED], "each namespace has a probe");
    host.failed(of(9, repository(50)), true);
    drop(first);
    let both = [9, 10].map(|namespace| host.permission(of(namespace, repository(50))));
    assert_eq!(both, [CIRCUIT_OPEN, ALLOWED], "for it the registry fails");
    host.answered(of(10, repository(50)));
    let all = [7, 8, 9, 10].map(|namespace| host.permission(of(namespace, repository(50))));
    assert_eq!(all, [ALLOWED; 4]);
}

#[tokio::test(start_paused = true)]
async fn one_namespaces_many_failures_leave_those_of_others_known() {
    let (host, _) = host();
    fail(&host, 8);
    (0..1000).for_each(|failing| host.failed(of(7, repository(failing)), true));
    assert_eq!(host.permission(of(8, repository(50))), CIRCUIT_OPEN);
    host.answered(of(7, repository(0)));
    assert_eq!(host.permission(of(8, repository(50))), ALLOWED);
}

#[tokio::test(start_paused = true)]
async fn a_circuit_that_nobody_uses_any_more_closes_by_itself() {
    let (host, metrics) = host();
    fail(&host, 0);
    tokio::time::sleep(FORGOTTEN / 2).await;
    host.failed(repository(4), true);
    tokio::time::sleep(FORGOTTEN - Duration::from_secs(1)).await;
    assert!(open(&metrics), "it has failed within a minute");
    tokio::time::sleep(FORGOTTEN).await;
    assert_eq!((host.permission(repository(4)), open(&metrics)), (ALLOWED, false));
}

#[tokio::test(start_paused = true)]
async fn pauses_and_remembers_who_has_no_head() {
    let (host, _) = host();
    host.pause(ANONYMOUS, Duration::from_secs(7));
    host.disable_head();
    assert_eq!((host.permission(ANONYMOUS), host.answers_head()), (THROTTLED, false));
    tokio::time::advance(Duration::from_secs(7)).await;
    assert_eq!((host.permission(ANONYMOUS), host.answers_head()), (ALLOWED, false));
    tokio::time::advance(LACKS_HEAD).await;
    assert!(host.answers_head());
}

#[tokio::test(start_paused = true)]
async fn pauses_whom_it_asks_only() {
    let (host, _) = host();
    let [a, b] = ["a", "b"].map(of_pod);
    host.pause(a, Duration::from_secs(9));
    host.pause(a, Duration::from_secs(2));
    assert_eq!([a, b, ANONYMOUS].map(|id| host.permission(id)), [THROTTLED, ALLOWED, ALLOWED]);
    tokio::time::advance(Duration::from_secs(8)).await;
    assert_eq!(host.permission(a), THROTTLED, "the longer one counts");
    host.pause(a, Duration::from_secs(3600));
    for number in 0..2 * ACCOUNTS {
        host.pause(of_pod(&number.to_string()), Duration::from_secs(9));
    }
    assert_eq!(
        (host.permission(a), host.state.lock().pauses.len()),
        (THROTTLED, ACCOUNTS),
        "the shortest go"
    );
    host.pause(ANONYMOUS, Duration::from_secs(1));
    assert_eq!(host.permission(ANONYMOUS), THROTTLED, "however many there are");
}

#[tokio::test(start_paused = true)]
async fn a_pods_own_credential_opens_no_circuit_for_others() {
    let (host, metrics) = host();
    let [a, b] = ["a", "b"].map(of_pod);
    for _ in 1..FAILURES {
        failed(&host, a);
    }
    host.answered(a);
    for _ in 0..FAILURES {
        failed(&host, a);
        assert_eq!(host.permission(a), ALLOWED);
    }
    assert_eq!([a, b, ANONYMOUS].map(|id| host.permission(id)), [ALLOWED; 3]);
    assert!(!open(&metrics));
    assert!(host.is_unresponsive(a) && !host.is_unresponsive(b), "it has not answered since");
}

#[tokio::test]
async fn a_host_that_is_forgotten_takes_its_open_circuit_along() {
    let (host, metrics) = host();
    fail(&host, 0);
    assert!(open(&metrics));
    drop(host);
    assert!(!open(&metrics));
}
