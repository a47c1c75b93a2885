//! The Lease in the cluster, which one task renews, and leadership, for which the loops wait.
//!
//! The protocol is client-go's (`leaderelection.go`). Clocks of replicas are never compared. A candidate waits for the
//! duration of the Lease, by its own clock, after it has last seen the Lease change. A leader stops a shorter time
//! after the beginning of its last renewal. So the former leader has stopped before the next one begins, however their
//! clocks differ.

use std::future::pending;
use std::sync::Arc;

use prometheus::IntGauge;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Duration, Instant, sleep, timeout, timeout_at};

use super::ControllerMetrics;
use tolerarch_kubernetes::cluster::{
    Cluster, ClusterError, Lease, LeaseSpec, MicroTime, OwnedName, micro_time,
};
use tolerarch_support::health::Reported;

/// Duration of the Lease after each renewal, in seconds, for which candidates wait.
const LEASE: i32 = 15;
/// Time for which a leader acts without a renewal.
const RENEW: Duration = Duration::from_secs(10);
/// Time between renewals of the leader, and minimum time between reads of candidates.
const RETRY: Duration = Duration::from_secs(2);
/// Timeout of reading and renewing the Lease, as in client-go.
const ATTEMPT: Duration = Duration::from_secs(RENEW.as_secs() / 2);
const UNREAD: &str = "its Lease cannot be read or written";

pub struct Elector {
    cluster: Arc<Cluster>,
    lease: OwnedName,
    election: Election,
    leads: IntGauge,
    /// Degraded if the Lease cannot be read or written.
    pub state: Reported,
    failing: Option<ClusterError>,
}

/// Leadership of this replica; clones share it.
#[derive(Clone)]
pub struct Leadership(watch::Receiver<Instant>);

impl Elector {
    /// Makes an elector. The identity must be unique: neither another replica may have it, nor this one after a
    /// restart.
    pub fn new(
        cluster: Arc<Cluster>,
        lease: OwnedName,
        identity: String,
        metrics: &ControllerMetrics,
    ) -> Self {
        Self {
            cluster,
            lease,
            election: Election::new(identity),
            leads: metrics.leads.clone(),
            state: Reported::default(),
            failing: None,
        }
    }

    pub fn leadership(&self) -> Leadership {
        Leadership(self.election.until.subscribe())
    }

    /// Releases the Lease if this replica holds it, so that another one leads at once. Must be awaited after all loops
    /// have ended. The release is tried once: if it fails, the other replicas wait until the Lease ends.
    pub fn resignation(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let cluster = Arc::clone(&self.cluster);
        let lease = self.lease.clone();
        let identity = self.election.identity.clone();
        async move {
            let released = timeout(ATTEMPT, release(&cluster, &lease, &identity)).await;
            match released.unwrap_or(Err(ClusterError::Timeout)) {
                Ok(()) => tracing::info!("the Lease is released"),
                Err(error) => {
                    tracing::warn!(%error, "the Lease cannot be released; another replica leads when it ends");
                }
            }
        }
    }

    pub async fn run(&mut self) {
        let leadership = self.leadership();
        let leads = self.leads.clone();
        let report = async {
            loop {
                let leading = async {
                    leads.set(1);
                    tracing::info!("leading");
                    pending::<()>().await;
                };
                leadership.lead(leading).await;
                leads.set(0);
                tracing::warn!("not leading any more");
            }
        };
        let elect = async {
            loop {
                self.attempt().await;
                sleep(self.election.pause(Instant::now())).await;
            }
        };
        // Neither future ends.
        tokio::join!(report, elect);
    }

    async fn attempt(&mut self) {
        let renewed = timeout(ATTEMPT, self.renew()).await;
        let failing = match renewed.unwrap_or(Err(ClusterError::Timeout)) {
            // In a conflict, another replica has written the Lease first.
            Ok(()) | Err(ClusterError::Conflict) => None,
            Err(error) => Some(error),
        };
        if failing == self.failing {
            return;
        }
        self.failing = failing;
        self.state.set_fault(UNREAD, failing.is_some());
        match failing {
            Some(error) => tracing::error!(lease = self.lease.name.as_str(), %error, "{UNREAD}"),
            None => tracing::info!("the Lease can be read and written again"),
        }
    }

