//! Why there is no connection to a host, in words for whoever can change it.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use rustls::{AlertDescription, CertificateError, Error as TlsError, InvalidMessage};
use url::Url;

use super::authority::{label, shown};
use super::connect::ConnectError;
use crate::registry::limits;

/// No connection to a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoConnection {
    /// As the configuration names it.
    host: String,
    cause: Cause,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Cause {
    Name,
    Refused,
    Silent,
    Untrusted,
    /// webpki takes no certificate of an authority from a server.
    Authority,
    OtherNames,
    Expired,
    NotYetValid,
    PlainHttp,
    /// The server refuses the client.
    Alert(AlertDescription),
    /// The texts of the causes, truncated: they may quote a certificate.
    Other(String),
}

impl NoConnection {
    /// To the host of this URL.
    pub(super) fn to(url: &Url, error: &ConnectError) -> Self {
        Self { host: shown(&label(url)), cause: Cause::of(error) }
    }
}

impl Cause {
    fn of(error: &ConnectError) -> Self {
        let known = match error {
            ConnectError::Resolve(_) => Some(Self::Name),
            ConnectError::Dial(error) => match error.kind() {
                io::ErrorKind::ConnectionRefused => Some(Self::Refused),
                io::ErrorKind::TimedOut => Some(Self::Silent),
                _ => None,
            },
            ConnectError::Tls(error) => error.get_ref().and_then(|error| Self::of_tls(error.downcast_ref()?)),
            _ => None,
        };
        known.unwrap_or_else(|| Self::Other(texts(error)))
    }

    fn of_tls(error: &TlsError) -> Option<Self> {
        Some(match error {
            TlsError::InvalidMessage(InvalidMessage::InvalidContentType) => Self::PlainHttp,
            TlsError::AlertReceived(alert) => Self::Alert(*alert),
            TlsError::InvalidCertificate(error) => match error {
                CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::Untrusted,
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    Self::OtherNames
                }
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    Self::NotYetValid
                }
                // webpki's error has no variant of its own in rustls.
                CertificateError::Other(error) if error.to_string().contains("CaUsedAsEndEntity") => {
                    Self::Authority
                }
                _ => return None,
            },
            _ => return None,
        })
    }
}

/// The texts of an error and its causes, truncated.
pub(super) fn texts(error: &(dyn StdError + 'static)) -> String {
    let mut text = String::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text.chars().take(limits::CAUSE).collect()
}

impl fmt::Display for NoConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, cause } = self;
        match cause {
            Cause::Name => write!(f, "{host} cannot be reached: its name cannot be resolved"),
            Cause::Refused => write!(f, "{host} cannot be reached: it refuses the connection"),
            Cause::Silent => write!(
                f,
                "{host} cannot be reached: it takes no connection in time; a NetworkPolicy or firewall may be in the way"
            ),
            Cause::Untrusted => write!(
                f,
                "the certificate of {host} is not trusted; if it should be, set registries.hosts.{host:?}.caFile to its authority"
            ),
            Cause::Authority => write!(
                f,
                "the certificate of {host} is that of an authority; if it is the right one, set registries.hosts.{host:?}.caFile to that very certificate"
            ),
            Cause::OtherNames => write!(f, "the certificate of {host} is not for this name"),
            Cause::Expired => write!(f, "the certificate of {host} has expired"),
            Cause::NotYetValid => {
                write!(f, "the certificate of {host} is not valid yet; compare the clocks")
            }
            Cause::PlainHttp => write!(
                f,
                "{host} does not speak TLS; if that is right, set registries.hosts.{host:?}.plainHttp: true"
            ),
            Cause::Alert(alert) => write!(f, "{host} refuses the TLS handshake: {alert:?}"),
            Cause::Other(texts) => write!(f, "no connection to {host}: {texts}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_silence_have_words_of_their_own() {
        let url = |text: &str| Url::parse(text).unwrap();
        let error = |kind: io::ErrorKind| io::Error::from(kind);
        for (to, error, expected) in [
            (
                "https://registry-1.docker.io/v2/",
                ConnectError::Resolve(error(io::ErrorKind::Other)),
                "docker.io cannot be reached: its name cannot be resolved",
            ),
            (
                "https://a.b:5000/v2/",
                ConnectError::Dial(error(io::ErrorKind::TimedOut)),
                "a.b:5000 cannot be reached: it takes no connection in time; a NetworkPolicy or firewall may be in the way",
            ),
            (
                "https://a.b/",
                ConnectError::Dial(error(io::ErrorKind::NetworkUnreachable)),
                "no connection to a.b: cannot connect: network unreachable",
            ),
            (
                "https://a.b/",
                ConnectError::Tls(error(io::ErrorKind::UnexpectedEof)),
                "no connection to a.b: the TLS handshake failed: unexpected end of file",
            ),
            (
                "https://a.b/",
                ConnectError::Proxy(ConnectError::Dial(error(io::ErrorKind::ConnectionRefused)).into()),
                "no connection to a.b: the proxy does not let it through: cannot connect: connection refused",
            ),
        ] {
            assert_eq!(NoConnection::to(&url(to), &error).to_string(), expected);
        }
    }
}
