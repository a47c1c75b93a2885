//! Whom to trust: the system's certificate authorities, and more of them for single hosts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use super::connect::TlsSettings;
use super::host::{HUB, HUB_ENDPOINT, Hosts};

/// Why the connections to registries cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// A `caFile` cannot be read as PEM.
    #[error("registries.hosts: caFile {file}: cannot be read as PEM certificates: {cause}")]
    File {
        /// The file.
        file: PathBuf,
        /// Why.
        cause: rustls_pki_types::pem::Error,
    },
    /// A `caFile` has no certificate that can be used.
    #[error("registries.hosts: caFile {0}: holds no certificate authority")]
    NoAuthority(PathBuf),
    /// The crypto provider lacks something.
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
}

pub(super) fn settings(hosts: &Hosts) -> Result<TlsSettings, TrustError> {
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
    let mut by_file: HashMap<&Path, Arc<ClientConfig>> = HashMap::new();
    let mut own = HashMap::new();
    for (host, settings) in hosts.iter() {
        let Some(file) = &settings.ca_file else { continue };
        if !by_file.contains_key(file.as_path()) {
            let mut roots = system.clone();
            add(&mut roots, file)?;
            by_file.insert(file, Arc::new(client_config(roots)?));
        }
        own.extend(by_file.get(file.as_path()).map(|config| (host.clone(), Arc::clone(config))));
    }
    if let Some(config) = own.get(HUB).cloned() {
        own.entry(HUB_ENDPOINT.to_owned()).or_insert(config);
    }
    Ok(TlsSettings { default: Arc::new(client_config(system)?), hosts: own })
}

fn add(roots: &mut RootCertStore, file: &Path) -> Result<(), TrustError> {
    let unreadable = |cause| TrustError::File { file: file.to_owned(), cause };
    let certificates = CertificateDer::pem_file_iter(file).map_err(unreadable)?;
    let certificates = certificates.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 { Err(TrustError::NoAuthority(file.to_owned())) } else { Ok(()) }
}

fn client_config(roots: RootCertStore) -> Result<ClientConfig, TrustError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
