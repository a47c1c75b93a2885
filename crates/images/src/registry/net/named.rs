//! Limits the requests to servers that registries name, as the target of a redirect or as their token server. A tenant
//! with a registry of its own chooses these servers. So each of them gets no more concurrent requests than a registry
//! gets for its images: in total, and on behalf of one namespace.
//!
//! A permit is held for one request, and never while the holder waits for another permit.

use std::sync::Arc;

use tokio::task_local;
use tokio::time::{Duration, timeout};
use url::Url;

use super::authority::name;
use crate::registry::error::Error;
use tolerarch_support::concurrency::{Capacity, ConcurrencyLimit, Permit, QUEUE, Tenant};

/// Maximum number of concurrent requests of one lookup: for entries of an index, each on its own connection.
pub(crate) const PARTS: usize = 4;
/// Maximum time to wait for a permit. It leaves a Pod of another namespace that has joined the lookup enough time for a
/// lookup of its own (`lookup.budget`).
const MAX_WAIT: Duration = Duration::from_secs(1);

task_local! {
    /// Tenant for which this task does the lookup.
    static TENANT: Tenant;
}

/// Runs a lookup on behalf of this tenant.
pub(crate) async fn on_behalf_of<T>(tenant: &Tenant, lookup: impl Future<Output = T>) -> T {
    TENANT.scope(tenant.clone(), lookup).await
}

/// Limit on requests to named servers. Clones share the limit.
#[derive(Clone)]
pub(crate) struct NamedServers(Arc<ConcurrencyLimit>);

impl NamedServers {
    /// Makes a limit that suffices for this many lookups in total, and this many at one registry. A lookup has up to
    /// [`PARTS`] requests.
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
        // The limit is for the server, which is the same on each port, and with or without a dot at the name's end.
        let host = name(url).trim_end_matches('.');
        let queued = self.0.queue(&tenant, host).ok_or(Error::Crowded)?;
        timeout(MAX_WAIT, queued).await.map_err(|_| Error::Crowded)
    }

    /// Returns whether a request waits for a permit.
    #[cfg(test)]
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.0.has_spare("unused.test")
    }
}
