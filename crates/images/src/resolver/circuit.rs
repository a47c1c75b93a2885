//! The circuit breaker of one registry, on three levels: an image, a repository, the registry. One bad image fails alone;
//! a repository opens after failures of several images, the registry after failures of several repositories, without any
//! answer in between.
//!
//! Pods name the images, so what fails may be of one tenant's making. Failures of one namespace open a circuit for that
//! namespace only; it opens for all when another namespace fails, too. For that an image that has worked for another
//! namespace is asked for at once.
//!
//! Half-open, one image that has not failed is let through, and beside it one that has. A failed probe keeps the circuit
//! open for all, but not twice in a row for the same namespace: then the others probe for themselves.

use tokio::time::{Duration, Instant};

use super::request::{Access, Probe};
use tolerarch_support::metrics::Counted;

/// Failures in a row that open the circuit of an image; images of a repository; repositories of a registry.
pub(super) const FAILURES: usize = 3;
/// How long a circuit stays open before it is half-open: a registry that works again is in use within that time, and the
/// controller has repaired what waited for it within 5 s. With [`PROBE_TIME`] below ten seconds, for one that hangs.
pub(super) const OPEN: Duration = Duration::from_secs(3);
/// How long a probe may take.
pub(super) const PROBE_TIME: Duration = Duration::from_secs(3);
/// Probes in a row without a Pod that asks: ten minutes. After that the next Pod brings one.
const PROBES: u32 = 200;
/// Failing images of one registry that are kept; the one that failed longest ago makes room. At most 4 KiB for each
/// registry, 16 MiB for all that are kept.
const FAILING: usize = 32;
/// Open repositories of one registry that are kept: as many as [`FAILING`] images can open.
const REPOSITORIES: usize = FAILING / FAILURES;
/// Namespaces of which the last image that worked is kept.
const GOOD: usize = 2;

#[derive(Default)]
pub(super) struct Circuit {
    failing: Vec<Failing>,
    repositories: Vec<(u64, Open)>,
    registry: Option<OpenRegistry>,
    /// The last lookups with a good answer, of different namespaces; the next probe first.
    good: Vec<Probe>,
}

/// What a circuit is for, the smallest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scope {
    Image,
    Repository,
    Registry,
}

/// An image that fails; with a credential of a Pod, which may be the cause, apart from others.
struct Failing {
    access: Access,
    /// Whether it has failed for another namespace, too.
    shared: bool,
    /// In a row.
    failures: usize,
    /// The largest scope without any answer since.
    silent: Scope,
    last: Instant,
    probing: bool,
}

struct Open {
    /// The namespace that it is open for; `None` for all.
    only: Option<u64>,
    until: Instant,
    /// The namespace whose probe failed last, and until when it gets no other.
    last: Option<(u64, Instant)>,
    /// Probes in flight: by something that fails, and by something else.
    suspect: bool,
    other: bool,
}

struct OpenRegistry {
    open: Open,
    /// Probes that are still made although no Pod asks.
    probes: u32,
    /// The first image of a repository that does not fail that was refused meanwhile.
    refused: Option<Probe>,
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
pub(super) struct Slot {
    pub(super) scope: Scope,
    /// Whether it probes by something that fails.
    pub(super) suspect: bool,
}

/// What a failure changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    None,
    /// The registry's circuit opened, for all or for one namespace; the next probe is due at this time.
    Opened {
        due: Instant,
        for_all: bool,
    },
    /// The probe failed; the next one is due at this time, unless no Pod has asked for long.
    StillOpen(Option<Instant>),
}

impl Circuit {
    /// Whether a lookup may pass right now.
    pub(super) fn state(&self, access: Access) -> State {
        if let Some(registry) = &self.registry
            && let Some(state) = registry.open.state(access.namespace, self.slot(Scope::Registry, access))
        {
            return state;
        }
        if let Some((_, open)) = self.repositories.iter().find(|(own, _)| *own == access.repository)
            && let Some(state) = open.state(access.namespace, self.slot(Scope::Repository, access))
        {
            return state;
        }
        match self.failing.iter().find(|failing| failing.is_of(access)) {
            Some(failing) if failing.failures < FAILURES => State::Closed,
            Some(failing) if failing.probing || failing.last.elapsed() < OPEN => State::Open,
            Some(_) => State::HalfOpen(self.slot(Scope::Image, access)),
            None => State::Closed,
        }
    }

