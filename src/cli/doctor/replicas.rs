//! Checks of the replicas by what they report: components, certificates, versions, and answers of registries.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use x509_parser::time::ASN1Time;

use super::findings::{Exam, Status, SubjectFindings};
use super::installation::{Backend, has_started, port_of};
use crate::cli::advice::fix;
use crate::cli::kubernetes::name_of;
use tolerarch_core::reason::{LookupError, Reason};
use tolerarch_kubernetes::cluster::RequestError;
use tolerarch_support::logging::date;

/// Default admin port.
const ADMIN: i32 = 8080;
const DENIED: Reason = Reason::Unknown(LookupError::Denied);
const COMPONENT_FIX: &str = "see the log of the Pod and docs/runbooks/TolerarchDegraded.md";
const CERTIFICATE_FIX: &str = "renew it, with <service>.<namespace>.svc among its DNS names: with tls.mode managed see the log of the Pod of \
    `tolerarch certificates`, with cert-manager see kubectl describe certificate, otherwise replace the Secret; if it is not \
    valid yet, compare the clocks of the machines";

/// Checks what each replica reports. Reading it takes the right to get pods/proxy.
pub(super) async fn check(exam: &mut Exam<'_>, backend: &Backend<'_>) {
    let mut reports = Vec::new();
    for pod in backend.workload.pods.iter().filter(|pod| has_started(pod)) {
        let namespace = &backend.namespace;
        let name = name_of(pod);
        let port = port_of(pod, "admin").unwrap_or(ADMIN);
        let admin = format!("/api/v1/namespaces/{namespace}/pods/http:{name}:{port}/proxy");
        let mut replica = SubjectFindings::on(format!("Pod {name}"));
        let metrics = exam.client.text(&format!("{admin}/metrics")).await;
        let what = |name: &str| format!("the metrics of {name}");
        if let Some(metrics) = replica.read("certificate", what, metrics) {
            check_certificate(&metrics, &mut replica);
            let components = match exam.client.text(&format!("{admin}/readyz?verbose")).await {
                Err(RequestError::Refused { message, .. }) if message.starts_with('[') => {
                    Ok(message)
                }
                answer => answer,
            };
            let what = |name: &str| format!("the components of {name}");
            let components = replica.read("components", what, components);
            check_components(&components.unwrap_or_default(), &mut replica);
            check_version(&metrics, &mut replica);
            check_registries(&metrics, &mut replica);
        }
        reports.push(replica);
    }
    exam.findings.merge(reports);
}

/// Reports until when the certificate is valid. A certificate that API servers refuse is reported as a fault of its
/// component.
fn check_certificate(metrics: &str, replica: &mut SubjectFindings) {
    let Some((_, end)) = samples(metrics, "tolerarch_certificate_expiry_timestamp_seconds").next()
    else {
        return;
    };
    let end = end as i64;
    let message = |name: &str| format!("that of {name} expires at {}", date(end));
    if end > ASN1Time::now().timestamp() {
        replica.ok("certificate", message);
    } else {
        replica.unknown("certificate", message);
    }
}

fn check_components(report: &str, replica: &mut SubjectFindings) {
    let failed: Vec<&str> = report
        .lines()
        .filter_map(|line| line.strip_prefix("[-]"))
        .collect();
    if failed.is_empty() && report.starts_with("[+]") {
        replica.ok("components", |name| {
            format!("all components of {name} work")
        });
    }
    for line in failed {
        let is_certificate = line.starts_with("certificate ");
        let (check, fix) = if is_certificate {
            ("certificate", CERTIFICATE_FIX)
        } else {
            ("components", COMPONENT_FIX)
        };
        replica.failed(check, |name| format!("{name}: {line}"), fix);
    }
}

