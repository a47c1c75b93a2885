//! A concurrency limit that tenants share: for lookups of images, runs of credential programs, reads of Secrets and changes
//! of Pods.
//!
//! Work takes permits in this order: its namespace's at the host, its namespace's, the host's, and one of all. So no work
//! holds a shared permit while it waits for its tenant's. Each of the four is granted in the order of requests. The last
//! quarter of a host's and of all permits is for namespaces that have no other work there: however long the work of some
//! takes, others have their turn.
//!
//! With the defaults (`lookup.concurrency` 64, `lookup.perRegistry` 16) and for `lookup.timeout` at most:
//!
//! | | runs | waits |
//! |---|---|---|
//! | in all | 64, the last 16 one for each namespace | 512 |
//! | at one host | 16, the last 4 one for each namespace | |
//! | for one namespace | 24 | 128 |
//! | for one namespace at one host | 8 | |
//!
//! One namespace leaves five eighths to the others, and half of a host. Two that flood a host at once leave two of its
//! permits, and three that flood all hosts leave thirteen. Only the limits of a host and of all apply to the operator.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::task::unconstrained;

use crate::sync::Mutex;

/// Default number of places in the queue for each permit.
pub const QUEUE: usize = 8;

/// Party on whose behalf work is done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Tenant {
    Namespace(Arc<str>),
    /// A command of the operator, or the program itself: no tenant's share applies.
    Operator,
}

impl Tenant {
    pub fn of(namespace: &str) -> Self {
        Self::Namespace(namespace.into())
    }
}

/// Limits in all, from which those of one namespace follow.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    pub all: usize,
    pub per_host: usize,
    /// Number of places in the queue, a quarter of them for one namespace.
    pub waiting: usize,
}

pub struct ConcurrencyLimit {
    capacity: Capacity,
    /// Semaphores by names of namespaces and hosts, untrusted input: unused ones are removed before the map grows.
    shares: Mutex<HashMap<Scope, Weak<Semaphore>>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Scope {
    NamespaceAtHost(Arc<str>, Arc<str>),
    Namespace(Arc<str>),
    Host(Arc<str>),
    All,
    /// The one work of a namespace that need not leave the last quarter free: at a host, and in all.
    FirstAtHost(Arc<str>, Arc<str>),
    First(Arc<str>),
    /// All work but the first of each namespace: at a host, and in all.
    FurtherAtHost(Arc<str>),
    Further,
    WaitingOfNamespace(Arc<str>),
    Waiting,
}

/// Waits for a permit. Dropping the future gives up the place in the queue.
pub type Queued = BoxFuture<'static, Permit>;

/// The right to run, until it is dropped.
pub struct Permit(#[expect(dead_code, reason = "held")] Vec<OwnedSemaphorePermit>);

/// Permit that work takes before the next one.
enum Step {
    One(Arc<Semaphore>),
    /// That of the namespace's first work, or one of all further work, whichever is free before.
    Either {
        first: Arc<Semaphore>,
        further: Arc<Semaphore>,
    },
}

impl Step {
    async fn take(self) -> Result<OwnedSemaphorePermit, AcquireError> {
        match self {
            Self::One(share) => share.acquire_owned().await,
            Self::Either { first, further } => tokio::select! {
                biased;
                permit = first.acquire_owned() => permit,
                permit = further.acquire_owned() => permit,
            },
        }
    }
}

impl ConcurrencyLimit {
    pub fn new(capacity: Capacity) -> Self {
        Self {
            capacity,
            shares: Mutex::default(),
        }
    }

    /// Returns the permit of this work, or its place in the queue; `None` if the tenant or all together have none left.
    pub fn queue(&self, tenant: &Tenant, host: &str) -> Option<Queued> {
        let host: Arc<str> = host.into();
        let mut steps = Vec::with_capacity(6);
        let mut places = Vec::with_capacity(2);
        if let Tenant::Namespace(namespace) = tenant {
            let namespace = || Arc::clone(namespace);
            steps.push(Step::One(
                self.share(Scope::NamespaceAtHost(namespace(), Arc::clone(&host))),
            ));
            steps.push(Step::One(self.share(Scope::Namespace(namespace()))));
            steps.push(Step::Either {
                first: self.share(Scope::FirstAtHost(namespace(), Arc::clone(&host))),
                further: self.share(Scope::FurtherAtHost(Arc::clone(&host))),
            });
            steps.push(Step::One(self.share(Scope::Host(host))));
            steps.push(Step::Either {
                first: self.share(Scope::First(namespace())),
                further: self.share(Scope::Further),
            });
            places.push(Scope::WaitingOfNamespace(namespace()));
        } else {
            steps.push(Step::One(self.share(Scope::Host(host))));
        }
        steps.push(Step::One(self.share(Scope::All)));
        places.push(Scope::Waiting);
        // One after the other. No semaphore is ever closed.
        let held = stream::iter(steps).filter_map(|step| step.take().map(Result::ok));
        let mut permit = held.collect().map(Permit).boxed();
        // Polled outside of tokio's coop budget, so that work that need not wait never takes a place.
        if let Some(permit) = unconstrained(&mut permit).now_or_never() {
            return Some(std::future::ready(permit).boxed());
        }
        let mut taken = Vec::with_capacity(places.len());
        for scope in places {
            taken.push(self.share(scope).try_acquire_owned().ok()?);
        }
        let queued = async move {
            let permit = permit.await;
            drop(taken);
            permit
        };
        Some(queued.boxed())
    }

    /// Returns whether nothing waits, and more than half of all permits and of the host's are free.
    pub fn has_spare(&self, host: &str) -> bool {
        let Capacity {
            all,
            per_host,
            waiting,
        } = self.capacity;
        let free = |scope| self.share(scope).available_permits();
        free(Scope::Waiting) == waiting
            && free(Scope::All) * 2 > all
            && free(Scope::Host(host.into())) * 2 > per_host
    }

    fn share(&self, scope: Scope) -> Arc<Semaphore> {
        let mut shares = self.shares.lock();
        if let Some(share) = shares.get(&scope).and_then(Weak::upgrade) {
            return share;
        }
        if shares.len() == shares.capacity() {
            shares.retain(|_, share| share.strong_count() > 0);
            let used = shares.len();
            shares.reserve(used + 1);
        }
        let Capacity {
            all,
            per_host,
            waiting,
        } = self.capacity;
        let share = Arc::new(Semaphore::new(match scope {
            Scope::NamespaceAtHost(..) => per_host.div_ceil(2),
            Scope::Namespace(_) => (all * 3).div_ceil(8),
            Scope::Host(_) => per_host,
            Scope::All => all,
            Scope::FirstAtHost(..) | Scope::First(_) => 1,
            Scope::FurtherAtHost(_) => per_host - per_host / 4,
            Scope::Further => all - all / 4,
            Scope::WaitingOfNamespace(_) => waiting.div_ceil(4),
            Scope::Waiting => waiting,
        }));
        shares.insert(scope, Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests;
