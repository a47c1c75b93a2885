//! The caBundle, and what replicas say of the certificate that they serve. Whether both fit is proven by the dry run.

use std::time::{SystemTime, UNIX_EPOCH};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::entry::Entry;
use super::findings::Findings;
use super::metrics::{samples, sum};
use tolerarch_support::logging::date;

/// Checks whether the caBundle holds a certificate that is valid.
pub(super) fn check_bundle(entry: &Entry, findings: &mut Findings) {
    let (name, config) = (entry.name(), &entry.webhook.client_config);
    let pem = config.ca_bundle.as_ref().map_or(&[][..], |bundle| &bundle.0);
    let certificates = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
    let end = |certificate: CertificateDer<'_>| {
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate).ok()?;
        Some(parsed.validity().not_after.timestamp())
    };
    let fault = match certificates.filter_map(end).max() {
        None if pem.is_empty() && config.url.is_some() => {
            return findings
                .unknown("ca-bundle", format!("{name} has none: the API server's own roots count"));
        }
        None if pem.is_empty() => {
            format!("the caBundle of {name} is empty: the API server trusts no certificate")
        }
        None => format!("the caBundle of {name} holds no certificate"),
        Some(last) if last <= now() => {
            format!("every certificate in the caBundle of {name} has expired, the last one at {}", date(last))
        }
        Some(last) => return findings.ok("ca-bundle", format!("{name} trusts a CA until {}", date(last))),
    };
    findings.failed(
        "ca-bundle",
        fault,
        "with tls.mode managed `tolerarch certificates` writes it: look at the log of its Pod for missing rights; with \
         cert-manager its cainjector does, from the annotation cert-manager.io/inject-ca-from; otherwise write it yourself",
    );
}

/// Checks what the metrics of each replica, by what people call it, say of its certificate.
pub(super) fn check_replicas(metrics: &[(&str, String)], findings: &mut Findings) {
    let mut end: Option<i64> = None;
    for (name, text) in metrics {
        let expiry = samples(text, "tolerarch_certificate_expiry_timestamp_seconds").next();
        let expiry = expiry.map(|(_, expiry)| expiry as i64);
        let is_invalid = |error: &str| sum(text, "tolerarch_certificate_invalid", "error", error) > 0.0;
        let what = match expiry {
            Some(expiry) if expiry <= now() => format!("has expired at {}", date(expiry)),
            _ if is_invalid("not-yet-valid") => "is not valid yet".to_owned(),
            _ if is_invalid("wrong-name") => "is not for the name of its Service".to_owned(),
            _ => {
                end = [end, expiry].into_iter().flatten().min();
                continue;
            }
        };
        findings.failed(
            "certificate",
            format!("{name} serves one that {what}"),
            "renew it, with <service>.<namespace>.svc among its DNS names: with tls.mode managed look at the log of the Pod of \
             `tolerarch certificates`, with cert-manager at kubectl describe certificate, otherwise replace the Secret; where it \
             is not valid yet, compare the clocks of the machines",
        );
    }
    if let Some(end) = end {
        findings.ok("certificate", format!("the first of the replicas' expires at {}", date(end)));
    }
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}
