use super::*;
use crate::credentials::CredentialCandidate;
use crate::resolver::circuit::OPEN;
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
    host.failed(access, None, false, || None)
}

/// Begins a lookup that is a probe.
fn probe(host: &Host, access: Access) -> Arc<Slot> {
    host.enter(access).unwrap().expect("a circuit that is half-open")
}

/// A probe that took this slot fails.
fn probe_failed(host: &Host, access: Access, slot: Arc<Slot>) -> Option<Instant> {
    host.failed(access, Some(&slot), true, || None)
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
    let (probe, _slot) = host.begin_probe()?;
    Some(probe.request.borrow().image.to_string())
}

type Permission = Result<Option<Scope>, LookupError>;

const ALLOWED: Permission = Ok(None);
const PROBE: Permission = Ok(Some(Scope::Registry));
const CIRCUIT_OPEN: Permission = Err(LookupError::CircuitOpen);
const THROTTLED: Permission = Err(LookupError::Throttled);

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
    assert_eq!(fail(&host, 0), Some(Instant::now() + OPEN));
    assert_eq!((host.permission(repository(4)), open(&metrics)), (CIRCUIT_OPEN, true));

    tokio::time::advance(OPEN).await;
    let slot = probe(&host, repository(4));
    assert_eq!(host.permission(repository(5)), CIRCUIT_OPEN);
    assert_eq!(failed(&host, repository(6)), None, "a straggler");
    assert_eq!(probe_failed(&host, repository(4), slot), Some(Instant::now() + OPEN));
    assert_eq!(host.permission(repository(5)), CIRCUIT_OPEN);
    tokio::time::advance(OPEN).await;
    let slot = probe(&host, repository(5));
    host.answered(repository(5));
    drop(slot);
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
    assert_eq!((host.permission(repository(2)), open(&metrics)), (ALLOWED, false));
    tokio::time::advance(OPEN).await;
    let slot = probe(&host, tag(1));
    assert_eq!(host.permission(tag(1)), CIRCUIT_OPEN);
    probe_failed(&host, tag(1), slot);
    assert_eq!(host.permission(tag(1)), CIRCUIT_OPEN);
    tokio::time::advance(OPEN).await;
    drop(probe(&host, tag(1)));
    host.answered(tag(1));
    assert_eq!(host.permission(tag(1)), ALLOWED);
}

#[tokio::test(start_paused = true)]
async fn a_failing_repository_keeps_no_other_from_being_the_probe() {
    let (host, _) = host();
    fail(&host, 0);
    tokio::time::advance(OPEN).await;
    let _suspect = probe(&host, repository(1));
    assert_eq!(host.permission(repository(2)), CIRCUIT_OPEN);
    let other = probe(&host, repository(4));
    assert_eq!(host.permission(repository(5)), CIRCUIT_OPEN);
    drop(other);
    assert_eq!(host.permission(repository(5)), PROBE, "a probe without a result frees its slot");
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
    assert_eq!(due(&host).as_deref(), Some("a.test/refused:1"));
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
    assert_eq!(host.permission(of(7, repository(30))), CIRCUIT_OPEN);
    assert_eq!((host.permission(of(8, repository(30))), open(&metrics)), (ALLOWED, true));
    // Another namespace fails, too.
    assert!(failed(&host, of(8, repository(31))).is_some());
    assert_eq!(host.permission(of(9, repository(30))), CIRCUIT_OPEN);
}

