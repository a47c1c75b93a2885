use super::*;
use crate::credentials::{CredentialId, CredentialOwner};

const SECOND: Duration = Duration::from_secs(1);

fn access(namespace: u64, repository: u64) -> Access {
    let credential = CredentialId::ANONYMOUS;
    Access {
        image: repository,
        repository,
        namespace,
        credential,
        owner: CredentialOwner::Operator,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A lookup of a new repository fails for this namespace.
    Fails(u64),
    /// The registry redirects such a lookup to a server that fails.
    TargetFails(u64),
    Answered(u64),
    Second,
}

/// Repositories that failed for a namespace since the registry last answered anyone, and the time of the last failure.
#[derive(Clone, Copy, Default)]
struct Expected {
    failures: usize,
    last: Option<Instant>,
}

impl Expected {
    fn open_until(self) -> Option<Instant> {
        if self.failures < FAILURES {
            return None;
        }
        self.last.map(|last| last + OPEN)
    }
}

/// The circuit of each of three namespaces, in all orders of their steps, against a count of its own failures.
#[test]
fn only_own_failures_open_a_namespaces_circuit() {
    const NAMESPACES: u64 = 3;
    let of_all = |step: fn(u64) -> Step| (0..NAMESPACES).map(step);
    let mut steps = vec![Step::Second];
    steps.extend(of_all(Step::Fails));
    steps.extend(of_all(Step::TargetFails));
    steps.extend(of_all(Step::Answered));
    let length = 5;
    let mut opened = 0;
    for order in 0..steps.len().pow(length) {
        let mut now = Instant::now();
        let mut faults = Faults::default();
        let mut expected = [Expected::default(); NAMESPACES as usize];
        let mut shown = Vec::new();
        for place in 0..length {
            let step = steps[order / steps.len().pow(place) % steps.len()];
            shown.push(step);
            match step {
                Step::Fails(namespace) => {
                    faults.add(access(namespace, u64::from(place)), Target::Registry, now);
                    let own = &mut expected[namespace as usize];
                    own.failures += 1;
                    own.last = Some(now);
                }
                Step::TargetFails(namespace) => {
                    faults.registry_answered();
                    faults.add(
                        access(namespace, u64::from(place)),
                        Target::RedirectTarget,
                        now,
                    );
                    expected = [Expected::default(); NAMESPACES as usize];
                }
                Step::Answered(namespace) => {
                    faults.answered(access(namespace, 100));
                    expected = [Expected::default(); NAMESPACES as usize];
                }
                Step::Second => now += SECOND,
            }
            for namespace in 0..NAMESPACES {
                let open_until = faults.open_until(None, namespace);
                assert_eq!(
                    open_until,
                    expected[namespace as usize].open_until(),
                    "{namespace} {shown:?}"
                );
                opened += usize::from(open_until.is_some());
                assert_eq!(
                    faults.open_until(Some(100), namespace),
                    None,
                    "{namespace} {shown:?}"
                );
            }
        }
    }
    assert!(opened > 0);
}

#[test]
fn failing_redirects_open_their_repositorys_circuit() {
    let now = Instant::now();
    let mut faults = Faults::default();
    for image in 0..3 {
        faults.registry_answered();
        faults.add(
            Access {
                image,
                ..access(1, 7)
            },
            Target::RedirectTarget,
            now,
        );
    }
    assert_eq!(faults.open_until(Some(7), 1), Some(now + OPEN));
    assert_eq!(
        [faults.open_until(None, 1), faults.open_until(Some(7), 2)],
        [None, None]
    );
}

#[test]
fn failures_of_one_namespace_evict_no_others() {
    let now = Instant::now();
    let mut faults = Faults::default();
    for repository in 0..3 {
        faults.add(access(1, repository), Target::Registry, now);
    }
    for repository in 0..10_000 {
        faults.add(access(2, repository), Target::Registry, now);
    }
    assert_eq!(faults.0.len(), 3 + FAULTS_OF_NAMESPACE);
    for namespace in 1..3 {
        assert_eq!(
            faults.open_until(None, namespace),
            Some(now + OPEN),
            "{namespace}"
        );
    }
    for namespace in 3..1000 {
        faults.add(access(namespace, 1), Target::Registry, now);
    }
    assert_eq!(faults.0.len(), FAULTS);
    assert!(size_of::<Fault>() <= 80 && size_of::<Fault>() * FAULTS <= 20 << 10);
}
