//! A private certificate authority, the only trust anchor of a test.
//!
//! It signs the certificates of registries and of other servers of a test. Each authority is new, so that two tests never
//! trust each other by accident.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};

use crate::sha256;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A private certificate authority (ECDSA P-256).
pub struct Pki {
    ca: CertifiedIssuer<'static, KeyPair>,
    name: String,
}

impl Pki {
    /// Makes an authority with a new key.
    pub fn new() -> Self {
        Self::since(SystemTime::now() - DAY)
    }

    /// Makes an authority whose certificate is valid for a year from `not_before`.
    pub fn since(not_before: SystemTime) -> Self {
        let key = key();
        // Each authority has a different name. With the same name a client would report a bad signature instead of an
        // unknown issuer.
        let name = format!("testregistry CA {}", &sha256(key.public_key_raw())[7..23]);
        Self::with(name, key, not_before)
    }

    /// Makes an authority with the same name and another key.
    pub fn namesake(&self) -> Self {
        Self::with(self.name.clone(), key(), SystemTime::now() - DAY)
    }

    fn with(name: String, key: KeyPair, not_before: SystemTime) -> Self {
        let mut params = params(&[], not_before, not_before + 366 * DAY);
        params
            .distinguished_name
            .push(DnType::CommonName, name.as_str());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca = CertifiedIssuer::self_signed(params, key).expect("sign the CA certificate");
        Self { ca, name }
    }

    /// Returns the certificate of the authority.
    pub fn ca_pem(&self) -> String {
        self.ca.pem()
    }

    /// Returns the private key of the authority.
    pub fn ca_key_pem(&self) -> String {
        self.ca.key().serialize_pem()
    }

    /// Issues a serving certificate for DNS names and IP addresses, valid for a month.
    pub fn leaf(&self, names: &[&str]) -> Leaf {
        self.leaf_until(names, SystemTime::now() + 30 * DAY)
    }

    /// Issues a serving certificate that is valid until `not_after`, which may be in the past.
    pub fn leaf_until(&self, names: &[&str], not_after: SystemTime) -> Leaf {
        self.signed(
            names,
            begin(not_after),
            not_after,
            ExtendedKeyUsagePurpose::ServerAuth,
        )
    }

    /// Issues a serving certificate that is valid for a month from `not_before`, which may be in the future.
    pub fn leaf_from(&self, names: &[&str], not_before: SystemTime) -> Leaf {
        self.signed(
            names,
            not_before,
            not_before + 30 * DAY,
            ExtendedKeyUsagePurpose::ServerAuth,
        )
    }

    /// Issues a client certificate, valid for a month.
    pub fn client_leaf(&self) -> Leaf {
        self.client_leaf_for(&[])
    }

    /// Issues a client certificate with these names, valid for a month.
    pub fn client_leaf_for(&self, names: &[&str]) -> Leaf {
        let not_after = SystemTime::now() + 30 * DAY;
        self.signed(
            names,
            begin(not_after),
            not_after,
            ExtendedKeyUsagePurpose::ClientAuth,
        )
    }

    fn signed(
        &self,
        names: &[&str],
        not_before: SystemTime,
        not_after: SystemTime,
        usage: ExtendedKeyUsagePurpose,
    ) -> Leaf {
        let mut params = params(names, not_before, not_after);
        params
            .distinguished_name
            .push(DnType::CommonName, "testregistry leaf");
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        let key = key();
        let cert = params
            .signed_by(&key, &self.ca)
            .expect("sign a certificate");
        Leaf {
            cert_pem: cert.pem(),
            key_pem: key.serialize_pem(),
        }
    }

    /// Returns the TLS settings of a client that trusts only this authority.
    pub fn client_config(&self) -> ClientConfig {
        self.client_config_of(rustls::DEFAULT_VERSIONS)
    }

    /// Returns the TLS settings of a client that trusts only this authority, with these versions of TLS.
    pub fn client_config_of(&self, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.der().clone()).expect("trust the CA");
        ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(versions)
            .expect("protocol versions of the provider")
            .with_root_certificates(roots)
            .with_no_client_auth()
    }
}

impl Default for Pki {
    fn default() -> Self {
        Self::new()
    }
}

/// A certificate and its key, as PEM.
#[derive(Clone)]
pub struct Leaf {
    /// The certificate.
    pub cert_pem: String,
    /// The private key (PKCS#8).
    pub key_pem: String,
}

impl Leaf {
    /// Writes `tls.crt` and `tls.key`, named as in a Secret of type kubernetes.io/tls.
    pub fn write(&self, dir: &Path) -> std::io::Result<()> {
        std::fs::write(dir.join("tls.crt"), &self.cert_pem)?;
        std::fs::write(dir.join("tls.key"), &self.key_pem)
    }

    /// Returns the TLS settings of an HTTP/1.1 server with this certificate.
    pub fn server_config(&self) -> ServerConfig {
        let chain = CertificateDer::pem_slice_iter(self.cert_pem.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .expect("certificates in PEM");
        let key =
            PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).expect("a private key in PEM");
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("protocol versions of the provider")
                .with_no_client_auth()
                .with_single_cert(chain, key)
                .expect("certificate and key belong together");
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config
    }
}

fn key() -> KeyPair {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("generate a key")
}

/// Returns the start of a certificate's validity: a day before now or before its end, whichever is earlier. Clocks may
/// differ, and some certificates have expired.
fn begin(not_after: SystemTime) -> SystemTime {
    not_after.min(SystemTime::now()) - DAY
}

fn params(names: &[&str], not_before: SystemTime, not_after: SystemTime) -> CertificateParams {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).expect("names of a certificate");
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let since_epoch =
        |time: SystemTime| time.duration_since(UNIX_EPOCH).expect("a time after 1970");
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.not_before = epoch + since_epoch(not_before);
    params.not_after = epoch + since_epoch(not_after);
    params
}