    /// Whether the image failed when it was last looked up.
    pub(super) fn fails(&self, access: Access) -> bool {
        self.failing.iter().any(|failing| failing.is_of(access))
    }

    pub(super) fn take(&mut self, slot: Slot, access: Access) {
        self.set(slot, access, true);
    }

    /// The probe has ended, with or without a result.
    pub(super) fn release(&mut self, slot: Slot, access: Access) {
        self.set(slot, access, false);
    }

    /// A Pod was refused: the registry is still in use.
    pub(super) fn refused(&mut self, access: Access, probe: impl FnOnce() -> Option<Probe>) {
        let is_suspect = self.slot(Scope::Registry, access).suspect;
        let Some(registry) = &mut self.registry else { return };
        registry.probes = PROBES;
        if registry.refused.is_none() && !is_suspect {
            registry.refused = probe();
        }
    }

    /// The registry answered, be it with a refusal. Whether that closed its circuit.
    pub(super) fn answered(&mut self, access: Access) -> bool {
        self.failing.retain(|failing| !failing.is_of(access));
        for failing in &mut self.failing {
            let same = failing.access.repository == access.repository;
            failing.silent = failing.silent.min(if same { Scope::Image } else { Scope::Repository });
        }
        self.repositories.retain(|(own, _)| *own != access.repository);
        self.registry.take().is_some()
    }

    /// This lookup had a good answer.
    pub(super) fn good(&mut self, probe: Probe) {
        let same = self.good.iter().position(|good| good.access.namespace == probe.access.namespace);
        match same.or((self.good.len() == GOOD).then_some(0)) {
            Some(place) => self.good[place] = probe,
            None => self.good.push(probe),
        }
    }

    /// Takes the slot for a probe that no Pod asked for, if one is due: by an image that has worked, for a namespace that
    /// the circuit is not open for if there is one; by one that was asked for since; or by the one that failed.
    pub(super) fn begin_probe(&mut self, failed: Option<Probe>) -> Option<(Probe, Slot)> {
        let OpenRegistry { open, refused, .. } = self.registry.as_ref()?;
        let good = self.good.iter().position(|good| Some(good.access.namespace) != open.only);
        let good = good.or((!self.good.is_empty()).then_some(0));
        let probe = good.map(|place| &self.good[place]).or(refused.as_ref()).or(failed.as_ref())?.clone();
        let slot = self.slot(Scope::Registry, probe.access);
        if Instant::now() < open.until || open.is_busy(slot) {
            return None;
        }
        match good {
            // The next probe is another namespace's.
            Some(place) => self.good[place..].rotate_left(1),
            None => self.registry.iter_mut().for_each(|registry| registry.refused = None),
        }
        self.take(slot, probe.access);
        Some((probe, slot))
    }

    /// A lookup failed by a fault of the registry.
    pub(super) fn failed(
        &mut self,
        access: Access,
        slot: Option<Slot>,
        metric: impl FnOnce() -> Counted,
    ) -> Change {
        let now = Instant::now();
        self.record(access, now);
        let probed = slot.map(|slot| slot.scope);
        self.repository_failed(access, probed == Some(Scope::Repository), now);
        // An image that has worked shows at once whether the registry itself fails.
        let due = if self.good.is_empty() { now + OPEN } else { now };
        match (self.verdict(Scope::Registry, access), &mut self.registry) {
            (verdict, Some(OpenRegistry { open, probes, .. })) => {
                let widened = open.widen(verdict);
                // Lookups that began before the circuit opened do not keep it open.
                if probed == Some(Scope::Registry) {
                    let due = open.probe_failed(access.namespace, now);
                    *probes = probes.saturating_sub(1);
                    return Change::StillOpen((*probes > 0).then_some(due));
                }
                if widened {
                    Change::Opened { due: due.max(open.until), for_all: true }
                } else {
                    Change::None
                }
            }
            (Some(only), registry @ None) => {
                let open = Open::new(only, due);
                *registry = Some(OpenRegistry { open, probes: PROBES, refused: None, _metric: metric() });
                Change::Opened { due, for_all: only.is_none() }
            }
            (None, None) => Change::None,
        }
    }

    fn repository_failed(&mut self, access: Access, is_probe: bool, now: Instant) {
        let verdict = self.verdict(Scope::Repository, access);
        if let Some((_, open)) = self.repositories.iter_mut().find(|(own, _)| *own == access.repository) {
            open.widen(verdict);
            if is_probe {
                open.probe_failed(access.namespace, now);
            }
        } else if let Some(only) = verdict {
            if self.repositories.len() == REPOSITORIES {
                self.repositories.remove(0);
            }
            self.repositories.push((access.repository, Open::new(only, now + OPEN)));
        }
    }

