use super::*;
use crate::metrics::Metrics;

const ANONYMOUS: Asker = Asker { access: CredentialId::ANONYMOUS, of_pod: false };

fn of_pod(name: &str) -> Asker {
    Asker { access: CredentialId::of(&[name]), of_pod: true }
}

fn host() -> (Arc<Host>, Metrics) {
    let metrics = Metrics::new(["a.test"]).unwrap();
    (Hosts::new(2, ResolverMetrics::register(&metrics).unwrap()).get("a.test"), metrics)
}

fn open(metrics: &Metrics) -> bool {
    metrics.render().unwrap().contains(r#"tolerarch_registry_circuit_open{registry="a.test"} 1"#)
}

#[tokio::test(start_paused = true)]
async fn opens_after_faults_in_a_row_and_lets_one_probe_decide() {
    let (host, metrics) = host();
    for _ in 1..FAULTS {
        host.failed(ANONYMOUS, false);
    }
    host.answered(ANONYMOUS);
    for _ in 1..FAULTS {
        host.failed(ANONYMOUS, false);
    }
    assert_eq!((host.enter(ANONYMOUS, 9), open(&metrics)), (Gate::Open, false));
    host.landed(false);
    host.failed(ANONYMOUS, false);
    assert_eq!((host.enter(ANONYMOUS, 9), open(&metrics)), (Gate::Broken, true));
    assert_eq!(host.gate(ANONYMOUS), Gate::Broken);

    tokio::time::advance(OPEN).await;
    assert_eq!([host.enter(ANONYMOUS, 9), host.enter(ANONYMOUS, 9)], [Gate::Probe, Gate::Broken]);
    assert_eq!(host.failed(ANONYMOUS, false), None, "a straggler");
    assert_eq!(host.failed(ANONYMOUS, true), Some(Instant::now() + OPEN));
    host.landed(true);
    assert_eq!(host.enter(ANONYMOUS, 9), Gate::Broken);
    tokio::time::advance(OPEN).await;
    assert_eq!(host.enter(ANONYMOUS, 9), Gate::Probe);
    host.answered(ANONYMOUS);
    host.landed(true);
    assert_eq!((host.enter(ANONYMOUS, 9), open(&metrics)), (Gate::Open, false));
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_ends_without_an_answer_frees_the_way_for_another() {
    let (host, _) = host();
    for _ in 0..FAULTS {
        host.failed(ANONYMOUS, false);
    }
    tokio::time::advance(OPEN).await;
    assert_eq!(host.enter(ANONYMOUS, 9), Gate::Probe);
    host.landed(true);
    assert_eq!(host.enter(ANONYMOUS, 9), Gate::Probe);
}

#[tokio::test(start_paused = true)]
async fn pauses_and_remembers_who_has_no_head() {
    let (host, _) = host();
    host.pause(ANONYMOUS, Duration::from_secs(7));
    host.note_headless();
    assert_eq!((host.enter(ANONYMOUS, 9), host.answers_head()), (Gate::Paused, false));
    tokio::time::advance(Duration::from_secs(7)).await;
    assert_eq!((host.enter(ANONYMOUS, 9), host.answers_head()), (Gate::Open, false));
    tokio::time::advance(HEADLESS).await;
    assert!(host.answers_head());
}

#[tokio::test(start_paused = true)]
async fn pauses_whom_it_asks_only() {
    let (host, _) = host();
    let [a, b] = ["a", "b"].map(of_pod);
    host.pause(a, Duration::from_secs(9));
    host.pause(a, Duration::from_secs(2));
    assert_eq!([a, b, ANONYMOUS].map(|id| host.gate(id)), [Gate::Paused, Gate::Open, Gate::Open]);
    tokio::time::advance(Duration::from_secs(8)).await;
    assert_eq!(host.gate(a), Gate::Paused, "the longer one counts");
    host.pause(a, Duration::from_secs(3600));
    for number in 0..2 * ACCOUNTS {
        host.pause(of_pod(&number.to_string()), Duration::from_secs(9));
    }
    assert_eq!((host.gate(a), host.state().accounts.len()), (Gate::Paused, ACCOUNTS), "the shortest go");
    host.pause(ANONYMOUS, Duration::from_secs(1));
    assert_eq!(host.gate(ANONYMOUS), Gate::Paused, "however many there are");
}

#[tokio::test(start_paused = true)]
async fn a_pods_own_credential_opens_no_circuit_for_others() {
    let (host, metrics) = host();
    let [a, b] = ["a", "b"].map(of_pod);
    for _ in 1..FAULTS {
        host.failed(a, false);
    }
    host.answered(a);
    for _ in 0..FAULTS {
        assert_eq!((host.gate(a), host.failed(a, false)), (Gate::Open, None));
    }
    assert_eq!([a, b, ANONYMOUS].map(|id| host.gate(id)), [Gate::Broken, Gate::Open, Gate::Open]);
    assert!(!open(&metrics));
    tokio::time::advance(OPEN).await;
    assert_eq!(host.gate(a), Gate::Open);
    host.failed(a, false);
    assert_eq!(host.gate(a), Gate::Broken, "it has not answered since");
}

#[tokio::test]
async fn a_full_queue_turns_others_away() {
    let (host, _) = host();
    assert_eq!(
        [host.enter(ANONYMOUS, 2), host.enter(ANONYMOUS, 2), host.enter(ANONYMOUS, 2)],
        [Gate::Open, Gate::Open, Gate::Full]
    );
    host.landed(false);
    assert_eq!(host.enter(ANONYMOUS, 2), Gate::Open);
}

#[tokio::test]
async fn a_host_that_is_forgotten_takes_its_open_circuit_along() {
    let (host, metrics) = host();
    for _ in 0..FAULTS {
        host.failed(ANONYMOUS, false);
    }
    assert!(open(&metrics));
    drop(host);
    assert!(!open(&metrics));
}
