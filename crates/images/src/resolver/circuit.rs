//! The circuit breaker of one registry, on two levels: one bad image fails alone; a repository opens after failures of
//! several images, the registry after failures of several repositories, without any answer in between.
//!
//! Pods name the images, so what fails may be of one tenant's making. Failures of one namespace open a circuit for that
//! namespace only; it opens for all when another namespace fails, too. For that an image that has worked for another
//! namespace is asked for at once.
//!
//! Half-open, one image that has not failed is let through, and beside it one that has. A failed probe keeps the circuit
//! open for all, but not twice in a row for the same namespace: then the others probe for themselves.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use tokio::time::{Duration, Instant};

use super::request::{Access, Probe};
use tolerarch_core::image::LookupError;
use tolerarch_support::metrics::Counted;

/// Failures in a row that open a circuit: images of a repository; repositories of a registry.
pub(super) const FAILURES: usize = 3;
/// How long a circuit stays open before it is half-open: a registry that works again is in use within that time, and the
/// controller has repaired what waited for it within 5 s. With [`PROBE_TIME`] below ten seconds, for one that hangs.
pub(super) const OPEN: Duration = Duration::from_secs(3);
/// How long a probe may take.
pub(super) const PROBE_TIME: Duration = Duration::from_secs(3);
/// Probes in a row without a Pod that asks: ten minutes. After that the next Pod brings one.
const PROBES: u32 = 200;
/// Failing images of one registry that are kept, the latest ones: at most 4 KiB each, 16 MiB for all registries.
const FAILING: usize = 32;
/// Open circuits of repositories that are kept: as many as [`FAILING`] images can open.
const REPOSITORIES: usize = FAILING / FAILURES;
/// Namespaces of which the last image that worked is kept.
const GOOD: usize = 2;

#[derive(Default)]
pub(super) struct Circuit {
    /// The one that failed last is the last one.
    failing: Vec<Failing>,
    open: Vec<Open>,
    /// While the registry's own circuit is open.
    registry: Option<OpenRegistry>,
    /// The last lookups with a good answer, of different namespaces; the next probe first.
    good: Vec<Probe>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Repository(u64),
    Registry,
}

/// An image that fails; with a credential of a Pod, which may be the cause, apart from others.
struct Failing {
    access: Access,
    /// Whether it has failed for another namespace, too.
    shared: bool,
    /// Whether there was no answer since, in its repository and in all of the registry.
    repository_silent: bool,
    registry_silent: bool,
}

struct Open {
    scope: Scope,
    /// The namespace that it is open for; `None` for all.
    only: Option<u64>,
    until: Instant,
    /// The namespace whose probe failed last, and until when it gets no other.
    last: Option<(u64, Instant)>,
    /// Probes in flight: by something that fails, and by something else.
    suspect: Weak<Slot>,
    other: Weak<Slot>,
}

struct OpenRegistry {
    /// Probes that are still made although no Pod asks.
    probes: u32,
    /// The next one: the first of a repository that does not fail that was refused meanwhile, or else the last that failed.
    next: Option<Probe>,
    _metric: Counted,
}

/// What makes a lookup the probe of a circuit. No other one is until this is dropped.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Slot(pub(super) Scope);

impl Circuit {
    /// Whether a lookup may begin right now; it is a probe where a circuit is half-open.
    pub(super) fn permission(&self, access: Access) -> Result<Option<Scope>, LookupError> {
        let scopes = [Scope::Registry, Scope::Repository(access.repository)];
        let mut open =
            scopes.into_iter().filter_map(|scope| self.open.iter().find(|open| open.scope == scope));
        match open.find(|open| open.only.is_none_or(|only| only == access.namespace)) {
            Some(open) if open.may_probe(access.namespace, self.is_suspect(open.scope, access)) => {
                Ok(Some(open.scope))
            }
            Some(_) => Err(LookupError::CircuitOpen),
            None => Ok(None),
        }
    }

    /// The same for a lookup that begins.
    pub(super) fn enter(&mut self, access: Access) -> Result<Option<Arc<Slot>>, LookupError> {
        let probed = self.permission(access)?;
        Ok(probed.and_then(|scope| self.take(scope, access)))
    }

