//! What the webhook configurations themselves say: calls, order, profiles, and two of a kind.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Namespace;

use super::entry::Entry;
use super::findings::Findings;
use crate::cli::kubernetes::name_of;

const NAMED: usize = 5;

pub(super) fn some_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let all: Vec<&str> = names.into_iter().collect();
    let first = all.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    if all.len() > NAMED { format!("{first} and {} more", all.len() - NAMED) } else { first }
}

/// Whether Pods are reviewed, and cannot be harmed.
pub(super) fn check_calls(entry: &Entry, findings: &mut Findings) {
    let (name, webhook) = (entry.name(), &entry.webhook);
    let before = findings.0.len();
    if !entry.has_pods() && entry.is_for_pods() {
        findings.failed(
            "webhook",
            format!("{name} is not called when Pods are created: no rule covers it"),
            "add a rule with operations [CREATE], apiGroups [\"\"], apiVersions [v1] and resources [pods]",
        );
    }
    let path = entry.path().unwrap_or_default();
    if path != "/mutate" && entry.profile().is_none() {
        findings.failed(
            "webhook",
            format!("{name} calls the path {path:?}, where tolerarch does not answer"),
            "set the path in its clientConfig to /mutate, or /mutate/<profile>",
        );
    }
    let policy = webhook.failure_policy.as_deref().unwrap_or("Fail");
    if policy != "Ignore" {
        findings.failed(
            "webhook",
            format!("{name} has failurePolicy {policy}: no Pod starts while tolerarch is away"),
            "set failurePolicy to Ignore",
        );
    }
    // Declared for expressions and never passed to them: each evaluation fails, and the webhook is skipped.
    let mut conditions = webhook.match_conditions.iter().flatten();
    if let Some(condition) = conditions.find(|known| known.expression.contains("namespaceObject")) {
        findings.failed(
            "webhook",
            format!("{name} is never called: its matchCondition {} uses namespaceObject", condition.name),
            "use a namespaceSelector instead: API servers have no namespaceObject for the conditions of webhooks",
        );
    }
    if findings.0.len() == before {
        let target = match entry.service() {
            Some((namespace, service, port)) => format!("Service {namespace}/{service}:{port}"),
            None => webhook.client_config.url.clone().unwrap_or_default(),
        };
        findings.ok("webhook", format!("{name} calls {target}"));
    }
}

/// Whether other webhooks add containers after ours has looked.
pub(super) fn check_order(entry: &Entry, all: &[Entry], namespaces: &[Namespace], findings: &mut Findings) {
    // Where no namespace can be read, any could be theirs.
    let meets = |other: &Entry| {
        namespaces.is_empty() || namespaces.iter().any(|known| entry.selects(known) && other.selects(known))
    };
    let later = all.iter().filter(|other| {
        other.configuration > entry.configuration && !other.is_ours() && other.has_pods() && meets(other)
    });
    let later: BTreeSet<&str> = later.map(|other| &*other.configuration).collect();
    let later = some_of(later);
    if later.is_empty() {
        findings.ok("order", format!("{} is called after all other webhooks for Pods", entry.name()));
    } else if entry.webhook.reinvocation_policy.as_deref() == Some("IfNeeded") {
        findings.ok("order", format!("{} is called again after {later}", entry.name()));
    } else {
        findings.failed(
            "order",
            format!("{later} may add containers after {} has decided", entry.name()),
            "set reinvocationPolicy to IfNeeded, and let the name of the configuration begin with zz-",
        );
    }
}

/// Whether two of ours are called for the same Pods.
pub(super) fn check_overlaps(entries: &[&Entry], namespaces: &[Namespace], findings: &mut Findings) {
    let mut overlaps = false;
    for (at, one) in entries.iter().enumerate() {
        for other in &entries[at + 1..] {
            let both = namespaces.iter().filter(|known| one.selects(known) && other.selects(known));
            let both = some_of(both.map(name_of));
            if both.is_empty() {
                continue;
            }
            overlaps = true;
            let fix = if one.configuration == other.configuration {
                "make their namespaceSelectors exclude each other: profiles by In, the default by NotIn"
            } else {
                "uninstall one of them, or make their namespaceSelectors exclude each other"
            };
            findings.failed(
                "installations",
                format!("{} and {} are both called for Pods in {both}", one.name(), other.name()),
                fix,
            );
        }
    }
    if !overlaps {
        findings.ok("installations", "no namespace has two webhooks of tolerarch");
    }
}

pub(super) fn check_profiles(entries: &[&Entry], profiles: &[String], findings: &mut Findings) {
    let called: Vec<String> = entries.iter().filter_map(|entry| entry.profile()).collect();
    for profile in profiles.iter().filter(|profile| !called.contains(profile)) {
        findings.failed(
            "profiles",
            format!("profile {profile} is never used: no webhook calls /mutate/{profile}"),
            format!(
                "add an entry with this path and a namespaceSelector for tolerarch.io/profile={profile} (the chart renders one for each profile)"
            ),
        );
    }
    for profile in called.iter().filter(|profile| !profiles.contains(profile)) {
        findings.failed(
            "profiles",
            format!("/mutate/{profile} is called, and there is no such profile: Pods are left unchanged (profile-unknown)"),
            format!("add {profile} to profiles in the configuration, or remove the entry"),
        );
    }
    if !profiles.is_empty() && profiles.iter().all(|profile| called.contains(profile)) {
        findings.ok("profiles", format!("each has its entry: {}", profiles.join(", ")));
    }
}
