//! Checks of webhooks: target and rules, order, trusted CA, and selectors.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::core::{Expression, SelectorExt};
use kube::{Resource, ResourceExt};
use x509_parser::pem::Pem;
use x509_parser::time::ASN1Time;

use super::findings::{Exam, Findings, Status, SubjectFindings, some_of};
use crate::cli::installed::ignored_labels;
use crate::cli::kubernetes::name_of;

use tolerarch_core::pod::MODE_KEY;
// Read for Pods as well: it has only the metadata.
use tolerarch_kubernetes::cluster::{Namespace as Labelled, Scope, Webhook};
use tolerarch_support::logging::date;

pub(super) type Labels = BTreeMap<String, String>;

/// Checks that the webhook is called for Pods, and that no Pod fails to start if tolerarch fails.
pub(super) fn check_calls(entry: &Webhook) -> SubjectFindings {
    let webhook = &entry.spec;
    let mut findings = SubjectFindings::on(entry.name());
    let mut fault = |what: &str, fix| {
        findings.failed("webhook", |name| format!("{name} {what}"), fix);
    };
    if !entry.has_pods() && entry.is_for_pods() {
        fault(
            "is not called when Pods are created: no rule covers it",
            "add a rule with operations [CREATE], apiGroups [\"\"], apiVersions [v1] and resources [pods]",
        );
    }
    if entry.path != "/mutate" && entry.profile().is_none() {
        let path = &entry.path;
        let what = format!("calls the path {path:?}, where tolerarch does not answer");
        fault(
            &what,
            "set the path in its clientConfig to /mutate, or /mutate/<profile>",
        );
    }
    let policy = webhook.failure_policy.as_deref().unwrap_or("Fail");
    if policy != "Ignore" {
        let what = format!("has failurePolicy {policy}: no Pod starts while tolerarch is away");
        fault(&what, "set failurePolicy to Ignore");
    }
    if webhook.timeout_seconds == Some(1) {
        fault(
            "has timeoutSeconds 1: that leaves no time to look images up",
            "set timeoutSeconds to 5 (webhook.timeoutSeconds in the chart)",
        );
    }
    // API servers declare `namespaceObject` for expressions and never pass it: each fails, and the webhook is skipped.
    let mut conditions = webhook.match_conditions.iter().flatten();
    if let Some(condition) = conditions.find(|one| one.expression.contains("namespaceObject")) {
        let name = &condition.name;
        let what = format!("is never called: its matchCondition {name} uses namespaceObject");
        fault(
            &what,
            "use a namespaceSelector instead: API servers have no namespaceObject for the conditions of webhooks",
        );
    }
    if findings.is_empty() {
        let target = match entry.service() {
            Some((namespace, service, port)) => format!("Service {namespace}/{service}:{port}"),
            None => webhook.client_config.url.clone().unwrap_or_default(),
        };
        findings.ok("webhook", |name| format!("{name} calls {target}"));
    }
    findings
}

/// Checks whether other webhooks may add containers after tolerarch has decided.
pub(super) fn check_order(
    entry: &Webhook,
    all: &[Webhook],
    namespaces: &[Namespace],
) -> SubjectFindings {
    // If no namespace could be read, both may select the same one.
    let overlaps = |other: &Webhook| {
        let are_both_called = |one: &Namespace| entry.selects(one) && other.selects(one);
        namespaces.is_empty() || namespaces.iter().any(are_both_called)
    };
    let mut later = BTreeSet::new();
    for other in all {
        let is_later = other.configuration > entry.configuration;
        if is_later && !other.is_of_tolerarch() && other.has_pods() && overlaps(other) {
            later.insert(&*other.configuration);
        }
    }
    let later = some_of(later);
    let mut findings = SubjectFindings::on(entry.name());
    if later.is_empty() {
        findings.ok("order", |name| {
            format!("{name} is called after all other webhooks for Pods")
        });
    } else if entry.spec.reinvocation_policy.as_deref() == Some("IfNeeded") {
        findings.ok("order", |name| {
            format!("{name} is called again after {later}")
        });
    } else {
        let message = |name: &str| format!("{later} may add containers after {name} has decided");
        let fix = "set reinvocationPolicy to IfNeeded, and let the name of the configuration begin with zz-";
        findings.failed("order", message, fix);
    }
    findings
}

