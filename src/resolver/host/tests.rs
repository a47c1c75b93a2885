use super::*;
use crate::metrics::Metrics;

const ANONYMOUS: Access = Access { repository: 0, credential: CredentialId::ANONYMOUS, of_pod: false };

fn repository(repository: Repository) -> Access {
    Access { repository, ..ANONYMOUS }
}

fn of_pod(name: &str) -> Access {
    Access { credential: CredentialId::of(&[name]), of_pod: true, ..ANONYMOUS }
}

fn host() -> (Arc<Host>, Metrics) {
    let metrics = Metrics::new(["a.test"]).unwrap();
    (Hosts::new(ResolverMetrics::register(&metrics).unwrap()).get("a.test"), metrics)
}

fn open(metrics: &Metrics) -> bool {
    metrics.render().unwrap().contains(r#"tolerarch_registry_circuit_open{registry="a.test"} 1"#)
}

/// Opens the circuit by failures of the repositories 1, 2 and 3.
fn fail(host: &Host) -> Option<Instant> {
    (1..=3).map(|failing| host.failed(repository(failing), None)).last().flatten()
}

fn lookup(image: &str) -> Lookup {
    let (image, candidates) = (image.parse().unwrap(), [CredentialCandidate::anonymous()]);
    Lookup::from(Request { image: &image, candidates: &candidates })
}

const OTHER: Permission = Permission::Probe(Slot::Other);
const SUSPECT: Permission = Permission::Probe(Slot::Suspect);

#[tokio::test(start_paused = true)]
async fn opens_after_failures_of_several_repositories_in_a_row_and_lets_one_probe_decide() {
    let (host, metrics) = host();
    for _ in 0..2 {
        host.failed(repository(1), None);
        host.failed(repository(2), None);
        host.answered(repository(4));
    }
    host.failed(repository(3), None);
    assert_eq!((host.enter(repository(4)), open(&metrics)), (Permission::Allowed, false));
    host.answered(repository(4));
    assert_eq!(fail(&host), Some(Instant::now() + OPEN));
    assert_eq!((host.enter(repository(4)), open(&metrics)), (Permission::CircuitOpen, true));

    tokio::time::advance(OPEN).await;
    let both = [host.enter(repository(4)), host.enter(repository(5))];
    assert_eq!(both, [OTHER, Permission::CircuitOpen]);
    assert_eq!(host.failed(repository(6), None), None, "a straggler");
    assert_eq!(host.failed(repository(4), Some(Slot::Other)), Some(Instant::now() + OPEN));
    host.release(Slot::Other, repository(4));
    assert_eq!(host.enter(repository(5)), Permission::CircuitOpen);
    tokio::time::advance(OPEN).await;
    assert_eq!(host.enter(repository(5)), OTHER);
    host.answered(repository(5));
    host.release(Slot::Other, repository(5));
    assert_eq!((host.enter(repository(4)), open(&metrics)), (Permission::Allowed, false));
}

#[tokio::test(start_paused = true)]
async fn one_repository_fails_alone() {
    let (host, metrics) = host();
    for _ in 0..FAILURES {
        assert_eq!(host.permission(repository(1)), Permission::Allowed);
        host.failed(repository(1), None);
    }
    assert_eq!(host.enter(repository(1)), Permission::CircuitOpen);
    assert_eq!((host.enter(repository(2)), open(&metrics)), (Permission::Allowed, false));
    tokio::time::advance(OPEN).await;
    let both = [host.enter(repository(1)), host.enter(repository(1))];
    assert_eq!(both, [Permission::Probe(Slot::Repository), Permission::CircuitOpen]);
    host.failed(repository(1), Some(Slot::Repository));
    host.release(Slot::Repository, repository(1));
    assert_eq!(host.enter(repository(1)), Permission::CircuitOpen);
    tokio::time::advance(OPEN).await;
    assert_eq!(host.enter(repository(1)), Permission::Probe(Slot::Repository));
    host.answered(repository(1));
    assert_eq!(host.enter(repository(1)), Permission::Allowed);
}

#[tokio::test(start_paused = true)]
async fn a_failing_repository_keeps_no_other_from_being_the_probe() {
    let (host, _) = host();
    fail(&host);
    tokio::time::advance(OPEN).await;
    let all = [1, 2, 4, 5].map(|asked| host.enter(repository(asked)));
    assert_eq!(all, [SUSPECT, Permission::CircuitOpen, OTHER, Permission::CircuitOpen]);
    host.release(Slot::Other, repository(4));
    assert_eq!(host.enter(repository(5)), OTHER, "a probe without a result frees its slot");
}

#[tokio::test(start_paused = true)]
async fn probes_by_the_image_that_worked_last_then_by_one_that_was_refused() {
    let (host, _) = host();
    fail(&host);
    let [image, candidates] = ["a.test/refused:1", "a.test/again:1"].map(lookup);
    host.refused(repository(4), image.request());
    host.refused(repository(5), candidates.request());
    let probe = || host.probe().map(|lookup| lookup.request().image.to_string());
    assert_eq!((probe().as_deref(), probe()), (Some("a.test/refused:1"), None));
    host.served(repository(6), Some(lookup("a.test/good:1")));
    assert_eq!(fail(&host), Some(Instant::now()), "it tells at once whether the registry fails");
    assert_eq!([probe().as_deref(), probe().as_deref()], [Some("a.test/good:1"); 2]);
}

#[tokio::test]
async fn a_host_is_known_by_a_manifest_until_it_fails() {
    let (host, _) = host();
    host.answered(ANONYMOUS);
    assert!(!host.is_known(), "a refusal is not enough");
    host.served(ANONYMOUS, None);
    assert!(host.is_known());
    host.failed(ANONYMOUS, None);
    assert!(!host.is_known());
}

#[tokio::test(start_paused = true)]
async fn pauses_and_remembers_who_has_no_head() {
    let (host, _) = host();
    host.pause(ANONYMOUS, Duration::from_secs(7));
    host.note_headless();
    assert_eq!((host.enter(ANONYMOUS), host.answers_head()), (Permission::Throttled, false));
    tokio::time::advance(Duration::from_secs(7)).await;
    assert_eq!((host.enter(ANONYMOUS), host.answers_head()), (Permission::Allowed, false));
    tokio::time::advance(HEADLESS).await;
    assert!(host.answers_head());
}

#[tokio::test(start_paused = true)]
async fn pauses_whom_it_asks_only() {
    let (host, _) = host();
    let [a, b] = ["a", "b"].map(of_pod);
    host.pause(a, Duration::from_secs(9));
    host.pause(a, Duration::from_secs(2));
    assert_eq!(
        [a, b, ANONYMOUS].map(|id| host.permission(id)),
        [Permission::Throttled, Permission::Allowed, Permission::Allowed]
    );
    tokio::time::advance(Duration::from_secs(8)).await;
    assert_eq!(host.permission(a), Permission::Throttled, "the longer one counts");
    host.pause(a, Duration::from_secs(3600));
    for number in 0..2 * ACCOUNTS {
        host.pause(of_pod(&number.to_string()), Duration::from_secs(9));
    }
    assert_eq!(
        (host.permission(a), host.state().accounts.len()),
        (Permission::Throttled, ACCOUNTS),
        "the shortest go"
    );
    host.pause(ANONYMOUS, Duration::from_secs(1));
    assert_eq!(host.permission(ANONYMOUS), Permission::Throttled, "however many there are");
}

#[tokio::test(start_paused = true)]
async fn a_pods_own_credential_opens_no_circuit_for_others() {
    let (host, metrics) = host();
    let [a, b] = ["a", "b"].map(of_pod);
    for _ in 1..FAILURES {
        host.failed(a, None);
    }
    host.answered(a);
    for _ in 0..FAILURES {
        assert_eq!((host.permission(a), host.failed(a, None)), (Permission::Allowed, None));
    }
    assert_eq!(
        [a, b, ANONYMOUS].map(|id| host.permission(id)),
        [Permission::CircuitOpen, Permission::Allowed, Permission::Allowed]
    );
    assert!(!open(&metrics));
    tokio::time::advance(OPEN).await;
    assert_eq!(host.permission(a), Permission::Allowed);
    host.failed(a, None);
    assert_eq!(host.permission(a), Permission::CircuitOpen, "it has not answered since");
}

#[tokio::test]
async fn a_host_that_is_forgotten_takes_its_open_circuit_along() {
    let (host, metrics) = host();
    fail(&host);
    assert!(open(&metrics));
    drop(host);
    assert!(!open(&metrics));
}
