//! A concurrency limit that tenants share: for lookups of images, runs of credential plugins and reads of Secrets.
//!
//! There are three pools of permits: all of them, half of them for hosts that are not known to work, and each host's own.
//! In each pool a namespace gets a permit only while it holds fewer than are free there (a dynamic threshold, Choudhury
//! and Hahne 1998): one namespace gets half of a pool at most, k namespaces at once leave one part in k + 1 free, and a
//! pool of 64 is exhausted only by seven namespaces that flood it one after the other. The same holds for the places in
//! the queue. One review holds an eighth of all permits at most. With the defaults (`lookup.concurrency` 64,
//! `lookup.perRegistry` 16, [`QUEUE`] 8), for `lookup.timeout` at most:
//!
//! | | runs | waits |
//! |---|---|---|
//! | in all | 64 | 512 |
//! | hosts not known to work, together | 32 | 256 |
//! | one host | 16 | 128 |
//! | one namespace (at such hosts; at one host) | 32 (16; 8) | 256 (128; 64) |
//! | one review | 8 | 64, the images of one Pod that are looked up |
//!
//! A permit that becomes free goes to the namespace that holds the fewest, then to its review that holds the fewest, then
//! to the one that has waited longest.

mod callers;

use std::collections::HashMap;
use std::sync::Arc;

use crate::sync::Mutex;
use tokio::sync::oneshot;

pub use callers::Tenant;
pub use callers::{Caller, Callers};

/// Places in the queue for each permit.
pub const QUEUE: usize = 8;
/// One review holds one permit in this many.
const REVIEW: usize = 8;

#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    pub all: usize,
    pub per_host: usize,
}

pub struct ConcurrencyLimit(Mutex<State>);

/// A place in the queue, or a permit already. Given up when it is dropped.
pub struct Queued {
    limit: Arc<ConcurrencyLimit>,
    callers: Callers,
    permit: oneshot::Receiver<Permit>,
}

pub struct Permit {
    limit: Arc<ConcurrencyLimit>,
    share: Share,
}

/// Whose share a permit or a place in the queue belongs to.
#[derive(Clone)]
struct Share {
    caller: Caller,
    host: Arc<str>,
    known: bool,
}

struct State {
    capacity: Capacity,
    all: Pool,
    unknown: Pool,
    hosts: HashMap<Arc<str>, Pool>,
    reviews: HashMap<u64, usize>,
    queue: Vec<Waiting>,
}

struct Waiting {
    callers: Callers,
    /// Of the first caller, which has the place in the queue.
    share: Share,
    grant: oneshot::Sender<Permit>,
}

/// Sent when the state is unlocked, as a permit that is not taken locks it again.
type Granted = (oneshot::Sender<Permit>, Permit);

struct Pool {
    limit: usize,
    running: Load,
    waiting: Load,
}

#[derive(Default)]
struct Load {
    taken: usize,
    of_namespace: HashMap<Arc<str>, usize>,
}

impl ConcurrencyLimit {
    pub fn new(capacity: Capacity) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            capacity,
            all: Pool::new(capacity.all),
            unknown: Pool::new(capacity.all.div_ceil(2)),
            hosts: HashMap::new(),
            reviews: HashMap::new(),
            queue: Vec::new(),
        })))
    }

    /// `known` says whether the host is known to work. `None` if the caller's share of the queue is used up.
    pub fn queue(self: &Arc<Self>, callers: &Callers, host: &str, known: bool) -> Option<Queued> {
        let caller = callers.lock().first()?.clone();
        let share = Share { caller, host: host.into(), known };
        let (grant, permit) = oneshot::channel();
        let mut state = self.0.lock();
        let per_host = state.capacity.per_host;
        state.hosts.entry(Arc::clone(&share.host)).or_insert_with(|| Pool::new(per_host));
        let granted = if state.may_run(&share.caller, &share) {
            Some((grant, state.run(self, share)))
        } else if state.may_wait(&share) {
            state.wait(Waiting { callers: callers.clone(), share, grant });
            None
        } else {
            state.forget(&share.host);
            return None;
        };
        drop(state);
        send(granted);
        Some(Queued { limit: Arc::clone(self), callers: callers.clone(), permit })
    }

    /// Whether nothing waits, and less than half of all permits and of the host's are taken.
    pub fn has_spare(&self, host: &str) -> bool {
        let state = self.0.lock();
        let pools = [&state.all, &state.unknown].into_iter().chain(state.hosts.get(host));
        state.queue.is_empty() && pools.into_iter().all(|pool| pool.running.taken * 2 < pool.limit)
    }

    /// Runs queued work that the share of one of its callers permits by now.
    fn recheck(self: &Arc<Self>, callers: &Callers) {
        let mut state = self.0.lock();
        let free = state.place(callers).and_then(|place| Some((place, state.caller_of(place)?)));
        let granted = free.map(|(place, caller)| state.grant(self, place, caller));
        drop(state);
        send(granted);
    }
}

