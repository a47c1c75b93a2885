//! Keys and certificates as PEM: a CA, the certificate that it signs, and a bundle of CAs.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::crypto::aws_lc_rs;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::net::IpAddr;
use std::time::Duration;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use zeroize::Zeroizing;

use super::chain::{has_signed, is_ca};
use super::plan::{BACKDATE, Ca, Der, Leaf, Time};
use crate::tls::validity::lifetime;

pub(super) struct Authority {
    pub(super) ca: Ca,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(super) fn new(now: Time, lifetime: Duration) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let expires = now + lifetime;
        let mut params = params(&[], now, expires)?;
        // Each CA has a different name: verifiers find issuers by name, and try each key of that name.
        let name = format!("tolerarch CA {:016x}", fastrand::u64(..));
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let ca = Ca {
            der: params.self_signed(&key)?.into(),
            created: now,
            expires,
        };
        Ok(Self {
            ca,
            issuer: Issuer::new(params, key),
        })
    }

    /// Reads a CA from its certificate and key, both PEM. `None` if API servers would not trust what the CA signs.
    pub(super) fn read(certificate: &[u8], key: &[u8]) -> Option<Self> {
        let der = CertificateDer::from_pem_slice(certificate).ok()?;
        let key = KeyPair::from_pem(std::str::from_utf8(key).ok()?).ok()?;
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).ok()?;
        if !is_pair(&parsed, &key) || !is_ca(&der, &parsed) {
            return None;
        }
        let issuer = Issuer::from_ca_cert_der(&der, key).ok()?;
        Some(Self {
            ca: ca(&der, &parsed),
            issuer,
        })
    }

    /// Returns the certificate and the key, both PEM.
    pub(super) fn to_pem(&self) -> (Zeroizing<String>, Zeroizing<String>) {
        let certificate = pem(&self.ca.der);
        let key = self.issuer.key().serialize_pem();
        (certificate.into(), key.into())
    }

    /// Returns a serving certificate for these names and its new key, both PEM.
    pub(super) fn sign(
        &self,
        names: &[String],
        now: Time,
        lifetime: Duration,
    ) -> Result<(Zeroizing<String>, Zeroizing<String>), rcgen::Error> {
        let key = KeyPair::generate()?;
        let expires = self.ca.expires.min(now + lifetime);
        let mut params = params(names, now, expires)?;
        params
            .distinguished_name
            .push(DnType::CommonName, "tolerarch");
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer)?;
        let certificate = pem(certificate.der());
        let key = key.serialize_pem();
        Ok((certificate.into(), key.into()))
    }
}

/// Reads a serving certificate and its key, both PEM, and finds the CA that signed it. `None` if a replica cannot serve
/// them. A chain counts as damage, as the issuer writes none.
pub(super) fn read_leaf(
    certificate: &[u8],
    key: &[u8],
    authorities: &[Authority],
    now: Time,
) -> Option<Leaf> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(certificate).collect();
    let chain = certificates.ok()?;
    let [certificate] = chain.as_slice() else {
        return None;
    };
    let key = PrivateKeyDer::from_pem_slice(key).ok()?;
    CertifiedKey::from_der(chain.clone(), key, &aws_lc_rs::default_provider()).ok()?;
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let alternatives = parsed.subject_alternative_name().ok()??;
    let mut names = Vec::new();
    for name in &alternatives.value.general_names {
        names.extend(server_name(name));
    }
    names.sort();
    let signer = authorities
        .iter()
        .find(|authority| has_signed(&authority.ca.der, certificate, now));
    let (begins, expires) = lifetime(&parsed);
    Some(Leaf {
        ca: signer.map(|authority| authority.ca.der.clone()),
        names,
        issued: begins + BACKDATE,
        expires,
    })
}

/// Returns a DNS name or an IP address as text.
fn server_name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            if let Ok(v4) = <[u8; 4]>::try_from(*bytes) {
                return Some(IpAddr::from(v4).to_string());
            }
            let v6 = <[u8; 16]>::try_from(*bytes).ok()?;
            Some(IpAddr::from(v6).to_string())
        }
        _ => None,
    }
}

fn is_pair(certificate: &X509Certificate<'_>, key: &KeyPair) -> bool {
    certificate.public_key().subject_public_key.data == key.public_key_raw()
}

fn ca(der: &Der, parsed: &X509Certificate<'_>) -> Ca {
    let (begins, expires) = lifetime(parsed);
    Ca {
        der: der.clone(),
        created: begins + BACKDATE,
        expires,
    }
}

/// Reads the certificates of a bundle, and skips whatever else it contains.
pub(super) fn read_bundle(text: &[u8]) -> Vec<Ca> {
    let mut cas = Vec::new();
    for der in CertificateDer::pem_slice_iter(text).flatten() {
        if let Ok((_, parsed)) = x509_parser::parse_x509_certificate(&der) {
            cas.push(ca(&der, &parsed));
        }
    }
    cas
}

fn params(names: &[String], now: Time, expires: Time) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.distinguished_name = DistinguishedName::new();
    params.not_before = epoch + now.saturating_sub(BACKDATE);
    params.not_after = epoch + expires;
    Ok(params)
}

/// Returns the text of a bundle of these certificates.
pub(super) fn bundle_text<'a>(certificates: impl IntoIterator<Item = &'a Der>) -> String {
    certificates.into_iter().map(pem).collect()
}

pub(super) fn pem(certificate: &Der) -> String {
    let encoded = BASE64_STANDARD.encode(certificate);
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    for line in encoded.as_bytes().chunks(64) {
        text += &String::from_utf8_lossy(line);
        text += "\n";
    }
    text += "-----END CERTIFICATE-----\n";
    text
}
