//! Objections to certificates, explained for people who can replace the certificates. Only numbers of a certificate are
//! quoted.

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
const MAX_SHOWN: usize = 32;

#[derive(Debug, thiserror::Error)]
#[error("the certificate is not accepted")]
pub(in crate::registry::net) enum Objection {
    /// The server's RSA key has only this many bits, so a separate handshake is needed.
    ShortKey(u32),
    /// An RSA key has so few bits that it is accepted only under an authority of the operator, and the chain leads to
    /// none.
    ShortKeyOfSystem {
        holder: Holder,
        bits: u32,
        /// Names of the host's files of authorities.
        files: String,
    },
    /// Neither an authority of the system nor one in these files of the host has signed the certificate.
    Untrusted(String),
    /// The certificate is that of an authority, and is not in these files of the host.
    Authority(String),
    /// The presented certificate with this index has this flaw; index 0 is the server's own.
    Flaw(usize, Cow<'static, str>),
    /// The chain as a whole is not accepted, for this reason.
    Chain(Cow<'static, str>),
}

/// Holder of a key.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::registry::net) enum Holder {
    /// The presented certificate with this index; index 0 is the server's own.
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
        for (index, certificate) in presented.iter().enumerate() {
            if let Some(certificate) = parse(certificate)
                && let Some(flaw) = find_flaw(error, index, &certificate, now)
            {
                return Self::Flaw(index, flaw);
            }
        }
        match error {
            Error::CertNotValidForName(_) => Self::Flaw(0, "is not for this name".into()),
            Error::CaUsedAsEndEntity => Self::Authority(files.to_owned()),
            Error::UnknownIssuer | Error::InvalidSignatureForPublicKey => {
                Self::Untrusted(files.to_owned())
            }
            Error::UnsupportedCriticalExtension => Self::Chain(
                "one of its authorities requires a certificate policy (requireExplicitPolicy) that not all certificates below it have, so nodes refuse the chain, too; have these certificates issued with that policy".into(),
            ),
            // Only the name of the error, because its content may quote the certificate.
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

    /// Explains the objection. `host` is the host's name in the configuration.
    pub(in crate::registry::net) fn explain(&self, host: &str) -> String {
        let certificate = format!("the certificate of {host}");
        match self {
            Self::ShortKey(bits) => format!(
                "{certificate} has an RSA key of {bits} bits, for which the server has no handshake that can be verified (TLS 1.2 with a PKCS #1 signature by at least 1,024 bits); give it a key of 2,048 bits"
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
            Self::Flaw(index, what) => {
                format!("certificate {} of the chain of {host} {what}", index + 1)
            }
            Self::Chain(what) => {
                format!("the chain of certificates of {host} is not accepted: {what}")
            }
        }
    }
}

impl From<Objection> for TlsError {
    fn from(objection: Objection) -> Self {
        CertificateError::Other(OtherError(Arc::new(objection))).into()
    }
}

/// Returns the flaw of a certificate that may have caused the error.
fn find_flaw(
    error: &Error,
    index: usize,
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
        Error::InvalidSignatureForPublicKey if index > 0 => signs_by_short_key(certificate),
        _ => None,
    }
}

fn explain_short_key(host: &str, holder: &Holder, bits: u32, files: &str) -> String {
    let holder = match holder {
        Holder::Presented(0) => format!("the certificate of {host}"),
        Holder::Presented(index) => format!("certificate {} of the chain of {host}", index + 1),
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

/// Returns why a server cannot use the certificate, by the certificate's dates and usage.
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
        "is signed by an algorithm that is not accepted, {}; nodes do not accept SHA-1 either: have it signed with SHA-256",
        shown(oid)
    ).into())
}

fn signs_by_short_key(certificate: &X509Certificate<'_>) -> Option<Cow<'static, str>> {
    let bits = short_key::bits(certificate)?;
    Some(format!(
        "has an RSA key of {bits} bits, whose signature cannot be verified; a signature with SHA-256 or SHA-512 by at least 1,024 bits can be, but use 2,048 bits"
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
    Some(format!("has the critical extension {}, which neither this client nor nodes understand; have it issued without that extension", shown(oid)).into())
}

fn shown(oid: &Oid<'_>) -> String {
    if oid.as_bytes().len() > MAX_SHOWN {
        "of an unknown kind".to_owned()
    } else {
        oid.to_id_string()
    }
}

/// Returns the name at the beginning of a `Debug` text.
fn name(debug: &str) -> &str {
    debug
        .split(|character: char| !character.is_alphanumeric())
        .next()
        .unwrap_or_default()
}