fn send(granted: impl IntoIterator<Item = Granted>) {
    for (grant, permit) in granted {
        // A permit that is not taken is dropped, and free again.
        drop(grant.send(permit));
    }
}

impl Queued {
    /// Waits for the permit. Never `None`: all that stays in the queue gets one.
    pub async fn permit(mut self) -> Option<Permit> {
        let callers = self.callers.clone();
        loop {
            let joined = callers.joined();
            self.limit.recheck(&callers);
            tokio::select! {
                biased;
                permit = &mut self.permit => return permit.ok(),
                () = joined => {}
            }
        }
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let mut state = self.limit.0.lock();
        if let Some(place) = state.place(&self.callers) {
            let waiting = state.queue.remove(place);
            state.leave(&waiting.share);
            state.forget(&waiting.share.host);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.limit.0.lock();
        state.release(&self.share);
        let mut granted = Vec::new();
        while let Some((place, caller)) = state.next() {
            granted.push(state.grant(&self.limit, place, caller));
        }
        state.forget(&self.share.host);
        drop(state);
        send(granted);
    }
}

impl State {
    /// The pools that a permit is taken from.
    fn pools(&self, share: &Share) -> impl Iterator<Item = &Pool> {
        let unknown = (!share.known).then_some(&self.unknown);
        [&self.all].into_iter().chain(unknown).chain(self.hosts.get(&share.host))
    }

    fn pools_mut(&mut self, share: &Share) -> impl Iterator<Item = &mut Pool> {
        let unknown = (!share.known).then_some(&mut self.unknown);
        [&mut self.all].into_iter().chain(unknown).chain(self.hosts.get_mut(&share.host))
    }

    fn has_share(&self, caller: &Caller) -> bool {
        let per_review = self.capacity.all.div_ceil(REVIEW);
        let of_review = caller.namespace.is_none() || self.of_review(caller.review) < per_review;
        of_review && self.all.running.has_room(caller, self.all.limit)
    }

    fn may_run(&self, caller: &Caller, share: &Share) -> bool {
        self.has_share(caller) && self.pools(share).all(|pool| pool.running.has_room(caller, pool.limit))
    }

    fn may_wait(&self, share: &Share) -> bool {
        self.pools(share).all(|pool| pool.waiting.has_room(&share.caller, pool.limit * QUEUE))
    }

    fn of_review(&self, review: u64) -> usize {
        self.reviews.get(&review).copied().unwrap_or_default()
    }

    fn run(&mut self, limit: &Arc<ConcurrencyLimit>, share: Share) -> Permit {
        self.pools_mut(&share).for_each(|pool| pool.running.take(&share.caller));
        *self.reviews.entry(share.caller.review).or_default() += 1;
        Permit { limit: Arc::clone(limit), share }
    }

    fn release(&mut self, share: &Share) {
        self.pools_mut(share).for_each(|pool| pool.running.give_back(&share.caller));
        let review = share.caller.review;
        match self.of_review(review).saturating_sub(1) {
            0 => drop(self.reviews.remove(&review)),
            left => drop(self.reviews.insert(review, left)),
        }
    }

