//! Certificates that tolerarch issues itself. The [`CertificateIssuer`] keeps a CA in a Secret, writes it into the
//! `caBundle` of the webhooks, and writes the certificate that it signs into a second Secret. [`plan`] decides each
//! step, and this module carries it out. Replicas of the webhook mount the second Secret, and need no right for it.
//!
//! An operation that fails is tried again at the next check. The certificate in use is still served.

mod authority;
mod chain;
mod failure;
mod objects;
mod plan;

use std::time::UNIX_EPOCH;

use tokio::time::{Duration, sleep};

use authority::{Authority, bundle_text, read_bundle, read_leaf};
pub use failure::ManagedMetrics;
use failure::{Cause, Failure, Operation};
use objects::{CA, CERTIFICATE, KEY, Secret, values, write_bundles};
pub use plan::Lifetimes;
use plan::{Der, History, Time, View, Write, plan};

use super::validity::{now, seconds};
use tolerarch_kubernetes::cluster::{
    Cluster, ClusterError, ObjectName, WEBHOOK_CONFIGURATION, WebhookConfiguration,
};
use tolerarch_support::health::{Reported, State};
use tolerarch_support::logging;

/// Maximum number of steps of a check; the very first check takes four.
const STEPS: usize = 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedSettings {
    /// Secret with the CAs, in the namespace of the service account.
    pub secret: ObjectName,
    /// Secret with the serving certificate, in the same namespace.
    pub serving_secret: ObjectName,
    /// MutatingWebhookConfigurations whose webhooks are served.
    pub webhook_configurations: Vec<ObjectName>,
    pub lifetimes: Lifetimes,
}

impl Default for ManagedSettings {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 3600);
        Self {
            secret: ObjectName::new("tolerarch-certificates").unwrap_or_default(),
            serving_secret: ObjectName::new("tolerarch-serving").unwrap_or_default(),
            webhook_configurations: ObjectName::new(WEBHOOK_CONFIGURATION).into_iter().collect(),
            // The issuer may be away for half the life of a leaf.
            lifetimes: Lifetimes {
                ca: 365 * day,
                leaf: 30 * day,
            },
        }
    }
}

/// Issues and renews the CA and the serving certificate, and keeps the `caBundle` in line with them.
pub struct CertificateIssuer {
    cluster: Cluster,
    settings: ManagedSettings,
    metrics: ManagedMetrics,
    pub state: Reported,
    history: History,
    /// Time until the next check.
    pause: Duration,
    /// Failure of the last check.
    failing: Option<String>,
    /// Configuration that was missing at the last check.
    missing_configuration: Option<ObjectName>,
}

impl CertificateIssuer {
    pub fn new(cluster: Cluster, settings: ManagedSettings, metrics: ManagedMetrics) -> Self {
        let pause = settings.lifetimes.pause(None, Time::ZERO);
        Self {
            cluster,
            settings,
            metrics,
            state: Reported::default(),
            history: History::default(),
            pause,
            failing: None,
            missing_configuration: None,
        }
    }

    pub async fn run(&mut self) {
        loop {
            self.check().await;
            // Random, so that two issuers do not check at the same time.
            let factor = 0.8 + 0.4 * fastrand::f64();
            sleep(self.pause.mul_f64(factor)).await;
        }
    }

    /// Makes the changes that are due.
    async fn check(&mut self) {
        for _ in 0..STEPS {
            match self.step().await {
                Ok(true) => {}
                Ok(false) => {
                    if self.failing.take().is_some() {
                        self.state.set(State::Healthy);
                        tracing::info!("the serving certificate is managed again");
                    }
                    return;
                }
                // Another process wrote first, or the Secret was removed: the next step reads the objects again.
                Err(Failure {
                    cause: Cause::Cluster(ClusterError::Conflict) | Cause::Removed,
                    ..
                }) => {}
                Err(failure) => return self.failed(&failure),
            }
        }
    }

    fn failed(&mut self, Failure { operation, cause }: &Failure) {
        let Operation(operation, right) = *operation;
        self.metrics.failures.with_label_values(&[operation]).inc();
        let text = format!("{operation}: {cause}");
        if self.failing.as_ref() != Some(&text) {
            let missing = matches!(cause, Cause::Cluster(ClusterError::Forbidden)).then_some(right);
            tracing::error!(operation, %cause, missing, "the serving certificate cannot be managed; the one in use is still served");
            self.failing = Some(text);
            self.state.set(State::Degraded(
                "they cannot be managed; the one in use is still served",
            ));
        }
    }

    /// Reads the objects and makes at most one change. Returns whether it made a change, after which another may be
    /// due.
    async fn step(&mut self) -> Result<bool, Failure> {
        let configurations = self.read_configurations().await?;
        // The Secrets are read after the webhooks, see `plan`.
        let ManagedSettings {
            secret,
            serving_secret,
            lifetimes,
            ..
        } = &self.settings;
        let Some(secret) = Secret::read(&self.cluster, secret).await? else {
            return Ok(true);
        };
        let Some(serving) = Secret::read(&self.cluster, serving_secret).await? else {
            return Ok(true);
        };
        // The API server's clock, as API servers verify the certificate. The clock of this machine may be wrong, or be
        // set at any time.
        let date = serving
            .date
            .and_then(|date| date.duration_since(UNIX_EPOCH).ok());
        let now = date.unwrap_or_else(now);
        let objects = Objects {
            authorities: secret.object.authorities(),
            secret: secret.object,
            serving: serving.object,
            configurations,
        };
        let view = objects.view(now);
        if view.names.is_empty() {
            return Err(Operation::READ_WEBHOOKS.failed()(Cause::NoWebhook));
        }
        self.history.observe(&view, now);
        let leaf_expiry = view.leaf.as_ref().map(|leaf| leaf.expires);
        self.pause = lifetimes.pause(leaf_expiry, now);
        let ca_expiry = view.cas.first().map_or(0, |ca| seconds(ca.expires));
        self.metrics.ca_expiry.set(ca_expiry);
        match plan(&view, &self.history, now, *lifetimes) {
            Some(write) => self.write(write, &objects, &view.names, now).await,
            None => Ok(false),
        }
    }