/// Checks whether two webhooks of tolerarch are called for the same Pods.
pub(super) fn check_overlaps(
    entries: &[&Webhook],
    namespaces: &[Namespace],
    findings: &mut Findings,
) {
    let before = findings.0.len();
    for (at, one) in entries.iter().enumerate() {
        for other in &entries[at + 1..] {
            let are_both_called =
                |namespace: &&Namespace| one.selects(namespace) && other.selects(namespace);
            let both = some_of(namespaces.iter().filter(are_both_called).map(name_of));
            if both.is_empty() {
                continue;
            }
            let fix = if one.configuration == other.configuration {
                "make their namespaceSelectors exclude each other: profiles by In, the default by NotIn"
            } else {
                "uninstall one of them, or make their namespaceSelectors exclude each other"
            };
            let message = format!(
                "{} and {} are both called for Pods in {both}",
                one.name(),
                other.name()
            );
            findings.failed("installations", message, fix);
        }
    }
    if findings.0.len() == before {
        findings.ok(
            "installations",
            "no namespace that was read has two webhooks of tolerarch",
        );
    }
}

/// Checks that the webhooks of an installation call the profiles of its configuration, and no others.
pub(super) fn check_profiles(
    called: &BTreeSet<&str>,
    configured: &BTreeSet<&str>,
    findings: &mut Findings,
) {
    for profile in configured.difference(called) {
        let message =
            format!("profile {profile} is never used: no webhook calls /mutate/{profile}");
        let fix = format!(
            "add an entry with this path and a namespaceSelector for tolerarch.io/profile={profile} (the chart renders one for each profile)"
        );
        findings.failed("profiles", message, fix);
    }
    for profile in called.difference(configured) {
        findings.failed(
            "profiles",
            format!("/mutate/{profile} is called, and there is no such profile: Pods are left unchanged (profile-unknown)"),
            format!("add {profile} to profiles in the configuration, or correct the path: without a profile it is /mutate"),
        );
    }
    if !configured.is_empty() && configured.is_subset(called) {
        let names = Vec::from_iter(configured.iter().copied()).join(", ");
        findings.ok("profiles", format!("each has its entry: {names}"));
    }
}

/// Checks whether the caBundle holds a certificate that has not expired. Only a dry run shows whether it is the right CA:
/// `tried` has the bundles and outcomes of the dry runs. A failed one outweighs a success, which may have used a connection
/// that was open before.
pub(super) fn check_bundle(entry: &Webhook, tried: &[(&[u8], Status)]) -> SubjectFindings {
    let pem = entry.bundle();
    let mut findings = SubjectFindings::on(entry.name());
    let blocks = Pem::iter_from_buffer(pem).filter_map(Result::ok);
    let certificates = blocks.filter(|block| block.label == "CERTIFICATE");
    let ends = certificates
        .filter_map(|block| Some(block.parse_x509().ok()?.validity().not_after.timestamp()));
    let fix = "with tls.mode managed, `tolerarch certificates` writes it within half a minute of its start: after that look \
        for missing rights in the log of its Pod; with cert-manager, its cainjector writes it by the annotation \
        cert-manager.io/inject-ca-from; otherwise write it yourself";
    let mut fault = |what: &str| {
        let message = |name: &str| format!("the caBundle of {name} {what}");
        findings.failed("ca-bundle", message, fix);
    };
    match ends.max() {
        None if pem.is_empty() && entry.service().is_none() => {
            findings.unknown("ca-bundle", |name| {
                format!("{name} has none: the API server uses its own roots")
            });
        }
        None if pem.is_empty() => fault("is empty: the API server trusts no certificate"),
        None => fault("holds no certificate"),
        Some(last) if last <= ASN1Time::now().timestamp() => {
            fault(&format!(
                "holds only certificates that have expired, the last one at {}",
                date(last)
            ));
        }
        Some(last) => {
            let trusts = |name: &str| format!("{name} trusts a CA until {}", date(last));
            if tried.contains(&(pem, Status::Ok)) && !tried.contains(&(pem, Status::Failed)) {
                findings.ok("ca-bundle", trusts);
            } else {
                findings.unknown("ca-bundle", |name| {
                    trusts(name) + "; no dry run shows that it is the right one"
                });
            }
        }
    }
    findings
}