    /// Whether the image failed when it was last looked up.
    pub(super) fn fails(&self, access: Access) -> bool {
        self.failing.iter().any(|failing| failing.is_of(access))
    }

    /// Whether the registry's circuit is open, and for which namespace only.
    pub(super) fn open_for(&self) -> Option<Option<u64>> {
        self.open.iter().find(|open| open.scope == Scope::Registry).map(|open| open.only)
    }

    /// A Pod was refused: the registry is still in use.
    pub(super) fn refused(&mut self, access: Access, probe: impl FnOnce() -> Option<Probe>) {
        let is_better = !self.is_suspect(Scope::Registry, access) && !self.has_next();
        let Some(registry) = &mut self.registry else { return };
        registry.probes = PROBES;
        if is_better {
            registry.next = probe().or(registry.next.take());
        }
    }

    /// The registry answered, be it with a refusal. Whether that closed its circuit.
    pub(super) fn answered(&mut self, access: Access) -> bool {
        self.failing.retain(|failing| !failing.is_of(access));
        for failing in &mut self.failing {
            failing.repository_silent &= failing.access.repository != access.repository;
            failing.registry_silent = false;
        }
        let answers = [Scope::Registry, Scope::Repository(access.repository)];
        self.open.retain(|open| !answers.contains(&open.scope));
        self.registry.take().is_some()
    }

    pub(super) fn good(&mut self, probe: Probe) {
        let same = self.good.iter().position(|good| good.access.namespace == probe.access.namespace);
        match same.or((self.good.len() == GOOD).then_some(0)) {
            Some(place) => self.good[place] = probe,
            None => self.good.push(probe),
        }
    }

    /// A probe that no Pod asked for, if one is due: by an image that has worked, for a namespace that the circuit is not
    /// open for if there is one; by one that was asked for since; or by one that failed.
    pub(super) fn begin_probe(&mut self) -> Option<(Probe, Arc<Slot>)> {
        let next = self.registry.as_ref()?.next.as_ref();
        let open = self.open.iter().find(|open| open.scope == Scope::Registry)?;
        let good = self.good.iter().position(|good| Some(good.access.namespace) != open.only);
        let good = good.or((!self.good.is_empty()).then_some(0));
        let probe = good.map(|place| &self.good[place]).or(next)?.clone();
        if Instant::now() < open.until || open.is_busy(self.is_suspect(Scope::Registry, probe.access)) {
            return None;
        }
        // The next probe is another namespace's.
        good.into_iter().for_each(|place| self.good[place..].rotate_left(1));
        let slot = self.take(Scope::Registry, probe.access)?;
        Some((probe, slot))
    }

    /// A fault of the registry; a lookup with a slot was a probe. When the next one is due, unless no Pod has asked for long.
    pub(super) fn failed(
        &mut self,
        access: Access,
        slot: Option<&Slot>,
        probe: impl FnOnce() -> Option<Probe>,
        metric: impl FnOnce() -> Counted,
    ) -> Option<Instant> {
        let now = Instant::now();
        self.record(access);
        self.judge(Scope::Repository(access.repository), access, slot, now + OPEN);
        // An image that has worked shows at once whether the registry itself fails.
        let due = if self.good.is_empty() { now + OPEN } else { now };
        let due = self.judge(Scope::Registry, access, slot, due)?;
        let has_next = self.has_next();
        let fresh = || OpenRegistry { probes: PROBES, next: None, _metric: metric() };
        let registry = self.registry.get_or_insert_with(fresh);
        if !has_next {
            registry.next = probe().or(registry.next.take());
        }
        if slot.is_some_and(|Slot(probed)| *probed == Scope::Registry) {
            registry.probes = registry.probes.saturating_sub(1);
        }
        (registry.probes > 0).then_some(due)
    }

