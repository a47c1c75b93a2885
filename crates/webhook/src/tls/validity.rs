//! Validity of a serving certificate: its time, and its names.

use std::time::{SystemTime, UNIX_EPOCH};

use rustls::client::verify_server_name;
use rustls::server::ParsedCertificate;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::time::Duration;
use x509_parser::certificate::X509Certificate;

use tolerarch_kubernetes::cluster::ObjectName;

/// Reason why an API server that verifies the certificate refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Invalid {
    pub(super) label: &'static str,
    /// Text in `/readyz`.
    pub(super) reason: &'static str,
}

impl Invalid {
    pub(super) const EXPIRED: Self = Self {
        label: "expired",
        reason: "it has expired",
    };
    pub(super) const NOT_YET_VALID: Self = Self {
        label: "not-yet-valid",
        reason: "it is not valid yet",
    };
    pub(super) const WRONG_NAME: Self = Self {
        label: "wrong-name",
        reason: "it is not for the name in tls.serverName",
    };
    pub(super) const WRONG_USAGE: Self = Self {
        label: "wrong-usage",
        reason: "it is not for a server, by its extended key usages",
    };
    pub(super) const ALL: [Self; 4] = [
        Self::EXPIRED,
        Self::NOT_YET_VALID,
        Self::WRONG_NAME,
        Self::WRONG_USAGE,
    ];
}

/// Returns the time since 1970.
pub(super) fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

pub(super) fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

/// Times since 1970 between which a certificate is valid, whether it has the expected name, and whether it is for a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Validity {
    pub(super) begin: Duration,
    pub(super) end: Duration,
    pub(super) named: bool,
    pub(super) is_for_servers: bool,
}

impl Validity {
    /// Reads the certificate; `None` if that is impossible. Without an expected name every name will do.
    pub(super) fn of(leaf: &CertificateDer<'_>, expected: Option<&ObjectName>) -> Option<Self> {
        let (_, parsed) = x509_parser::parse_x509_certificate(leaf).ok()?;
        let named = |name: &ObjectName| {
            let Ok(name) = ServerName::try_from(name.as_str()) else {
                return false;
            };
            ParsedCertificate::try_from(leaf)
                .is_ok_and(|leaf| verify_server_name(&leaf, &name).is_ok())
        };
        let (begin, end) = lifetime(&parsed);
        Some(Self {
            begin,
            end,
            named: expected.is_none_or(named),
            is_for_servers: is_for_servers(&parsed),
        })
    }

    pub(super) fn invalid(&self, now: Duration) -> Option<Invalid> {
        if self.end <= now {
            Some(Invalid::EXPIRED)
        } else if now < self.begin {
            Some(Invalid::NOT_YET_VALID)
        } else if !self.named {
            Some(Invalid::WRONG_NAME)
        } else if !self.is_for_servers {
            Some(Invalid::WRONG_USAGE)
        } else {
            None
        }
    }
}

/// Returns the times since 1970 at which the validity of a certificate begins and ends.
pub(super) fn lifetime(certificate: &X509Certificate<'_>) -> (Duration, Duration) {
    let validity = certificate.validity();
    // Before 1970 is long ago.
    let time = |time: i64| Duration::from_secs(u64::try_from(time).unwrap_or(0));
    (
        time(validity.not_before.timestamp()),
        time(validity.not_after.timestamp()),
    )
}

/// Returns whether the usages of the certificate, if it has any, include that of a server. Those of a CA count as well.
pub(super) fn is_for_servers(parsed: &X509Certificate<'_>) -> bool {
    match parsed.extended_key_usage() {
        Ok(None) => true,
        Ok(Some(usage)) => usage.value.any || usage.value.server_auth,
        Err(_) => false,
    }
}
