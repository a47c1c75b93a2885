//! TLS settings of each host. All hosts trust the system's certificate authorities. A single host may have authorities
//! in addition, a client certificate, or no verification. A faulty file of a host affects only that host.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, SignatureScheme, SupportedProtocolVersion, version};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tolerarch_support::file;
use zeroize::Zeroizing;

use super::key_exchange;
use super::verifier::{Trusted, Verifier};

/// Directory of the system's authorities in `SSL_CERT_DIR`, if the chart has `extraCAs`.
const SYSTEM_DIRECTORY: &str = "/etc/ssl/certs";
/// Directory in `SSL_CERT_DIR` where the chart mounts `extraCAs`.
const EXTRA_DIRECTORY: &str = "/etc/tolerarch/ca";
/// Maximum number of skipped parts of a file of authorities that are logged. A file may have thousands of them.
const MAX_LOGGED: usize = 20;

/// Reason why the configuration of registries cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The directory, or a file in it, cannot be read.
    #[error("registries.hostsDir: {0}: cannot be read: {1}")]
    HostsDir(PathBuf, std::io::Error),
    #[error("the resolver of names cannot be set up: {0}")]
    Names(String),
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsFault {
    #[error(
        "{0}: {1}; mend the file, or caFile of registries.hosts or ca of hosts.toml, which names it"
    )]
    Authorities(PathBuf, String),
    #[error(
        "no certificate authority of the system can be read (SSL_CERT_FILE and SSL_CERT_DIR, if they are set): {0}"
    )]
    System(rustls_native_certs::Error),
    #[error(
        "{0}: {1} (clientCertFile and clientKeyFile of registries.hosts, or client of hosts.toml): {2}"
    )]
    Identity(PathBuf, &'static str, String),
    /// The crypto provider lacks something.
    #[error("TLS cannot be set up")]
    Provider(#[from] rustls::Error),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Tls {
    /// PEM files of authorities that are trusted in addition to the system's.
    pub(crate) authorities: Vec<PathBuf>,
    /// PEM files of client certificates, each with the file of its key if that is a different file.
    pub(crate) identities: Vec<(PathBuf, Option<PathBuf>)>,
    pub(crate) skip_verify: bool,
}

impl Tls {
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let mut files = self.authorities.clone();
        for (file, key) in &self.identities {
            files.push(file.clone());
            files.extend(key.clone());
        }
        files
    }
}

/// Authorities that are trusted for all hosts.
pub(crate) struct Authorities {
    system: Arc<RootCertStore>,
    /// Authorities that the operator has added to the system's: `extraCAs` of the chart.
    extra: RootCertStore,
    /// Reason why there are no authorities.
    unreadable: Option<rustls_native_certs::Error>,
}

impl Authorities {
    /// Reads the system's authorities, and those that the operator has added to them.
    pub(crate) fn load() -> Self {
        let native = rustls_native_certs::load_native_certs();
        for error in &native.errors {
            tracing::warn!(%error, "a certificate authority of the system cannot be read");
        }
        let extra = added(Path::new(SYSTEM_DIRECTORY), Path::new(EXTRA_DIRECTORY));
        let mut authorities = Self::of(native.certs, &extra);
        if authorities.system.is_empty() && authorities.extra.is_empty() {
            authorities.unreadable = native.errors.into_iter().next();
            tracing::warn!(
                "the system has no certificate authorities; only registries with a caFile can be reached"
            );
        }
        authorities
    }

    /// Trusts all of these authorities. Those that are also in `extra` count as the operator's.
    pub(crate) fn of(all: Vec<CertificateDer<'static>>, extra: &[CertificateDer<'_>]) -> Self {
        let mut system = RootCertStore::empty();
        let mut operator = RootCertStore::empty();
        for certificate in all {
            let store = if extra.contains(&certificate) {
                &mut operator
            } else {
                &mut system
            };
            store.add_parsable_certificates([certificate]);
        }
        Self {
            system: Arc::new(system),
            extra: operator,
            unreadable: None,
        }
    }
}

