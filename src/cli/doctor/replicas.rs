//! Checks of the replicas by their reports: components, certificates, versions, and answers of registries.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use x509_parser::time::ASN1Time;

use super::findings::{Exam, Findings, Status};
use super::installation::{Backend, has_started, port_of};
use crate::cli::advice::fix;
use crate::cli::kubernetes::name_of;
use tolerarch_core::reason::{LookupError, Reason};
use tolerarch_kubernetes::cluster::RequestError;
use tolerarch_support::logging::date;

/// Default admin port.
const ADMIN: i32 = 8080;
const DENIED: Reason = Reason::Unknown(LookupError::Denied);
const LOOK: &str = "look at the log of the Pod, and at docs/runbooks/TolerarchDegraded.md";
const RENEW: &str = "renew it, with <service>.<namespace>.svc among its DNS names: with tls.mode managed look at the log of the Pod of \
    `tolerarch certificates`, with cert-manager at kubectl describe certificate, otherwise replace the Secret; where it is not \
    valid yet, compare the clocks of the machines";

/// Checks the reports of each replica. Reading them takes the right to get pods/proxy.
pub(super) async fn check(exam: &mut Exam<'_>, backend: &Backend<'_>) {
    let mut reports = Vec::new();
    for pod in backend.workload.pods.iter().filter(|pod| has_started(pod)) {
        let (namespace, name) = (&backend.namespace, name_of(pod));
        let port = port_of(pod, "admin").unwrap_or(ADMIN);
        let admin = format!("/api/v1/namespaces/{namespace}/pods/http:{name}:{port}/proxy");
        let (name, mut own) = (format!("Pod {name}"), Findings::default());
        let metrics = exam.client.text(&format!("{admin}/metrics")).await;
        if let Some(metrics) = own.read("certificate", &format!("the metrics of {name}"), metrics) {
            check_certificate(&name, &metrics, &mut own);
            let components = match exam.client.text(&format!("{admin}/readyz?verbose")).await {
                Err(RequestError::Refused { message, .. }) if message.starts_with('[') => {
                    Ok(message)
                }
                answer => answer,
            };
            let components = own.read(
                "components",
                &format!("the components of {name}"),
                components,
            );
            check_components(&name, &components.unwrap_or_default(), &mut own);
            check_version(&name, &metrics, &mut own);
            check_registries(&name, &metrics, &mut own);
        }
        reports.push((name, own));
    }
    exam.findings.merge(reports);
}

/// Reports until when the certificate is valid; one that API servers refuse is a fault of its component.
fn check_certificate(name: &str, metrics: &str, findings: &mut Findings) {
    let Some((_, end)) = samples(metrics, "tolerarch_certificate_expiry_timestamp_seconds").next()
    else {
        return;
    };
    let end = end as i64;
    let status = if end > ASN1Time::now().timestamp() {
        Status::Ok
    } else {
        Status::Unknown
    };
    findings.add(
        status,
        "certificate",
        format!("the one of {name} ends at {}", date(end)),
        "",
    );
}

fn check_components(name: &str, lines: &str, findings: &mut Findings) {
    let mut failed = lines
        .lines()
        .filter_map(|line| line.strip_prefix("[-]"))
        .peekable();
    if failed.peek().is_none() && lines.starts_with("[+]") {
        findings.ok("components", format!("all components of {name} work"));
    }
    for line in failed {
        let is_certificate = line.starts_with("certificate ");
        let (check, fix) = if is_certificate {
            ("certificate", RENEW)
        } else {
            ("components", LOOK)
        };
        findings.failed(check, format!("{name}: {line}"), fix);
    }
}

