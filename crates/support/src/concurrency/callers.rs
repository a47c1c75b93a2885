//! On whose behalf work is done.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};

use crate::sync::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Callers of one piece of work that are kept: those beyond wait as long as these do.
pub(super) const CALLERS: usize = 16;
/// Of one namespace, so that none fills them all: eight namespaces at least have a caller each.
pub(super) const CALLERS_OF_NAMESPACE: usize = 2;

/// Whose share of the permits applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tenant<'n> {
    Namespace(&'n str),
    /// A command of the operator, or the program itself: no tenant's share applies.
    Operator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// `None` for the operator.
    pub(super) namespace: Option<Arc<str>>,
    pub(super) review: u64,
}

/// Those that wait for one piece of work, which runs as soon as a share permits: joining is never slower than queueing.
#[derive(Clone)]
pub struct Callers(Arc<CallerList>);

struct CallerList {
    callers: Mutex<Vec<Caller>>,
    joined: Notify,
}

impl Caller {
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    pub fn of(tenant: Tenant<'_>) -> Self {
        static REVIEWS: AtomicU64 = AtomicU64::new(0);
        let review = REVIEWS.fetch_add(1, Ordering::Relaxed);
        match tenant {
            Tenant::Namespace(name) => Self { namespace: Some(name.into()), review },
            Tenant::Operator => Self { namespace: None, review },
        }
    }
}

impl From<Caller> for Callers {
    fn from(first: Caller) -> Self {
        Self::from(vec![first])
    }
}

impl From<Vec<Caller>> for Callers {
    fn from(callers: Vec<Caller>) -> Self {
        Self(Arc::new(CallerList { callers: Mutex::new(callers), joined: Notify::new() }))
    }
}

impl Callers {
    pub fn operator() -> Self {
        Caller::of(Tenant::Operator).into()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<Caller>> {
        self.0.callers.lock()
    }

    /// The same callers at this time, for work that others may join.
    pub fn fork(&self) -> Self {
        self.lock().clone().into()
    }

    /// Another caller waits for work that is queued or runs.
    pub fn join(&self, caller: &Caller) {
        if self.add(caller) {
            self.0.joined.notify_waiters();
        }
    }

    /// Joins on behalf of other callers, and of those who join them later. Never ends.
    pub async fn follow(&self, others: &Self) {
        loop {
            let joined = others.joined();
            let others = others.lock().clone();
            others.iter().for_each(|caller| self.join(caller));
            joined.await;
        }
    }

    /// Completes when another caller has joined since this was called.
    pub(super) fn joined(&self) -> Notified<'_> {
        self.0.joined.notified()
    }

    /// Whether these are the callers of the same piece of work.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Adds a caller, if its namespace has not enough of them. If there is no room, it replaces one whose namespace has
    /// another; never the first, which has the place in the queue. Whether it was added.
    pub(super) fn add(&self, caller: &Caller) -> bool {
        let mut callers = self.lock();
        let of_same = |caller: &Caller, among: &[Caller]| {
            among.iter().filter(|other| other.namespace == caller.namespace).count()
        };
        let same = of_same(caller, &callers);
        if same >= CALLERS_OF_NAMESPACE || callers.contains(caller) {
            return false;
        }
        if callers.len() < CALLERS {
            callers.push(caller.clone());
            return true;
        }
        let replaceable = |place: &usize| same == 0 && of_same(&callers[*place], &callers) > 1;
        let Some(place) = (1..CALLERS).rev().find(replaceable) else { return false };
        callers[place] = caller.clone();
        true
    }
}
