//! Checks of the controller, if installed: whether a replica leads, has its rights, and is fenced in by policies.

use std::time::{Duration, SystemTime};

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use super::findings::{Exam, Status};
use super::installation::Backend;
use super::rights::{Account, Process};
use crate::cli::kubernetes::{get, list, name_of};
use crate::config::Config;
use tolerarch_kubernetes::cluster::covers;

/// Advice if no policy restricts the changes of the controller.
const FENCE_PODS: &str = "put the policy and its binding back by helm upgrade, apply manifests/controller/validatingadmissionpolicy.yaml with this account in it, or set controller.repair to false";
const FENCE_NODES: &str = "put the policies and their bindings back by helm upgrade, apply those of manifests/node-taints/nodetaints.yaml with this account in them, or take its right to patch nodes away";
/// Maximal age of a leader's Lease: renewed every 2 s, taken over after 15 s; the rest is for clocks that differ.
const RENEWED: Duration = Duration::from_secs(60);

/// Runs all checks of the controller; none if it is not installed.
pub(super) async fn check(exam: &mut Exam<'_>, backend: &Backend, config: &Config) -> Option<()> {
    let pods = backend.component(exam, "controller", "controller").await?;
    let Some(pod) = pods.first() else {
        let (name, fix) = backend.deployment(exam.client, "controller", 2).await?;
        let message =
            format!("the Deployment {name} has no Pod: nothing is repaired, and nothing is learned");
        exam.findings.failed("controller", message, fix);
        return None;
    };
    let account = Account::of(&backend.namespace, pod);
    check_lease(exam, account.namespace, config.controller.lease.as_str(), &pods).await;
    account.check(exam, Process::Controller, config).await;
    if config.controller.repair {
        check_fence(exam, &account.user(), "pods", FENCE_PODS).await;
    }
    if !config.controller.node_taints.is_empty() {
        check_fence(exam, &account.user(), "nodes", FENCE_NODES).await;
    }
    Some(())
}

async fn check_lease(exam: &mut Exam<'_>, namespace: &str, name: &str, pods: &[Pod]) -> Option<()> {
    let lease = match get::<Lease>(exam.client, Some(namespace), name).await {
        Err(error) if error.is_missing() => Lease::default(),
        lease => exam.findings.read("controller", &format!("the Lease {name}"), lease)?,
    };
    let spec = lease.spec.unwrap_or_default();
    let age = |renewed: MicroTime| SystemTime::now().duration_since(renewed.0.into()).unwrap_or_default();
    let holder = spec.holder_identity.filter(|holder| !holder.is_empty());
    let stale = |why: String| {
        let fix = "find out why its Pods do not run, or why they cannot write the Lease: their log says it";
        (Status::Failed, format!("no replica leads: the Lease {name} {why}"), fix)
    };
    let (status, message, fix) = match holder.zip(spec.renew_time.map(age)) {
        None => stale("has no holder".to_owned()),
        Some((_, age)) if age > RENEWED => stale(format!("was renewed {} s ago", age.as_secs())),
        Some((holder, _)) if pods.iter().any(|pod| holder.starts_with(name_of(pod))) => {
            (Status::Ok, format!("{holder} leads, by the Lease {name}"), "")
        }
        // A Pod that was killed holds the Lease until another one takes it over.
        Some((holder, _)) => {
            let message = format!("{holder} holds the Lease {name}, and no Pod has that name");
            (Status::Unknown, message, "another one leads within 20 s; then run this again")
        }
    };
    exam.findings.add(status, "controller", message, fix);
    Some(())
}

async fn check_fence(exam: &mut Exam<'_>, user: &str, resource: &str, fix: &'static str) -> Option<()> {
    let (client, what) = (exam.client, "the ValidatingAdmissionPolicies");
    let policies = list::<ValidatingAdmissionPolicy>(client, None, "").await;
    let policies = exam.findings.read("controller", what, policies)?;
    let bindings = list::<ValidatingAdmissionPolicyBinding>(client, None, "").await;
    let bindings = exam.findings.read("controller", what, bindings)?;
    let quoted = format!("'{user}'");
    let is_about = |policy: &&ValidatingAdmissionPolicy| {
        let Some(spec) = &policy.spec else { return false };
        let rules = spec.match_constraints.iter().flat_map(|matches| matches.resource_rules.iter().flatten());
        let mut rules = rules.map(|rule| [&rule.operations, &rule.api_groups, &rule.resources]);
        let mut conditions = spec.match_conditions.iter().flatten();
        rules.any(|rule| covers(rule, ["UPDATE", "", resource]))
            && conditions.any(|condition| condition.expression.contains(&quoted))
    };
    let is_bound = |policy: &&ValidatingAdmissionPolicy| {
        bindings.iter().filter_map(|binding| binding.spec.as_ref()).any(|spec| {
            spec.policy_name == policy.metadata.name
                && spec.validation_actions.iter().flatten().any(|action| action == "Deny")
        })
    };
    match policies.iter().filter(is_about).find(is_bound) {
        Some(policy) => {
            let name = name_of(policy);
            exam.findings.ok(
                "controller",
                format!("the ValidatingAdmissionPolicy {name} fences in what it changes of {resource}"),
            );
        }
        None => exam.findings.failed(
            "controller",
            format!("no ValidatingAdmissionPolicy for {resource} that is bound with Deny fences in {user}: it may change all of them"),
            fix,
        ),
    }
    Some(())
}
