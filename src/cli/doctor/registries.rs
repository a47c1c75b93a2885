//! Whether registries answer the replicas, by what these count: the way from here is another one.

use std::collections::{BTreeMap, BTreeSet};

use super::findings::{Findings, Status};
use super::metrics::{label, samples, sum};
use super::webhooks::some_of;
use crate::cli::advice::fix;
use tolerarch_core::reason::Reason;

/// Checks the metrics of each replica, by what people call it.
pub(super) fn check(metrics: &[(&str, String)], findings: &mut Findings) {
    let mut failing: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut denied = 0.0;
    for (name, text) in metrics {
        let mut fails = |registry: &str, why: &str| {
            let registry = if registry == "other" {
                "a registry that the configuration does not name"
            } else {
                registry
            };
            failing.entry(format!("{registry} {why}")).or_default().push(*name);
        };
        for (labels, _) in samples(text, "tolerarch_registry_circuit_open").filter(|(_, open)| *open > 0.0) {
            fails(label(labels, "registry"), "keeps failing: its circuit is open");
        }
        let mut codes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for (labels, _) in samples(text, "tolerarch_registry_requests_total") {
            codes.entry(label(labels, "registry")).or_default().insert(label(labels, "code"));
        }
        for (registry, codes) in codes {
            let is_answered = codes.iter().any(|code| code.ends_with("xx"));
            let failure =
                codes.into_iter().find(|code| ["unreachable", "address-not-allowed"].contains(code));
            if let Some(failure) = failure.filter(|_| !is_answered) {
                fails(registry, &format!("has answered no request so far: {failure}"));
            }
        }
        denied += sum(text, "tolerarch_reviews_total", "reason", Reason::Denied.as_str());
    }
    if !metrics.is_empty() && failing.is_empty() && denied == 0.0 {
        findings.ok("registries", "every registry that was asked answers");
    }
    for (why, names) in failing {
        findings.failed(
            "registries",
            format!("{why} ({})", some_of(names)),
            "let the replicas out to it: docs/runbooks/TolerarchRegistryUnreachable.md finds host and error in their log, and \
             tolerarch inspect --explain IMAGE shows each request",
        );
    }
    if denied > 0.0 {
        let message = format!(
            "{denied} reviews since the replicas started ended with denied: a registry wants a login"
        );
        findings.add(Status::Unknown, "registries", message, fix(Reason::Denied).unwrap_or_default());
    }
}
