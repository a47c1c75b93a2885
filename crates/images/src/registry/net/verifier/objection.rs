//! Objections to certificates, for whoever can change them. Nothing of a certificate is quoted but numbers.

use std::borrow::Cow;
use std::sync::Arc;

use rustls::{CertificateError, Error as TlsError, OtherError};
use rustls_pki_types::{CertificateDer, UnixTime};
use webpki::Error;
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::Oid;
use x509_parser::time::ASN1Time;

use super::original::parse;
use super::{policies, short_key};

/// Extensions that webpki understands, below 2.5.29.
const UNDERSTOOD: [u8; 6] = [15, 17, 19, 30, 31, 37];
/// Maximum bytes of an object identifier in a message.
const SHOWN: usize = 32;

#[derive(Debug, thiserror::Error)]
#[error("the certificate is not taken")]
pub(in crate::registry::net) enum Objection {
    /// The server's RSA key has so many bits, for which there is a separate handshake.
    ShortKey(u32),
    /// An RSA key has so few bits that it counts only under an authority of the operator, and there is none.
    ShortKeyOfSystem {
        holder: Holder,
        bits: u32,
        /// List of the host's files, for its authority.
        files: String,
    },
    /// No authority has signed the certificate, neither one of the system nor one in these files for the host.
    Untrusted(String),
    /// The certificate is that of an authority, and is not in these files for the host.
    Authority(String),
    /// One of the certificates that were presented is flawed; the server's own has the place 0.
    Flaw(usize, Cow<'static, str>),
    Chain(Cow<'static, str>),
}

/// Holder of a key.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::registry::net) enum Holder {
    /// One of the certificates that were presented; the server's own has the place 0.
    Presented(usize),
    /// An authority of the system.
    Authority,
}

impl Objection {
    /// Explains webpki's error by the certificates that were presented, the server's own first.
    pub(super) fn of(
        error: &Error,
        presented: &[&CertificateDer<'_>],
        now: UnixTime,
        files: &str,
    ) -> Self {
        for (place, certificate) in presented.iter().enumerate() {
            if let Some(certificate) = parse(certificate)
                && let Some(flaw) = find_flaw(error, place, &certificate, now)
            {
                return Self::Flaw(place, flaw);
            }
        }
        match error {
            Error::CertNotValidForName(_) => Self::Flaw(0, "is not for this name".into()),
            Error::CaUsedAsEndEntity => Self::Authority(files.to_owned()),
            Error::UnknownIssuer | Error::InvalidSignatureForPublicKey => {
                Self::Untrusted(files.to_owned())
            }
            Error::UnsupportedCriticalExtension => Self::Chain(
                "one of its authorities requires a certificate policy (requireExplicitPolicy) that not all certificates below it have, so that nodes refuse it, too; have them issued with that policy".into(),
            ),
            // Name of the error, without its content.
            error => {
                Self::Chain(format!("it is not valid: {}", name(&format!("{error:?}"))).into())
            }
        }
    }

    pub(in crate::registry::net) fn in_error(error: &TlsError) -> Option<&Self> {
        match error {
            TlsError::InvalidCertificate(CertificateError::Other(OtherError(error))) => {
                error.downcast_ref()
            }
            _ => None,
        }
    }

    /// Explains the objection, for a host as the configuration names it.
    pub(in crate::registry::net) fn explain(&self, host: &str) -> String {
        let certificate = format!("the certificate of {host}");
        match self {
            Self::ShortKey(bits) => format!(
                "{certificate} has an RSA key of {bits} bits, for which the server has no handshake that can be verified (TLS 1.2 with a signature of PKCS #1 by 1,024 bits at least); give it a key of 2,048 bits"
            ),
            Self::ShortKeyOfSystem {
                holder,
                bits,
                files,
            } => explain_short_key(host, holder, *bits, files),
            Self::Untrusted(files) if files.is_empty() => format!(
                "{certificate} is not trusted; if it should be, set registries.hosts.{host:?}.caFile to its authority, or extraCAs of the chart"
            ),
            Self::Untrusted(files) => format!(
                "{certificate} is signed by no authority in {files}, nor by one of the system; if it should be trusted, add its authority there, and have the server send the certificates between"
            ),
            Self::Authority(files) if files.is_empty() => format!(
                "{certificate} is that of an authority; if it is the right one, set registries.hosts.{host:?}.caFile to that very certificate"
            ),
            Self::Authority(files) => format!(
                "{certificate} is that of an authority; if it is the right one, add that very certificate to {files}"
            ),
            Self::Flaw(0, what) => format!("{certificate} {what}"),
            Self::Flaw(place, what) => {
                format!("certificate {} of the chain of {host} {what}", place + 1)
            }
            Self::Chain(what) => {
                format!("the chain of certificates of {host} is not taken: {what}")
            }
        }
    }
}

impl From<Objection> for TlsError {
    fn from(objection: Objection) -> Self {
        CertificateError::Other(OtherError(Arc::new(objection))).into()
    }
}

/// Returns what is wrong with a certificate that may be the reason of the error.
fn find_flaw(
    error: &Error,
    place: usize,
    certificate: &X509Certificate<'_>,
    now: UnixTime,
) -> Option<Cow<'static, str>> {
    match error {
        Error::CertExpired { .. }
        | Error::CertNotValidYet { .. }
        | Error::RequiredEkuNotFoundContext(_) => unusable(certificate, now),
        Error::UnsupportedSignatureAlgorithmContext(context) => {
            let id = context.signature_algorithm_id.get(2..).unwrap_or_default();
            signed_by(certificate, id)
        }
        Error::UnknownIssuer | Error::UnsupportedCriticalExtension => not_understood(certificate),
        // The server's own key signs no certificate.
        Error::InvalidSignatureForPublicKey if place > 0 => signs_by_short_key(certificate),
        _ => None,
    }
}

fn explain_short_key(host: &str, holder: &Holder, bits: u32, files: &str) -> String {
    let holder = match holder {
        Holder::Presented(0) => format!("the certificate of {host}"),
        Holder::Presented(place) => format!("certificate {} of the chain of {host}", place + 1),
        Holder::Authority => format!("the authority that has signed the certificate of {host}"),
    };
    let trust = if files.is_empty() {
        format!("set registries.hosts.{host:?}.caFile to the authority")
    } else {
        format!("add the authority to {files}")
    };
    format!(
        "{holder} has an RSA key of {bits} bits, and below 2,048 bits a key counts only under an authority that you trust for this host yourself: {trust}, or have the key replaced by one of 2,048 bits"
    )
}

/// Returns why a server cannot use the certificate: its dates, or its usage.
pub(super) fn unusable(
    certificate: &X509Certificate<'_>,
    now: UnixTime,
) -> Option<Cow<'static, str>> {
    let seconds = |time: ASN1Time| u64::try_from(time.timestamp()).unwrap_or_default();
    let validity = certificate.validity();
    if now.as_secs() < seconds(validity.not_before) {
        return Some("is not valid yet; compare the clocks".into());
    }
    if now.as_secs() > seconds(validity.not_after) {
        return Some("has expired".into());
    }
    let is_for_servers = match certificate.extended_key_usage() {
        Ok(Some(usage)) => usage.value.server_auth || usage.value.any,
        Ok(None) => true,
        Err(_) => false,
    };
    if !is_for_servers {
        return Some("is not for servers: its extended key usage says so, to nodes as well; have it issued with serverAuth".into());
    }
    None
}

