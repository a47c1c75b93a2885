//! Whether Pods with the tolerations of the pools are admitted: dry runs in a namespace that the user may use.

use kube::ResourceExt;
use serde::Deserialize;
use serde_json::{Value, json};

use super::arrival::Arrival;
use crate::cli::doctor::findings::{Findings, some_of};
use crate::cli::doctor::probe::{self, WHITE_LIST};
use crate::cli::installed;
use crate::cli::kubernetes::name_of;
use tolerarch_core::pod::Toleration;
use tolerarch_core::policy::Pool;
use tolerarch_kubernetes::cluster::{RequestError, UserClient, covers};

const TOLERATIONS: &str = "tolerations";
const RESTRICTION: &str = "toleration-restriction";
/// Maximum number of namespaces with a white list in which dry runs are tried.
const TRIES: usize = 32;
/// API versions of MutatingAdmissionPolicies, from the newest on.
const POLICY_VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

/// Outcome of a dry run with the tolerations of a pool.
enum Outcome<'p> {
    Admitted,
    Refused(String),
    /// Keys of tolerations that the Pod came back without.
    Stripped(Vec<&'p str>),
    NotTried(RequestError),
}

pub(super) async fn check(arrival: &Arrival<'_>, findings: &mut Findings) {
    if arrival.pools.is_empty() {
        let platform = arrival.platform;
        return findings.not_tried(TOLERATIONS, format!("no pool has {platform}"));
    }
    check_tolerations(arrival, findings).await;
    check_restrictions(arrival, findings).await;
}

async fn check_tolerations(arrival: &Arrival<'_>, findings: &mut Findings) {
    let client = arrival.client;
    let namespace = arrival.only.unwrap_or(&client.namespace);
    if let Err(error) = probe::admit(client, namespace, &[]).await {
        let command = command(namespace, &arrival.tolerations());
        let why = format!(
            "a dry-run Pod is refused in {namespace}: {error}; name another namespace with -n, or have \
             someone with that right run: {command}"
        );
        return findings.not_tried(TOLERATIONS, why);
    }
    let mut admitted = Vec::new();
    for pool in &arrival.pools {
        let outcome = attempt(client, namespace, pool).await;
        match outcome {
            Outcome::Admitted => admitted.push(pool.name.as_str()),
            outcome => report(arrival, namespace, pool, outcome, findings).await,
        }
    }
    if !admitted.is_empty() {
        let pools = some_of(admitted);
        let message = format!("a dry-run Pod in {namespace} keeps the tolerations of {pools}");
        findings.ok(TOLERATIONS, message);
    }
}

async fn attempt<'p>(client: &UserClient, namespace: &str, pool: &'p Pool) -> Outcome<'p> {
    let tolerations: Vec<&Toleration<'_>> = pool.tolerations.iter().collect();
    let pod = match probe::admit(client, namespace, &tolerations).await {
        Ok(pod) => pod,
        Err(RequestError::Refused {
            status, message, ..
        }) if is_denial(status, &message) => return Outcome::Refused(message),
        Err(error) => return Outcome::NotTried(error),
    };
    let stored = Vec::<Toleration<'_>>::deserialize(&pod["spec"]["tolerations"]);
    let stored = stored.unwrap_or_default();
    let mut lost = Vec::new();
    for toleration in tolerations {
        let is_covered = stored.iter().any(|stored| stored.covers(toleration));
        if !is_covered {
            lost.push(toleration.key.as_str());
        }
    }
    if lost.is_empty() {
        Outcome::Admitted
    } else {
        Outcome::Stripped(lost)
    }
}

/// Returns whether admission has denied the Pod, as opposed to a failed request. The status alone does not show this: a
/// webhook chooses its own, and PodTolerationRestriction uses that of an internal error.
fn is_denial(status: u16, message: &str) -> bool {
    matches!(status, 400 | 403 | 422)
        || message.contains("denied the request")
        || message.contains("pod tolerations")
}