/// Checks by a replica's metrics whether registries answer it. A request from this machine would take another path.
fn check_registries(metrics: &str, replica: &mut SubjectFindings) {
    let requests = samples(metrics, "tolerarch_registry_requests_total");
    let requests: Vec<(&str, &str)> = requests
        .map(|(labels, _)| (label(labels, "registry"), label(labels, "code")))
        .collect();
    let faults = faulty_registries(metrics, &requests);
    let denied = sum(
        metrics,
        "tolerarch_reviews_total",
        "reason",
        DENIED.as_str(),
    );
    if denied > 0.0 {
        let message = |name: &str| {
            format!(
                "{denied} reviews of {name} ended with denied since it started: a registry requires a login"
            )
        };
        let advice = fix(DENIED).unwrap_or_default();
        replica.add(Status::Unknown, "registries", message, advice);
    } else if faults.is_empty() {
        match samples(metrics, "tolerarch_lookups_in_flight").next() {
            Some((_, 1.0..)) => replica.unknown("registries", |name| {
                format!("lookups of {name} are in progress: run this again")
            }),
            _ if requests.is_empty() => replica.unknown("registries", |name| {
                format!("{name} has sent no request to a registry yet")
            }),
            _ => replica.ok("registries", |name| {
                format!("every registry that {name} uses answers")
            }),
        }
    }
    for (registry, fault) in faults {
        let registry = if registry == "other" {
            "a registry that the configuration does not name"
        } else {
            registry
        };
        let fix = "check that it runs and that the replicas may connect to it: docs/runbooks/TolerarchRegistryUnreachable.md shows how \
            to find host and error in their log, and tolerarch inspect --explain IMAGE shows each request; the finding goes away with the \
            next lookup that succeeds";
        let message = |name: &str| format!("{name}: {registry} {fault}");
        replica.failed("registries", message, fix);
    }
}

/// Returns the registries that do not answer a replica, with their faults. If a registry has several faults, the last one
/// is returned: it says most.
fn faulty_registries<'m>(
    metrics: &'m str,
    requests: &[(&'m str, &'m str)],
) -> BTreeMap<&'m str, String> {
    let mut faults = BTreeMap::new();
    for (registry, code) in requests {
        let mut answers = requests.iter().filter(|(_, code)| code.ends_with("xx"));
        let has_answered = answers.any(|(answering, _)| answering == registry);
        if ["unreachable", "address-not-allowed"].contains(code) && !has_answered {
            faults.insert(*registry, format!("has answered no request so far: {code}"));
        }
    }
    for (metric, fault) in [
        (
            "tolerarch_registry_failing",
            "did not answer the last request",
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
    faults
}

/// Checks the version that a replica reports: the tag of its image proves nothing.
fn check_version(metrics: &str, replica: &mut SubjectFindings) {
    let this_version = env!("CARGO_PKG_VERSION");
    let numbers = |version: &str| -> Vec<Option<u32>> {
        let parts = version.split(['.', '-', '+']).take(3);
        parts.map(|part| part.parse().ok()).collect()
    };
    for (labels, _) in samples(metrics, "tolerarch_build_info") {
        let version = label(labels, "version");
        let runs = |name: &str| format!("tolerarch {version} runs in {name}");
        match numbers(version).cmp(&numbers(this_version)) {
            Ordering::Less => {
                let fix = "upgrade it: helm upgrade, or kubectl apply -k of the new manifests";
                let message = |name: &str| {
                    format!("{}, older than this command ({this_version})", runs(name))
                };
                replica.failed("version", message, fix);
            }
            Ordering::Greater => replica.unknown("version", |name| {
                format!("{}, newer than this command ({this_version})", runs(name))
            }),
            Ordering::Equal => replica.ok("version", runs),
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
    let mut pairs = labels.split(['{', ',']);
    let value = pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix("=\""));
    let value = value.and_then(|value| value.split('"').next());
    value.unwrap_or_default()
}

pub(super) fn sum(text: &str, metric: &str, name: &str, value: &str) -> f64 {
    let with_value = samples(text, metric).filter(|(labels, _)| label(labels, name) == value);
    with_value.map(|(_, sample)| sample).sum()
}
