use super::*;
use crate::credentials::CredentialCandidate;
use crate::resolver::circuit::{OPEN, Scope};
use crate::resolver::request::OwnedRequest;
use tolerarch_support::metrics::Metrics;

const ANONYMOUS: Access =
    Access { image: 0, repository: 0, namespace: 0, credential: CredentialId::ANONYMOUS, of_pod: false };

fn repository(repository: u64) -> Access {
    Access { image: repository, repository, ..ANONYMOUS }
}

fn of_pod(name: &str) -> Access {
    Access { credential: CredentialId::of(&[name]), of_pod: true, ..ANONYMOUS }
}

/// The same for this namespace.
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

fn failed(host: &Host, access: Access) -> Option<Instant> {
    host.failed(access, None, false)
}

/// A probe that took this slot fails.
fn probe_failed(host: &Host, access: Access, slot: Slot) -> Option<Instant> {
    let due = host.failed(access, Some(slot), true);
    host.release(slot, access);
    due
}

/// Opens the circuit for a namespace by failures of three repositories.
fn fail(host: &Host, namespace: u64) -> Option<Instant> {
    (1..=3).map(|failing| failed(host, of(namespace, repository(failing)))).last().flatten()
}

fn good(image: &str, access: Access) -> Probe {
    let (image, candidates) = (image.parse().unwrap(), [CredentialCandidate::anonymous()]);
    let request = OwnedRequest::from(Request { image: &image, candidates: &candidates });
    Probe { request, access }
}

/// The image of the probe that is due.
fn due(host: &Host) -> Option<String> {
    let (probe, slot) = host.begin_probe(None)?;
    host.release(slot, probe.access);
    Some(probe.request.borrow().image.to_string())
}

const IMAGE: Slot = Slot { scope: Scope::Image, suspect: true };
const OTHER: Slot = Slot { scope: Scope::Registry, suspect: false };
const SUSPECT: Slot = Slot { scope: Scope::Registry, suspect: true };

#[tokio::test(start_paused = true)]
async fn opens_after_failures_of_several_repositories_in_a_row_and_lets_one_probe_decide() {
    let (host, metrics) = host();
    for _ in 0..2 {
        failed(&host, repository(1));
        failed(&host, repository(2));
        host.answered(repository(4));
    }
    failed(&host, repository(3));
    assert_eq!((host.enter(repository(4)), open(&metrics)), (Permission::Allowed, false));
    host.answered(repository(4));
    assert_eq!(fail(&host, 0), Some(Instant::now() + OPEN));
    assert_eq!((host.enter(repository(4)), open(&metrics)), (Permission::CircuitOpen, true));

    tokio::time::advance(OPEN).await;
    let both = [host.enter(repository(4)), host.enter(repository(5))];
    assert_eq!(both, [Permission::Probe(OTHER), Permission::CircuitOpen]);
    assert_eq!(failed(&host, repository(6)), None, "a straggler");
    assert_eq!(probe_failed(&host, repository(4), OTHER), Some(Instant::now() + OPEN));
    assert_eq!(host.enter(repository(5)), Permission::CircuitOpen);
    tokio::time::advance(OPEN).await;
    assert_eq!(host.enter(repository(5)), Permission::Probe(OTHER));
    host.answered(repository(5));
    host.release(OTHER, repository(5));
    assert_eq!((host.enter(repository(4)), open(&metrics)), (Permission::Allowed, false));
}

#[tokio::test(start_paused = true)]
async fn one_repository_fails_alone() {
    let (host, metrics) = host();
    for _ in 0..FAILURES {
        assert_eq!(host.permission(repository(1)), Permission::Allowed);
        failed(&host, repository(1));
    }
    assert_eq!(host.enter(repository(1)), Permission::CircuitOpen);
    assert_eq!((host.enter(repository(2)), open(&metrics)), (Permission::Allowed, false));
    tokio::time::advance(OPEN).await;
    let both = [host.enter(repository(1)), host.enter(repository(1))];
    assert_eq!(both, [Permission::Probe(IMAGE), Permission::CircuitOpen]);
    probe_failed(&host, repository(1), IMAGE);
    assert_eq!(host.enter(repository(1)), Permission::CircuitOpen);
    tokio::time::advance(OPEN).await;
    assert_eq!(host.enter(repository(1)), Permission::Probe(IMAGE));
    host.answered(repository(1));
    assert_eq!(host.enter(repository(1)), Permission::Allowed);
}