async fn report(
    arrival: &Arrival<'_>,
    namespace: &str,
    pool: &Pool,
    outcome: Outcome<'_>,
    findings: &mut Findings,
) {
    let name = &pool.name;
    match outcome {
        Outcome::Admitted => {}
        Outcome::Refused(why) => {
            let message = format!(
                "Pods with the tolerations of pool {name} are refused in {namespace}, others are not: {why}"
            );
            findings.failed(TOLERATIONS, message, refusal_fix(namespace, pool, &why));
        }
        Outcome::Stripped(lost) => {
            let lost = some_of(lost);
            let suspects = suspects(arrival, namespace).await;
            let message = format!(
                "a dry-run Pod in {namespace} comes back without the toleration of {lost} that it was created with \
                 (pool {name}): {suspects}"
            );
            let fix = "have it add to the tolerations instead of replacing them";
            findings.failed(TOLERATIONS, message, fix);
        }
        Outcome::NotTried(error) => {
            let tolerations: Vec<&Toleration<'_>> = pool.tolerations.iter().collect();
            let command = command(namespace, &tolerations);
            let why = format!(
                "a dry-run Pod with the tolerations of pool {name}: {error}; try {command}"
            );
            findings.not_tried(TOLERATIONS, why);
        }
    }
}

/// Returns advice for a refusal with this message.
fn refusal_fix(namespace: &str, pool: &Pool, message: &str) -> String {
    if message.contains("whitelist") {
        return format!(
            "add them to the annotation {WHITE_LIST} of {namespace}, or to the list of the plugin PodTolerationRestriction"
        );
    }
    let keys = pool.tolerations.iter();
    let keys = some_of(keys.map(|toleration| toleration.key.as_str()));
    format!("exempt {keys} in the policy, binding or webhook that the message names")
}

/// Names the webhooks, policies or plugins that may have changed a Pod in the namespace.
async fn suspects(arrival: &Arrival<'_>, namespace: &str) -> String {
    let mut names = Vec::new();
    let mut unread = String::new();
    match mutating_webhooks(arrival, namespace).await {
        Ok(webhooks) => names.extend(webhooks),
        Err(error) => unread += &format!("; not read: the MutatingWebhookConfigurations: {error}"),
    }
    match mutating_policies(arrival.client).await {
        Ok(policies) => names.extend(policies),
        Err(error) => unread += &format!("; not read: the MutatingAdmissionPolicies: {error}"),
    }
    let named = match &*names {
        [] if unread.is_empty() => "a plugin of the API server removes it".to_owned(),
        [] => "a webhook or a mutating policy removes it".to_owned(),
        [only] => format!("{only} removes it, or a plugin of the API server"),
        _ => {
            let names = some_of(names.iter().map(String::as_str));
            format!("one of these removes it: {names}")
        }
    };
    named + &unread
}

/// Names the webhooks that may change new Pods in the namespace.
async fn mutating_webhooks(
    arrival: &Arrival<'_>,
    namespace: &str,
) -> Result<Vec<String>, RequestError> {
    let mut namespaces = arrival.namespaces.iter();
    let namespace = namespaces.find(|other| name_of(*other) == namespace);
    let mut names = Vec::new();
    for webhook in installed::webhooks(arrival.client).await? {
        let is_called = namespace.is_none_or(|namespace| webhook.selects(namespace));
        if is_called && webhook.has_pods() && !webhook.is_of_tolerarch() {
            names.push(format!("the webhook {}", webhook.name()));
        }
    }
    Ok(names)
}

