//! The serving certificate: loaded at start, loaded again whenever the content of its files changes; or managed, see
//! [`ManagedCertificate`].
//!
//! The files are polled, not watched: Kubernetes swaps symlinks below them (kubelet's AtomicWriter), and cert-manager's
//! CSI driver writes in place; content is what both have in common. A pair that cannot be used changes nothing.

mod managed;
mod metrics;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::time::{Duration, MissedTickBehavior};

pub use managed::{Lifetimes, ManagedCertificate, ManagedMetrics, ManagedSettings};
pub use metrics::TlsMetrics;

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
    /// A file cannot be read.
    #[error("{file}: cannot be read")]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        cause: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{file}: {fault}")]
    Content {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// TLS does not take the pair.
    #[error("{file}: the certificate and the key cannot be used together")]
    Pair {
        /// The certificate's file.
        file: PathBuf,
        /// Why.
        #[source]
        cause: rustls::Error,
    },
}

/// The certificate in use. Clones are the same certificate.
#[derive(Clone)]
pub struct ServingCertificate(Arc<Inner>);

struct Inner {
    metrics: TlsMetrics,
    /// None before the first one.
    current: RwLock<Option<Arc<CertifiedKey>>>,
    ready: AtomicBool,
}

/// What was read: both files, as they are.
#[derive(PartialEq, Eq)]
struct Content {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl ServingCertificate {
    /// Loads the pair and follows its files until the returned handle and its clones are gone.
    ///
    /// # Errors
    /// The first pair has to be good.
    pub async fn load(files: CertificateFiles, metrics: TlsMetrics) -> Result<Self, CertificateError> {
        let content = read(&files).await?;
        let (pair, expiry) = parse(&files, &content)?;
        let served = Self::none(metrics);
        served.replace(pair, expiry);
        served.trusted();
        tokio::spawn(follow(Arc::downgrade(&served.0), files, content));
        Ok(served)
    }

    /// None yet: handshakes fail until there is one.
    pub fn none(metrics: TlsMetrics) -> Self {
        Self(Arc::new(Inner { metrics, current: RwLock::default(), ready: AtomicBool::new(false) }))
    }

    /// Whether there has been a certificate that the API server should trust.
    pub fn is_ready(&self) -> bool {
        self.0.ready.load(Ordering::Relaxed)
    }

    fn trusted(&self) {
        self.0.ready.store(true, Ordering::Relaxed);
    }

    /// Serves this one from now on, which expires at this time, in seconds since 1970.
    fn replace(&self, pair: CertifiedKey, expiry: i64) {
        *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(pair));
        self.0.metrics.expires(expiry);
    }

    /// TLS settings that serve whatever certificate is current at each handshake.
    ///
    /// # Errors
    /// The crypto provider lacks something.
    pub fn server_config(&self) -> Result<ServerConfig, rustls::Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Current(self.clone())));
        // The API server speaks HTTP/1.1 to webhooks, and so does tolerarch.
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        // No sessions to resume: API servers never do (crypto/tls keeps none without a ClientSessionCache, and client-go
        // sets none), and one that is resumed would outlive its certificate.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok(config)
    }
}

/// What rustls asks at each handshake.
struct Current(ServingCertificate);

impl std::fmt::Debug for Current {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Current")
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.0.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn follow(inner: std::sync::Weak<Inner>, files: CertificateFiles, mut seen: Content) {
    let mut ticks = tokio::time::interval(POLL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut missing = 0;
    loop {
        ticks.tick().await;
        let Some(inner) = inner.upgrade() else { return };
        let content = match read(&files).await {
            Ok(content) => {
                missing = 0;
                content
            }
            Err(error) => {
                // Files that are gone for a moment are being swapped.
                missing += 1;
                if missing == MISSING {
                    inner.metrics.reloaded(false);
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::error!(%error, cause, "serving certificate cannot be read; the one in use goes on");
                }
                continue;
            }
        };
        if content == seen {
            continue;
        }
        match parse(&files, &content) {
            Ok((pair, expiry)) => {
                ServingCertificate(Arc::clone(&inner)).replace(pair, expiry);
                inner.metrics.reloaded(true);
                tracing::info!(expiry, "serving certificate reloaded");
            }
            Err(error) => {
                inner.metrics.reloaded(false);
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                tracing::error!(%error, cause, "new serving certificate cannot be used; the old one stays");
            }
        }
        seen = content;
    }
}

async fn read(files: &CertificateFiles) -> Result<Content, CertificateError> {
    let read = async |file: &PathBuf| {
        let path = file.clone();
        let content = tokio::task::spawn_blocking(move || crate::file::read(&path)).await;
        content
            .unwrap_or_else(|error| Err(std::io::Error::other(error)))
            .map_err(|cause| CertificateError::Read { file: file.clone(), cause })
    };
    Ok(Content { certificate: read(&files.certificate).await?, key: read(&files.key).await? })
}

/// The pair, and when its certificate expires, in seconds since 1970.
fn parse(files: &CertificateFiles, content: &Content) -> Result<(CertifiedKey, i64), CertificateError> {
    let fault = |file: &PathBuf, fault| CertificateError::Content { file: file.clone(), fault };
    let chain = CertificateDer::pem_slice_iter(&content.certificate).collect::<Result<Vec<_>, _>>();
    let chain = chain.map_err(|_| fault(&files.certificate, "no PEM certificate"))?;
    let leaf = chain.first().ok_or_else(|| fault(&files.certificate, "no PEM certificate"))?;
    let (_, parsed) = x509_parser::parse_x509_certificate(leaf)
        .map_err(|_| fault(&files.certificate, "not an X.509 certificate"))?;
    let expiry = parsed.validity().not_after.timestamp();
    let key =
        PrivateKeyDer::from_pem_slice(&content.key).map_err(|_| fault(&files.key, "no PEM private key"))?;
    let pair = CertifiedKey::from_der(chain, key, &rustls::crypto::aws_lc_rs::default_provider());
    let pair = pair.map_err(|cause| CertificateError::Pair { file: files.certificate.clone(), cause })?;
    Ok((pair, expiry))
}

#[cfg(test)]
mod tests;