#[tokio::test(start_paused = true)]
async fn a_failing_repository_keeps_no_other_from_being_the_probe() {
    let (host, _) = host();
    fail(&host, 0);
    tokio::time::advance(OPEN).await;
    let all = [1, 2, 4, 5].map(|asked| host.enter(repository(asked)));
    let (suspect, other) = (Permission::Probe(SUSPECT), Permission::Probe(OTHER));
    assert_eq!(all, [suspect, Permission::CircuitOpen, other, Permission::CircuitOpen]);
    host.release(OTHER, repository(4));
    assert_eq!(host.enter(repository(5)), other, "a probe without a result frees its slot");
}

#[tokio::test(start_paused = true)]
async fn probes_by_the_image_that_worked_last_then_by_one_that_was_refused() {
    let (host, _) = host();
    fail(&host, 0);
    for (asked, image) in [(4, "a.test/refused:1"), (5, "a.test/again:1")] {
        host.refused(repository(asked), good(image, ANONYMOUS).request.borrow());
    }
    assert_eq!(due(&host), None, "the circuit has just opened");
    tokio::time::advance(OPEN).await;
    assert_eq!((due(&host).as_deref(), due(&host)), (Some("a.test/refused:1"), None));
    host.served(repository(6), Some(good("a.test/good:1", repository(6))));
    assert_eq!(fail(&host, 0), Some(Instant::now()), "it tells at once whether the registry fails");
    assert_eq!([due(&host).as_deref(), due(&host).as_deref()], [Some("a.test/good:1"); 2]);
}

#[tokio::test(start_paused = true)]
async fn failures_of_one_namespace_open_the_circuit_for_that_one_only() {
    let (host, metrics) = host();
    for repository in (1..=20).map(repository) {
        failed(&host, of(7, repository));
        failed(&host, Access { credential: CredentialId::of(&["own"]), of_pod: true, ..of(7, repository) });
    }
    assert_eq!(host.enter(of(7, repository(30))), Permission::CircuitOpen);
    assert_eq!((host.enter(of(8, repository(30))), open(&metrics)), (Permission::Allowed, true));
    // Another namespace fails, too.
    assert!(failed(&host, of(8, repository(31))).is_some());
    assert_eq!(host.enter(of(9, repository(30))), Permission::CircuitOpen);
}

