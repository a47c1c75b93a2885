//! The serving certificate: loaded from its files at the start, and again whenever their content changes. The files are
//! the operator's, or those of the Secret that the [`CertificateIssuer`] writes.
//!
//! The files are polled, not watched: Kubernetes swaps symlinks below them (kubelet's AtomicWriter), and cert-manager's
//! CSI driver writes in place; content is what both have in common. A pair that cannot be used changes nothing.

mod managed;
mod metrics;
mod validity;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::task::spawn_blocking;
use tokio::time::{Duration, sleep};

use tolerarch_kubernetes::cluster::ObjectName;
use tolerarch_support::health::{Reported, State};
use tolerarch_support::logging::date;
use tolerarch_support::metrics::outcome;
use tolerarch_support::sync::Mutex;

pub use managed::{CertificateIssuer, Lifetimes, ManagedMetrics, ManagedSettings};
pub use metrics::TlsMetrics;
use validity::{Invalid, Validity, now, seconds};

const POLL: Duration = Duration::from_secs(5);
/// Number of failed readings in a row after which files that cannot be read are reported.
const MISSING: u32 = 3;
/// Maximum number of readings of a pair at a time, while the certificate changes from one to the next.
const READINGS: usize = 8;
const AWAITED: &str = "its files are not there yet; `tolerarch certificates` issues it";
const UNUSABLE: &str = "its files cannot be used; the log says why";

/// Provider of the files of the serving certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum TlsMode {
    /// The operator, before the start.
    #[default]
    Files,
    /// The [`CertificateIssuer`], as soon as it has issued one, by a Secret that is mounted.
    Managed,
}

/// Files of a certificate and its key, PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// File with the certificate, then its chain.
    pub certificate: PathBuf,
    /// File with the private key: PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}

/// Reason why a pair of files cannot be used. Its text contains nothing of a key.
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

/// Certificate in use; `None` before the issuer has written the first one. Clones share it.
#[derive(Clone, Default)]
pub struct ServingCertificate(Arc<Mutex<Option<Pair>>>);

#[derive(Clone)]
struct Pair {
    key: Arc<CertifiedKey>,
    validity: Validity,
}

#[derive(PartialEq, Eq)]
struct Content {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl ServingCertificate {
    /// Loads the first pair; the watch serves the next ones. A managed pair may come later: handshakes fail until then.
    /// `name` is the one that API servers verify. Blocks the thread while it reads files.
    pub fn load(
        files: CertificateFiles,
        mode: TlsMode,
        name: Option<ObjectName>,
        metrics: TlsMetrics,
    ) -> Result<(Self, CertificateWatch), CertificateError> {
        let served = Self::default();
        let mut watch = CertificateWatch {
            served: served.clone(),
            files,
            mode,
            name,
            metrics,
            state: Reported::default(),
            seen: None,
            missing: 0,
        };
        let taken = read(&watch.files).and_then(|content| watch.take(content));
        if let Err(error) = taken {
            if mode != TlsMode::Managed {
                return Err(error);
            }
            watch.refuse(&error);
        }
        watch.verify();
        Ok((served, watch))
    }

    fn current(&self) -> Option<Pair> {
        self.0.lock().clone()
    }

    /// Returns TLS settings that serve whatever certificate is current at each handshake.
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
        self.current().map(|pair| pair.key)
    }
}

pub struct CertificateWatch {
    served: ServingCertificate,
    files: CertificateFiles,
    mode: TlsMode,
    name: Option<ObjectName>,
    metrics: TlsMetrics,
    /// Whether the certificate can be served, and whether the next one will be. Only API servers, with their clock and
    /// their caBundle, know whether they refuse it.
    pub state: Reported,
    /// Content at the last reading; `None` before the first one.
    seen: Option<Content>,
    /// Number of readings in a row that failed.
    missing: u32,
}

impl CertificateWatch {
    pub async fn run(&mut self) {
        loop {
            self.look().await;
            self.verify();
            sleep(POLL).await;
        }
    }

    /// Checks the certificate in use, and reports if API servers will refuse it.
    fn verify(&mut self) {
        let pair = self.served.current();
        let current = pair.and_then(|pair| pair.validity.invalid(now()));
        for invalid in Invalid::ALL {
            let is_so = current == Some(invalid);
            let gauge = self.metrics.invalid.with_label_values(&[invalid.label]);
            gauge.set(is_so.into());
            if is_so && !self.state.has(invalid.reason) {
                let error = invalid.label;
                let file = self.files.certificate.display();
                let name = self.name.as_ref().map(ObjectName::as_str);
                tracing::error!(error, %file, name, "API servers refuse the serving certificate: no Pod is decided");
            }
            self.state.set_fault(invalid.reason, is_so);
        }
    }

