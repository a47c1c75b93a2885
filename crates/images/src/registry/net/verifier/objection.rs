//! Objections to certificates, for whoever can change them. Nothing of a certificate is quoted but numbers.

use std::sync::Arc;

use rustls::{CertificateError, Error as TlsError, OtherError};
use rustls_pki_types::{CertificateDer, UnixTime};
use webpki::Error;
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::Oid;
use x509_parser::parse_x509_certificate;
use x509_parser::time::ASN1Time;

use super::{original, policies};

/// Extensions that webpki understands, below 2.5.29.
const UNDERSTOOD: [u8; 6] = [15, 17, 19, 30, 31, 37];
/// Maximal bytes of an object identifier in a message.
const SHOWN: usize = 32;

#[derive(Debug, thiserror::Error)]
pub(in crate::registry::net) enum Objection {
    /// The server's RSA key has so many bits, for which there is a separate handshake.
    #[error("a short RSA key")]
    ShortKey(u32),
    /// No authority has signed the certificate, neither one of the system nor one in these files for the host.
    #[error("not trusted")]
    Untrusted(String),
    /// The certificate is that of an authority, and is not in these files for the host.
    #[error("an authority")]
    Authority(String),
    /// One of the certificates that were presented is flawed; the server's own has the place 0.
    #[error("{1}")]
    Flaw(usize, String),
    #[error("{0}")]
    Chain(String),
}