    fn wait(&mut self, waiting: Waiting) {
        self.pools_mut(&waiting.share).for_each(|pool| pool.waiting.take(&waiting.share.caller));
        self.queue.push(waiting);
    }

    fn leave(&mut self, share: &Share) {
        self.pools_mut(share).for_each(|pool| pool.waiting.give_back(&share.caller));
    }

    /// Gives the work at this place of the queue a permit, by the share of one of its callers.
    fn grant(&mut self, limit: &Arc<ConcurrencyLimit>, place: usize, caller: Caller) -> Granted {
        let waiting = self.queue.remove(place);
        self.leave(&waiting.share);
        (waiting.grant, self.run(limit, Share { caller, ..waiting.share }))
    }

    fn place(&self, callers: &Callers) -> Option<usize> {
        self.queue.iter().position(|waiting| waiting.callers.is(callers))
    }

    /// By whose share the work at this place may run now: of its callers the one that holds the fewest permits.
    fn caller_of(&self, place: usize) -> Option<Caller> {
        let Waiting { callers, share, .. } = self.queue.get(place)?;
        let callers = callers.lock();
        let free = callers.iter().filter(|caller| self.may_run(caller, share));
        free.min_by_key(|caller| self.held(caller)).cloned()
    }

    /// The work that gets a permit now, and the caller by whose share. Runs at every release with the limit locked, so what
    /// holds for a review is found out once for its images, which are beside each other in the queue; and hosts are looked
    /// at only for callers that hold fewer permits than the best so far.
    fn next(&self) -> Option<(usize, Caller)> {
        if self.all.running.taken >= self.all.limit {
            return None;
        }
        let mut best: Option<((usize, usize), usize, Caller)> = None;
        let mut last: Option<(u64, (usize, usize), bool)> = None;
        for (place, waiting) in self.queue.iter().enumerate() {
            for caller in waiting.callers.lock().iter() {
                let known = last.filter(|(review, ..)| *review == caller.review);
                let of_review = || (caller.review, self.held(caller), self.has_share(caller));
                let (_, held, has_share) = *last.insert(known.unwrap_or_else(of_review));
                let is_better = has_share && best.as_ref().is_none_or(|(least, ..)| held < *least);
                if is_better && self.may_run(caller, &waiting.share) {
                    best = Some((held, place, caller.clone()));
                }
            }
            if matches!(best, Some(((0, 0), ..))) {
                break;
            }
        }
        best.map(|(_, place, caller)| (place, caller))
    }

    fn held(&self, caller: &Caller) -> (usize, usize) {
        (self.all.running.of(caller), self.of_review(caller.review))
    }

    /// Drops the pool of a host that has nothing to do.
    fn forget(&mut self, host: &Arc<str>) {
        if self.hosts.get(host).is_some_and(|pool| pool.running.taken + pool.waiting.taken == 0) {
            self.hosts.remove(host);
        }
    }
}

impl Pool {
    fn new(limit: usize) -> Self {
        Self { limit, running: Load::default(), waiting: Load::default() }
    }
}

impl Load {
    fn of(&self, caller: &Caller) -> usize {
        let of_namespace = caller.namespace.as_ref().and_then(|name| self.of_namespace.get(name));
        of_namespace.copied().unwrap_or_default()
    }

    /// The dynamic threshold: the namespace holds fewer than are free.
    fn has_room(&self, caller: &Caller, limit: usize) -> bool {
        let free = limit.saturating_sub(self.taken);
        free > 0 && (caller.namespace.is_none() || self.of(caller) < free)
    }

    fn take(&mut self, caller: &Caller) {
        self.taken += 1;
        if let Some(namespace) = &caller.namespace {
            *self.of_namespace.entry(Arc::clone(namespace)).or_default() += 1;
        }
    }

    fn give_back(&mut self, caller: &Caller) {
        self.taken = self.taken.saturating_sub(1);
        let Some(namespace) = &caller.namespace else { return };
        if let Some(held) = self.of_namespace.get_mut(namespace) {
            *held -= 1;
            if *held == 0 {
                self.of_namespace.remove(namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests;
