//! Checks of webhooks, each with its configuration: owner, target and rules, order, and trusted CA.

use std::collections::{BTreeSet, HashSet};

use k8s_openapi::api::core::v1::Namespace;
use x509_parser::pem::Pem;
use x509_parser::time::ASN1Time;

use super::findings::{Findings, Status, some_of};
use crate::cli::kubernetes::{list, name_of};
use tolerarch_kubernetes::cluster::{RequestError, UserClient, Webhook};
use tolerarch_support::logging::date;

/// Lists the webhooks of the cluster.
pub(super) async fn all(client: &UserClient) -> Result<Vec<Webhook>, RequestError> {
    Ok(list(client, None, "").await?.into_iter().flat_map(Webhook::all_of).collect())
}

/// Returns one entry for each called Service: profiles are entries of one installation.
pub(super) fn by_service<'a>(entries: &[&'a Webhook]) -> Vec<&'a Webhook> {
    let mut seen = HashSet::new();
    entries.iter().filter(|entry| seen.insert(entry.service())).copied().collect()
}

/// Checks that Pods are reviewed, and that no failure of tolerarch keeps them from starting.
pub(super) fn check_calls(entry: &Webhook, findings: &mut Findings) {
    let (name, webhook) = (entry.name(), &entry.spec);
    let before = findings.0.len();
    if !entry.has_pods() && entry.is_for_pods() {
        let message = format!("{name} is not called when Pods are created: no rule covers it");
        let fix =
            "add a rule with operations [CREATE], apiGroups [\"\"], apiVersions [v1] and resources [pods]";
        findings.failed("webhook", message, fix);
    }
    if entry.path != "/mutate" && entry.profile().is_none() {
        let message = format!("{name} calls the path {:?}, where tolerarch does not answer", entry.path);
        findings.failed(
            "webhook",
            message,
            "set the path in its clientConfig to /mutate, or /mutate/<profile>",
        );
    }
    let policy = webhook.failure_policy.as_deref().unwrap_or("Fail");
    if policy != "Ignore" {
        let message = format!("{name} has failurePolicy {policy}: no Pod starts while tolerarch is away");
        findings.failed("webhook", message, "set failurePolicy to Ignore");
    }
    if webhook.timeout_seconds == Some(1) {
        let message = format!("{name} has timeoutSeconds 1: no time is left to look images up");
        findings.failed("webhook", message, "set timeoutSeconds to 5 (webhook.timeoutSeconds in the chart)");
    }
    // `namespaceObject` is declared for expressions and never passed to them: each fails, and the webhook is skipped.
    let mut conditions = webhook.match_conditions.iter().flatten();
    if let Some(condition) = conditions.find(|known| known.expression.contains("namespaceObject")) {
        let message =
            format!("{name} is never called: its matchCondition {} uses namespaceObject", condition.name);
        let fix = "use a namespaceSelector instead: API servers have no namespaceObject for the conditions of webhooks";
        findings.failed("webhook", message, fix);
    }
    if findings.0.len() == before {
        let target = match entry.service() {
            Some((namespace, service, port)) => format!("Service {namespace}/{service}:{port}"),
            None => webhook.client_config.url.clone().unwrap_or_default(),
        };
        findings.ok("webhook", format!("{name} calls {target}"));
    }
}

/// Checks whether other webhooks may add containers after tolerarch has decided.
pub(super) fn check_order(
    entry: &Webhook,
    all: &[Webhook],
    namespaces: &[Namespace],
    findings: &mut Findings,
) {
    // If no namespace can be read, any may be selected by both.
    let meets = |other: &Webhook| {
        namespaces.is_empty() || namespaces.iter().any(|known| entry.selects(known) && other.selects(known))
    };
    let later = all.iter().filter(|other| {
        other.configuration > entry.configuration && !other.is_ours() && other.has_pods() && meets(other)
    });
    let later: BTreeSet<&str> = later.map(|other| &*other.configuration).collect();
    let (later, name) = (some_of(later), entry.name());
    if later.is_empty() {
        findings.ok("order", format!("{name} is called after all other webhooks for Pods"));
    } else if entry.spec.reinvocation_policy.as_deref() == Some("IfNeeded") {
        findings.ok("order", format!("{name} is called again after {later}"));
    } else {
        let fix = "set reinvocationPolicy to IfNeeded, and let the name of the configuration begin with zz-";
        findings.failed("order", format!("{later} may add containers after {name} has decided"), fix);
    }
}

