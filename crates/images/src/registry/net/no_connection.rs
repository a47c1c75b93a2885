//! Explains why there is no connection to a host, and what can be done about it.

use std::error::Error as StdError;
use std::io;
use std::iter::successors;

use rustls::{AlertDescription, Error as TlsError, InvalidMessage};
use url::Url;

use super::authority::{label, shown};
use super::connect::{ConnectError, ProxyCause, ProxyFault};
use super::verifier::Objection;

/// Maximum characters of the cause of a broken connection. The cause may quote a certificate.
const MAX_CAUSE: usize = 200;

/// Page that lists what nodes accept and this client does not.
const LIMITS: &str = "docs/registries.md, Certificates and cipher suites";

/// Explains why there is no connection to the host of this URL. The host is named as in the configuration.
pub(super) fn explain(url: &Url, error: &ConnectError) -> String {
    let host = shown(label(url));
    let why = match error {
        ConnectError::Resolve(error) if error.kind() == io::ErrorKind::TimedOut => {
            "no name server answers for it in time; check that they run, and that no NetworkPolicy blocks port 53"
        }
        ConnectError::Resolve(_) => {
            "its name cannot be resolved; check that it is right, and that the cluster's DNS knows it"
        }
        ConnectError::Dial(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            "it refuses the connection"
        }
        ConnectError::Dial(error) if error.kind() == io::ErrorKind::TimedOut => {
            "it takes no connection in time; a NetworkPolicy or firewall may be in the way"
        }
        ConnectError::Setup(fault) => return format!("TLS with {host} cannot be set up: {fault}"),
        ConnectError::Proxy(fault) => return explain_proxy(&host, fault),
        error => {
            if let Some(error) = error.tls_error()
                && let Some(why) = explain_tls(&host, error)
            {
                return why;
            }
            return format!("no connection to {host}: {}", texts(error));
        }
    };
    format!("{host} cannot be reached: {why}")
}

/// Explains an alert that arrived after the handshake. In TLS 1.3 a server judges the client's certificate only then.
pub(super) fn explain_alert(url: &Url, error: &(dyn StdError + 'static)) -> Option<String> {
    for cause in causes(error) {
        if let Some(broken) = cause.downcast_ref::<io::Error>()
            && let Some(inner) = broken.get_ref()
            && let Some(alert) = inner.downcast_ref()
        {
            return explain_tls(&shown(label(url)), alert);
        }
    }
    None
}

fn explain_proxy(host: &str, fault: &ProxyFault) -> String {
    let ProxyFault {
        url,
        variable,
        cause,
    } = fault;
    let proxy = url.origin().ascii_serialization();
    let why = match cause {
        ProxyCause::Refused(answer) => answer.clone(),
        ProxyCause::Silent => {
            "gives no answer in time; a NetworkPolicy or firewall may be in the way, to it or behind it"
                .to_owned()
        }
        ProxyCause::Unreached(error) => match error.tls_error() {
            Some(TlsError::InvalidMessage(InvalidMessage::InvalidContentType)) => {
                format!("does not speak TLS; write http:// for it in {variable}")
            }
            _ => format!("cannot be used: {}", explain(url, error)),
        },
    };
    format!("{host} cannot be reached: its proxy {proxy} ({variable}) {why}")
}

fn explain_tls(host: &str, error: &TlsError) -> Option<String> {
    match error {
        TlsError::AlertReceived(AlertDescription::CertificateRequired) => Some(format!(
            "{host} wants a client certificate; set registries.hosts.{host:?}.clientCertFile"
        )),
        TlsError::InvalidMessage(InvalidMessage::InvalidContentType) => Some(format!(
            "{host} does not speak TLS; if it speaks plain HTTP, set registries.hosts.{host:?}.plainHttp: true"
        )),
        // Servers differ in which of these alerts they send when they share no cipher suite or group with the client.
        TlsError::AlertReceived(
            alert @ (AlertDescription::HandshakeFailure
            | AlertDescription::InsufficientSecurity
            | AlertDescription::ProtocolVersion),
        ) => {
            let mut reasons = Vec::new();
            if *alert == AlertDescription::ProtocolVersion {
                reasons.push(
                    "if it has neither TLS 1.2 nor TLS 1.3, switch one of them on there, as nodes need it as well"
                        .to_owned(),
                );
            }
            reasons.extend([
                "if all its cipher suites have CBC or lack ECDHE, which this client does not support, switch on TLS 1.3 there, or for TLS 1.2 ECDHE with AES-GCM or ChaCha20-Poly1305".to_owned(),
                "if it has no group for the key exchange (curve) in common with nodes, switch on X25519, P-256, P-384 or P-521 there".to_owned(),
                "if it signs with SHA-1 only in TLS 1.2, switch on SHA-256 there".to_owned(),
                format!("if it wants a client certificate, set registries.hosts.{host:?}.clientCertFile"),
            ]);
            let reasons = reasons.join("; ");
            Some(format!(
                "{host} refuses the TLS handshake: {alert:?}; {reasons} (see {LIMITS})"
            ))
        }
        TlsError::AlertReceived(AlertDescription::NoApplicationProtocol) => Some(format!(
            "{host} refuses the TLS handshake: NoApplicationProtocol; it speaks HTTP/2 only, so switch on HTTP/1.1 there"
        )),
        TlsError::AlertReceived(alert) => {
            Some(format!("{host} refuses the TLS handshake: {alert:?}"))
        }
        error => Objection::in_error(error).map(|objection| objection.explain(host)),
    }
}

/// Returns an error and its causes.
pub(super) fn causes<'e>(
    error: &'e (dyn StdError + 'static),
) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    successors(Some(error), |&error| error.source())
}

