//! Checks of the replicas by their reports: components, certificates, versions, and answers of registries.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use x509_parser::time::ASN1Time;

use super::findings::{Exam, Findings, Status, some_of};
use super::installation::Backend;
use crate::cli::advice::fix;
use tolerarch_core::reason::{LookupError, Reason};
use tolerarch_kubernetes::cluster::RequestError;
use tolerarch_support::logging::date;

const DENIED: Reason = Reason::Unknown(LookupError::Denied);

/// Checks the reports of each replica. Reading them takes the right to get pods/proxy.
pub(super) async fn check(exam: &mut Exam<'_>, backend: &Backend) {
    let (mut metrics, mut read) = (Vec::new(), 0);
    let mut failed: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, admin) in &backend.admin {
        let (what, path) = (format!("the metrics of {name}"), format!("{admin}/metrics"));
        let text = exam.findings.read("certificate", &what, exam.client.text(&path).await);
        let has_metrics = text.is_some();
        metrics.extend(text.map(|text| (name.as_str(), text)));
        match exam.client.text(&format!("{admin}/readyz?verbose")).await {
            Ok(lines) | Err(RequestError::Refused { message: lines, .. })
                if lines.contains("readyz check ") =>
            {
                read += 1;
                for line in lines.lines().filter_map(|line| line.strip_prefix("[-]")) {
                    failed.entry(line.to_owned()).or_default().push(name);
                }
            }
            // Where the metrics cannot be read either, that is a finding already.
            answer if has_metrics => {
                exam.findings.read("components", &format!("the components of {name}"), answer);
            }
            _ => {}
        }
    }
    let findings = &mut exam.findings;
    check_certificates(&metrics, findings);
    if read > 0 && failed.is_empty() {
        findings.ok("components", format!("all of them work, in {read} of {} replicas", backend.admin.len()));
    }
    for (line, names) in failed {
        let fix = "look at the log of the Pod, and at docs/runbooks/TolerarchDegraded.md";
        findings.failed("components", format!("{line} ({})", some_of(names)), fix);
    }
    check_versions(&metrics, findings);
    check_registries(&metrics, findings);
}

/// Checks the certificate of each replica. `metrics` has the name of each replica, and its metrics.
fn check_certificates(metrics: &[(&str, String)], findings: &mut Findings) {
    let mut end: Option<i64> = None;
    for (name, text) in metrics {
        let expiry = samples(text, "tolerarch_certificate_expiry_timestamp_seconds").next();
        let expiry = expiry.map(|(_, expiry)| expiry as i64);
        let is_invalid = |error: &str| sum(text, "tolerarch_certificate_invalid", "error", error) > 0.0;
        let what = match expiry {
            Some(expiry) if expiry <= ASN1Time::now().timestamp() => {
                format!("expired at {}", date(expiry))
            }
            _ if is_invalid("not-yet-valid") => "is not valid yet".to_owned(),
            _ if is_invalid("wrong-name") => "is not for the name of its Service".to_owned(),
            _ => {
                end = [end, expiry].into_iter().flatten().min();
                continue;
            }
        };
        let fix = "renew it, with <service>.<namespace>.svc among its DNS names: with tls.mode managed look at the log of the Pod of \
            `tolerarch certificates`, with cert-manager at kubectl describe certificate, otherwise replace the Secret; where it \
            is not valid yet, compare the clocks of the machines";
        findings.failed("certificate", format!("{name} serves one that {what}"), fix);
    }
    if let Some(end) = end {
        findings.ok("certificate", format!("the first of the replicas' expires at {}", date(end)));
    }
}

