//! TLS of each host: the system's certificate authorities; for single hosts others beside them, a client certificate, or no
//! verification.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::{self, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tolerarch_support::file;
use zeroize::Zeroizing;

use super::connect::TlsSettings;
use super::verifier::Verifier;

#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// A directory or a file in it.
    #[error("registries.hostsDir: {0}: cannot be read: {1}")]
    HostsDir(PathBuf, std::io::Error),
    #[error("{0}: cannot be read as PEM certificates (caFile of registries.hosts, or ca of hosts.toml): {1}")]
    File(PathBuf, pem::Error),
    #[error("{0}: holds no certificate authority (caFile of registries.hosts, or ca of hosts.toml)")]
    NoAuthority(PathBuf),
    #[error(
        "{0}: cannot be read as a PEM client certificate or key (clientCertFile and clientKeyFile of registries.hosts, or client of hosts.toml): {1}"
    )]
    Identity(PathBuf, pem::Error),
    #[error("{0}: the client certificate cannot be used with its key: {1}")]
    Pair(PathBuf, rustls::Error),
    #[error("the resolver of names cannot be set up: {0}")]
    Names(String),
    /// The crypto provider lacks something.
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Tls {
    /// PEM files of authorities that are trusted beside the system's.
    pub(crate) authorities: Vec<PathBuf>,
    /// PEM files of client certificates, with that of the key where it is another one.
    pub(crate) identities: Vec<(PathBuf, Option<PathBuf>)>,
    pub(crate) skip_verify: bool,
}

impl Tls {
    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let identities = self.identities.iter().flat_map(|(file, key)| [Some(file), key.as_ref()]);
        self.authorities.iter().chain(identities.flatten()).cloned()
    }
}

/// The TLS settings of the hosts that are dialled, and of those that only the default directory speaks of. Reads the files.
pub(crate) fn settings(
    hosts: BTreeMap<String, Tls>,
    default: Option<Tls>,
) -> Result<TlsSettings, TrustError> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "a certificate authority of the system cannot be read");
    }
    let mut system = RootCertStore::empty();
    system.add_parsable_certificates(found.certs);
    if system.is_empty() {
        tracing::warn!(
            "the system has no certificate authorities; only registries with a caFile can be reached"
        );
    }
    let mut made: HashMap<Tls, Arc<ClientConfig>> = HashMap::new();
    let mut make = |host: &str, tls: Tls| {
        if tls.skip_verify {
            tracing::warn!(
                host,
                "certificates are NOT verified (skipVerify): anyone between here and this host can answer for it"
            );
        }
        if let Some(config) = made.get(&tls) {
            return Ok(Arc::clone(config));
        }
        let config = Arc::new(client_config(&system, &tls)?);
        made.insert(tls, Arc::clone(&config));
        Ok::<_, TrustError>(config)
    };
    let mut own = HashMap::new();
    for (host, tls) in hosts {
        let config = make(&host, tls)?;
        own.insert(host, config);
    }
    let default = default.map(|tls| make("every host without a directory of its own", tls));
    let default = default.unwrap_or_else(|| make("", Tls::default()))?;
    Ok(TlsSettings { default, hosts: own })
}

fn client_config(system: &RootCertStore, tls: &Tls) -> Result<ClientConfig, TrustError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
    let mut roots = system.clone();
    let mut own = Vec::new();
    for file in tls.authorities.iter().filter(|_| !tls.skip_verify) {
        own.extend(add(&mut roots, file)?);
    }
    let builder = if tls.skip_verify {
        let any = Verifier { algorithms: provider.signature_verification_algorithms, trusted: None };
        builder.dangerous().with_custom_certificate_verifier(Arc::new(any))
    } else if own.is_empty() {
        builder.with_root_certificates(roots)
    } else {
        let trusted = Verifier::new(Arc::clone(&provider), roots, own)?;
        builder.dangerous().with_custom_certificate_verifier(Arc::new(trusted))
    };
    let mut config = if tls.identities.is_empty() {
        builder.with_no_client_auth()
    } else {
        let identities = tls.identities.iter().map(|(file, key)| identity(file, key.as_deref(), &provider));
        builder.with_client_cert_resolver(Arc::new(Identities(identities.collect::<Result<_, _>>()?)))
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Adds the authorities of a file; returns all its certificates.
fn add(roots: &mut RootCertStore, file: &Path) -> Result<Vec<CertificateDer<'static>>, TrustError> {
    let unreadable = |cause| TrustError::File(file.to_owned(), cause);
    let text = file::read(file).map_err(pem::Error::Io).map_err(unreadable)?;
    let certificates = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(unreadable)?;
    let (added, _) = roots.add_parsable_certificates(certificates.iter().cloned());
    if added == 0 { Err(TrustError::NoAuthority(file.to_owned())) } else { Ok(certificates) }
}

fn identity(
    file: &Path,
    key: Option<&Path>,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, TrustError> {
    let text = |file| file::read(file).map(Zeroizing::new).map_err(pem::Error::Io);
    let chain = || match CertificateDer::pem_slice_iter(&text(file)?).collect::<Result<Vec<_>, _>>()? {
        none if none.is_empty() => Err(pem::Error::NoItemsFound),
        chain => Ok(chain),
    };
    let chain = chain().map_err(|cause| TrustError::Identity(file.to_owned(), cause))?;
    let key_file = key.unwrap_or(file);
    let key = text(key_file).and_then(|text| PrivateKeyDer::from_pem_slice(&text));
    let key = key.map_err(|cause| TrustError::Identity(key_file.to_owned(), cause))?;
    let pair = CertifiedKey::from_der(chain, key, provider);
    pair.map(Arc::new).map_err(|cause| TrustError::Pair(file.to_owned(), cause))
}

/// Chooses the client certificate: the first one whose issuer the server names, else the first that can sign.
#[derive(Debug)]
struct Identities(Vec<Arc<CertifiedKey>>);

impl ResolvesClientCert for Identities {
    fn resolve(&self, issuers: &[&[u8]], schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let able = || self.0.iter().filter(|pair| pair.key.choose_scheme(schemes).is_some());
        let issued = |certificate: &CertificateDer<'_>| {
            let parsed = x509_parser::parse_x509_certificate(certificate);
            parsed.is_ok_and(|(_, certificate)| issuers.contains(&certificate.issuer().as_raw()))
        };
        let named = able().find(|pair| pair.cert.iter().any(issued));
        named.or_else(|| able().next()).cloned()
    }

    fn has_certs(&self) -> bool {
        !self.0.is_empty()
    }
}