/// Names the policies that may change new Pods; none if the API server does not have such policies.
async fn mutating_policies(client: &UserClient) -> Result<Vec<String>, RequestError> {
    for version in POLICY_VERSIONS {
        let path =
            format!("/apis/admissionregistration.k8s.io/{version}/mutatingadmissionpolicies");
        let policies = match client.list::<Value>(&path).await {
            Err(error) if error.is_missing() => continue,
            policies => policies?,
        };
        let mut names = Vec::new();
        for policy in policies {
            let rules = policy["spec"]["matchConstraints"]["resourceRules"].as_array();
            let mut rules = rules.into_iter().flatten();
            if rules.any(has_pods)
                && let Some(name) = policy["metadata"]["name"].as_str()
            {
                names.push(format!("the MutatingAdmissionPolicy {name}"));
            }
        }
        return Ok(names);
    }
    Ok(Vec::new())
}

/// Returns whether a rule of a policy covers the creation of Pods.
fn has_pods(rule: &Value) -> bool {
    let listed = |field: &str| Option::deserialize(&rule[field]).unwrap_or_default();
    let operations = listed("operations");
    let groups = listed("apiGroups");
    let resources = listed("resources");
    covers([&operations, &groups, &resources], ["CREATE", "", "pods"])
}

async fn check_restrictions(arrival: &Arrival<'_>, findings: &mut Findings) {
    if arrival.namespaces.is_empty() {
        let why = format!(
            "the namespaces cannot be read; have someone with that right look for the annotation {WHITE_LIST}: \
             kubectl get namespaces -o yaml"
        );
        return findings.not_tried(RESTRICTION, why);
    }
    let tolerations = arrival.tolerations();
    let mut restricted = Vec::new();
    for namespace in &arrival.namespaces {
        if namespace.annotations().contains_key(WHITE_LIST) {
            restricted.push(name_of(namespace));
        }
    }
    let left_out = restricted.split_off(restricted.len().min(TRIES));
    let mut refusing = Vec::new();
    let mut untried = Vec::new();
    let mut last_error = String::new();
    for name in restricted {
        match probe::is_restricted(arrival.client, name, &tolerations).await {
            Ok(true) => refusing.push(name),
            Ok(false) => {}
            Err(error) => {
                untried.push(name);
                last_error = error.to_string();
            }
        }
    }
    if !refusing.is_empty() || untried.is_empty() && left_out.is_empty() {
        probe::report_restrictions(&refusing, findings);
    }
    report_untried(untried, &last_error, &tolerations, findings);
    report_left_out(left_out, findings);
}

/// Reports the restricted namespaces in which a dry run failed for another reason.
fn report_untried(
    namespaces: Vec<&str>,
    error: &str,
    tolerations: &[&Toleration<'_>],
    findings: &mut Findings,
) {
    let Some(first) = namespaces.first() else {
        return;
    };
    let command = command(first, tolerations);
    let names = some_of(namespaces);
    let why = format!(
        "a dry-run Pod is refused in {names}, where the annotation {WHITE_LIST} restricts tolerations: {error}; have \
         someone with that right run: {command}"
    );
    findings.not_tried(RESTRICTION, why);
}

/// Reports the restricted namespaces after the first [`TRIES`].
fn report_left_out(namespaces: Vec<&str>, findings: &mut Findings) {
    if namespaces.is_empty() {
        return;
    }
    let count = namespaces.len();
    let names = some_of(namespaces);
    let why = format!(
        "{count} more namespaces with the annotation {WHITE_LIST}: {names}; name one with -n"
    );
    findings.not_tried(RESTRICTION, why);
}

impl<'a> Arrival<'a> {
    /// Returns the tolerations of all pools.
    fn tolerations(&self) -> Vec<&'a Toleration<'static>> {
        let pools = self.pools.iter();
        pools.flat_map(|pool| &pool.tolerations).collect()
    }
}

/// Returns the command that tries Pods with these tolerations.
fn command(namespace: &str, tolerations: &[&Toleration<'_>]) -> String {
    let overrides = json!({"spec": {"tolerations": tolerations}});
    format!(
        "kubectl -n {namespace} run tolerarch-doctor --image=registry.k8s.io/pause:3.10 --dry-run=server -o yaml \
         --overrides='{overrides}'"
    )
}

#[cfg(test)]
mod tests;
