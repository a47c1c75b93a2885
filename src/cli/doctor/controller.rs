//! The controller, where it is installed: whether one leads, whether it may do what is switched on, and whether it is fenced
//! in.

use std::time::{Duration, SystemTime};

use serde::Deserialize;
use serde_json::Value;

use super::findings::Exam;
use super::installation::Backend;
use super::objects::Rule;
use super::rights::{Account, Asked, Need, Right};
use crate::cli::kubernetes::items;
use tolerarch_controller::ControllerSettings;
use tolerarch_kubernetes::cluster::RequestError;

const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
/// What is to be done where what it changes is not fenced in.
const FENCE_PODS: &str = "apply manifests/controller/validatingadmissionpolicy.yaml with this account in it, or set controller.repair to false";
const FENCE_NODES: &str = "apply the policies of manifests/node-taints/nodetaints.yaml with this account in them, or take its right to patch nodes away";
/// A leader renews every 2 s, and is replaced after 15 s; the rest is for clocks that differ.
const RENEWED: Duration = Duration::from_secs(60);

/// All checks; none where it is not installed.
pub(super) async fn check(exam: &mut Exam<'_>, backend: &Backend, controller: &ControllerSettings) {
    let namespace = &*backend.namespace;
    let pod = match backend.component(exam.client, "controller").await {
        Ok(Some(pod)) => pod,
        Ok(None) => return,
        Err(error) => return exam.findings.unread("controller", "the Pods of the controller", &error),
    };
    check_lease(exam, namespace, controller).await;
    let name = pod.service_account();
    if let Err(error) = check_rights(exam, Account { namespace, name }, controller).await {
        exam.findings.unread("controller", "what its service account may do", &error);
    }
    let user = format!("system:serviceaccount:{namespace}:{name}");
    if controller.repair {
        check_fence(exam, &user, "pods", FENCE_PODS).await;
    }
    if !controller.node_taints.is_empty() {
        check_fence(exam, &user, "nodes", FENCE_NODES).await;
    }
}

async fn check_lease(exam: &mut Exam<'_>, namespace: &str, controller: &ControllerSettings) {
    let Exam { client, findings, .. } = exam;
    let name = controller.lease.as_str();
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
    let lease = match client.get::<Value>(&path).await {
        Err(error) if !error.is_missing() => {
            return findings.unread("controller", &format!("the Lease {name}"), &error);
        }
        lease => lease.unwrap_or_default(),
    };
    let text = |field: &str| lease["spec"][field].as_str().unwrap_or_default();
    let holder = text("holderIdentity");
    let renewed = humantime::parse_rfc3339_weak(text("renewTime")).ok().filter(|_| !holder.is_empty());
    let why = match renewed.map(|at| SystemTime::now().duration_since(at).unwrap_or_default()) {
        Some(age) if age <= RENEWED => {
            return findings.ok("controller", format!("{holder} leads, by the Lease {name}"));
        }
        Some(age) => format!("was renewed {} s ago", age.as_secs()),
        None => "has no holder".to_owned(),
    };
    findings.failed(
        "controller",
        format!("no replica leads: the Lease {name} {why}"),
        "find out why its Pods do not run, or why they cannot write the Lease: their log says it",
    );
}

async fn check_rights(exam: &mut Exam<'_>, account: Account<'_>, controller: &ControllerSettings) -> Asked {
    let ControllerSettings { repair, events, pod_logs, learn, .. } = *controller;
    let looks = events || learn;
    let admission = "admissionregistration.k8s.io";
    let taints = !controller.node_taints.is_empty();
    let takes = [
        (true, "list", "", "pods"),
        (true, "list", "", "namespaces"),
        (true, "watch", "", "pods"),
        (true, "watch", "", "namespaces"),
        (repair, "patch", "", "pods"),
        (events, "create", "events.k8s.io", "events"),
        (looks, "get", "", "nodes"),
        (looks, "get", "", "namespaces"),
        (looks && pod_logs, "get", "", "pods/log"),
        (taints, "list", "", "nodes"),
        (taints, "watch", "", "nodes"),
        (taints, "patch", "", "nodes"),
    ];
    let takes = takes.into_iter().filter(|(is_on, ..)| *is_on);
    let takes = takes.map(|(_, verb, group, resource)| Right::everywhere(verb, group, resource));
    let webhooks = Right::everywhere("get", admission, "mutatingwebhookconfigurations");
    let webhooks = controller.webhook_configurations.iter().map(|name| webhooks.named("", name.as_str()));
    let lease = ["get", "patch"].map(|verb| {
        Right::everywhere(verb, "coordination.k8s.io", "leases")
            .named(account.namespace, controller.lease.as_str())
    });
    let record = controller.failed_images();
    let failed_images = ["get", "list", "watch", "patch"]
        .map(|verb| Right::everywhere(verb, "", "configmaps").named(account.namespace, record.as_str()));
    let failed_images = failed_images.into_iter().filter(|_| learn);
    let need = Need {
        what: "do what is switched on",
        by: "what is switched on",
        rights: takes.chain(webhooks).chain(lease).chain(failed_images).collect(),
        fix: "give it a ClusterRole with that (the chart brings it, manifests/controller and manifests/node-taints do), or switch off what needs it",
    };
    account.check(exam, "controller", need).await
}

async fn check_fence(exam: &mut Exam<'_>, user: &str, resource: &str, fix: &'static str) {
    let Exam { client, findings, .. } = exam;
    let read = async {
        let policies: Vec<Value> = client.list(POLICIES).await?;
        let bindings: Vec<Value> = client.list(BINDINGS).await?;
        Ok::<_, RequestError>((policies, bindings))
    };
    let (policies, bindings) = match read.await {
        Ok(read) => read,
        Err(error) => return findings.unread("controller", "the ValidatingAdmissionPolicies", &error),
    };
    let quoted = format!("'{user}'");
    let is_about = |policy: &&Value| {
        let spec = &policy["spec"];
        let is_quoted =
            |condition: &Value| condition["expression"].as_str().is_some_and(|it| it.contains(&quoted));
        let has_updates =
            |rule: &Value| Rule::deserialize(rule).is_ok_and(|rule| rule.has_updates_of(resource));
        items(&spec["matchConstraints"]["resourceRules"]).any(has_updates)
            && items(&spec["matchConditions"]).any(is_quoted)
    };
    let is_bound = |policy: &&Value| {
        let denies = |binding: &Value| {
            let spec = &binding["spec"];
            spec["policyName"] == policy["metadata"]["name"]
                && items(&spec["validationActions"]).any(|action| action == "Deny")
        };
        bindings.iter().any(denies)
    };
    match policies.iter().filter(is_about).find(is_bound) {
        Some(policy) => {
            let name = policy["metadata"]["name"].as_str().unwrap_or_default();
            findings.ok("controller", format!("the ValidatingAdmissionPolicy {name} fences in what it changes of {resource}"));
        }
        None => findings.failed(
            "controller",
            format!("no ValidatingAdmissionPolicy for {resource} that is bound with Deny fences in {user}: it may change all of them"),
            fix,
        ),
    }
}
