//! Checks of the selectors: for which namespaces and Pods the webhooks are called.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::core::{Expression, SelectorExt};
use kube::{Resource, ResourceExt};

use super::findings::{Exam, Findings, Status, some_of};
use crate::cli::kubernetes::name_of;
use tolerarch_core::pod::{MODE_KEY, PROFILE_KEY};
// Of Pods, too, nothing but the name and labels is read.
use tolerarch_kubernetes::cluster::{Namespace as Labelled, Scope, Webhook};

pub(super) type Labels = BTreeMap<String, String>;

/// Checks whether a webhook is called in any namespace.
pub(super) fn check_namespaces(entry: &Webhook, namespaces: &[Namespace], findings: &mut Findings) {
    let (name, all) = (entry.name(), namespaces.len());
    let selected = namespaces.iter().filter(|namespace| entry.selects(namespace)).count();
    match (selected, entry.profile()) {
        _ if all == 0 => {}
        (0, Some(profile)) => {
            findings.unknown(
                "scope",
                format!("no namespace is labelled tolerarch.io/profile={profile} for {name}"),
            );
        }
        (0, None) => {
            let message = format!("the namespaceSelector of {name} excludes every namespace, all {all}");
            let fix = "correct it (webhook.namespaceSelector in the chart), or label a namespace for it; docs/runbooks/TolerarchNotCalled.md \
                takes out what your values do not have";
            findings.failed("scope", message, fix);
        }
        _ => findings.ok("scope", format!("{name} selects {selected} of {all} namespaces that were read")),
    }
}

/// Checks that labels of namespaces take effect: a tenant's mistake is a fault only in checks limited to the namespace.
pub(super) fn check_labels(exam: &mut Exam<'_>, entries: &[&Webhook], namespaces: &[Namespace]) {
    let Exam { only, findings, .. } = exam;
    let mut ignored: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    let called = Scope::of(entries.iter().copied().cloned());
    for namespace in namespaces {
        for label in ignored_labels(&called, namespace.labels()) {
            ignored.entry(label).or_default().push(name_of(namespace));
        }
    }
    let fix = "label it tolerarch.io/mode=off, or with a profile that has an entry: docs/placement.md has all that labels can say";
    for ((key, value), names) in ignored {
        let message = format!("{key}={value} means nothing as a label of {}: it is ignored", some_of(names));
        findings.add(Status::failed_if(only.is_some()), "scope", message, fix);
    }
}

/// Returns the labels of a namespace that look like settings, and make no difference to the calls for its Pods.
pub(in crate::cli) fn ignored_labels<'a>(called: &Scope, labels: &'a Labels) -> Vec<(&'static str, &'a str)> {
    let ignored = [MODE_KEY, PROFILE_KEY].into_iter().filter(|key| called.ignores(labels, key));
    let ignored = ignored.filter_map(|key| Some((key, labels.get(key)?.as_str())));
    // A custom selector may ignore `off`; that the namespace is selected shows that already.
    ignored.filter(|label| *label != (MODE_KEY, "off")).collect()
}

/// Checks whether a webhook is called for any existing Pod, or, without any, for one as a Deployment makes it.
pub(super) async fn check_pods(exam: &mut Exam<'_>, entry: &Webhook, namespaces: &[Namespace]) {
    let (name, selector) = (entry.name(), &entry.objects);
    if entry.example().is_none() {
        let message = format!("the objectSelector of {name} contradicts itself: it selects no Pod at all");
        let fix = "correct the objectSelector (webhook.objectSelector in the chart)";
        return exam.findings.failed("scope", message, fix);
    }
    // The shipped selector does nothing but let Pods opt out.
    let mut expressions = selector.clone().into_iter();
    if expressions.all(|expression| matches!(expression, Expression::NotIn(key, _) if key == MODE_KEY)) {
        return;
    }
    // Selector in kubectl's syntax.
    let needed = selector.to_string();
    let (what, path) = (format!("whether any Pod has {needed}: the Pods"), Pod::url_path(&(), exam.only));
    let pods = exam.client.list::<Labelled>(&path).await;
    let Some(pods) = exam.findings.read("scope", &what, pods) else { return };
    let in_scope = |pod: &&Labelled| {
        let is_its = |known: &Namespace| name_of(known) == pod.metadata.namespace && entry.selects(known);
        let mode = pod.metadata.labels.get(MODE_KEY);
        mode.is_none_or(|mode| mode != "off") && (namespaces.is_empty() || namespaces.iter().any(is_its))
    };
    let pods: Vec<&Labelled> = pods.iter().filter(in_scope).collect();
    let called = pods.iter().filter(|pod| selector.matches(&pod.metadata.labels)).count();
    match (called, pods.len()) {
        (0, all) if all > 0 || !selector.matches(&ordinary()) => exam.findings.failed(
            "scope",
            format!("the objectSelector of {name} excludes every Pod ({all} are there): one needs {needed}"),
            "correct it (webhook.objectSelector in the chart); docs/runbooks/TolerarchNotCalled.md takes out what your values do not have",
        ),
        (called, all) if called < all => {
            exam.findings
                .ok("scope", format!("{name} is called for {called} of {all} Pods, those with {needed}"));
        }
        _ => {}
    }
}

/// Returns labels of a Pod as a Deployment makes it.
pub(super) fn ordinary() -> Labels {
    let label = |key: &str| (key.to_owned(), "tolerarch-doctor".to_owned());
    ["app", "app.kubernetes.io/name", "pod-template-hash"].map(label).into()
}