    /// Carries out what [`plan`] has decided. Returns whether anything was written.
    async fn write(
        &self,
        write: Write,
        objects: &Objects,
        names: &[String],
        now: Time,
    ) -> Result<bool, Failure> {
        let secret = &self.settings.secret;
        match write {
            Write::NewCa { beside } => {
                let former = beside.and_then(|der| objects.authority(&der));
                self.write_new_ca(former, objects, now).await?;
            }
            Write::OnlyCa(der) => {
                let values = values(objects.authority(&der).as_slice());
                objects.secret.write(&self.cluster, secret, values).await?;
                tracing::info!("removed the former CA of the webhook's certificates");
            }
            Write::Bundles(bundle) => {
                for configuration in &objects.configurations {
                    write_bundles(&self.cluster, configuration, &bundle).await?;
                }
                let certificates = bundle.len();
                tracing::info!(certificates, "wrote the caBundle of the webhooks");
            }
            Write::Leaf(der) => {
                let Some(authority) = objects.authority(&der) else {
                    return Ok(false);
                };
                self.write_leaf(authority, objects, names, now).await?;
            }
        }
        Ok(true)
    }

    /// Writes a new CA, with the former one beside it, if any.
    async fn write_new_ca(
        &self,
        former: Option<&Authority>,
        objects: &Objects,
        now: Time,
    ) -> Result<(), Failure> {
        let ManagedSettings {
            secret, lifetimes, ..
        } = &self.settings;
        let new = Authority::new(now, lifetimes.ca).map_err(Operation::SIGN.failed())?;
        let mut authorities = vec![&new];
        authorities.extend(former);
        let values = values(&authorities);
        objects.secret.write(&self.cluster, secret, values).await?;
        let expires = logging::date(seconds(new.ca.expires));
        tracing::info!(expires, "a new CA for the webhook's certificates");
        Ok(())
    }

    /// Writes a new serving certificate, which this CA signs.
    async fn write_leaf(
        &self,
        authority: &Authority,
        objects: &Objects,
        names: &[String],
        now: Time,
    ) -> Result<(), Failure> {
        let ManagedSettings {
            serving_secret,
            lifetimes,
            ..
        } = &self.settings;
        let signed = authority.sign(names, now, lifetimes.leaf);
        let (certificate, key) = signed.map_err(Operation::SIGN.failed())?;
        let (ca, _) = authority.to_pem();
        let values = vec![
            (CERTIFICATE, Some(certificate)),
            (KEY, Some(key)),
            (CA, Some(ca)),
        ];
        let serving = &objects.serving;
        serving.write(&self.cluster, serving_secret, values).await?;
        let names = names.join(",");
        tracing::info!(names, "issued a new serving certificate");
        Ok(())
    }

    /// Reads the configurations that exist: a missing one must not keep the others from getting a certificate.
    async fn read_configurations(&mut self) -> Result<Vec<WebhookConfiguration>, Failure> {
        let mut configurations = Vec::new();
        let mut missing = None;
        for name in &self.settings.webhook_configurations {
            match WebhookConfiguration::read(&self.cluster, name).await {
                Ok(configuration) => configurations.push(configuration),
                Err(ClusterError::NotFound) => missing = Some(name.clone()),
                Err(error) => return Err(Operation::READ_WEBHOOKS.failed()(error)),
            }
        }
        if configurations.is_empty() && missing.is_some() {
            return Err(Operation::READ_WEBHOOKS.failed()(ClusterError::NotFound));
        }
        if self.missing_configuration != missing {
            if let Some(name) = &missing {
                let name = name.as_str();
                tracing::warn!(
                    name,
                    "a webhook configuration of tls.webhookConfigurations does not exist"
                );
            }
            self.missing_configuration = missing;
        }
        Ok(configurations)
    }
}

/// Objects that a step has read.
struct Objects {
    /// Secret with the CAs.
    secret: Secret,
    /// Usable CAs of that Secret, the newest first.
    authorities: Vec<Authority>,
    /// Secret with the serving certificate.
    serving: Secret,
    configurations: Vec<WebhookConfiguration>,
}

impl Objects {
    fn authority(&self, der: &Der) -> Option<&Authority> {
        self.authorities
            .iter()
            .find(|authority| authority.ca.der == *der)
    }

    fn view(&self, now: Time) -> View {
        let certificate = self.serving.value(CERTIFICATE);
        let key = self.serving.value(KEY);
        let cas = self
            .authorities
            .iter()
            .map(|authority| authority.ca.clone());
        let mut view = View {
            cas: cas.collect(),
            bundles: Vec::new(),
            are_plain: true,
            names: Vec::new(),
            leaf: read_leaf(certificate, key, &self.authorities, now),
        };
        for configuration in &self.configurations {
            for webhook in &configuration.webhooks {
                let bundle = read_bundle(webhook.bundle());
                let text = bundle_text(bundle.iter().map(|ca| &ca.der));
                view.are_plain &= text.as_bytes() == webhook.bundle();
                view.bundles.push(bundle);
                view.names.extend(webhook.server_name());
            }
        }
        view.names.sort();
        view.names.dedup();
        view
    }
}

#[cfg(test)]
mod tests;
