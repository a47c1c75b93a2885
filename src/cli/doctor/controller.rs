//! The controller, where it is installed: whether one leads, whether it may do what is switched on, and whether it is fenced
//! in.

use std::time::{Duration, SystemTime};

use super::findings::Findings;
use super::installation::{Backend, Settings};
use super::objects::{Lease, Policy, PolicyBinding, PolicySpec};
use super::rights::{Account, Right};
use tolerarch_controller::ControllerSettings;
use tolerarch_kubernetes::cluster::{RequestError, UserClient};

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
/// What it may change, and what is to be done where that is not fenced in.
struct Fenced {
    resource: &'static str,
    fix: &'static str,
}

const PODS: Fenced = Fenced {
    resource: "pods",
    fix: "apply manifests/controller/validatingadmissionpolicy.yaml with this account in it, or set controller.repair to false",
};
const NODES: Fenced = Fenced {
    resource: "nodes",
    fix: "apply the policies of manifests/node-taints/nodetaints.yaml with this account in them, or take its right to patch nodes away",
};
/// A leader renews every 2 s, and is replaced after 15 s; the rest is for clocks that differ.
const RENEWED: Duration = Duration::from_secs(60);

/// All checks; none where it is not installed.
pub(super) async fn check(
    client: &UserClient,
    backend: &Backend,
    settings: &Settings,
    findings: &mut Findings,
) {
    let namespace = &*backend.namespace;
    let pod = match backend.component(client, "controller").await {
        Ok(Some(pod)) => pod,
        Ok(None) => return,
        Err(error) => return findings.unread("controller", "the Pods of the controller", &error),
    };
    let controller = &settings.config.controller;
    check_lease(client, namespace, controller, findings).await;
    let name = pod.spec.service_account();
    let account = Account { client, namespace, name };
    if let Err(error) = check_rights(&account, controller, findings).await {
        findings.unread("controller", "what its service account may do", &error);
    }
    let user = format!("system:serviceaccount:{namespace}:{name}");
    if controller.repair {
        check_fence(client, &user, &PODS, findings).await;
    }
    if !controller.node_taints.is_empty() {
        check_fence(client, &user, &NODES, findings).await;
    }
}

/// Whether a replica leads.
async fn check_lease(
    client: &UserClient,
    namespace: &str,
    controller: &ControllerSettings,
    findings: &mut Findings,
) {
    let name = controller.lease.as_str();
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
    let lease = match client.get::<Lease>(&path).await {
        Ok(lease) => lease.spec,
        Err(error) if !error.is_missing() => {
            return findings.unread("controller", &format!("the Lease {name}"), &error);
        }
        Err(_) => Default::default(),
    };
    let renewed = humantime::parse_rfc3339_weak(&lease.renew_time).ok();
    let age = renewed.map(|at| SystemTime::now().duration_since(at).unwrap_or_default());
    match age.filter(|_| !lease.holder_identity.is_empty()) {
        Some(age) if age <= RENEWED => {
            findings.ok("controller", format!("{} leads, by the Lease {name}", lease.holder_identity));
        }
        Some(age) => findings.failed(
            "controller",
            format!("no replica leads: the Lease {name} was renewed {} s ago", age.as_secs()),
            "find out why its Pods do not run, or why they cannot write the Lease: their log says it",
        ),
        None => findings.failed(
            "controller",
            format!("no replica leads: the Lease {name} has no holder"),
            "find out why its Pods do not run, or why they cannot write the Lease: their log says it",
        ),
    }
}

async fn check_rights(
    account: &Account<'_>,
    controller: &ControllerSettings,
    findings: &mut Findings,
) -> Result<(), RequestError> {
    let everywhere = |verb, group, resource| Right { verb, group, resource, namespace: "", name: "" };
    let mut rights = Vec::new();
    for verb in ["list", "watch"] {
        rights.push(everywhere(verb, "", "pods"));
        rights.push(everywhere(verb, "", "namespaces"));
    }
    if controller.repair {
        rights.push(everywhere("patch", "", "pods"));
    }
    if controller.events {
        rights.push(everywhere("create", "events.k8s.io", "events"));
        rights.push(everywhere("get", "", "nodes"));
        rights.push(everywhere("get", "", "namespaces"));
    }
    if controller.events && controller.pod_logs {
        rights.push(everywhere("get", "", "pods/log"));
    }
    if !controller.node_taints.is_empty() {
        rights.extend(["list", "watch", "patch"].map(|verb| everywhere(verb, "", "nodes")));
    }
    for name in &controller.webhook_configurations {
        let group = "admissionregistration.k8s.io";
        let name = name.as_str();
        rights.push(Right { name, ..everywhere("get", group, "mutatingwebhookconfigurations") });
    }
    for verb in ["get", "patch"] {
        let (namespace, name) = (account.namespace, controller.lease.as_str());
        rights.push(Right { namespace, name, ..everywhere(verb, "coordination.k8s.io", "leases") });
    }
    let missing = account.lacks(&rights).await?;
    if missing.is_empty() {
        findings.ok("controller", format!("ServiceAccount {} may do what is switched on", account.name));
    } else {
        findings.failed(
            "controller",
            format!("ServiceAccount {} may not {}", account.name, missing.join(", ")),
            "give it a ClusterRole with that (the chart brings it, manifests/controller and manifests/node-taints do), or switch off what needs it",
        );
    }
    Ok(())
}

/// Whether its right to change these is fenced in.
async fn check_fence(client: &UserClient, user: &str, fenced: &Fenced, findings: &mut Findings) {
    let Fenced { resource, fix } = *fenced;
    let read = async {
        let policies: Vec<Policy> = client.list(POLICIES).await?;
        let bindings: Vec<PolicyBinding> = client.list(BINDINGS).await?;
        Ok::<_, RequestError>((policies, bindings))
    };
    let (policies, bindings) = match read.await {
        Ok(read) => read,
        Err(error) => return findings.unread("controller", "the ValidatingAdmissionPolicies", &error),
    };
    let quoted = format!("'{user}'");
    let is_about = |policy: &&Policy| {
        let PolicySpec { match_constraints, match_conditions } = &policy.spec;
        match_constraints.resource_rules.iter().any(|rule| rule.has_updates_of(resource))
            && match_conditions.iter().any(|condition| condition.expression.contains(&quoted))
    };
    let is_bound = |policy: &&Policy| {
        let denies = |binding: &PolicyBinding| {
            binding.spec.policy_name == policy.metadata.name
                && binding.spec.validation_actions.iter().any(|action| action == "Deny")
        };
        bindings.iter().any(denies)
    };
    match policies.iter().filter(is_about).find(is_bound) {
        Some(policy) => {
            let name = &policy.metadata.name;
            findings.ok("controller", format!("the ValidatingAdmissionPolicy {name} fences in what it changes of {resource}"));
        }
        None => findings.failed(
            "controller",
            format!("no ValidatingAdmissionPolicy for {resource} that is bound with Deny fences in {user}: it may change all of them"),
            fix,
        ),
    }
}