/// Checks by the replicas' metrics whether registries answer them: this machine reaches registries by another path.
fn check_registries(metrics: &[(&str, String)], findings: &mut Findings) {
    let mut failing: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let (mut denied, mut is_asked, mut asks) = (0.0, false, false);
    for (name, text) in metrics {
        let counted = |metric: &'static str, fault: &'static str| {
            let samples = samples(text, metric).filter(|(_, count)| *count > 0.0);
            samples.map(move |(labels, _)| (label(labels, "registry"), fault.to_owned()))
        };
        let mut codes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (labels, _) in samples(text, "tolerarch_registry_requests_total") {
            codes.entry(label(labels, "registry")).or_default().insert(label(labels, "code"));
        }
        is_asked |= !codes.is_empty();
        let unanswered = codes.into_iter().filter_map(|(registry, codes)| {
            let is_answered = codes.iter().any(|code| code.ends_with("xx"));
            let failure =
                codes.into_iter().find(|code| ["unreachable", "address-not-allowed"].contains(code));
            let failure = failure.filter(|_| !is_answered)?;
            Some((registry, format!("has answered no request so far: {failure}")))
        });
        // Of several faults of a registry, the last is kept: it says most.
        let faults: BTreeMap<&str, String> = unanswered
            .chain(counted("tolerarch_registry_failing", "did not answer the last time that it was asked"))
            .chain(counted("tolerarch_registry_circuit_open", "keeps failing: its circuit is open"))
            .collect();
        for (registry, fault) in faults {
            let is_named = registry != "other";
            let registry =
                if is_named { registry } else { "a registry that the configuration does not name" };
            failing.entry(format!("{registry} {fault}")).or_default().push(*name);
        }
        asks |= samples(text, "tolerarch_lookups_in_flight").any(|(_, count)| count > 0.0);
        denied += sum(text, "tolerarch_reviews_total", "reason", DENIED.as_str());
    }
    if !metrics.is_empty() && failing.is_empty() && denied == 0.0 {
        match is_asked {
            _ if asks => findings.unknown("registries", "lookups are under way: run this again"),
            true => findings.ok("registries", "every registry that was asked answers"),
            false => findings.unknown("registries", "no registry has been asked yet"),
        }
    }
    for (why, names) in failing {
        let fix = "see that it runs, and let the replicas out to it: docs/runbooks/TolerarchRegistryUnreachable.md finds host and error in their log, and \
            tolerarch inspect --explain IMAGE shows each request; one that is back counts once a Pod has asked it";
        findings.failed("registries", format!("{why} ({})", some_of(names)), fix);
    }
    if denied > 0.0 {
        let message = format!(
            "{denied} reviews since the replicas started ended with denied: a registry wants a login"
        );
        findings.add(Status::Unknown, "registries", message, fix(DENIED).unwrap_or_default());
    }
}

/// Checks the versions that the replicas say, whatever their images are called.
fn check_versions(metrics: &[(&str, String)], findings: &mut Findings) {
    let own = env!("CARGO_PKG_VERSION");
    let infos = metrics.iter().flat_map(|(_, text)| samples(text, "tolerarch_build_info"));
    let versions: BTreeSet<&str> = infos.map(|(labels, _)| label(labels, "version")).collect();
    for version in versions {
        let runs = format!("tolerarch {version} runs");
        match numbers(version).cmp(numbers(own)) {
            Ordering::Less => {
                let fix = "upgrade it: helm upgrade, or kubectl apply -k of the new manifests";
                findings.failed("version", format!("{runs}, older than this command ({own})"), fix);
            }
            Ordering::Greater => {
                findings.unknown("version", format!("{runs}, newer than this command ({own})"));
            }
            Ordering::Equal => findings.ok("version", runs),
        }
    }
}

fn numbers(version: &str) -> impl Iterator<Item = Option<u32>> {
    version.split(['.', '-', '+']).take(3).map(|part| part.parse().ok())
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
    let value = labels.split(['{', ',']).find_map(|label| label.strip_prefix(name)?.strip_prefix("=\""));
    value.and_then(|value| value.split('"').next()).unwrap_or_default()
}

pub(super) fn sum(text: &str, metric: &str, name: &str, value: &str) -> f64 {
    samples(text, metric).filter(|(labels, _)| label(labels, name) == value).map(|(_, sample)| sample).sum()
}
