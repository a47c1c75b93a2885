//! The serving certificate: loaded at start, loaded again whenever the content of its files changes; or managed, see
//! [`SecretWatch`] and [`CertificateIssuer`].
//!
//! The files are polled, not watched: Kubernetes swaps symlinks below them (kubelet's AtomicWriter), and cert-manager's
//! CSI driver writes in place; content is what both have in common. A pair that cannot be used changes nothing.

mod managed;
mod metrics;
mod validity;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustls::ServerConfig;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::task::spawn_blocking;
use tokio::time::{Duration, Instant, MissedTickBehavior};

use tolerarch_kubernetes::cluster::ObjectName;
use tolerarch_support::health::{Reported, State};
use tolerarch_support::logging::date;
use tolerarch_support::sync::Mutex;

pub use managed::{CertificateIssuer, Lifetimes, ManagedMetrics, ManagedSettings, SecretWatch};
pub use metrics::TlsMetrics;
use validity::{Invalid, Validity};

/// How often the files are read.
const POLL: Duration = Duration::from_secs(5);

/// Readings in a row after which files that cannot be read are worth a word.
const MISSING: u32 = 3;

/// Where the serving certificate comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum TlsMode {
    /// From two files.
    #[default]
    Files,
    /// From a CA of its own.
    Managed,
}

/// The files of a certificate and its key, PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate, then its chain.
    pub certificate: PathBuf,
    /// The private key: PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}

/// Why a pair of files cannot be used. Nothing of a key gets into the text.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("{file}: cannot be read")]
    Read {
        file: PathBuf,
        #[source]
        cause: std::io::Error,
    },
    #[error("{file}: {fault}")]
    Content { file: PathBuf, fault: &'static str },
    #[error("{file}: the certificate and the key cannot be used together")]
    Pair {
        file: PathBuf,
        #[source]
        cause: rustls::Error,
    },
}

/// The certificate in use. Clones are the same certificate.
#[derive(Clone)]
pub struct ServingCertificate(Arc<Inner>);

struct Inner {
    metrics: TlsMetrics,
    served: Mutex<Served>,
    /// Whether the next one will be served, too.
    renewal: Reported,
}

#[derive(Default)]
struct Served {
    /// None before the first one that API servers should trust.
    current: Option<(Arc<CertifiedKey>, Validity)>,
    clock: Clock,
}

impl Served {
    /// Why API servers refuse the certificate in use.
    fn invalid(&self) -> Option<Invalid> {
        self.current.as_ref()?.1.invalid(self.clock.now())
    }
}

/// The API server's clock, as it was told last: it verifies, and the one of this machine may be wrong or set at any time.
#[derive(Clone, Copy, Default)]
struct Clock(Option<(Duration, Instant)>);

impl Clock {
    /// Gives the time now, since 1970: this, where it is known.
    fn set(&mut self, date: Option<SystemTime>) -> Duration {
        let date = date.and_then(|date| date.duration_since(UNIX_EPOCH).ok());
        if let Some(date) = date {
            self.0 = Some((date, Instant::now()));
        }
        self.now()
    }

    fn now(&self) -> Duration {
        match self.0 {
            Some((date, at)) => date + at.elapsed(),
            None => SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        }
    }
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

/// What was read: both files, as they are.
#[derive(PartialEq, Eq)]
struct Content {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl ServingCertificate {
    /// The first pair has to be good; the watch serves the next ones. `name` is the one that API servers verify. Waits for files.
    pub fn load(
        files: CertificateFiles,
        name: Option<ObjectName>,
        metrics: TlsMetrics,
    ) -> Result<(Self, CertificateWatch), CertificateError> {
        let seen = read(&files)?;
        let (pair, validity) = parse(&files, name.as_ref(), &seen)?;
        let served = Self::none(metrics);
        served.replace(pair, validity);
        let mut watch =
            CertificateWatch { served: served.clone(), files, name, seen, missing: 0, invalid: None };
        watch.verify();
        Ok((served, watch))
    }

    /// None yet: handshakes fail until there is one.
    pub fn none(metrics: TlsMetrics) -> Self {
        Self(Arc::new(Inner { metrics, served: Mutex::default(), renewal: Reported::default() }))
    }

    /// Whether API servers can be answered with it, and will be with the next one.
    pub fn state(&self) -> State {
        let served = self.0.served.lock();
        match (&served.current, served.invalid()) {
            (None, _) => State::Starting("there is none yet that API servers trust"),
            (Some(_), None) => self.0.renewal.get(),
            // Without the API server's clock and its caBundle, only API servers know whether they refuse it.
            (Some(_), Some(invalid)) if served.clock.0.is_none() => State::Degraded(invalid.reason),
            (Some(_), Some(invalid)) => State::Failed(invalid.reason),
        }
    }

    fn replace(&self, pair: CertifiedKey, validity: Validity) {
        self.0.served.lock().current = Some((Arc::new(pair), validity));
        self.0.metrics.expiry.set(seconds(validity.end));
    }

    /// The API server's time, where it is known. Gives the time now.
    fn told(&self, date: Option<SystemTime>) -> Duration {
        self.0.served.lock().clock.set(date)
    }