impl Objection {
    /// Translates webpki's error about certificates that were presented, the server's own first.
    pub(super) fn of<'c>(
        error: Error,
        presented: impl Iterator<Item = &'c CertificateDer<'c>> + Clone,
        files: &str,
    ) -> Self {
        let parsed = || presented.clone().enumerate().filter_map(|(place, der)| Some((place, parse(der)?)));
        let place = |is: &dyn Fn(&X509Certificate<'_>) -> bool| {
            parsed().find(|(_, certificate)| is(certificate)).map_or(0, |(place, _)| place)
        };
        let is = |time: ASN1Time, other: UnixTime| u64::try_from(time.timestamp()) == Ok(other.as_secs());
        let flaw = |place, what: &str| Self::Flaw(place, what.to_owned());
        match error {
            Error::CertExpired { not_after, .. } => {
                flaw(place(&|certificate| is(certificate.validity().not_after, not_after)), "has expired")
            }
            Error::CertNotValidYet { not_before, .. } => {
                let place = place(&|certificate| is(certificate.validity().not_before, not_before));
                flaw(place, "is not valid yet; compare the clocks")
            }
            Error::CertNotValidForName(_) => flaw(0, "is not for this name"),
            Error::RequiredEkuNotFoundContext(_) => flaw(
                place(&|certificate| !is_for_servers(certificate)),
                "is not for servers: its extended key usage says so, to nodes as well; have it issued with serverAuth",
            ),
            Error::UnsupportedSignatureAlgorithmContext(context) => {
                let id = context.signature_algorithm_id.get(2..).unwrap_or_default();
                let signed = parsed().find_map(|(place, certificate)| {
                    let oid = &certificate.signature_algorithm.algorithm;
                    id.starts_with(oid.as_bytes()).then(|| (place, shown(oid)))
                });
                let (place, oid) = signed.unwrap_or_default();
                Self::Flaw(
                    place,
                    format!(
                        "is signed by an algorithm that is not taken, {oid}; nodes take no SHA-1 either: have it signed with SHA-256"
                    ),
                )
            }
            Error::CaUsedAsEndEntity => Self::Authority(files.to_owned()),
            Error::UnknownIssuer | Error::UnsupportedCriticalExtension => {
                let unknown =
                    parsed().find_map(|(place, certificate)| Some((place, not_understood(&certificate)?)));
                match (unknown, error) {
                    (Some((place, oid)), _) => Self::Flaw(place, format!("has the critical extension {oid}, which is not understood, by nodes neither; have it issued without")),
                    (None, Error::UnknownIssuer) => Self::Untrusted(files.to_owned()),
                    (None, _) => Self::Chain("one of its authorities requires a certificate policy (requireExplicitPolicy) that not all certificates below it have, so that nodes refuse it, too; have them issued with that policy".to_owned()),
                }
            }
            Error::InvalidSignatureForPublicKey => {
                let mut others = presented.clone().enumerate().skip(1);
                match others.find_map(|(place, der)| Some((place, original::short_key(der)?))) {
                    Some((place, bits)) => Self::Flaw(
                        place,
                        format!(
                            "has an RSA key of {bits} bits, by which what it has signed cannot be verified; SHA-256 or SHA-512 with 1,024 bits at least can, and 2,048 bits are right"
                        ),
                    ),
                    None => Self::Untrusted(files.to_owned()),
                }
            }
            // Name of the error, without its content.
            error => Self::Chain(format!("it is not valid: {}", name(&format!("{error:?}")))),
        }
    }

    pub(in crate::registry::net) fn in_error(error: &TlsError) -> Option<&Self> {
        match error {
            TlsError::InvalidCertificate(CertificateError::Other(OtherError(error))) => error.downcast_ref(),
            _ => None,
        }
    }

    /// Explains the objection, for a host as the configuration names it.
    pub(in crate::registry::net) fn explain(&self, host: &str) -> String {
        let own = format!("the certificate of {host}");
        match self {
            Self::ShortKey(bits) => format!(
                "{own} has an RSA key of {bits} bits, for which the server has no handshake that can be verified (TLS 1.2 with a signature of PKCS #1 by 1,024 bits at least); give it a key of 2,048 bits"
            ),
            Self::Untrusted(files) if files.is_empty() => format!(
                "{own} is not trusted; if it should be, set registries.hosts.{host:?}.caFile to its authority, or extraCAs of the chart"
            ),
            Self::Untrusted(files) => format!(
                "{own} is signed by no authority in {files}, nor by one of the system; if it should be trusted, add its authority there, and have the server send the certificates between"
            ),
            Self::Authority(files) if files.is_empty() => format!(
                "{own} is that of an authority; if it is the right one, set registries.hosts.{host:?}.caFile to that very certificate"
            ),
            Self::Authority(files) => format!(
                "{own} is that of an authority; if it is the right one, add that very certificate to {files}"
            ),
            Self::Flaw(0, what) => format!("{own} {what}"),
            Self::Flaw(place, what) => format!("certificate {} of the chain of {host} {what}", place + 1),
            Self::Chain(what) => format!("the chain of certificates of {host} is not taken: {what}"),
        }
    }
}

impl From<Objection> for TlsError {
    fn from(objection: Objection) -> Self {
        CertificateError::Other(OtherError(Arc::new(objection))).into()
    }
}

fn parse<'c>(der: &'c CertificateDer<'c>) -> Option<X509Certificate<'c>> {
    Some(parse_x509_certificate(der).ok()?.1)
}

fn is_for_servers(certificate: &X509Certificate<'_>) -> bool {
    let usage = certificate.extended_key_usage().ok().flatten();
    usage.is_none_or(|usage| usage.value.server_auth || usage.value.any)
}

/// Returns the first critical extension that webpki does not understand.
fn not_understood(certificate: &X509Certificate<'_>) -> Option<String> {
    let understood = |oid: &Oid<'_>| {
        policies::is_about(oid) || matches!(oid.as_bytes(), [85, 29, last] if UNDERSTOOD.contains(last))
    };
    let mut critical = certificate.extensions().iter().filter(|extension| extension.critical);
    critical.find(|extension| !understood(&extension.oid)).map(|extension| shown(&extension.oid))
}

fn shown(oid: &Oid<'_>) -> String {
    if oid.as_bytes().len() > SHOWN { "of an unknown kind".to_owned() } else { oid.to_id_string() }
}

fn name(debug: &str) -> &str {
    debug.split(|character: char| !character.is_alphanumeric()).next().unwrap_or_default()
}
