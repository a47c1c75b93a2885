//! Checks of webhooks, each with its configuration: owner, target and rules, order, and trusted CA.

use std::collections::{BTreeSet, HashSet};

use k8s_openapi::api::core::v1::Namespace;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::time::ASN1Time;

use super::findings::{Findings, some_of};
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
        findings.failed(
            "webhook",
            format!("{name} is not called when Pods are created: no rule covers it"),
            "add a rule with operations [CREATE], apiGroups [\"\"], apiVersions [v1] and resources [pods]",
        );
    }
    if entry.path != "/mutate" && entry.profile().is_none() {
        findings.failed(
            "webhook",
            format!("{name} calls the path {:?}, where tolerarch does not answer", entry.path),
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
    if webhook.timeout_seconds == Some(1) {
        findings.failed(
            "webhook",
            format!("{name} has timeoutSeconds 1: no time is left to look images up"),
            "set timeoutSeconds to 5 (webhook.timeoutSeconds in the chart)",
        );
    }
    // `namespaceObject` is declared for expressions and never passed to them: each fails, and the webhook is skipped.
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
    let later = some_of(later);
    if later.is_empty() {
        findings.ok("order", format!("{} is called after all other webhooks for Pods", entry.name()));
    } else if entry.spec.reinvocation_policy.as_deref() == Some("IfNeeded") {
        findings.ok("order", format!("{} is called again after {later}", entry.name()));
    } else {
        findings.failed(
            "order",
            format!("{later} may add containers after {} has decided", entry.name()),
            "set reinvocationPolicy to IfNeeded, and let the name of the configuration begin with zz-",
        );
    }
}

/// Checks whether two webhooks of tolerarch are called for the same Pods.
pub(super) fn check_overlaps(entries: &[&Webhook], namespaces: &[Namespace], findings: &mut Findings) {
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
        findings.ok("installations", "no namespace that was read has two webhooks of tolerarch");
    }
}

pub(super) fn check_profiles(entries: &[&Webhook], profiles: &[String], findings: &mut Findings) {
    let called: Vec<&str> = entries.iter().filter_map(|entry| entry.profile()).collect();
    for profile in profiles.iter().filter(|profile| !called.contains(&profile.as_str())) {
        findings.failed(
            "profiles",
            format!("profile {profile} is never used: no webhook calls /mutate/{profile}"),
            format!(
                "add an entry with this path and a namespaceSelector for tolerarch.io/profile={profile} (the chart renders one for each profile)"
            ),
        );
    }
    for profile in called.iter().filter(|called| !profiles.iter().any(|profile| profile == *called)) {
        findings.failed(
            "profiles",
            format!("/mutate/{profile} is called, and there is no such profile: Pods are left unchanged (profile-unknown)"),
            format!("add {profile} to profiles in the configuration, or correct the path: /mutate is that of no profile"),
        );
    }
    if !profiles.is_empty() && profiles.iter().all(|profile| called.contains(&profile.as_str())) {
        findings.ok("profiles", format!("each has its entry: {}", profiles.join(", ")));
    }
}

/// Checks whether the caBundle holds a certificate that is valid. Whether it is that of the CA, only a dry run shows:
/// `proven` are the bundles of webhooks that have answered.
pub(super) fn check_bundle(entry: &Webhook, proven: &[&[u8]], findings: &mut Findings) {
    let (name, config, pem) = (entry.name(), &entry.spec.client_config, entry.bundle());
    let certificates = CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
    let end = |certificate: CertificateDer<'_>| {
        let (_, parsed) = x509_parser::parse_x509_certificate(&certificate).ok()?;
        Some(parsed.validity().not_after.timestamp())
    };
    let fault = match certificates.filter_map(end).max() {
        None if pem.is_empty() && config.url.is_some() => {
            return findings
                .unknown("ca-bundle", format!("{name} has none: the API server's own roots count"));
        }
        None if pem.is_empty() => {
            format!("the caBundle of {name} is empty: the API server trusts no certificate")
        }
        None => format!("the caBundle of {name} holds no certificate"),
        Some(last) if last <= ASN1Time::now().timestamp() => {
            format!("every certificate in the caBundle of {name} has expired, the last one at {}", date(last))
        }
        Some(last) => {
            let trusts = format!("{name} trusts a CA until {}", date(last));
            return match proven.contains(&pem) {
                true => findings.ok("ca-bundle", trusts),
                false => findings
                    .unknown("ca-bundle", format!("{trusts}; no dry run shows that it is the right one")),
            };
        }
    };
    findings.failed(
        "ca-bundle",
        fault,
        "with tls.mode managed `tolerarch certificates` writes it within half a minute of its start: after that look at the \
         log of its Pod for missing rights; with \
         cert-manager its cainjector does, from the annotation cert-manager.io/inject-ca-from; otherwise write it yourself",
    );
}
