//! A concurrency limit that tenants share: for lookups of images, runs of credential programs, reads of Secrets and changes
//! of Pods.
//!
//! Work takes four permits in this order: its namespace's at the host, its namespace's, the host's, and a permit of the
//! total. So no work holds a shared permit while it waits for its tenant's. Each kind is granted in the order of requests.
//! The last quarter of a host's permits, and of the total, is for namespaces without other work there. So others get a
//! permit even if the work of some namespaces takes long.
//!
//! With the defaults (`lookup.concurrency` 64, `lookup.perRegistry` 16), for at most `lookup.timeout`:
//!
//! | | runs | waits |
//! |---|---|---|
//! | in total | 64, of the last 16 one for each namespace | 512 |
//! | at one host | 16, of the last 4 one for each namespace | |
//! | for one namespace | 24 | 128 |
//! | for one namespace at one host | 8 | |
//!
//! One namespace leaves five eighths of the total and half of a host to the others. Two that flood a host leave two of its
//! permits, and three that flood all hosts leave thirteen. For the operator, only the limits of a host and of the total
//! apply.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::task::unconstrained;

use crate::sync::Mutex;

/// Default number of places in the queue for each permit.
pub const QUEUE: usize = 8;

/// The party on whose behalf work is done.
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

/// The limits for all tenants together. The limits for one namespace follow from them.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    pub all: usize,
    pub per_host: usize,
    /// Number of places in the queue. One namespace can have a quarter of them.
    pub waiting: usize,
}

pub struct ConcurrencyLimit {
    capacity: Capacity,
    /// Semaphores by names of namespaces and hosts, which are untrusted input. Unused ones are removed before the map
    /// grows.
    shares: Mutex<HashMap<Scope, Weak<Semaphore>>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Scope {
    NamespaceAtHost(Arc<str>, Arc<str>),
    Namespace(Arc<str>),
    Host(Arc<str>),
    All,
    /// The first work of a namespace at a host, which may use the last quarter.
    FirstAtHost(Arc<str>, Arc<str>),
    /// The first work of a namespace in total, which may use the last quarter.
    First(Arc<str>),
    /// All work at a host except for the first of each namespace.
    FurtherAtHost(Arc<str>),
    /// All work in total except for the first of each namespace.
    Further,
    WaitingOfNamespace(Arc<str>),
    Waiting,
}

/// A place in the queue, which waits for a permit. Work that drops the future leaves the queue.
pub type Queued = BoxFuture<'static, Permit>;

/// The right to run, until it is dropped.
pub struct Permit(#[expect(dead_code, reason = "held")] Vec<OwnedSemaphorePermit>);

/// One of the permits that work takes one after the other.
enum Step {
    One(Arc<Semaphore>),
    /// The permit of the namespace's first work, or one for further work, whichever is free first.
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

    /// Returns the permit of this work, or a place in the queue; `None` if the queue has no place left for the tenant.
    pub fn queue(&self, tenant: &Tenant, host: &str) -> Option<Queued> {
        let steps = self.steps(tenant, host.into());
        // The steps are taken one after the other. No semaphore is ever closed.
        let held = stream::iter(steps).filter_map(|step| step.take().map(Result::ok));
        let mut permit = held.collect().map(Permit).boxed();
        // Polled outside of tokio's coop budget, so that work never takes a place in the queue if its permits are free.
        if let Some(permit) = unconstrained(&mut permit).now_or_never() {
            return Some(std::future::ready(permit).boxed());
        }
        let mut places = Vec::with_capacity(2);
        if let Tenant::Namespace(namespace) = tenant {
            let places_of_namespace = Scope::WaitingOfNamespace(Arc::clone(namespace));
            places.push(self.share(places_of_namespace).try_acquire_owned().ok()?);
        }
        places.push(self.share(Scope::Waiting).try_acquire_owned().ok()?);
        let queued = async move {
            let permit = permit.await;
            drop(places);
            permit
        };
        Some(queued.boxed())
    }

    /// Returns the permits that work takes, in their order.
    fn steps(&self, tenant: &Tenant, host: Arc<str>) -> Vec<Step> {
        let mut steps = Vec::with_capacity(6);
        let Tenant::Namespace(namespace) = tenant else {
            steps.push(Step::One(self.share(Scope::Host(host))));
            steps.push(Step::One(self.share(Scope::All)));
            return steps;
        };
        let namespace = || Arc::clone(namespace);
        let at_host = Scope::NamespaceAtHost(namespace(), Arc::clone(&host));
        steps.push(Step::One(self.share(at_host)));
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
        steps.push(Step::One(self.share(Scope::All)));
        steps
    }

    /// Returns whether no work waits, and more than half of all permits and of the host's are free.
    pub fn has_spare(&self, host: &str) -> bool {
        let Capacity {
            all,
            per_host,
            waiting,
        } = self.capacity;
        let free = |scope| self.share(scope).available_permits();
        if free(Scope::Waiting) < waiting {
            return false;
        }
        free(Scope::All) * 2 > all && free(Scope::Host(host.into())) * 2 > per_host
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
        let permits = match scope {
            Scope::NamespaceAtHost(..) => per_host.div_ceil(2),
            Scope::Namespace(_) => (all * 3).div_ceil(8),
            Scope::Host(_) => per_host,
            Scope::All => all,
            Scope::FirstAtHost(..) | Scope::First(_) => 1,
            Scope::FurtherAtHost(_) => per_host - per_host / 4,
            Scope::Further => all - all / 4,
            Scope::WaitingOfNamespace(_) => waiting.div_ceil(4),
            Scope::Waiting => waiting,
        };
        let share = Arc::new(Semaphore::new(permits));
        shares.insert(scope, Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
mod tests;