pub(super) fn texts(error: &(dyn StdError + 'static)) -> String {
    let mut texts = Vec::new();
    for cause in causes(error) {
        let mut text = cause.to_string();
        // Some texts of rustls end with a link to rustls' documentation.
        if let Some(end) = text.find(": https://docs.rs/") {
            text.truncate(end);
        }
        texts.push(text);
    }
    texts.join(": ").chars().take(MAX_CAUSE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolve_errors_and_timeouts_are_explained() {
        let url = |text: &str| Url::parse(text).unwrap();
        let error = |kind: io::ErrorKind| io::Error::from(kind);
        let through = |cause| {
            let url = url("http://proxy.test:3128/");
            ConnectError::Proxy(
                ProxyFault {
                    url,
                    variable: "HTTPS_PROXY",
                    cause,
                }
                .into(),
            )
        };
        for (to, error, expected) in [
            (
                "https://registry-1.docker.io/v2/",
                ConnectError::Resolve(error(io::ErrorKind::Other)),
                "docker.io cannot be reached: its name cannot be resolved; check that it is right, and that the cluster's DNS knows it",
            ),
            (
                "https://a.b/",
                ConnectError::Resolve(error(io::ErrorKind::TimedOut)),
                "a.b cannot be reached: no name server answers for it in time; check that they run, and that no NetworkPolicy blocks port 53",
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
                through(ProxyCause::Unreached(
                    ConnectError::Dial(error(io::ErrorKind::ConnectionRefused)).into(),
                )),
                "a.b cannot be reached: its proxy http://proxy.test:3128 (HTTPS_PROXY) cannot be used: proxy.test:3128 cannot be reached: it refuses the connection",
            ),
            (
                "https://a.b/",
                through(ProxyCause::Silent),
                "a.b cannot be reached: its proxy http://proxy.test:3128 (HTTPS_PROXY) gives no answer in time; a NetworkPolicy or firewall may be in the way, to it or behind it",
            ),
        ] {
            assert_eq!(explain(&url(to), &error), expected);
        }
    }
}