    fn record(&mut self, access: Access, now: Instant) {
        let place = self.failing.iter().position(|failing| failing.is_of(access)).unwrap_or_else(|| {
            let fresh = Failing {
                access,
                shared: false,
                failures: 0,
                silent: Scope::Registry,
                last: now,
                probing: false,
            };
            if self.failing.len() < FAILING {
                self.failing.push(fresh);
                return self.failing.len() - 1;
            }
            let oldest = (0..self.failing.len()).min_by_key(|place| self.failing[*place].last);
            let oldest = oldest.unwrap_or_default();
            self.failing[oldest] = fresh;
            oldest
        });
        let failing = &mut self.failing[place];
        failing.failures += 1;
        failing.silent = Scope::Registry;
        failing.last = now;
        failing.shared |= failing.access.namespace != access.namespace;
    }

    /// Whether the failures open a repository or the registry, and if so, for one namespace or for all (`None`).
    fn verdict(&self, scope: Scope, access: Access) -> Option<Option<u64>> {
        let within = |failing: &&Failing| {
            let inside = scope == Scope::Registry || failing.access.repository == access.repository;
            inside && failing.silent >= scope
        };
        let part = |failing: &Failing| match scope {
            Scope::Registry => failing.access.repository,
            Scope::Image | Scope::Repository => failing.access.image,
        };
        let mut parts: Vec<u64> = self.failing.iter().filter(within).map(part).collect();
        parts.sort_unstable();
        parts.dedup();
        let own = |failing: &Failing| !failing.shared && failing.access.namespace == access.namespace;
        let alone = self.failing.iter().filter(within).all(own);
        (parts.len() >= FAILURES).then_some(alone.then_some(access.namespace))
    }

    fn slot(&self, scope: Scope, access: Access) -> Slot {
        let suspect = self.failing.iter().any(|failing| match scope {
            Scope::Registry => failing.access.repository == access.repository,
            Scope::Image | Scope::Repository => failing.access.image == access.image,
        });
        Slot { scope, suspect }
    }

    fn set(&mut self, slot: Slot, access: Access, taken: bool) {
        let open = match slot.scope {
            Scope::Image => {
                let failing = self.failing.iter_mut().find(|failing| failing.is_of(access));
                failing.into_iter().for_each(|failing| failing.probing = taken);
                return;
            }
            Scope::Repository => {
                let mut all = self.repositories.iter_mut();
                all.find(|(own, _)| *own == access.repository).map(|(_, open)| open)
            }
            Scope::Registry => self.registry.as_mut().map(|registry| &mut registry.open),
        };
        let Some(open) = open else { return };
        *(if slot.suspect { &mut open.suspect } else { &mut open.other }) = taken;
    }
}

impl Failing {
    fn is_of(&self, access: Access) -> bool {
        let alike = self.access.credential == access.credential || !(self.access.of_pod || access.of_pod);
        self.access.image == access.image && alike
    }
}

impl Open {
    fn new(only: Option<u64>, until: Instant) -> Self {
        Self { only, until, last: None, suspect: false, other: false }
    }

    /// What it is to a lookup of this namespace; `None` if it is not open for it.
    fn state(&self, namespace: u64, slot: Slot) -> Option<State> {
        let now = Instant::now();
        let rests = self.last.is_some_and(|(last, until)| last == namespace && now < until);
        match self.only {
            Some(only) if only != namespace => None,
            _ if now < self.until || rests || self.is_busy(slot) => Some(State::Open),
            _ => Some(State::HalfOpen(slot)),
        }
    }

    fn is_busy(&self, slot: Slot) -> bool {
        self.other || slot.suspect && self.suspect
    }

    /// Opens it for all if that is the verdict by now. Whether that is new.
    fn widen(&mut self, verdict: Option<Option<u64>>) -> bool {
        let widened = self.only.is_some() && verdict.is_some_and(|only| only != self.only);
        if widened {
            self.only = None;
        }
        widened
    }

    /// When the next probe is due.
    fn probe_failed(&mut self, namespace: u64, now: Instant) -> Instant {
        let due = now + OPEN;
        if self.last.is_none_or(|(last, _)| last != namespace) {
            self.until = due;
        }
        self.last = Some((namespace, due));
        due
    }
}