/// Checks by a replica's metrics whether registries answer it: this machine reaches registries by another path.
fn check_registries(name: &str, metrics: &str, findings: &mut Findings) {
    let requests = samples(metrics, "tolerarch_registry_requests_total");
    let requests: Vec<_> = requests
        .map(|(labels, _)| (label(labels, "registry"), label(labels, "code")))
        .collect();
    // Of several faults of a registry, the last is kept: it says most.
    let mut faults = BTreeMap::new();
    for (registry, code) in &requests {
        let has_answered = requests
            .iter()
            .any(|(known, code)| known == registry && code.ends_with("xx"));
        if ["unreachable", "address-not-allowed"].contains(code) && !has_answered {
            faults.insert(*registry, format!("has answered no request so far: {code}"));
        }
    }
    for (metric, fault) in [
        (
            "tolerarch_registry_failing",
            "did not answer the last time that it was asked",
        ),
        (
            "tolerarch_registry_circuit_open",
            "keeps failing: its circuit is open",
        ),
    ] {
        for (labels, _) in samples(metrics, metric).filter(|(_, count)| *count > 0.0) {
            faults.insert(label(labels, "registry"), fault.to_owned());
        }
    }
    let denied = sum(
        metrics,
        "tolerarch_reviews_total",
        "reason",
        DENIED.as_str(),
    );
    if denied > 0.0 {
        let message = format!(
            "{denied} reviews of {name} ended with denied since it started: a registry wants a login"
        );
        findings.add(
            Status::Unknown,
            "registries",
            message,
            fix(DENIED).unwrap_or_default(),
        );
    } else if faults.is_empty() {
        match samples(metrics, "tolerarch_lookups_in_flight").next() {
            Some((_, 1.0..)) => {
                findings.unknown(
                    "registries",
                    format!("lookups of {name} are under way: run this again"),
                );
            }
            _ if requests.is_empty() => {
                findings.unknown("registries", format!("{name} has asked no registry yet"));
            }
            _ => findings.ok(
                "registries",
                format!("every registry that {name} has asked answers"),
            ),
        }
    }
    for (registry, fault) in faults {
        let is_named = registry != "other";
        let registry = if is_named {
            registry
        } else {
            "a registry that the configuration does not name"
        };
        let fix = "see that it runs, and let the replicas out to it: docs/runbooks/TolerarchRegistryUnreachable.md finds host and error in their log, and \
            tolerarch inspect --explain IMAGE shows each request; one that is back counts once a Pod has asked it";
        findings.failed("registries", format!("{name}: {registry} {fault}"), fix);
    }
}

/// Checks the version that a replica says, whatever its image is called.
fn check_version(name: &str, metrics: &str, findings: &mut Findings) {
    let own = env!("CARGO_PKG_VERSION");
    let numbers = |version: &str| -> Vec<Option<u32>> {
        version
            .split(['.', '-', '+'])
            .take(3)
            .map(|part| part.parse().ok())
            .collect()
    };
    for (labels, _) in samples(metrics, "tolerarch_build_info") {
        let version = label(labels, "version");
        let runs = format!("tolerarch {version} runs in {name}");
        match numbers(version).cmp(&numbers(own)) {
            Ordering::Less => {
                let fix = "upgrade it: helm upgrade, or kubectl apply -k of the new manifests";
                findings.failed(
                    "version",
                    format!("{runs}, older than this command ({own})"),
                    fix,
                );
            }
            Ordering::Greater => {
                findings.unknown(
                    "version",
                    format!("{runs}, newer than this command ({own})"),
                );
            }
            Ordering::Equal => findings.ok("version", runs),
        }
    }
}

/// Returns the samples of a metric in Prometheus' text format, each with its labels as unparsed text.
fn samples<'m>(text: &'m str, metric: &'m str) -> impl Iterator<Item = (&'m str, f64)> {
    text.lines().filter_map(move |line| {
        let (labels, value) = line.strip_prefix(metric)?.rsplit_once(' ')?;
        (labels.is_empty() || labels.starts_with('{')).then_some((labels, value.parse().ok()?))
    })
}

/// Returns the value of a label, without unescaping: no value that is read here has a quote.
fn label<'m>(labels: &'m str, name: &str) -> &'m str {
    let value = labels
        .split(['{', ','])
        .find_map(|label| label.strip_prefix(name)?.strip_prefix("=\""));
    value
        .and_then(|value| value.split('"').next())
        .unwrap_or_default()
}

pub(super) fn sum(text: &str, metric: &str, name: &str, value: &str) -> f64 {
    samples(text, metric)
        .filter(|(labels, _)| label(labels, name) == value)
        .map(|(_, sample)| sample)
        .sum()
}
