//! The serving certificate. It is loaded from its files at the start, and again whenever their content changes. The
//! files are the operator's, or those of the Secret that the [`CertificateIssuer`] writes.
//!
//! The files are polled, not watched: Kubernetes swaps symlinks below them (kubelet's AtomicWriter), and cert-manager's
//! CSI driver writes in place. Only the content changes in both cases. A pair that cannot be used changes nothing.

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
/// Number of failed readings in a row after which unreadable files are reported.
const REPORTED_AFTER: u32 = 3;
/// Maximum number of readings of a pair in a row, while the certificate differs from one to the next.
const READINGS: usize = 8;
const AWAITED: &str = "its files are not there yet; `tolerarch certificates` issues it";
const UNUSABLE: &str = "its files cannot be used; the log says why";

/// Who provides the files of the serving certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum TlsMode {
    /// The operator, before the start.
    #[default]
    Files,
    /// The [`CertificateIssuer`], in a Secret that is mounted, as soon as it has issued a certificate.
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
    /// Loads the first pair; the watch loads the next ones. A managed pair may be issued later: handshakes fail until
    /// then. `name` is the one that API servers verify. Blocks the thread while it reads files.
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
            last_content: None,
            failed_readings: 0,
        };
        let loaded = read(&watch.files).and_then(|content| watch.load(content));
        if let Err(error) = loaded {
            if mode != TlsMode::Managed {
                return Err(error);
            }
            watch.report_unusable(&error);
        }
        watch.verify();
        Ok((served, watch))
    }

    fn current(&self) -> Option<Pair> {
        self.0.lock().clone()
    }

    /// Returns TLS settings that serve, at each handshake, the certificate in use at that time.
    pub fn server_config(&self) -> Result<ServerConfig, rustls::Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(self.clone()));
        // The API server speaks HTTP/1.1 to webhooks, and so does tolerarch.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // Sessions cannot be resumed. API servers never resume one (crypto/tls keeps none without a ClientSessionCache,
        // and client-go sets none), and a resumed session would outlive its certificate.
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
    /// Whether the certificate in use can be served, and whether the next one will be. It does not say whether API
    /// servers refuse the certificate: that depends on their clock and their caBundle.
    pub state: Reported,
    /// Content at the last reading; `None` before the first one.
    last_content: Option<Content>,
    /// Number of readings in a row that failed.
    failed_readings: u32,
}

impl CertificateWatch {
    pub async fn run(&mut self) {
        loop {
            self.check_files().await;
            self.verify();
            sleep(POLL).await;
        }
    }

    /// Checks the certificate in use, and reports if API servers will refuse it.
    fn verify(&mut self) {
        let current = match self.served.current() {
            Some(pair) => pair.validity.invalid(now()),
            None => None,
        };
        for invalid in Invalid::ALL {
            let applies = current == Some(invalid);
            let gauge = self.metrics.invalid.with_label_values(&[invalid.label]);
            gauge.set(applies.into());
            if applies && !self.state.has(invalid.reason) {
                let error = invalid.label;
                let file = self.files.certificate.display();
                let name = self.name.as_ref().map(ObjectName::as_str);
                tracing::error!(error, %file, name, "API servers refuse the serving certificate: no Pod is decided");
            }
            self.state.set_fault(invalid.reason, applies);
        }
    }

    /// Serves the content of the files from now on, and returns the time at which it expires.
    fn load(&mut self, content: Content) -> Result<Duration, CertificateError> {
        let content = self.last_content.insert(content);
        let pair = parse(&self.files, self.name.as_ref(), content)?;
        let end = pair.validity.end;
        if self.mode == TlsMode::Managed
            && let Some(fault) = self.fault_beside_current(&pair)
        {
            let file = self.files.certificate.clone();
            return Err(CertificateError::Content { file, fault });
        }
        self.metrics.expiry.set(seconds(end));
        *self.served.0.lock() = Some(pair);
        Ok(end)
    }

