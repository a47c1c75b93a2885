//! Whether Pods with the tolerations of the pools are admitted, by dry runs in a namespace that the caller may use.

use kube::ResourceExt;
use serde::Deserialize;
use serde_json::{Value, json};

use super::arrival::{Arrival, NOT_TRIED};
use crate::cli::doctor::findings::{Findings, some_of};
use crate::cli::doctor::probe::{self, WHITE_LIST};
use crate::cli::installed;
use crate::cli::kubernetes::name_of;
use tolerarch_core::pod::Toleration;
use tolerarch_core::policy::Pool;
use tolerarch_kubernetes::cluster::{RequestError, UserClient, covers};

const TOLERATIONS: &str = "tolerations";
const RESTRICTION: &str = "toleration-restriction";
/// Maximum number of namespaces with a white list that are tried.
const TRIES: usize = 32;
/// API versions of MutatingAdmissionPolicies, the newest first.
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
        let message = format!("{NOT_TRIED}no pool has {platform}");
        return findings.unknown(TOLERATIONS, message);
    }
    check_tolerations(arrival, findings).await;
    check_restrictions(arrival, findings).await;
}

async fn check_tolerations(arrival: &Arrival<'_>, findings: &mut Findings) {
    let client = arrival.client;
    let namespace = arrival.only.unwrap_or(&client.namespace);
    if let Err(error) = probe::admit(client, namespace, &[]).await {
        let command = command(namespace, &arrival.tolerations());
        let message = format!(
            "{NOT_TRIED}a dry-run Pod is refused in {namespace}: {error}; name another namespace with -n, or have \
             someone with that right run: {command}"
        );
        return findings.unknown(TOLERATIONS, message);
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
    let kept = Vec::<Toleration<'_>>::deserialize(&pod["spec"]["tolerations"]);
    let kept = kept.unwrap_or_default();
    let mut lost = Vec::new();
    for toleration in tolerations {
        let is_kept = kept.iter().any(|kept| kept.covers(toleration));
        if !is_kept {
            lost.push(toleration.key.as_str());
        }
    }
    if lost.is_empty() {
        Outcome::Admitted
    } else {
        Outcome::Stripped(lost)
    }
}

/// Returns whether admission has denied the Pod, rather than that it could not be asked. The status does not tell: a
/// webhook chooses its own, and PodTolerationRestriction has that of an internal error.
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
            let fix = if why.contains("whitelist") {
                format!(
                    "add them to the annotation {WHITE_LIST} of {namespace}, or to the list of the plugin PodTolerationRestriction"
                )
            } else {
                let keys = pool.tolerations.iter();
                let keys = some_of(keys.map(|toleration| toleration.key.as_str()));
                format!("exempt {keys} in the policy, binding or webhook that the message names")
            };
            findings.failed(TOLERATIONS, message, fix);
        }
        Outcome::Stripped(lost) => {
            let lost = some_of(lost);
            let suspects = suspects(arrival, namespace).await;
            let message = format!(
                "a dry-run Pod in {namespace} comes back without the toleration of {lost} that it was created with \
                 (pool {name}): {suspects}"
            );
            let fix = "let it add to the tolerations, and not replace them";
            findings.failed(TOLERATIONS, message, fix);
        }
        Outcome::NotTried(error) => {
            let tolerations: Vec<&Toleration<'_>> = pool.tolerations.iter().collect();
            let command = command(namespace, &tolerations);
            let message = format!(
                "{NOT_TRIED}a dry-run Pod with the tolerations of pool {name}: {error}; try {command}"
            );
            findings.unknown(TOLERATIONS, message);
        }
    }
}

/// Names what may have changed a Pod in the namespace.
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
        [] if unread.is_empty() => "a plugin of the API server takes it away".to_owned(),
        [] => "a webhook or a mutating policy takes it away".to_owned(),
        [only] => format!("{only} takes it away, or a plugin of the API server"),
        _ => {
            let names = some_of(names.iter().map(String::as_str));
            format!("one of these takes it away: {names}")
        }
    };
    named + &unread
}

/// Names the webhooks that may change Pods as they are created in the namespace.
async fn mutating_webhooks(
    arrival: &Arrival<'_>,
    namespace: &str,
) -> Result<Vec<String>, RequestError> {
    let mut namespaces = arrival.namespaces.iter();
    let namespace = namespaces.find(|other| name_of(*other) == namespace);
    let mut names = Vec::new();
    for webhook in installed::webhooks(arrival.client).await? {
        let is_called = namespace.is_none_or(|namespace| webhook.selects(namespace));
        if is_called && webhook.has_pods() && !webhook.is_ours() {
            names.push(format!("the webhook {}", webhook.name()));
        }
    }
    Ok(names)
}

/// Names the policies that may change Pods as they are created; none where the API has no such policies.
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
        let message = format!(
            "{NOT_TRIED}the namespaces cannot be read; have someone with that right look for the annotation {WHITE_LIST}: \
             kubectl get namespaces -o yaml"
        );
        return findings.unknown(RESTRICTION, message);
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
    let mut why = String::new();
    for name in restricted {
        match probe::is_restricted(arrival.client, name, &tolerations).await {
            Ok(true) => refusing.push(name),
            Ok(false) => {}
            Err(error) => {
                untried.push(name);
                why = error.to_string();
            }
        }
    }
    if !refusing.is_empty() || untried.is_empty() && left_out.is_empty() {
        probe::report_restrictions(&refusing, findings);
    }
    if let Some(first) = untried.first() {
        let command = command(first, &tolerations);
        let names = some_of(untried);
        let message = format!(
            "{NOT_TRIED}a dry-run Pod is refused in {names}, of which the annotation {WHITE_LIST} restricts \
             tolerations: {why}; have someone with that right run: {command}"
        );
        findings.unknown(RESTRICTION, message);
    }
    if !left_out.is_empty() {
        let count = left_out.len();
        let names = some_of(left_out);
        let message = format!(
            "{NOT_TRIED}{count} more namespaces with the annotation {WHITE_LIST}: {names}; name one with -n"
        );
        findings.unknown(RESTRICTION, message);
    }
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