#[tokio::test(start_paused = true)]
async fn an_image_that_worked_for_another_namespace_decides_for_all() {
    let (host, _) = host();
    host.served(of(8, repository(30)), Some(good("a.test/theirs:1", of(8, repository(30)))));
    host.served(of(7, repository(31)), Some(good("a.test/own:1", of(7, repository(31)))));
    for works in [true, false] {
        assert_eq!(fail(&host, 7), Some(Instant::now()));
        let (probe, slot) = host.begin_probe(None).unwrap();
        assert_eq!(probe.request.borrow().image.as_str(), "a.test/theirs:1");
        assert_eq!(host.permission(of(9, repository(40))), Permission::Allowed, "not decided yet");
        if works {
            host.served(probe.access, Some(probe.clone()));
            host.release(slot, probe.access);
        } else {
            probe_failed(&host, probe.access, slot);
        }
        let expected = if works { Permission::Allowed } else { Permission::CircuitOpen };
        assert_eq!([7, 9].map(|namespace| host.permission(of(namespace, repository(40)))), [expected; 2]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_image_of_the_failing_namespace_decides_for_no_other() {
    let (host, _) = host();
    host.served(of(7, repository(31)), Some(good("a.test/own:1", of(7, repository(31)))));
    fail(&host, 7);
    for _ in 0..3 {
        let (probe, slot) = host.begin_probe(None).unwrap();
        probe_failed(&host, probe.access, slot);
        let both = [7, 8].map(|namespace| host.permission(of(namespace, repository(40))));
        assert_eq!(both, [Permission::CircuitOpen, Permission::Allowed]);
        tokio::time::advance(OPEN).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_namespace_cannot_keep_the_circuit_open_for_all() {
    let (host, _) = host();
    fail(&host, 7);
    failed(&host, of(8, repository(4)));
    tokio::time::advance(OPEN).await;
    for (round, expected) in [(0, Permission::CircuitOpen), (1, Permission::Probe(OTHER))] {
        let probe = of(7, repository(40 + round));
        assert_eq!(host.enter(probe), Permission::Probe(OTHER));
        assert_eq!(host.enter(of(9, repository(50))), Permission::CircuitOpen, "one probe at a time");
        assert_eq!(probe_failed(&host, probe, OTHER), Some(Instant::now() + OPEN));
        let both = [7, 9].map(|namespace| host.permission(of(namespace, repository(50))));
        assert_eq!(both, [Permission::CircuitOpen, expected]);
        tokio::time::advance(OPEN).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_bad_tag_fails_alone_and_other_tags_probe_their_repository() {
    let tag = |image: u64| Access { image, repository: 1, ..of(7, ANONYMOUS) };
    let (host, metrics) = host();
    for _ in 0..2 * FAILURES {
        failed(&host, tag(1));
    }
    assert_eq!(
        [tag(1), tag(2)].map(|tag| host.permission(tag)),
        [Permission::CircuitOpen, Permission::Allowed]
    );
    for image in 1..=3 {
        failed(&host, tag(image));
    }
    let others = [tag(9), of(8, tag(9)), of(7, repository(2))].map(|tag| host.permission(tag));
    assert_eq!(others, [Permission::CircuitOpen, Permission::Allowed, Permission::Allowed]);
    assert!(!open(&metrics));
    tokio::time::advance(OPEN).await;
    let slot = |suspect| Slot { scope: Scope::Repository, suspect };
    let both = [tag(1), tag(9), tag(10)].map(|tag| host.enter(tag));
    let (suspect, other) = (Permission::Probe(slot(true)), Permission::Probe(slot(false)));
    assert_eq!(both, [suspect, other, Permission::CircuitOpen]);
    host.answered(tag(9));
    assert_eq!(host.permission(tag(10)), Permission::Allowed);
}

#[tokio::test]
async fn a_host_is_known_by_a_manifest_until_it_times_out_or_its_circuit_opens() {
    let (host, _) = host();
    host.answered(ANONYMOUS);
    assert!(!host.is_known(), "a refusal is not enough");
    host.served(ANONYMOUS, None);
    failed(&host, ANONYMOUS);
    host.failed(of_pod("a"), None, true);
    fail(&host, 0);
    assert!(host.is_known(), "a status, a credential of a Pod, or one namespace say little");
    failed(&host, of(1, repository(4)));
    assert!(!host.is_known(), "the circuit is open for all");
    host.served(ANONYMOUS, None);
    host.failed(ANONYMOUS, None, true);
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
    tokio::time::advance(LACKS_HEAD).await;
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
        failed(&host, a);
    }
    host.answered(a);
    for _ in 0..FAILURES {
        assert_eq!((host.permission(a), failed(&host, a)), (Permission::Allowed, None));
    }
    assert_eq!(
        [a, b, ANONYMOUS].map(|id| host.permission(id)),
        [Permission::CircuitOpen, Permission::Allowed, Permission::Allowed]
    );
    assert!(!open(&metrics));
    tokio::time::advance(OPEN).await;
    assert_eq!(host.enter(a), Permission::Probe(IMAGE));
    probe_failed(&host, a, IMAGE);
    assert_eq!(host.permission(a), Permission::CircuitOpen, "it has not answered since");
}

#[tokio::test]
async fn a_host_that_is_forgotten_takes_its_open_circuit_along() {
    let (host, metrics) = host();
    fail(&host, 0);
    assert!(open(&metrics));
    drop(host);
    assert!(!open(&metrics));
}

#[tokio::test(start_paused = true)]
async fn failures_of_probes_are_warned_of_once_a_minute() {
    let (host, _) = host();
    // As often as an open circuit probes, for ten minutes.
    let mut warnings = 0;
    for _ in 0..200 {
        warnings += u32::from(host.warns());
        tokio::time::advance(Duration::from_secs(3)).await;
    }
    assert_eq!(warnings, 10);
}