    /// Returns why the certificate in use, if it has not expired, is better than a new managed one. A restored Secret
    /// may be older; the unexpired certificate is trusted (`managed::plan`). If both have expired, the clock of this
    /// machine may be wrong, and the new one is loaded.
    fn fault_beside_current(&self, new: &Pair) -> Option<&'static str> {
        let now = now();
        let current = self.served.current()?;
        if current.validity.end <= now {
            return None;
        }
        if new.validity.end <= now {
            return Some("it has expired");
        }
        // The issuer will replace such a certificate soon.
        if !new.validity.is_for_servers {
            return Some(Invalid::WRONG_USAGE.reason);
        }
        None
    }

    /// Reads the files, and loads their content if it has changed.
    async fn check_files(&mut self) {
        let files = self.files.clone();
        let reading = spawn_blocking(move || read(&files));
        // A panic has been logged with its location.
        let Ok(content) = self.state.await_files(reading).await else {
            return;
        };
        let is_new = match &content {
            Ok(content) => {
                self.failed_readings = 0;
                self.last_content.as_ref() != Some(content)
            }
            // Files that are gone for a moment are being swapped, and the first ones may be late.
            Err(_) => {
                self.failed_readings = self.failed_readings.saturating_add(1);
                let is_reported = self.failed_readings == REPORTED_AFTER;
                is_reported && self.served.current().is_some()
            }
        };
        if !is_new {
            return;
        }
        // After a reading that failed, the same content counts as new, so that its recovery is reported.
        self.last_content = None;
        let loaded = content.and_then(|content| self.load(content));
        let result = outcome(loaded.is_ok());
        self.metrics.reloads.with_label_values(&[result]).inc();
        match loaded {
            Ok(expiry) => {
                self.state.set(State::Healthy);
                let expiry = date(seconds(expiry));
                tracing::info!(expiry, "serving certificate reloaded");
            }
            Err(error) => self.report_unusable(&error),
        }
    }

    /// Reports why the files cannot be used.
    fn report_unusable(&self, error: &CertificateError) {
        let has_current = self.served.current().is_some();
        let state = match error {
            CertificateError::Read { cause, .. } if !has_current => {
                let is_missing = cause.kind() == ErrorKind::NotFound;
                State::Starting(if is_missing { AWAITED } else { UNUSABLE })
            }
            _ if !has_current => State::Starting(UNUSABLE),
            CertificateError::Read { .. } => {
                State::Degraded("its files cannot be read; the certificate in use is still served")
            }
            CertificateError::Content { .. } | CertificateError::Pair { .. } => {
                State::Degraded("its files are not valid; the certificate in use is still served")
            }
        };
        self.state.set(state);
        let cause = std::error::Error::source(error).map(ToString::to_string);
        if state == State::Starting(AWAITED) {
            tracing::info!(%error, cause, "waiting for the serving certificate, which `tolerarch certificates` issues");
        } else {
            tracing::error!(%error, cause, "the files of the serving certificate cannot be used; a certificate in use is still served");
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
    // A pair may be replaced between two reads, so the certificate has to be the same before and after the key.
    let mut before = read(&files.certificate)?;
    for _ in 0..READINGS {
        let key = read(&files.key)?;
        let certificate = read(&files.certificate)?;
        if certificate == before {
            return Ok(Content { certificate, key });
        }
        before = certificate;
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
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(&content.certificate).collect();
    let Ok(chain) = certificates else {
        return Err(fault(file, "no PEM certificate"));
    };
    let Some(leaf) = chain.first() else {
        return Err(fault(file, "no PEM certificate"));
    };
    let Some(validity) = Validity::of(leaf, name) else {
        return Err(fault(file, "not an X.509 certificate"));
    };
    let Ok(private_key) = PrivateKeyDer::from_pem_slice(&content.key) else {
        return Err(fault(key_file, "no PEM private key"));
    };
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    match CertifiedKey::from_der(chain, private_key, &provider) {
        Ok(key) => Ok(Pair {
            key: Arc::new(key),
            validity,
        }),
        Err(cause) => Err(CertificateError::Pair {
            file: file.clone(),
            cause,
        }),
    }
}

#[cfg(test)]
mod tests;