fn signed_by(certificate: &X509Certificate<'_>, algorithm: &[u8]) -> Option<Cow<'static, str>> {
    let oid = &certificate.signature_algorithm.algorithm;
    if !algorithm.starts_with(oid.as_bytes()) {
        return None;
    }
    Some(format!(
        "is signed by an algorithm that is not taken, {}; nodes take no SHA-1 either: have it signed with SHA-256",
        shown(oid)
    ).into())
}

fn signs_by_short_key(certificate: &X509Certificate<'_>) -> Option<Cow<'static, str>> {
    let bits = short_key::bits(certificate)?;
    Some(format!(
        "has an RSA key of {bits} bits, by which what it has signed cannot be verified; SHA-256 or SHA-512 with 1,024 bits at least can, and 2,048 bits are right"
    ).into())
}

/// Names the first critical extension that webpki does not understand.
fn not_understood(certificate: &X509Certificate<'_>) -> Option<Cow<'static, str>> {
    let understood = |oid: &Oid<'_>| {
        policies::is_about(oid)
            || matches!(oid.as_bytes(), [85, 29, last] if UNDERSTOOD.contains(last))
    };
    let mut extensions = certificate.extensions().iter();
    let oid = &extensions
        .find(|extension| extension.critical && !understood(&extension.oid))?
        .oid;
    Some(format!("has the critical extension {}, which is not understood, by nodes neither; have it issued without", shown(oid)).into())
}

fn shown(oid: &Oid<'_>) -> String {
    if oid.as_bytes().len() > SHOWN {
        "of an unknown kind".to_owned()
    } else {
        oid.to_id_string()
    }
}

fn name(debug: &str) -> &str {
    debug
        .split(|character: char| !character.is_alphanumeric())
        .next()
        .unwrap_or_default()
}
