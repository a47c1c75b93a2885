//! A replica's part in managed certificates: it reads one Secret, and serves what is in it.
//!
//! The Secret is read again and again, by a `get` of its name, which is all that this takes. What cannot be used, or is worse
//! than what is served, changes nothing.

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio::time::sleep;

use super::objects::{CA, CERTIFICATE, KEY, Secret};
use super::plan::{BACKDATE, Time};
use super::{ManagedMetrics, ManagedSettings, Operation};
use crate::tls::validity::Validity;
use crate::tls::{ServingCertificate, pair, seconds};
use tolerarch_kubernetes::cluster::{Cluster, ClusterError};
use tolerarch_support::health::State;
use tolerarch_support::logging::date;

pub struct SecretWatch {
    pub(super) cluster: Cluster,
    settings: ManagedSettings,
    served: ServingCertificate,
    metrics: ManagedMetrics,
    /// What failed at the last look, in words.
    pub(super) failing: Option<String>,
}

/// Why nothing new is served.
#[derive(Debug, thiserror::Error)]
enum WatchError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("the Secret of tls.servingSecret has no certificate that can be served")]
    Content,
}

impl SecretWatch {
    /// Does nothing before [`SecretWatch::run`].
    pub fn new(
        cluster: Cluster,
        settings: ManagedSettings,
        served: ServingCertificate,
        metrics: ManagedMetrics,
    ) -> Self {
        Self { cluster, settings, served, metrics, failing: None }
    }

    pub async fn run(&mut self) {
        loop {
            self.look().await;
            let expires = self.served.current().map(|(_, validity)| validity.end);
            let pause = self.settings.lifetimes.pause(expires, self.served.told(None));
            // Replicas do not all look at the same time.
            sleep(pause.mul_f64(0.8 + 0.4 * fastrand::f64())).await;
        }
    }

    pub(super) async fn look(&mut self) {
        let error = match self.read().await {
            Ok(()) => {
                if self.failing.take().is_some() {
                    self.served.0.renewal.set(State::Healthy);
                    tracing::info!("the serving certificate is read again");
                }
                return;
            }
            Err(error) => error,
        };
        let is_new = self.failing.replace(error.to_string()).as_deref() != Some(&*error.to_string());
        let is_missing = matches!(error, WatchError::Content | WatchError::Cluster(ClusterError::NotFound));
        if is_missing && self.served.current().is_none() {
            if is_new {
                tracing::info!("waiting for the serving certificate, which `tolerarch certificates` issues");
            }
            return;
        }
        self.metrics.failed(Operation::READ_SECRET);
        if is_new {
            let missing = matches!(error, WatchError::Cluster(ClusterError::Forbidden));
            let missing = missing.then_some("get on the Secret of tls.servingSecret");
            tracing::error!(%error, missing, "the serving certificate cannot be read; the one in use goes on");
            self.served.0.renewal.set(State::Degraded("its Secret cannot be read; the one in use goes on"));
        }
    }

    async fn read(&mut self) -> Result<(), WatchError> {
        let answer = Secret::read(&self.cluster, &self.settings.serving_secret).await?;
        let now = self.served.told(answer.date);
        self.serve(&answer.object, now).ok_or(WatchError::Content)
    }

    /// Serves what is in the Secret, unless that is worse than what is served.
    fn serve(&self, secret: &Secret, now: Time) -> Option<()> {
        let (pair, validity) = pair(secret.value(CERTIFICATE), secret.value(KEY), None).ok()?;
        if let Some((current, old)) = self.served.current()
            && (current.cert == pair.cert || !is_better(validity, old, now))
        {
            return Some(());
        }
        let ca = CertificateDer::from_pem_slice(secret.value(CA)).ok();
        let ca = ca.and_then(|ca| Validity::of(&ca, None));
        self.metrics.ca_expiry.set(ca.map_or(0, |ca| seconds(ca.end)));
        // The issuer writes what API servers trust by then.
        self.served.replace(pair, validity);
        tracing::info!(expires = date(seconds(validity.end)), "serving a new certificate");
        Some(())
    }
}

/// Whether to serve this one in place of the other: that cannot be used, or this can and is not from before, as what was put
/// back from a backup. Where the API server's clock was set back, a new one seems older by that, or the other one was issued
/// in what is now the future.
pub(super) fn is_better(new: Validity, old: Validity, now: Time) -> bool {
    let is_from_before = new.begin + BACKDATE < old.begin && old.begin + BACKDATE <= now;
    old.invalid(now).is_some() || (new.invalid(now).is_none() && !is_from_before)
}
