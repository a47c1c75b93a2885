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

use super::findings::{Exam, Findings};
use super::installation::{Backend, Entry};
use tolerarch_support::logging::date;

/// How long connecting may take. Where it cannot be reached from here, the dry run shows whether the API server can.
const TIME: Duration = Duration::from_secs(5);

const RENEW: &str = "renew it: with tls.mode managed look at the log of the Pod of `tolerarch certificates`, with cert-manager at \
    kubectl describe certificate, otherwise replace the Secret";
const CLOCKS: &str = "compare the clocks of the machines, and renew it";

/// The certificates of the caBundle; none where there are none.
pub(super) fn check_bundle(entry: Entry<'_>, findings: &mut Findings) -> Option<RootCertStore> {
    let (name, config) = (entry.name(), &entry.webhook.client_config);
    let text = config.ca_bundle.as_deref().unwrap_or_default();
    if text.is_empty() && config.url.is_some() {
        findings.unknown("ca-bundle", format!("{name} has none: the API server's own roots count"));
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
    let fault = if text.is_empty() {
        format!("the caBundle of {name} is empty: the API server trusts no certificate")
    } else if roots.is_empty() {
        format!("the caBundle of {name} holds no certificate")
    } else if last <= now() {
        format!("every certificate in the caBundle of {name} has expired, the last one at {}", date(last))
    } else {
        findings.ok("ca-bundle", format!("{name} trusts a CA until {}", date(last)));
        return Some(roots);
    };
    findings.failed(
        "ca-bundle",
        fault,
        "with tls.mode managed `tolerarch certificates` writes it: look at the log of its Pod for missing rights; with \
         cert-manager its cainjector does, from the annotation cert-manager.io/inject-ca-from; otherwise write it yourself",
    );
    None
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

fn explain(invalid: &CertificateError, host: &str) -> (String, String) {
    match invalid {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            ("has expired".to_owned(), RENEW.to_owned())
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            ("is not valid yet".to_owned(), CLOCKS.to_owned())
        }
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
pub(super) async fn check_replicas(exam: &mut Exam<'_>, backend: &Backend) {
    let Exam { client, findings, .. } = exam;
    let namespace = &backend.namespace;
    let mut end: Option<i64> = None;
    for (name, admin) in &backend.admin {
        let metrics = match client.text(&format!("{admin}/metrics")).await {
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
        let (what, fix) = if let Some(since) = expiry.filter(|expiry| *expiry <= now()) {
            (format!("has expired at {}", date(since)), RENEW.to_owned())
        } else if invalid("not-yet-valid") {
            ("is not valid yet".to_owned(), CLOCKS.to_owned())
        } else if invalid("wrong-name") {
            (
                "is not for the name of its Service".to_owned(),
                format!("issue one with <service>.{namespace}.svc among its DNS names"),
            )
        } else {
            end = [end, expiry].into_iter().flatten().min();
            continue;
        };
        findings.failed("certificate", format!("{name} serves one that {what}"), fix);
    }
    if let Some(end) = end {
        findings.ok("certificate", format!("the first of the replicas' expires at {}", date(end)));
    }
}

fn host_and_port(url: &str) -> Option<(String, u16)> {
    let url = url::Url::parse(url).ok()?;
    Some((url.host_str()?.trim_matches(['[', ']']).to_owned(), url.port_or_known_default()?))
}

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}