/// Returns the certificates of the directory `extra` that the directory `system` lacks. A bundle in `extraCAs` may also
/// contain all public authorities, for whose short keys the operator does not vouch. Returns none if `system` cannot be
/// read.
fn added(system: &Path, extra: &Path) -> Vec<CertificateDer<'static>> {
    let mut added = rustls_native_certs::load_certs_from_paths(None, Some(extra)).certs;
    if !added.is_empty() {
        let system = rustls_native_certs::load_certs_from_paths(None, Some(system));
        added.retain(|certificate| system.errors.is_empty() && !system.certs.contains(certificate));
    }
    added
}

/// Settings of rustls for a host.
#[derive(Clone)]
struct Configs {
    usual: Arc<ClientConfig>,
    /// Settings for servers with RSA keys below 2,048 bits. They allow only TLS 1.2 with signatures of PKCS #1, the
    /// only ones that can be verified with such keys.
    short_key: Arc<ClientConfig>,
}

type HostTls = Result<Configs, Arc<TlsFault>>;

pub(crate) struct TlsSettings {
    default: HostTls,
    /// By `host` or `host:port`.
    hosts: HashMap<String, HostTls>,
}

impl TlsSettings {
    /// Reads the files. `hosts` has the dialled names as keys; `default` is for hosts that only the default directory
    /// covers.
    pub(crate) fn load(
        mut authorities: Authorities,
        hosts: &BTreeMap<String, Tls>,
        default: Option<Tls>,
    ) -> Self {
        let unreadable = authorities.unreadable.take();
        let mut loaded: HashMap<Tls, HostTls> = HashMap::new();
        let mut load = |host: &str, tls: &Tls| {
            if tls.skip_verify {
                tracing::warn!(
                    host,
                    "certificates are NOT verified (skipVerify): anyone between here and this host can answer for it"
                );
            }
            let configs = || configs(&authorities, tls).map_err(Arc::new);
            loaded.entry(tls.clone()).or_insert_with(configs).clone()
        };
        let mut by_host = HashMap::new();
        for (host, tls) in hosts {
            by_host.insert(host.clone(), load(host, tls));
        }
        let default = match (default, unreadable) {
            (Some(tls), _) => load("every host without a directory of its own", &tls),
            (None, Some(error)) => Err(Arc::new(TlsFault::System(error))),
            (None, None) => load("", &Tls::default()),
        };
        Self {
            default,
            hosts: by_host,
        }
    }

    pub(super) fn of(
        &self,
        host: &str,
        short_key: bool,
    ) -> Result<&Arc<ClientConfig>, Arc<TlsFault>> {
        let tls = self.hosts.get(host).unwrap_or(&self.default);
        let configs = tls.as_ref().map_err(Arc::clone)?;
        if short_key {
            Ok(&configs.short_key)
        } else {
            Ok(&configs.usual)
        }
    }

    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (host, tls) in &self.hosts {
            if let Err(fault) = tls {
                faults.push(format!("{host}: {fault}"));
            }
        }
        if let Err(fault) = &self.default {
            faults.push(format!("all other hosts: {fault}"));
        }
        faults.sort_unstable();
        faults
    }
}

fn configs(authorities: &Authorities, tls: &Tls) -> Result<Configs, TlsFault> {
    let provider = Arc::new(key_exchange::provider());
    let mut trusted = None;
    if !tls.skip_verify {
        let mut operator = authorities.extra.clone();
        let mut configured = Vec::new();
        let mut files = Vec::new();
        for file in &tls.authorities {
            configured.extend(add(&mut operator, file)?);
            files.push(file.display().to_string());
        }
        trusted = Some(Arc::new(Trusted {
            system: Arc::clone(&authorities.system),
            operator,
            configured,
            files: files.join(", "),
        }));
    }
    let mut identities = Vec::new();
    for (file, key) in &tls.identities {
        let key_file = key.as_ref().unwrap_or(file);
        identities.push(identity(file, key_file, &provider)?);
    }
    let identities = Arc::new(Identities(identities));
    let config = |versions: &[&'static SupportedProtocolVersion], short_key| {
        let verifier = Verifier {
            algorithms: provider.signature_verification_algorithms,
            trusted: trusted.clone(),
            short_key,
        };
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_cert_resolver(identities.clone());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok::<_, TlsFault>(Arc::new(config))
    };
    Ok(Configs {
        usual: config(rustls::DEFAULT_VERSIONS, false)?,
        short_key: config(&[&version::TLS12], true)?,
    })
}