    /// Serves the content of the files, and returns the time at which it expires.
    fn take(&mut self, content: Content) -> Result<Duration, CertificateError> {
        let content = self.seen.insert(content);
        let pair = parse(&self.files, self.name.as_ref(), content)?;
        let end = pair.validity.end;
        let has_expired = |pair: &Pair| pair.validity.end <= now();
        let current = self.served.current();
        if self.mode == TlsMode::Managed && current.is_some_and(|current| !has_expired(&current)) {
            // A restored Secret may be older; the unexpired certificate, which is trusted (`managed::plan`), stays.
            // If both have expired, the clock here may be wrong.
            let fault = if has_expired(&pair) {
                Some("it has expired")
            // The issuer replaces it soon.
            } else if !pair.validity.is_for_servers {
                Some(Invalid::WRONG_USAGE.reason)
            } else {
                None
            };
            if let Some(fault) = fault {
                let file = self.files.certificate.clone();
                return Err(CertificateError::Content { file, fault });
            }
        }
        self.metrics.expiry.set(seconds(end));
        *self.served.0.lock() = Some(pair);
        Ok(end)
    }

    async fn look(&mut self) {
        let files = self.files.clone();
        let reading = spawn_blocking(move || read(&files));
        // A panic has been logged with its location.
        let Ok(content) = self.state.looking(reading).await else {
            return;
        };
        let is_news = match &content {
            Ok(content) => {
                self.missing = 0;
                self.seen.as_ref() != Some(content)
            }
            // Files that are gone for a moment are being swapped, and the first ones may come late.
            Err(_) => {
                self.missing = self.missing.saturating_add(1);
                self.missing == MISSING && self.served.current().is_some()
            }
        };
        if !is_news {
            return;
        }
        // Files that could not be read are looked at anew, if only to say that they are good again.
        self.seen = None;
        let taken = content.and_then(|content| self.take(content));
        let result = outcome(taken.is_ok());
        self.metrics.reloads.with_label_values(&[result]).inc();
        match taken {
            Ok(expiry) => {
                self.state.set(State::Healthy);
                let expiry = date(seconds(expiry));
                tracing::info!(expiry, "serving certificate reloaded");
            }
            Err(error) => self.refuse(&error),
        }
    }

    /// Reports why the files cannot be used.
    fn refuse(&self, error: &CertificateError) {
        let is_absent = matches!(error, CertificateError::Read { cause, .. } if cause.kind() == ErrorKind::NotFound);
        let state = match error {
            _ if self.served.current().is_none() => {
                State::Starting(if is_absent { AWAITED } else { UNUSABLE })
            }
            CertificateError::Read { .. } => {
                State::Degraded("its files cannot be read; the one in use goes on")
            }
            CertificateError::Content { .. } | CertificateError::Pair { .. } => {
                State::Degraded("its files are not valid; the one in use goes on")
            }
        };
        self.state.set(state);
        let cause = std::error::Error::source(error).map(ToString::to_string);
        if state == State::Starting(AWAITED) {
            tracing::info!(%error, cause, "waiting for the serving certificate, which `tolerarch certificates` issues");
        } else {
            tracing::error!(%error, cause, "files of the serving certificate cannot be used; one in use goes on");
        }
    }
}

fn read(files: &CertificateFiles) -> Result<Content, CertificateError> {
    let read = |file: &Path| {
        let content = tolerarch_support::file::read(file);
        content.map_err(|cause| CertificateError::Read {
            file: file.to_owned(),
            cause,
        })
    };
    // A pair may be replaced between two reads: the certificate has to be the same before and after the key.
    let mut certificate = read(&files.certificate)?;
    for _ in 0..READINGS {
        let key = read(&files.key)?;
        let before = std::mem::replace(&mut certificate, read(&files.certificate)?);
        if before == certificate {
            return Ok(Content { certificate, key });
        }
    }
    Err(CertificateError::Content {
        file: files.certificate.clone(),
        fault: "it changes at each reading",
    })
}

/// Parses the certificate with its chain and its key, all PEM. `name` is the one that API servers verify.
fn parse(
    files: &CertificateFiles,
    name: Option<&ObjectName>,
    content: &Content,
) -> Result<Pair, CertificateError> {
    let fault = |file: &PathBuf, fault| CertificateError::Content {
        file: file.clone(),
        fault,
    };
    let CertificateFiles {
        certificate: file,
        key: key_file,
    } = files;
    let chain = CertificateDer::pem_slice_iter(&content.certificate).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|_| fault(file, "no PEM certificate"))?;
    let leaf = chain
        .first()
        .ok_or_else(|| fault(file, "no PEM certificate"))?;
    let validity =
        Validity::of(leaf, name).ok_or_else(|| fault(file, "not an X.509 certificate"))?;
    let key = PrivateKeyDer::from_pem_slice(&content.key)
        .map_err(|_| fault(key_file, "no PEM private key"))?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let key =
        CertifiedKey::from_der(chain, key, &provider).map_err(|cause| CertificateError::Pair {
            file: file.clone(),
            cause,
        })?;
    Ok(Pair {
        key: Arc::new(key),
        validity,
    })
}

#[cfg(test)]
mod tests;
