//! The circuit breaker of one registry. Failures count by repository: one bad image fails alone, and only several
//! repositories that fail without any answer in between open the circuit for all of them.
//!
//! Half-open, one image of a repository that has not failed decides, or the last image that gave a good answer; one that
//! fails again keeps no other from being tried.

use tokio::time::{Duration, Instant};

use super::lookup::Lookup;
use crate::metrics::Counted;

/// Failures in a row that rest a repository, and repositories in a row that open the circuit.
pub(super) const FAILURES: usize = 3;
/// How long a circuit stays open before it is half-open. With [`PROBE_TIME`] below ten seconds, so that a registry that
/// works again is in use within that time.
pub(super) const OPEN: Duration = Duration::from_secs(5);
/// How long a probe may take.
pub(super) const PROBE_TIME: Duration = Duration::from_secs(3);
/// Probes in a row without a Pod that asks: ten minutes. After that the next Pod brings one.
const PROBES: u32 = 120;
/// Failing repositories that are remembered; the one that failed longest ago makes room.
const REPOSITORIES: usize = 32;

/// A repository within its registry, by a keyed hash of its name.
pub(super) type Repository = u64;

#[derive(Default)]
pub(super) struct Circuit {
    failing: Vec<Failing>,
    open: Option<Open>,
    /// The last lookup with a good answer that needed no credential of a Pod.
    good: Option<Lookup>,
}

struct Failing {
    repository: Repository,
    /// In a row.
    failures: usize,
    /// Whether the registry has not answered anything since.
    counts: bool,
    last: Instant,
    probing: bool,
}

struct Open {
    until: Instant,
    /// Probes in flight: of a repository that fails, and of another one.
    suspect: bool,
    other: bool,
    /// Probes that are still made although no Pod asks.
    probes: u32,
    /// The first image of another repository that was refused meanwhile.
    refused: Option<Lookup>,
    _metric: Counted,
}

/// Whether the circuit lets a lookup pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Closed,
    Open,
    /// It passes as the probe, if it takes this slot.
    HalfOpen(Slot),
}

/// The slot of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
    /// For one repository.
    Repository,
    /// For the registry, by a repository that fails.
    Suspect,
    /// For the registry, by another one.
    Other,
}

/// What a failure changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    None,
    /// The circuit opened; the next probe is due at this time.
    Opened(Instant),
    /// The probe failed; the next one is due at this time, unless no Pod has asked for long.
    StillOpen(Option<Instant>),
}

impl Circuit {
    /// Whether a lookup may pass right now.
    pub(super) fn state(&self, repository: Repository) -> State {
        let failing = self.failing(repository);
        match &self.open {
            Some(open) if Instant::now() < open.until => State::Open,
            Some(open) => match failing {
                Some(_) if open.suspect || open.other => State::Open,
                Some(_) => State::HalfOpen(Slot::Suspect),
                None if open.other => State::Open,
                None => State::HalfOpen(Slot::Other),
            },
            None => match failing {
                Some(failing) if failing.failures < FAILURES => State::Closed,
                Some(failing) if failing.probing || failing.last.elapsed() < OPEN => State::Open,
                Some(_) => State::HalfOpen(Slot::Repository),
                None => State::Closed,
            },
        }
    }

    pub(super) fn take(&mut self, slot: Slot, repository: Repository) {
        self.set(slot, repository, true);
    }

    /// The probe has ended, with or without a result.
    pub(super) fn release(&mut self, slot: Slot, repository: Repository) {
        self.set(slot, repository, false);
    }

    /// A Pod was refused: the registry is still in use.
    pub(super) fn refused(&mut self, repository: Repository, lookup: impl FnOnce() -> Option<Lookup>) {
        let is_suspect = self.failing(repository).is_some();
        let Some(open) = &mut self.open else { return };
        open.probes = PROBES;
        if open.refused.is_none() && !is_suspect {
            open.refused = lookup();
        }
    }

    /// The registry answered, be it with a refusal. Whether that closed the circuit.
    pub(super) fn answered(&mut self, repository: Repository) -> bool {
        self.failing.retain(|failing| failing.repository != repository);
        self.failing.iter_mut().for_each(|failing| failing.counts = false);
        self.open.take().is_some()
    }

    /// This lookup had a good answer.
    pub(super) fn good(&mut self, lookup: Lookup) {
        self.good = Some(lookup);
    }

    /// The image by which to find out whether the registry works again: one that has worked, or one that was asked for.
    pub(super) fn probe(&mut self) -> Option<Lookup> {
        let refused = self.open.as_mut().and_then(|open| open.refused.take());
        self.good.clone().or(refused)
    }

    /// A lookup failed by a fault of the registry.
    pub(super) fn failed(
        &mut self,
        repository: Repository,
        slot: Option<Slot>,
        metric: impl FnOnce() -> Counted,
    ) -> Change {
        let now = Instant::now();
        let failing = self.failing_mut(repository);
        failing.failures += 1;
        failing.counts = true;
        failing.last = now;
        let until = now + OPEN;
        if let Some(open) = &mut self.open {
            // Lookups that began before the circuit opened do not keep it open.
            if !matches!(slot, Some(Slot::Suspect | Slot::Other)) {
                return Change::None;
            }
            open.until = until;
            open.probes = open.probes.saturating_sub(1);
            return Change::StillOpen((open.probes > 0).then_some(until));
        }
        if self.failing.iter().filter(|failing| failing.counts).count() < FAILURES {
            return Change::None;
        }
        // An image that has worked tells at once whether the registry itself fails.
        let until = if self.good.is_some() { now } else { until };
        let (suspect, other, refused) = (false, false, None);
        self.open = Some(Open { until, suspect, other, probes: PROBES, refused, _metric: metric() });
        Change::Opened(until)
    }

    fn failing(&self, repository: Repository) -> Option<&Failing> {
        self.failing.iter().find(|failing| failing.repository == repository)
    }

    fn failing_mut(&mut self, repository: Repository) -> &mut Failing {
        let place = self.failing.iter().position(|failing| failing.repository == repository);
        let place = place.unwrap_or_else(|| {
            let fresh =
                Failing { repository, failures: 0, counts: true, last: Instant::now(), probing: false };
            if self.failing.len() < REPOSITORIES {
                self.failing.push(fresh);
                return self.failing.len() - 1;
            }
            let oldest = (0..self.failing.len()).min_by_key(|place| self.failing[*place].last);
            let oldest = oldest.unwrap_or_default();
            self.failing[oldest] = fresh;
            oldest
        });
        &mut self.failing[place]
    }

    fn set(&mut self, slot: Slot, repository: Repository, taken: bool) {
        match (slot, &mut self.open) {
            (Slot::Repository, _) => {
                if let Some(failing) = self.failing.iter_mut().find(|own| own.repository == repository) {
                    failing.probing = taken;
                }
            }
            (Slot::Suspect, Some(open)) => open.suspect = taken,
            (Slot::Other, Some(open)) => open.other = taken,
            (Slot::Suspect | Slot::Other, None) => {}
        }
    }
}