/// Adds the authorities of a PEM file to `roots`, and returns them. Skips malformed parts, as nodes do (Go's
/// `AppendCertsFromPEM`).
fn add(roots: &mut RootCertStore, file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let fault = |what| TlsFault::Authorities(file.to_owned(), what);
    let text = file::read(file).map_err(|cause| fault(format!("cannot be read: {cause}")))?;
    let mut added = Vec::new();
    let mut skipped = Vec::new();
    for (line, part) in parts(&text) {
        let why = match CertificateDer::from_pem_slice(&part) {
            Ok(certificate) if roots.add(certificate.clone()).is_ok() => {
                added.push(certificate);
                continue;
            }
            Ok(_) => "it is no certificate that can be read",
            Err(pem::Error::NoItemsFound) => "it is no CERTIFICATE",
            Err(_) => "it is no PEM: its base64 is broken, or its end is missing",
        };
        skipped.push((line, why));
    }
    for (line, why) in skipped.iter().take(MAX_LOGGED) {
        tracing::warn!(file = %file.display(), line, why, "a part of a file of certificate authorities is skipped");
    }
    if skipped.len() > MAX_LOGGED {
        tracing::warn!(file = %file.display(), more = skipped.len() - MAX_LOGGED, "more parts are skipped");
    }
    if added.is_empty() {
        return Err(fault(
            "holds no certificate authority in PEM that can be read".to_owned(),
        ));
    }
    Ok(added)
}

/// Splits a text before each line that begins a part of PEM. Returns the parts, each with the number of its first line.
fn parts(text: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let mut parts: Vec<(usize, Vec<u8>)> = Vec::new();
    for (number, line) in (1..).zip(text.split_inclusive(|byte| *byte == b'\n')) {
        if line.starts_with(b"-----BEGIN ") {
            parts.push((number, line.to_vec()));
        } else if let Some((_, part)) = parts.last_mut() {
            part.extend_from_slice(line);
        }
    }
    parts
}

fn identity(
    file: &Path,
    key_file: &Path,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, TlsFault> {
    let unreadable = |file: &Path, cause: pem::Error| {
        let what = "cannot be read as a PEM client certificate or key";
        TlsFault::Identity(file.to_owned(), what, cause.to_string())
    };
    let chain = read_chain(file).map_err(|cause| unreadable(file, cause))?;
    let key = read_key(key_file).map_err(|cause| unreadable(key_file, cause))?;
    match CertifiedKey::from_der(chain, key, provider) {
        Ok(pair) => Ok(Arc::new(pair)),
        Err(cause) => {
            let what = "the client certificate cannot be used with its key";
            Err(TlsFault::Identity(file.to_owned(), what, cause.to_string()))
        }
    }
}

fn read_chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, pem::Error> {
    let text = Zeroizing::new(file::read(file).map_err(pem::Error::Io)?);
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&text).collect::<Result<_, _>>()?;
    if chain.is_empty() {
        return Err(pem::Error::NoItemsFound);
    }
    Ok(chain)
}

fn read_key(file: &Path) -> Result<PrivateKeyDer<'static>, pem::Error> {
    let text = Zeroizing::new(file::read(file).map_err(pem::Error::Io)?);
    PrivateKeyDer::from_pem_slice(&text)
}

/// Chooses the client certificate: the first one whose issuer the server names, or else the first one that can sign.
#[derive(Debug)]
struct Identities(Vec<Arc<CertifiedKey>>);

impl ResolvesClientCert for Identities {
    fn resolve(&self, issuers: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let issued = |certificate: &CertificateDer<'_>| {
            let parsed = x509_parser::parse_x509_certificate(certificate);
            parsed.is_ok_and(|(_, certificate)| issuers.contains(&certificate.issuer().as_raw()))
        };
        let mut first_usable = None;
        for pair in &self.0 {
            if pair.key.choose_scheme(schemes).is_none() {
                continue;
            }
            if pair.cert.iter().any(issued) {
                return Some(Arc::clone(pair));
            }
            first_usable = first_usable.or(Some(pair));
        }
        first_usable.cloned()
    }

    fn has_certs(&self) -> bool {
        !self.0.is_empty()
    }
}

#[cfg(test)]
mod tests;