    fn current(&self) -> Option<(Arc<CertifiedKey>, Validity)> {
        self.0.served.lock().current.clone()
    }

    /// TLS settings that serve whatever certificate is current at each handshake.
    pub fn server_config(&self) -> Result<ServerConfig, rustls::Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(self.clone()));
        // The API server speaks HTTP/1.1 to webhooks, and so does tolerarch.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // No sessions to resume: API servers never do (crypto/tls keeps none without a ClientSessionCache, and client-go
        // sets none), and one that is resumed would outlive its certificate.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(config)
    }
}

impl std::fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServingCertificate")
    }
}

impl ResolvesServerCert for ServingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current().map(|(pair, _)| pair)
    }
}

pub struct CertificateWatch {
    served: ServingCertificate,
    files: CertificateFiles,
    name: Option<ObjectName>,
    seen: Content,
    /// Readings in a row that failed.
    missing: u32,
    /// What was wrong with the certificate in use at the last look.
    invalid: Option<Invalid>,
}

impl CertificateWatch {
    pub async fn run(&mut self) {
        let mut ticks = tokio::time::interval(POLL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.look().await;
            self.verify();
        }
    }

    /// Reports it if API servers will refuse the certificate in use.
    fn verify(&mut self) {
        let invalid = self.served.0.served.lock().invalid();
        self.served.0.metrics.invalid(invalid);
        if let Some(invalid) = invalid.filter(|_| invalid != self.invalid) {
            let (file, name) = (self.files.certificate.display(), self.name.as_ref().map(ObjectName::as_str));
            let error = invalid.label;
            tracing::error!(error, %file, name, "API servers refuse the serving certificate: no Pod is decided");
        }
        self.invalid = invalid;
    }

    async fn look(&mut self) {
        let Inner { metrics, renewal, .. } = &*self.served.0;
        let files = self.files.clone();
        let content = match renewal.looking(spawn_blocking(move || read(&files))).await {
            Ok(Ok(content)) => content,
            // The panic itself has been logged with its location.
            Err(_) => return,
            Ok(Err(error)) => {
                // Files that are gone for a moment are being swapped.
                self.missing += 1;
                if self.missing == MISSING {
                    metrics.reloaded(false);
                    renewal.set(State::Degraded("its files cannot be read; the one in use goes on"));
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::error!(%error, cause, "serving certificate cannot be read; the one in use goes on");
                }
                return;
            }
        };
        // Files that could not be read for long are looked at anew, if only to say that they are good again.
        let unchanged = content == self.seen && self.missing < MISSING;
        self.missing = 0;
        if unchanged {
            return;
        }
        match parse(&self.files, self.name.as_ref(), &content) {
            Ok((pair, validity)) => {
                self.served.replace(pair, validity);
                metrics.reloaded(true);
                renewal.set(State::Healthy);
                tracing::info!(expiry = date(seconds(validity.end)), "serving certificate reloaded");
            }
            Err(error) => {
                metrics.reloaded(false);
                renewal.set(State::Degraded("its files are not valid; the one in use goes on"));
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(%error, cause, "new serving certificate cannot be used; the old one stays");
            }
        }
        self.seen = content;
    }
}

fn read(files: &CertificateFiles) -> Result<Content, CertificateError> {
    let read = |file: &PathBuf| {
        let content = tolerarch_support::file::read(file);
        content.map_err(|cause| CertificateError::Read { file: file.clone(), cause })
    };
    // A pair may be replaced between two reads: the certificate has to be the same before and after the key.
    let mut certificate = read(&files.certificate)?;
    loop {
        let key = read(&files.key)?;
        let before = std::mem::replace(&mut certificate, read(&files.certificate)?);
        if before == certificate {
            return Ok(Content { certificate, key });
        }
    }
}

fn parse(
    files: &CertificateFiles,
    name: Option<&ObjectName>,
    content: &Content,
) -> Result<(CertifiedKey, Validity), CertificateError> {
    let CertificateFiles { certificate, key } = files.clone();
    pair(&content.certificate, &content.key, name).map_err(|error| match error {
        PairError::Certificate(fault) => CertificateError::Content { file: certificate, fault },
        PairError::Key(fault) => CertificateError::Content { file: key, fault },
        PairError::Tls(cause) => CertificateError::Pair { file: certificate, cause },
    })
}

/// Why a certificate and a key are none that can be served.
enum PairError {
    Certificate(&'static str),
    Key(&'static str),
    Tls(rustls::Error),
}

/// A certificate, its chain and its key, all PEM. `name` is the one that API servers verify.
fn pair(
    certificate: &[u8],
    key: &[u8],
    name: Option<&ObjectName>,
) -> Result<(CertifiedKey, Validity), PairError> {
    let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|_| PairError::Certificate("no PEM certificate"))?;
    let leaf = chain.first().ok_or(PairError::Certificate("no PEM certificate"))?;
    let validity = Validity::of(leaf, name).ok_or(PairError::Certificate("not an X.509 certificate"))?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| PairError::Key("no PEM private key"))?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let pair = CertifiedKey::from_der(chain, key, &provider).map_err(PairError::Tls)?;
    Ok((pair, validity))
}

#[cfg(test)]
mod tests;
