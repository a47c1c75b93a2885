//! The caBundle, and whether it fits the certificate that is served.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::findings::Findings;
use super::installation::{Backend, Entry};
use tolerarch_kubernetes::cluster::UserClient;

/// How long connecting may take. Where it cannot be reached from here, the dry run shows whether the API server can.
const TIME: Duration = Duration::from_secs(5);

const RENEW: &str = "renew it: with tls.mode managed look at the log of the Pod of `tolerarch certificates`, with cert-manager at \
    kubectl describe certificate, otherwise replace the Secret";

/// The certificates of the caBundle; none where there are none.
pub(super) fn check_bundle(entry: Entry<'_>, findings: &mut Findings) -> Option<RootCertStore> {
    let config = &entry.webhook.client_config;
    let fix = "with tls.mode managed `tolerarch certificates` writes it: look at the log of its Pod for missing rights; with \
        cert-manager its cainjector does, from the annotation cert-manager.io/inject-ca-from; otherwise write it yourself";
    let text = config.ca_bundle.as_deref().unwrap_or_default();
    if text.is_empty() {
        if config.url.is_some() {
            findings
                .unknown("ca-bundle", format!("{} has none: the API server's own roots count", entry.name()));
        } else {
            findings.failed(
                "ca-bundle",
                format!("the caBundle of {} is empty: the API server trusts no certificate", entry.name()),
                fix,
            );
        }
        return None;
    }
    let pem = BASE64_STANDARD.decode(text).unwrap_or_default();
    let mut roots = RootCertStore::empty();
    let mut last = 0;
    for certificate in CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok) {
        if let Ok((_, parsed)) = x509_parser::parse_x509_certificate(&certificate) {
            last = last.max(parsed.validity().not_after.timestamp());
        }
        let _ = roots.add(certificate);
    }
    if roots.is_empty() {
        findings.failed("ca-bundle", format!("the caBundle of {} holds no certificate", entry.name()), fix);
        return None;
    }
    if last <= now() {
        findings.failed(
            "ca-bundle",
            format!(
                "every certificate in the caBundle of {} has expired, the last one at {}",
                entry.name(),
                date(last)
            ),
            fix,
        );
        return None;
    }
    findings.ok("ca-bundle", format!("{} trusts a CA until {}", entry.name(), date(last)));
    Some(roots)
}

/// The certificate at a webhook's URL, as the API server verifies it.
pub(super) async fn check_url(url: &str, roots: RootCertStore, findings: &mut Findings) {
    let Some((host, port)) = host_and_port(url) else {
        findings.failed("certificate", format!("{url} is no URL"), "correct clientConfig.url");
        return;
    };
    let Ok(name) = ServerName::try_from(host.clone()) else { return };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let Ok(config) = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()
    else {
        return;
    };
    let connector = TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()));
    let connect = async {
        let stream = TcpStream::connect((host.as_str(), port)).await?;
        connector.connect(name, stream).await
    };
    let error = match timeout(TIME, connect).await {
        Ok(Ok(_)) => {
            findings.ok("certificate", format!("{host}:{port} serves one that the caBundle verifies"));
            return;
        }
        Ok(Err(error)) => error,
        Err(_) => {
            findings.unknown("certificate", format!("{host}:{port} cannot be reached from here in time"));
            return;
        }
    };
    let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(invalid)) = tls else {
        findings.unknown("certificate", format!("{host}:{port} cannot be reached from here: {error}"));
        return;
    };
    let (what, fix) = explain(invalid, &host);
    findings.failed("certificate", format!("{host}:{port} serves a certificate that {what}"), fix);
}

/// What is wrong with a certificate, and what to do.
fn explain(invalid: &CertificateError, host: &str) -> (String, String) {
    match invalid {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            ("has expired".to_owned(), RENEW.to_owned())
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => (
            "is not valid yet".to_owned(),
            "compare the clocks of the machines, and renew it".to_owned(),
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => (
            format!("is not for {host}"),
            format!("issue one with {host} among its DNS names"),
        ),
        CertificateError::UnknownIssuer | CertificateError::BadSignature => (
            "the caBundle does not verify: another CA has signed it".to_owned(),
            "write the CA that signs it into the caBundle: tls.mode managed and cert-manager's cainjector do that".to_owned(),
        ),
        other => (format!("the API server refuses: {other}"), RENEW.to_owned()),
    }
}

/// What each replica says of its certificate. It is read through the API server, which takes the right to get pods/proxy.
pub(super) async fn check_replicas(client: &UserClient, backend: &Backend, findings: &mut Findings) {
    let namespace = &backend.namespace;
    let mut end: Option<i64> = None;
    for (name, path) in &backend.metrics {
        let metrics = match client.text(path).await {
            Ok(metrics) => metrics,
            Err(error) => {
                findings.unread("certificate", &format!("what {name} serves"), &error);
                continue;
            }
        };
        let value = |prefix: &str| {
            metrics.lines().find_map(|line| line.strip_prefix(prefix)?.trim().parse::<f64>().ok())
        };
        let invalid =
            |error: &str| value(&format!("tolerarch_certificate_invalid{{error=\"{error}\"}}")) == Some(1.0);

        let expiry = value("tolerarch_certificate_expiry_timestamp_seconds ").map(|expiry| expiry as i64);
        if expiry.is_some_and(|expiry| expiry <= now()) {
            let since = date(expiry.unwrap_or_default());
            findings.failed("certificate", format!("{name} serves one that has expired at {since}"), RENEW);
        } else if invalid("not-yet-valid") {
            findings.failed(
                "certificate",
                format!("{name} serves one that is not valid yet"),
                "compare the clocks of the machines, and renew it",
            );
        } else if invalid("wrong-name") {
            findings.failed(
                "certificate",
                format!("{name} serves one that is not for the name of its Service"),
                format!("issue one with <service>.{namespace}.svc among its DNS names"),
            );
        } else {
            end = [end, expiry].into_iter().flatten().min();
        }
    }
    if let Some(end) = end {
        findings.ok("certificate", format!("the first of the replicas' expires at {}", date(end)));
    }
}

fn host_and_port(url: &str) -> Option<(String, u16)> {
    let url = url::Url::parse(url).ok()?;
    let host = match url.host()? {
        url::Host::Domain(name) => name.to_owned(),
        url::Host::Ipv4(address) => address.to_string(),
        url::Host::Ipv6(address) => address.to_string(),
    };
    Some((host, url.port_or_known_default()?))
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

fn date(timestamp: i64) -> String {
    let time = UNIX_EPOCH + Duration::from_secs(u64::try_from(timestamp).unwrap_or(0));
    humantime::format_rfc3339_seconds(time).to_string()
}
