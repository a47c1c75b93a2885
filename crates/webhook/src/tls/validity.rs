//! Validity of a serving certificate: its lifetime, its names and its usage.

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

#[derive(Clone, Copy, Debug)]
pub(super) struct Validity {
    /// Time since 1970 from which the certificate is valid.
    pub(super) begin: Duration,
    /// Time since 1970 from which the certificate has expired.
    pub(super) end: Duration,
    /// True if the certificate has the expected name.
    pub(super) has_name: bool,
    pub(super) is_for_servers: bool,
}

impl Validity {
    /// Reads the certificate; `None` if it cannot be parsed. Without an expected name, any name is valid.
    pub(super) fn of(leaf: &CertificateDer<'_>, expected: Option<&ObjectName>) -> Option<Self> {
        let (_, parsed) = x509_parser::parse_x509_certificate(leaf).ok()?;
        let has_name = match expected {
            Some(name) => has_name(leaf, name),
            None => true,
        };
        let (begin, end) = lifetime(&parsed);
        Some(Self {
            begin,
            end,
            has_name,
            is_for_servers: is_for_servers(&parsed),
        })
    }

    /// Returns why API servers refuse the certificate at this time.
    pub(super) fn invalid(&self, now: Duration) -> Option<Invalid> {
        if self.end <= now {
            Some(Invalid::EXPIRED)
        } else if now < self.begin {
            Some(Invalid::NOT_YET_VALID)
        } else if !self.has_name {
            Some(Invalid::WRONG_NAME)
        } else if !self.is_for_servers {
            Some(Invalid::WRONG_USAGE)
        } else {
            None
        }
    }
}

fn has_name(leaf: &CertificateDer<'_>, name: &ObjectName) -> bool {
    let Ok(name) = ServerName::try_from(name.as_str()) else {
        return false;
    };
    let Ok(leaf) = ParsedCertificate::try_from(leaf) else {
        return false;
    };
    verify_server_name(&leaf, &name).is_ok()
}

/// Returns the times since 1970 at which the validity of a certificate begins and ends.
pub(super) fn lifetime(certificate: &X509Certificate<'_>) -> (Duration, Duration) {
    let validity = certificate.validity();
    // Times before 1970 count as 1970: both are long ago.
    let time = |time: i64| Duration::from_secs(u64::try_from(time).unwrap_or(0));
    (
        time(validity.not_before.timestamp()),
        time(validity.not_after.timestamp()),
    )
}

/// Returns whether the extended key usages of the certificate, if it has any, include that of a server. A CA's usages
/// are checked in the same way.
pub(super) fn is_for_servers(parsed: &X509Certificate<'_>) -> bool {
    match parsed.extended_key_usage() {
        Ok(None) => true,
        Ok(Some(usage)) => usage.value.any || usage.value.server_auth,
        Err(_) => false,
    }
}
