//! A limit for servers that registries name, as the target of a redirect or as their token server. A tenant with a
//! registry chooses these servers. So each of them gets no more requests at a time than a registry gets by its images: in
//! all, and on behalf of one namespace.
//!
//! A permit is held for one request, and never while another permit is waited for.

use std::sync::Arc;

use tokio::task_local;
use tokio::time::{Duration, timeout};
use url::Url;

use super::authority::name;
use crate::registry::error::Error;
use tolerarch_support::concurrency::{Capacity, ConcurrencyLimit, Permit, QUEUE, Tenant};

/// Maximum number of requests that a lookup sends at a time: entries of an index, each on a connection.
pub(crate) const PARTS: usize = 4;
/// Maximum time to wait for a permit. A Pod of another namespace that has joined the lookup has time left for one of its own
/// (`lookup.budget`).
const WAIT: Duration = Duration::from_secs(1);

task_local! {
    /// Tenant on whose behalf the lookup of this task is done.
    static TENANT: Tenant;
}

/// Does a lookup on behalf of this tenant.
pub(crate) async fn on_behalf_of<T>(tenant: &Tenant, lookup: impl Future<Output = T>) -> T {
    TENANT.scope(tenant.clone(), lookup).await
}

/// Limit of requests to named servers. Clones share it.
#[derive(Clone)]
pub(crate) struct NamedServers(Arc<ConcurrencyLimit>);

impl NamedServers {
    /// Makes a limit for so many lookups in all, and so many at one registry: a lookup has up to four requests.
    pub(crate) fn new(lookups: usize, per_registry: usize) -> Self {
        let all = lookups * PARTS;
        let capacity = Capacity {
            all,
            per_host: per_registry * PARTS,
            waiting: all * QUEUE,
        };
        Self(Arc::new(ConcurrencyLimit::new(capacity)))
    }

    /// Waits for the permit of one request to the server of this URL.
    pub(super) async fn permit(&self, url: &Url) -> Result<Permit, Error> {
        let tenant = TENANT.try_with(Clone::clone).unwrap_or(Tenant::Operator);
        // Whatever the port, and however the name is written, it is the same server that has the load.
        let host = name(url).trim_end_matches('.');
        let queued = self.0.queue(&tenant, host).ok_or(Error::Crowded)?;
        timeout(WAIT, queued).await.map_err(|_| Error::Crowded)
    }

    /// Returns whether a request waits for its permit.
    #[cfg(test)]
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.0.has_spare("unused.test")
    }
}