    /// Opens a circuit if failures are enough, or keeps it open. Gives when the next probe is due, if that is new.
    fn judge(
        &mut self,
        scope: Scope,
        access: Access,
        slot: Option<&Slot>,
        until: Instant,
    ) -> Option<Instant> {
        let verdict = self.verdict(scope, access);
        let Some(open) = self.open.iter_mut().find(|open| open.scope == scope) else {
            let only = verdict?;
            if self.open.len() > REPOSITORIES
                && let Some(oldest) = self.open.iter().position(|open| open.scope != Scope::Registry)
            {
                self.open.remove(oldest);
            }
            self.open.push(Open::new(scope, only, until));
            return Some(until);
        };
        let is_wider = open.widen(verdict);
        // Lookups that began before the circuit opened do not keep it open.
        if slot.is_some_and(|Slot(probed)| *probed == scope) {
            return Some(open.probe_failed(access.namespace));
        }
        is_wider.then(|| until.max(open.until))
    }

    fn record(&mut self, access: Access) {
        let known = self.failing.iter().position(|failing| failing.is_of(access));
        let known = known.map(|place| self.failing.remove(place));
        if known.is_none() && self.failing.len() == FAILING {
            self.failing.remove(0);
        }
        let shared = known.is_some_and(|known| known.shared || known.access.namespace != access.namespace);
        self.failing.push(Failing { access, shared, repository_silent: true, registry_silent: true });
    }

    /// Whether the failures open a repository or the registry, and if so, for one namespace or for all (`None`).
    fn verdict(&self, scope: Scope, access: Access) -> Option<Option<u64>> {
        let is_within = |failing: &&Failing| match scope {
            Scope::Registry => failing.registry_silent,
            Scope::Repository(own) => failing.repository_silent && failing.access.repository == own,
        };
        let own = |failing: &Failing| !failing.shared && failing.access.namespace == access.namespace;
        let is_alone = self.failing.iter().filter(is_within).all(own);
        let parts = self.failing.iter().filter(is_within).map(|failing| scope.part(failing.access));
        let parts: HashSet<u64> = parts.collect();
        (parts.len() >= FAILURES).then_some(is_alone.then_some(access.namespace))
    }

    /// Whether the next probe is by something that does not fail.
    fn has_next(&self) -> bool {
        let next = self.registry.as_ref().and_then(|registry| registry.next.as_ref());
        next.is_some_and(|next| !self.is_suspect(Scope::Registry, next.access))
    }

    /// Whether the image itself, or one of its repository, fails.
    fn is_suspect(&self, scope: Scope, access: Access) -> bool {
        self.failing.iter().any(|failing| scope.part(failing.access) == scope.part(access))
    }

    fn take(&mut self, scope: Scope, access: Access) -> Option<Arc<Slot>> {
        let (suspect, slot) = (self.is_suspect(scope, access), Arc::new(Slot(scope)));
        let open = self.open.iter_mut().find(|open| open.scope == scope)?;
        *(if suspect { &mut open.suspect } else { &mut open.other }) = Arc::downgrade(&slot);
        Some(slot)
    }
}

impl Scope {
    /// Of what several have to fail.
    fn part(self, access: Access) -> u64 {
        match self {
            Self::Registry => access.repository,
            Self::Repository(_) => access.image,
        }
    }
}

impl Failing {
    fn is_of(&self, access: Access) -> bool {
        let alike = self.access.credential == access.credential || !(self.access.of_pod || access.of_pod);
        self.access.image == access.image && alike
    }
}

impl Open {
    fn new(scope: Scope, only: Option<u64>, until: Instant) -> Self {
        Self { scope, only, until, last: None, suspect: Weak::new(), other: Weak::new() }
    }

    fn may_probe(&self, namespace: u64, suspect: bool) -> bool {
        let now = Instant::now();
        let rests = self.last.is_some_and(|(last, until)| last == namespace && now < until);
        now >= self.until && !rests && !self.is_busy(suspect)
    }

    fn is_busy(&self, suspect: bool) -> bool {
        let is_taken = |slot: &Weak<Slot>| slot.strong_count() > 0;
        is_taken(&self.other) || suspect && is_taken(&self.suspect)
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
    fn probe_failed(&mut self, namespace: u64) -> Instant {
        let due = Instant::now() + OPEN;
        if self.last.is_none_or(|(last, _)| last != namespace) {
            self.until = due;
        }
        self.last = Some((namespace, due));
        due
    }
}
