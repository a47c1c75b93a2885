//! What the webhook configurations themselves say: calls, order, profiles, and two of a kind.

use super::findings::Findings;
use super::installation::{Entry, is_ours};
use super::objects::{Namespace, Rule, Webhook, WebhookConfiguration};

const NAMED: usize = 5;

pub(super) fn some_of<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let all: Vec<&str> = names.into_iter().collect();
    let first = all.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    if all.len() > NAMED { format!("{first} and {} more", all.len() - NAMED) } else { first }
}

/// Whether Pods are reviewed, and cannot be harmed.
pub(super) fn check_calls(entry: Entry<'_>, findings: &mut Findings) {
    let (name, webhook) = (entry.name(), entry.webhook);
    let before = findings.0.len();
    if !webhook.rules.iter().any(Rule::has_pods) && entry.is_for_pods() {
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
    let policy = &webhook.failure_policy;
    if policy != "Ignore" {
        findings.failed(
            "webhook",
            format!("{name} has failurePolicy {policy}: no Pod starts while tolerarch is away"),
            "set failurePolicy to Ignore",
        );
    }
    // Declared for expressions and never passed to them: each evaluation fails, and the webhook is skipped.
    let odd = webhook.match_conditions.iter().find(|known| known.expression.contains("namespaceObject"));
    if let Some(condition) = odd {
        findings.failed(
            "webhook",
            format!("{name} is never called: its matchCondition {} uses namespaceObject", condition.name),
            "use a namespaceSelector instead: API servers have no namespaceObject for the conditions of webhooks",
        );
    }
    if findings.0.len() == before {
        let config = &webhook.client_config;
        let target = match (&config.service, &config.url) {
            (Some(service), _) => {
                format!("Service {}/{}:{}", service.namespace, service.name, service.port())
            }
            (None, url) => url.clone().unwrap_or_default(),
        };
        findings.ok("webhook", format!("{name} calls {target}"));
    }
}

/// Whether other webhooks add containers after ours has looked.
pub(super) fn check_order(
    entry: Entry<'_>,
    all: &[WebhookConfiguration],
    namespaces: &[Namespace],
    findings: &mut Findings,
) {
    let own = &entry.configuration.metadata.name;
    // Where no namespace can be read, any could be theirs.
    let meets = |other: &Webhook| {
        let both = |known: &Namespace| {
            entry.selects(known) && other.namespace_selector.matches(&known.metadata.labels)
        };
        namespaces.is_empty() || namespaces.iter().any(both)
    };
    let adds = |other: &Webhook| other.rules.iter().any(Rule::has_pods) && !is_ours(other) && meets(other);
    let later = all.iter().filter(|other| other.metadata.name > *own && other.webhooks.iter().any(adds));
    let later = some_of(later.map(|other| other.metadata.name.as_str()));
    if later.is_empty() {
        findings.ok("order", format!("{} is called after all other webhooks for Pods", entry.name()));
    } else if entry.webhook.reinvocation_policy == "IfNeeded" {
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
pub(super) fn check_overlaps(entries: &[Entry<'_>], namespaces: &[Namespace], findings: &mut Findings) {
    let mut overlaps = false;
    for (at, one) in entries.iter().enumerate() {
        for other in entries.iter().skip(at + 1) {
            let both =
                namespaces.iter().filter(|namespace| one.selects(namespace) && other.selects(namespace));
            let both = some_of(both.map(|namespace| namespace.metadata.name.as_str()));
            if both.is_empty() {
                continue;
            }
            overlaps = true;
            let same = one.configuration.metadata.name == other.configuration.metadata.name;
            let fix = if same {
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

pub(super) fn check_profiles(entries: &[Entry<'_>], profiles: &[String], findings: &mut Findings) {
    let called: Vec<String> = entries.iter().filter_map(Entry::profile).collect();
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