    async fn renew(&mut self) -> Result<(), ClusterError> {
        let stored: Lease = self.lease.read(&self.cluster).await?;
        let begun = Instant::now();
        let spec = stored.spec.clone().unwrap_or_default();
        let Some(desired) = self.election.observe(spec, begun, micro_time()) else {
            return Ok(());
        };
        let patch = json!({"spec": desired});
        self.lease.write(&self.cluster, &stored, patch).await?;
        self.election.renewed(begun);
        Ok(())
    }
}

/// Releases the Lease if this replica holds it.
async fn release(cluster: &Cluster, lease: &OwnedName, identity: &str) -> Result<(), ClusterError> {
    let stored: Lease = lease.read(cluster).await?;
    let spec = stored.spec.as_ref();
    if spec.and_then(|spec| spec.holder_identity.as_deref()) != Some(identity) {
        return Ok(());
    }
    let patch = json!({"spec": released(&micro_time())});
    lease.write(cluster, &stored, patch).await
}

/// The protocol without I/O.
struct Election {
    identity: String,
    /// Content of the Lease when it was last read, and the time at which it was first read with this content.
    observed: Option<(LeaseSpec, Instant)>,
    /// Time until which this replica leads; a past time if the replica does not lead.
    until: watch::Sender<Instant>,
}

impl Election {
    fn new(identity: String) -> Self {
        Self {
            identity,
            observed: None,
            until: watch::Sender::new(Instant::now()),
        }
    }

    /// Records the Lease's content. Returns the content to write, with this time, if this replica may lead.
    #[warn(clippy::arithmetic_side_effects)]
    fn observe(&mut self, lease: LeaseSpec, now: Instant, time: MicroTime) -> Option<LeaseSpec> {
        let since = match &self.observed {
            Some((observed, since)) if *observed == lease => *since,
            _ => now,
        };
        self.observed = Some((lease.clone(), since));
        let holder = lease.holder_identity.as_deref().unwrap_or_default();
        let is_holder = holder == self.identity;
        if !is_holder {
            self.until.send_replace(now);
            let seconds = lease.lease_duration_seconds.unwrap_or_default();
            let duration = Duration::from_secs(seconds.try_into().unwrap_or_default());
            if !holder.is_empty() && now.duration_since(since) < duration {
                return None;
            }
        }
        let acquired = match lease.acquire_time {
            Some(acquired) if is_holder => acquired,
            _ => time.clone(),
        };
        let transitions = lease.lease_transitions.unwrap_or_default();
        Some(LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: Some(LEASE),
            lease_transitions: Some(transitions.saturating_add(i32::from(!is_holder))),
            acquire_time: Some(acquired),
            renew_time: Some(time),
            ..lease
        })
    }

    /// Records that the Lease was written, by a request that began at this time.
    fn renewed(&mut self, begun: Instant) {
        self.until.send_replace(begun + RENEW);
    }

    /// Returns the pause before the Lease is read again. It is random for candidates, so that they do not all read at
    /// once.
    fn pause(&self, now: Instant) -> Duration {
        let leads = now < *self.until.borrow();
        if leads {
            RETRY
        } else {
            RETRY.mul_f64(1.0 + 1.2 * fastrand::f64())
        }
    }
}

/// Returns the change of a Lease by which its holder releases it at this time.
fn released(time: &MicroTime) -> Value {
    json!({"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": time, "renewTime": time})
}

impl Leadership {
    /// Returns whether this replica leads at present. Checked before each change, as the process may have been
    /// suspended.
    pub fn holds(&self) -> bool {
        Instant::now() < *self.0.borrow()
    }

    /// Runs `work` once this replica leads, until the work ends or the replica stops leading.
    pub(super) async fn lead(&self, work: impl Future<Output = ()>) {
        let mut until = self.0.clone();
        let leads = |until: &Instant| Instant::now() < *until;
        let has_elector = until.wait_for(leads).await.is_ok();
        if !has_elector {
            // Without an elector, this replica never leads.
            return pending().await;
        }
        let lost = async {
            loop {
                let end = *until.borrow_and_update();
                // A change is a renewal, or a loss, after which the time has passed. Without an elector there is
                // neither.
                let changed = async {
                    if until.changed().await.is_err() {
                        pending::<()>().await;
                    }
                };
                if timeout_at(end, changed).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            biased;
            () = lost => {}
            () = work => {}
        }
    }
}

#[cfg(test)]
mod tests;