/// Checks whether a webhook is called in any namespace.
pub(super) fn check_namespaces(entry: &Webhook, namespaces: &[Namespace], findings: &mut Findings) {
    let name = entry.name();
    let all = namespaces.len();
    let is_selected = |namespace: &&Namespace| entry.selects(namespace);
    let selected = namespaces.iter().filter(is_selected).count();
    match (selected, entry.profile()) {
        _ if all == 0 => {}
        (0, Some(profile)) => {
            let message =
                format!("no namespace is labelled tolerarch.io/profile={profile} for {name}");
            findings.unknown("scope", message);
        }
        (0, None) => {
            let message =
                format!("the namespaceSelector of {name} excludes every namespace, all {all}");
            let fix = "correct it (webhook.namespaceSelector in the chart), or label a namespace for it; \
                docs/runbooks/TolerarchNotCalled.md shows how to remove selectors that your values do not have";
            findings.failed("scope", message, fix);
        }
        _ => findings.ok(
            "scope",
            format!("{name} selects {selected} of {all} namespaces that were read"),
        ),
    }
}

/// Checks that the settings in labels of namespaces have an effect. A tenant's mistake is a fault only if the checks are
/// limited to the tenant's namespace.
pub(super) fn check_labels(exam: &mut Exam<'_>, entries: &[&Webhook], namespaces: &[Namespace]) {
    let status = Status::failed_if(exam.only.is_some());
    let called = Scope::of(entries.iter().copied().cloned());
    let fix = "label it tolerarch.io/mode=off, or with a profile that has an entry: docs/placement.md lists the labels";
    exam.findings.merge(namespaces.iter().map(|namespace| {
        let mut findings = SubjectFindings::on(name_of(namespace));
        for (key, value) in ignored_labels(&called, namespace.labels()) {
            let message = |name: &str| format!("the label {key}={value} of {name} has no effect");
            findings.add(status, "scope", message, fix);
        }
        findings
    }));
}

/// Checks whether a webhook is called for any existing Pod or, if there are none, for a Pod of a Deployment.
pub(super) async fn check_pods(exam: &mut Exam<'_>, entry: &Webhook, namespaces: &[Namespace]) {
    let name = entry.name();
    let selector = &entry.objects;
    if entry.example().is_none() {
        let message =
            format!("the objectSelector of {name} contradicts itself: it selects no Pod at all");
        let fix = "correct the objectSelector (webhook.objectSelector in the chart)";
        return exam.findings.failed("scope", message, fix);
    }
    // The shipped selector only lets Pods opt out.
    let opts_out = |expression| matches!(expression, Expression::NotIn(key, _) if key == MODE_KEY);
    if selector.clone().into_iter().all(opts_out) {
        return;
    }
    // The selector in kubectl's syntax.
    let required = selector.to_string();
    let what = format!("whether any Pod has {required}: the Pods");
    let path = Pod::url_path(&(), exam.only);
    let pods = exam.client.list::<Labelled>(&path).await;
    let Some(pods) = exam.findings.read("scope", &what, pods) else {
        return;
    };
    let in_scope = |pod: &&Labelled| {
        let mode = pod.metadata.labels.get(MODE_KEY);
        if mode.is_some_and(|mode| mode == "off") {
            return false;
        }
        let selects_it =
            |one: &Namespace| name_of(one) == pod.metadata.namespace && entry.selects(one);
        namespaces.is_empty() || namespaces.iter().any(selects_it)
    };
    let pods: Vec<&Labelled> = pods.iter().filter(in_scope).collect();
    let is_called = |pod: &&&Labelled| selector.matches(&pod.metadata.labels);
    let called = pods.iter().filter(is_called).count();
    match (called, pods.len()) {
        (0, all) if all > 0 || !selector.matches(&deployment_labels()) => exam.findings.failed(
            "scope",
            format!("the objectSelector of {name} excludes every Pod ({all} exist): it requires {required}"),
            "correct it (webhook.objectSelector in the chart); docs/runbooks/TolerarchNotCalled.md shows how to remove selectors that your values do not have",
        ),
        (called, all) if called < all => {
            let message = format!("{name} is called for {called} of {all} Pods, those with {required}");
            exam.findings.ok("scope", message);
        }
        _ => {}
    }
}

/// Returns labels like those of a Deployment's Pods.
pub(super) fn deployment_labels() -> Labels {
    let label = |key: &str| (key.to_owned(), "tolerarch-doctor".to_owned());
    ["app", "app.kubernetes.io/name", "pod-template-hash"]
        .map(label)
        .into()
}
