//! Random orders of what three namespaces meet at one registry, against a count of failures of each: none is refused
//! because of the others, and each that is has one probe at a time.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A lookup of this namespace begins, if it may.
    Begins(usize),
    /// The oldest lookup of this namespace ends.
    Ends(usize, End),
    Second,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Failed,
    TargetFailed,
    Answered,
    /// Given up without a result.
    Dropped,
}

fn step() -> impl Strategy<Value = Step> {
    let end = prop_oneof![
        8 => Just(End::Failed),
        1 => Just(End::TargetFailed),
        1 => Just(End::Answered),
        1 => Just(End::Dropped),
    ];
    prop_oneof![
        5 => (0..3usize).prop_map(Step::Begins),
        5 => (0..3usize, end).prop_map(|(namespace, end)| Step::Ends(namespace, end)),
        2 => Just(Step::Second),
    ]
}

/// What is known of one namespace.
#[derive(Default)]
struct Expected {
    running: VecDeque<Running>,
    /// Times of the failures since the registry last answered anyone.
    failed: Vec<Instant>,
}

struct Running {
    access: Access,
    probe: Option<Probe>,
    /// Whether the registry has answered anyone since it began.
    is_outdated: bool,
}

impl Expected {
    /// Returns whether the next lookup is a probe, or the reason why there is none.
    fn next(&self, now: Instant) -> Result<bool, LookupError> {
        if self.failed.len() < FAILURES {
            return Ok(false);
        }
        let last = self.failed.last().copied().unwrap();
        let is_probed = self
            .running
            .iter()
            .any(|running| running.probe.is_some() && !running.is_outdated);
        if now < last + OPEN || is_probed {
            return Err(LookupError::CircuitOpen);
        }
        Ok(true)
    }

    fn registry_answered(&mut self) {
        self.failed.clear();
        for running in &mut self.running {
            running.is_outdated = true;
        }
    }
}

async fn run(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let (host, _) = host();
    let mut all: [Expected; 3] = Default::default();
    for (number, step) in steps.iter().enumerate() {
        let now = Instant::now();
        match *step {
            Step::Second => tokio::time::advance(Duration::from_secs(1)).await,
            Step::Begins(namespace) => {
                // Each lookup is of a new repository.
                let access = of(namespace as u64, repository(number as u64));
                let entered = host.enter(access);
                let is_probe = entered
                    .as_ref()
                    .map(Option::is_some)
                    .map_err(|error| *error);
                prop_assert_eq!(is_probe, all[namespace].next(now), "{} {:?}", number, step);
                if let Ok(probe) = entered {
                    all[namespace].running.push_back(Running {
                        access,
                        probe,
                        is_outdated: false,
                    });
                }
            }
            Step::Ends(namespace, end) => {
                let Some(ended) = all[namespace].running.pop_front() else {
                    continue;
                };
                let Running { access, probe, .. } = ended;
                let is_probe = probe.is_some();
                match end {
                    End::Failed => {
                        // Lookups that began before the circuit opened do not keep it open.
                        if is_probe || all[namespace].failed.len() < FAILURES {
                            all[namespace].failed.push(now);
                        }
                        host.failed(access, FaultScope::Registry, is_probe);
                    }
                    End::TargetFailed => {
                        all.iter_mut().for_each(Expected::registry_answered);
                        host.failed(access, FaultScope::Repository, is_probe);
                    }
                    End::Answered => {
                        all.iter_mut().for_each(Expected::registry_answered);
                        host.answered(access);
                    }
                    End::Dropped => drop(probe),
                }
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn each_namespace_is_refused_because_of_its_own_failures_only(
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(run(steps))?;
    }
}
