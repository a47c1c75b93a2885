//! Certificates that the webhook issues itself: a CA in a Secret, a short-lived serving certificate for each replica, and the
//! CA in the `caBundle` of the webhooks. [`plan`] decides; here is what it is decided for: reading, signing, writing.
//!
//! What fails is tried again at the next look. The certificate in use goes on and is renewed from memory, however long
//! the API server is away.

mod authority;
mod metrics;
mod objects;
mod plan;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::{Duration, Instant, sleep};

use super::{ServingCertificate, Validity};
use crate::cluster::{Cluster, ClusterError, ObjectName, WEBHOOK_CONFIGURATION};
use crate::health::State;
use authority::{Authority, BundleCertificate, SignError};
pub use metrics::ManagedMetrics;
use objects::{Configuration, Secret, SecretName};
pub use plan::Lifetimes;
use plan::{History, Leaf, Plan, Time, View, Write, plan};

/// Steps of a look: a replica that starts first of all takes five.
const STEPS: usize = 10;

/// Where the CAs are, and for whom they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedSettings {
    /// The Secret, in the namespace of the service account.
    pub secret: ObjectName,
    /// The MutatingWebhookConfigurations whose webhooks are served.
    pub webhook_configurations: Vec<ObjectName>,
    /// How long certificates live.
    pub lifetimes: Lifetimes,
}

impl Default for ManagedSettings {
    fn default() -> Self {
        let day = Duration::from_secs(24 * 3600);
        Self {
            secret: ObjectName::new("tolerarch-certificates").unwrap_or_default(),
            webhook_configurations: ObjectName::new(WEBHOOK_CONFIGURATION).into_iter().collect(),
            lifetimes: Lifetimes { ca: 365 * day, leaf: day },
        }
    }
}

/// What is done in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    ReadWebhooks,
    ReadSecret,
    CreateSecret,
    WriteSecret,
    WriteWebhooks,
    Sign,
}