#[tokio::test(start_paused = true)]
async fn an_image_that_worked_for_another_namespace_decides_for_all() {
    let (host, _) = host();
    host.served(of(8, repository(30)), Some(good("a.test/theirs:1", of(8, repository(30)))));
    host.served(of(7, repository(31)), Some(good("a.test/own:1", of(7, repository(31)))));
    for works in [true, false] {
        assert_eq!(fail(&host, 7), Some(Instant::now()));
        let (probe, slot) = host.begin_probe().unwrap();
        assert_eq!(probe.request.borrow().image.as_str(), "a.test/theirs:1");
        assert_eq!(host.permission(of(9, repository(40))), ALLOWED, "not decided yet");
        if works {
            host.served(probe.access, Some(probe));
        } else {
            probe_failed(&host, probe.access, slot);
        }
        let expected = if works { ALLOWED } else { CIRCUIT_OPEN };
        assert_eq!([7, 9].map(|namespace| host.permission(of(namespace, repository(40)))), [expected; 2]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_image_of_the_failing_namespace_decides_for_no_other() {
    let (host, _) = host();
    host.served(of(7, repository(31)), Some(good("a.test/own:1", of(7, repository(31)))));
    fail(&host, 7);
    for _ in 0..3 {
        let (probe, slot) = host.begin_probe().unwrap();
        probe_failed(&host, probe.access, slot);
        let both = [7, 8].map(|namespace| host.permission(of(namespace, repository(40))));
        assert_eq!(both, [CIRCUIT_OPEN, ALLOWED]);
        tokio::time::advance(OPEN).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_namespace_cannot_keep_the_circuit_open_for_all() {
    let (host, _) = host();
    fail(&host, 7);
    failed(&host, of(8, repository(4)));
    tokio::time::advance(OPEN).await;
    for (round, expected) in [(0, CIRCUIT_OPEN), (1, PROBE)] {
        let asked = of(7, repository(40 + round));
        let slot = probe(&host, asked);
        assert_eq!(host.permission(of(9, repository(50))), CIRCUIT_OPEN, "one probe at a time");
        assert_eq!(probe_failed(&host, asked, slot), Some(Instant::now() + OPEN));
        let both = [7, 9].map(|namespace| host.permission(of(namespace, repository(50))));
        assert_eq!(both, [CIRCUIT_OPEN, expected]);
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
    assert_eq!([tag(1), tag(2)].map(|tag| host.permission(tag)), [ALLOWED; 2]);
    for image in 1..=3 {
        failed(&host, tag(image));
    }
    let others = [tag(9), of(8, tag(9)), of(7, repository(2))].map(|tag| host.permission(tag));
    assert_eq!(others, [CIRCUIT_OPEN, ALLOWED, ALLOWED]);
    assert!(!open(&metrics));
    tokio::time::advance(OPEN).await;
    let _both = [tag(1), tag(9)].map(|tag| probe(&host, tag));
    assert_eq!(host.permission(tag(10)), CIRCUIT_OPEN);
    host.answered(tag(9));
    assert_eq!(host.permission(tag(10)), ALLOWED);
}

#[tokio::test]
async fn a_host_is_known_by_a_manifest_until_it_times_out_or_its_circuit_opens() {
    let (host, _) = host();
    host.answered(ANONYMOUS);
    assert!(!host.is_known(), "a refusal is not enough");
    host.served(ANONYMOUS, None);
    failed(&host, ANONYMOUS);
    host.failed(of_pod("a"), None, true, || None);
    fail(&host, 0);
    assert!(host.is_known(), "a status, a credential of a Pod, or one namespace say little");
    failed(&host, of(1, repository(4)));
    assert!(!host.is_known(), "the circuit is open for all");
    host.served(ANONYMOUS, None);
    host.failed(ANONYMOUS, None, true, || None);
    assert!(!host.is_known());
}

#[tokio::test(start_paused = true)]
async fn pauses_and_remembers_who_has_no_head() {
    let (host, _) = host();
    host.pause(ANONYMOUS, Duration::from_secs(7));
    host.note_headless();
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
        assert_eq!((host.permission(a), failed(&host, a)), (ALLOWED, None));
    }
    assert_eq!([a, b, ANONYMOUS].map(|id| host.permission(id)), [ALLOWED; 3]);
    assert!(!open(&metrics));
    assert!(host.is_silent(a) && !host.is_silent(b), "it has not answered since");
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
