//! Certificates as API servers judge them (Go's `crypto/x509`): whether a certificate is that of a CA, and whether the
//! CA has signed another.

use rustls::crypto::aws_lc_rs;
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm, UnixTime};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::OID_X509_EXT_NAME_CONSTRAINTS;

use super::plan::{Der, Time};
use crate::tls::validity::is_for_servers;

/// Returns whether API servers accept certificates that this CA has signed, for any server name. A root's signature
/// covers all of its content, so a root with a damaged bit is no CA. API servers also trust an intermediate CA without
/// its root.
pub(super) fn is_ca(der: &Der, parsed: &X509Certificate<'_>) -> bool {
    let Ok(usage) = parsed.key_usage() else {
        return false;
    };
    let signs = usage.is_none_or(|usage| usage.value.key_cert_sign());
    let limits_names = parsed
        .extensions()
        .iter()
        .any(|extension| extension.oid == OID_X509_EXT_NAME_CONSTRAINTS);
    // Like Go, fails for unknown critical extensions.
    let Ok(certificate) = EndEntityCert::try_from(der) else {
        return false;
    };
    let is_root = parsed.subject() == parsed.issuer();
    let is_intact = !is_root || has_signed_itself(&certificate, parsed);
    parsed.is_ca() && signs && is_for_servers(parsed) && !limits_names && is_intact
}

fn has_signed_itself(certificate: &EndEntityCert<'_>, parsed: &X509Certificate<'_>) -> bool {
    let signed = parsed.tbs_certificate.as_ref();
    let signature = &parsed.signature_value.data;
    algorithms().iter().any(|algorithm| {
        certificate
            .verify_signature(*algorithm, signed, signature)
            .is_ok()
    })
}

/// Returns whether this CA has signed the certificate, and the certificate is for a server and valid now. Does not
/// compare names.
pub(super) fn has_signed(ca: &Der, leaf: &CertificateDer<'_>, now: Time) -> bool {
    let Ok(anchor) = anchor_from_trusted_cert(ca) else {
        return false;
    };
    let Ok(leaf) = EndEntityCert::try_from(leaf) else {
        return false;
    };
    let now = UnixTime::since_unix_epoch(now);
    leaf.verify_for_usage(
        algorithms(),
        &[anchor],
        &[],
        now,
        KeyUsage::server_auth(),
        None,
        None,
    )
    .is_ok()
}

fn algorithms() -> &'static [&'static dyn SignatureVerificationAlgorithm] {
    aws_lc_rs::default_provider()
        .signature_verification_algorithms
        .all
}