impl Operation {
    const ALL: [Self; 6] = [
        Self::ReadWebhooks,
        Self::ReadSecret,
        Self::CreateSecret,
        Self::WriteSecret,
        Self::WriteWebhooks,
        Self::Sign,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::ReadWebhooks => "read-webhooks",
            Self::ReadSecret => "read-secret",
            Self::CreateSecret => "create-secret",
            Self::WriteSecret => "write-secret",
            Self::WriteWebhooks => "write-webhooks",
            Self::Sign => "sign",
        }
    }

    /// What is missing where the API server refuses it.
    const fn right(self) -> &'static str {
        match self {
            Self::ReadWebhooks => "get on the MutatingWebhookConfigurations of tls.webhookConfigurations",
            Self::ReadSecret => "get on the Secret of tls.secret",
            Self::CreateSecret => "create on the Secret of tls.secret, by its name",
            Self::WriteSecret => "patch on the Secret of tls.secret",
            Self::WriteWebhooks => "patch on the MutatingWebhookConfigurations of tls.webhookConfigurations",
            Self::Sign => "none",
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Sign(#[from] SignError),
    #[error("no webhook has a Service or a URL that a certificate could be for")]
    NoWebhook,
}

struct Failure {
    operation: Operation,
    cause: Cause,
}

impl Operation {
    fn failed<E: Into<Cause>>(self) -> impl Fn(E) -> Failure {
        move |cause| Failure { operation: self, cause: cause.into() }
    }
}

/// One replica's part in it.
pub struct ManagedCertificate {
    cluster: Cluster,
    secret: SecretName,
    configurations: Vec<ObjectName>,
    lifetimes: Lifetimes,
    served: ServingCertificate,
    metrics: ManagedMetrics,
    clock: Clock,
    seen: History,
    /// What is served, and what signed it.
    own: Option<(Leaf, Arc<Authority>)>,
    ready: bool,
    /// What failed at the last look, in words.
    failing: Option<String>,
    /// A configuration that was not there at the last look.
    absent: Option<ObjectName>,
}

impl ManagedCertificate {
    /// Does nothing before [`ManagedCertificate::run`].
    pub fn new(
        cluster: Cluster,
        settings: ManagedSettings,
        served: ServingCertificate,
        metrics: ManagedMetrics,
    ) -> Self {
        let secret = SecretName { namespace: cluster.namespace().to_owned(), name: settings.secret };
        Self {
            cluster,
            secret,
            configurations: settings.webhook_configurations,
            lifetimes: settings.lifetimes,
            served,
            metrics,
            clock: Clock::default(),
            seen: History::default(),
            own: None,
            ready: false,
            failing: None,
            absent: None,
        }
    }

    /// Renews the certificate and maintains the CA for ever.
    pub async fn run(&mut self) {
        loop {
            self.look().await;
            let leaf = self.own.as_ref().map(|(leaf, _)| leaf);
            let pause = self.lifetimes.pause(leaf, self.ready, self.clock.now());
            // Replicas do not all look at the same time.
            sleep(pause.mul_f64(0.8 + 0.4 * fastrand::f64())).await;
        }
    }

    /// Does what there is to do.
    async fn look(&mut self) {
        for _ in 0..STEPS {
            match self.step().await {
                Ok(true) => {}
                Ok(false) => {
                    if self.failing.take().is_some() {
                        self.served.0.renewal.set(State::Healthy);
                        tracing::info!("the serving certificate is managed again");
                    }
                    return;
                }
                // Another replica came first: what it wrote is looked at.
                Err(Failure { cause: Cause::Cluster(ClusterError::Conflict), .. }) => {}
                Err(failure) => return self.failed(&failure),
            }
        }
    }

    fn failed(&mut self, failure: &Failure) {
        let Failure { operation, cause } = failure;
        self.metrics.failed(*operation);
        let text = format!("{}: {cause}", operation.as_str());
        if self.failing.as_ref() != Some(&text) {
            let missing = matches!(cause, Cause::Cluster(ClusterError::Forbidden)).then(|| operation.right());
            let operation = operation.as_str();
            tracing::error!(operation, %cause, missing, "the serving certificate cannot be managed; the one in use goes on");
            self.failing = Some(text);
            self.served.0.renewal.set(State::Degraded("it cannot be managed; the one in use goes on"));
        }
        // Without the cluster, so that it does not expire in the meantime.
        let now = self.clock.now();
        if let Some((leaf, authority)) = self.own.clone().filter(|(leaf, _)| leaf.renews_alone(now))
            && let Err(cause) = self.sign(authority, &leaf.names, now)
        {
            tracing::error!(%cause, "the serving certificate cannot be renewed");
        }
    }

    /// One look and at most one change. Tells whether there was one, so that there may be more to do.
    async fn step(&mut self) -> Result<bool, Failure> {
        let configurations = self.read_configurations().await?;
        // After the webhooks, see `plan`.
        let answer = match self.secret.read(&self.cluster).await {
            Err(ClusterError::NotFound) => {
                let created = self.secret.create(&self.cluster).await;
                created.map_err(Operation::CreateSecret.failed())?;
                return Ok(true);
            }
            answer => answer.map_err(Operation::ReadSecret.failed())?,
        };
        let (secret, now) = (answer.object, self.clock.set(answer.date));
        self.served.told(seconds(now));
        let view = view(&configurations, &secret);
        if view.names.is_empty() {
            return Err(Operation::ReadWebhooks.failed()(Cause::NoWebhook));
        }
        self.seen.look(&view, now, self.lifetimes);
        let leaf = self.own.as_ref().map(|(leaf, _)| leaf);
        let Plan { ready, sign, write } = plan(&view, &self.seen, leaf, now, self.lifetimes);
        self.metrics.ca_expires(view.cas.first().map_or(0, |ca| seconds(ca.expires)));
        if ready && !self.ready {
            self.ready = true;
            self.served.trusted();
        }
        let own = self.own.as_ref().map(|(_, authority)| Arc::clone(authority));
        let known = secret.authorities.iter().chain(own.as_ref());
        if let Some(authority) = sign.and_then(|id| known.clone().find(|known| known.ca.id == id)) {
            self.sign(Arc::clone(authority), &view.names, now).map_err(Operation::Sign.failed())?;
        }
        match &write {
            None => {}
            Some(Write::NewCa { beside }) => {
                let new = Authority::new(now, self.lifetimes.ca).map_err(Operation::Sign.failed())?;
                let beside = secret.authorities.iter().find(|known| Some(known.ca.id) == *beside);
                let both: Vec<&Authority> =
                    std::iter::once(&new).chain(beside.map(|known| &**known)).collect();
                self.write_secret(&secret, &both).await?;
                tracing::info!(expires = new.ca.expires.as_secs(), "a new CA for the webhook's certificates");
            }
            Some(Write::OnlyCa(id)) => {
                let only = secret.authorities.iter().find(|known| known.ca.id == *id);
                let only: Vec<&Authority> = only.into_iter().map(|known| &**known).collect();
                self.write_secret(&secret, &only).await?;
                tracing::info!("the former CA of the webhook's certificates is taken away");
            }
            Some(Write::Bundles(ids)) => {
                let cas = known.map(|authority| authority.certificate());
                let others = configurations.iter().flat_map(|known| known.bundles.iter().flatten().cloned());
                let all: Vec<BundleCertificate> = cas.chain(others).collect();
                let of =
                    |id: &plan::Id| all.iter().find(|certificate| certificate.trusted.id == *id).cloned();
                let bundle: Vec<BundleCertificate> = ids.iter().filter_map(of).collect();
                for configuration in &configurations {
                    let written = configuration.write(&self.cluster, &bundle).await;
                    written.map_err(Operation::WriteWebhooks.failed())?;
                }
                tracing::info!(certificates = bundle.len(), "wrote the caBundle of the webhooks");
            }
        }
        Ok(sign.is_some() || write.is_some())
    }

    /// Reads the configurations that exist: a missing one must not keep a replica from getting ready for the others.
    async fn read_configurations(&mut self) -> Result<Vec<Configuration>, Failure> {
        let (mut found, mut absent) = (Vec::new(), None);
        for name in &self.configurations {
            match Configuration::read(&self.cluster, name).await {
                Ok(configuration) => found.push(configuration),
                Err(ClusterError::NotFound) => absent = Some(name.clone()),
                Err(error) => return Err(Operation::ReadWebhooks.failed()(error)),
            }
        }
        if found.is_empty() && absent.is_some() {
            return Err(Operation::ReadWebhooks.failed()(ClusterError::NotFound));
        }
        if self.absent != absent {
            if let Some(name) = &absent {
                let name = name.as_str();
                tracing::warn!(name, "a webhook configuration of tls.webhookConfigurations is not there");
            }
            self.absent = absent;
        }
        Ok(found)
    }

    async fn write_secret(&self, seen: &Secret, authorities: &[&Authority]) -> Result<(), Failure> {
        let written = self.secret.write(&self.cluster, seen, authorities).await;
        written.map_err(Operation::WriteSecret.failed())
    }

    fn sign(&mut self, authority: Arc<Authority>, names: &[String], now: Time) -> Result<(), SignError> {
        let (leaf, pair) = authority.sign(names, now, self.lifetimes.leaf)?;
        // It begins in the past, and has the names that it was asked for.
        let validity = Validity { begin: i64::MIN, end: seconds(leaf.expires), named: true };
        self.served.replace(pair, validity, Some(seconds(now)));
        tracing::info!(expires = leaf.expires.as_secs(), ?names, "serving a new certificate");
        self.own = Some((leaf, authority));
        Ok(())
    }
}

fn view(configurations: &[Configuration], secret: &Secret) -> View {
    let trusted = |bundle: &Vec<BundleCertificate>| bundle.iter().map(|one| one.trusted).collect();
    let mut names: Vec<String> = configurations.iter().flat_map(|known| known.names.clone()).collect();
    names.sort();
    names.dedup();
    View {
        cas: secret.authorities.iter().map(|authority| authority.ca).collect(),
        bundles: configurations.iter().flat_map(|known| known.bundles.iter().map(trusted)).collect(),
        names,
    }
}

fn seconds(time: Time) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

/// The API server's clock, as it was told last: it verifies, and the one of this machine may be wrong or set at any time.
#[derive(Default)]
struct Clock(Option<(Time, Instant)>);

impl Clock {
    fn set(&mut self, date: Option<SystemTime>) -> Time {
        let date = date.and_then(|date| date.duration_since(UNIX_EPOCH).ok());
        if let Some(date) = date {
            self.0 = Some((date, Instant::now()));
        }
        self.now()
    }

    fn now(&self) -> Time {
        match self.0 {
            Some((date, at)) => date + at.elapsed(),
            None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests;