/// Checks whether two webhooks of tolerarch are called for the same Pods.
pub(super) fn check_overlaps(entries: &[&Webhook], namespaces: &[Namespace], findings: &mut Findings) {
    let before = findings.0.len();
    for (at, one) in entries.iter().enumerate() {
        for other in &entries[at + 1..] {
            let both = namespaces.iter().filter(|known| one.selects(known) && other.selects(known));
            let both = some_of(both.map(name_of));
            if both.is_empty() {
                continue;
            }
            let fix = if one.configuration == other.configuration {
                "make their namespaceSelectors exclude each other: profiles by In, the default by NotIn"
            } else {
                "uninstall one of them, or make their namespaceSelectors exclude each other"
            };
            let message = format!("{} and {} are both called for Pods in {both}", one.name(), other.name());
            findings.failed("installations", message, fix);
        }
    }
    if findings.0.len() == before {
        findings.ok("installations", "no namespace that was read has two webhooks of tolerarch");
    }
}

/// Checks that the webhooks of an installation call the profiles of its configuration, and no others.
pub(super) fn check_profiles<'a>(
    entries: impl Iterator<Item = &'a Webhook>,
    profiles: impl Iterator<Item = &'a String>,
    findings: &mut Findings,
) {
    let called: BTreeSet<&str> = entries.filter_map(Webhook::profile).collect();
    let known: BTreeSet<&str> = profiles.map(String::as_str).collect();
    for profile in known.difference(&called) {
        let message = format!("profile {profile} is never used: no webhook calls /mutate/{profile}");
        let fix = format!(
            "add an entry with this path and a namespaceSelector for tolerarch.io/profile={profile} (the chart renders one for each profile)"
        );
        findings.failed("profiles", message, fix);
    }
    for profile in called.difference(&known) {
        findings.failed(
            "profiles",
            format!("/mutate/{profile} is called, and there is no such profile: Pods are left unchanged (profile-unknown)"),
            format!("add {profile} to profiles in the configuration, or correct the path: /mutate is that of no profile"),
        );
    }
    if !known.is_empty() && known.is_subset(&called) {
        findings.ok("profiles", format!("each has its entry: {}", Vec::from_iter(known).join(", ")));
    }
}

/// Checks whether the caBundle holds a certificate that is valid. Whether it is that of the CA, only a dry run shows:
/// `proven` are the bundles of webhooks that have answered.
pub(super) fn check_bundle(entry: &Webhook, proven: &[&[u8]], findings: &mut Findings) {
    let (name, config, pem) = (entry.name(), &entry.spec.client_config, entry.bundle());
    let blocks = Pem::iter_from_buffer(pem).filter_map(Result::ok);
    let certificates = blocks.filter(|block| block.label == "CERTIFICATE");
    let ends =
        certificates.filter_map(|block| Some(block.parse_x509().ok()?.validity().not_after.timestamp()));
    let fix = "with tls.mode managed `tolerarch certificates` writes it within half a minute of its start: after that look at the \
        log of its Pod for missing rights; with \
        cert-manager its cainjector does, from the annotation cert-manager.io/inject-ca-from; otherwise write it yourself";
    let (status, message) = match ends.max() {
        None if pem.is_empty() && config.url.is_some() => {
            (Status::Unknown, format!("{name} has none: the API server's own roots count"))
        }
        None if pem.is_empty() => {
            (Status::Failed, format!("the caBundle of {name} is empty: the API server trusts no certificate"))
        }
        None => (Status::Failed, format!("the caBundle of {name} holds no certificate")),
        Some(last) if last <= ASN1Time::now().timestamp() => {
            let (bundle, last) = (format!("the caBundle of {name}"), date(last));
            (Status::Failed, format!("every certificate in {bundle} has expired, the last one at {last}"))
        }
        Some(last) => {
            let trusts = format!("{name} trusts a CA until {}", date(last));
            if proven.contains(&pem) {
                (Status::Ok, trusts)
            } else {
                (Status::Unknown, trusts + "; no dry run shows that it is the right one")
            }
        }
    };
    findings.add(status, "ca-bundle", message, if status == Status::Failed { fix } else { "" });
}
