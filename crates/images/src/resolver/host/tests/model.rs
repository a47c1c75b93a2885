//! Random orders of what three namespaces meet at one registry, against a count of failures of each: none is refused
//! because of the others, and each that is has one probe at a time; and against the times for which it has been silent.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A lookup of this namespace begins, if it may, and queries the registry at once or later.
    Begins(usize, bool),
    /// The oldest lookup of this namespace sends a request.
    Asks(usize),
    /// The oldest lookup of this namespace ends.
    Ends(usize, End),
    Second,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Failed,
    TargetFailed,
    Answered,
    Found,
    NotSent,
    /// Given up without a result.
    Dropped,
}

fn step() -> impl Strategy<Value = Step> {
    let end = prop_oneof![
        8 => Just(End::Failed),
        1 => Just(End::TargetFailed),
        1 => Just(End::Answered),
        1 => Just(End::Found),
        1 => Just(End::NotSent),
        1 => Just(End::Dropped),
    ];
    prop_oneof![
        5 => (0..3usize, any::<bool>()).prop_map(|(namespace, asks)| Step::Begins(namespace, asks)),
        5 => (0..3usize).prop_map(Step::Asks),
        5 => (0..3usize, end).prop_map(|(namespace, end)| Step::Ends(namespace, end)),
        2 => Just(Step::Second),
    ]
}

impl End {
    fn ending(self) -> Ending {
        match self {
            Self::Failed => FAULT,
            Self::TargetFailed => TARGET_FAULT,
            Self::Answered => Ending::Failed(FailureClass::Unclear),
            Self::Found => Ending::Found,
            Self::NotSent | Self::Dropped => Ending::Failed(FailureClass::NotSent),
        }
    }
}

/// Expected state of one namespace.
#[derive(Default)]
struct Expected {
    running: VecDeque<Running>,
    /// Times of the failures since the registry last answered anyone.
    failed: Vec<Instant>,
}

struct Running {
    attempt: Attempt,
    has_queried: bool,
    /// Whether the registry has answered anyone since this lookup began.
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
            .any(|running| running.attempt.is_probe() && !running.is_outdated);
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

/// Namespaces without an answer, and the time since which they have had none.
#[derive(Default)]
struct Silence(Vec<(usize, Instant)>);

impl Silence {
    fn asks(&mut self, namespace: usize, now: Instant) {
        let is_silent = self.0.iter().any(|(silent, _)| *silent == namespace);
        if !is_silent && self.0.len() < SILENT {
            self.0.push((namespace, now));
        }
    }

    fn abandons(&mut self, namespace: usize) {
        self.0.retain(|(silent, _)| *silent != namespace);
    }

    fn patience(&self, namespace: usize, now: Instant) -> Duration {
        let is_late = |since: Instant, time| now - since >= time;
        let all = |time| {
            self.0
                .iter()
                .filter(|(_, since)| is_late(*since, time))
                .count()
                == SILENT
        };
        let own = self.0.iter().find(|(silent, _)| *silent == namespace);
        if all(LONG_SILENCE) {
            PROBE_PATIENCE
        } else if all(PATIENCE) || own.is_some_and(|(_, since)| is_late(*since, PATIENCE)) {
            PATIENCE
        } else {
            Duration::MAX
        }
    }
}

async fn run(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let (host, _) = host();
    let mut all: [Expected; 3] = Default::default();
    let mut silence = Silence::default();
    for (number, step) in steps.iter().enumerate() {
        let now = Instant::now();
        // Each lookup is of a new repository.
        let new = repository(number as u64);
        for namespace in 0..3 {
            let patience = host.patience(of(namespace as u64, new));
            prop_assert_eq!(patience, silence.patience(namespace, now), "{}", number);
        }
        match *step {
            Step::Second => tokio::time::advance(Duration::from_secs(1)).await,
            Step::Begins(namespace, asks) => {
                let entered = host.enter(of(namespace as u64, new));
                let is_probe = entered.as_ref().map(Attempt::is_probe);
                let is_probe = is_probe.map_err(|error| *error);
                prop_assert_eq!(is_probe, all[namespace].next(now), "{} {:?}", number, step);
                if let Ok(mut attempt) = entered {
                    if asks {
                        attempt.begin_query();
                        silence.asks(namespace, now);
                    }
                    all[namespace].running.push_back(Running {
                        attempt,
                        has_queried: asks,
                        is_outdated: false,
                    });
                }
            }
            Step::Asks(namespace) => {
                if let Some(running) = all[namespace].running.front_mut() {
                    running.attempt.begin_query();
                    running.has_queried = true;
                    silence.asks(namespace, now);
                }
            }
            Step::Ends(namespace, end) => {
                let Some(ended) = all[namespace].running.pop_front() else {
                    continue;
                };
                let attempt = ended.attempt;
                match end {
                    End::Dropped => {
                        if ended.has_queried {
                            silence.abandons(namespace);
                        }
                    }
                    // A lookup that has not queried the registry says nothing about it.
                    _ if !ended.has_queried => attempt.finish(end.ending()),
                    End::Failed => {
                        // Lookups that began before the circuit opened do not keep it open.
                        if attempt.is_probe() || all[namespace].failed.len() < FAILURES {
                            all[namespace].failed.push(now);
                        }
                        attempt.finish(end.ending());
                    }
                    End::TargetFailed => {
                        all.iter_mut().for_each(Expected::registry_answered);
                        attempt.finish(end.ending());
                    }
                    End::Answered | End::Found => {
                        all.iter_mut().for_each(Expected::registry_answered);
                        silence = Silence::default();
                        attempt.finish(end.ending());
                    }
                    End::NotSent => {
                        silence.abandons(namespace);
                        attempt.finish(end.ending());
                    }
                }
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn namespace_is_refused_for_its_own_failures_only(
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        runtime.unwrap().block_on(run(steps))?;
    }
}
