//! Checks of the processes of an installation: the rights of their accounts for the enabled features, the issuer of
//! certificates, the controller's Lease, and the policies that restrict the controller.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Resource;
use serde_json::json;

use super::findings::{Exam, Status, some_of};
use super::installation::Backend;
use crate::cli::kubernetes::{get, is_allowed, list, name_of};
use crate::config::Config;
use crate::rights::{PULL_SECRETS, Process, Right, WEBHOOKS};
use tolerarch_kubernetes::cluster::{StoredPod, covers};
use tolerarch_webhook::tls::TlsMode;

/// Advice if no policy restricts the changes of Pods by the controller.
const POD_POLICY_FIX: &str = "restore the policy and its binding by helm upgrade, apply manifests/controller/validatingadmissionpolicy.yaml with this account in it, or set controller.repair to false";
/// Advice if no policy restricts the changes of nodes by the controller.
const NODE_POLICY_FIX: &str = "restore the policies and their bindings by helm upgrade, apply those of manifests/node-taints/nodetaints.yaml with this account in them, or take its right to patch nodes away";
/// Maximum age of a leader's Lease. It is renewed every 2 s and taken over after 15 s; the rest allows for clock skew.
const MAX_LEASE_AGE: Duration = Duration::from_secs(60);
/// Maximum number of namespaces that are checked one by one, if the account has a right only in some.
const MAX_NAMESPACES: usize = 50;

/// Service account of a Pod.
struct Account<'a> {
    backend: &'a Backend<'a>,
    check: &'static str,
    pod: &'a Pod,
}

impl Account<'_> {
    fn name(&self) -> &str {
        let spec = self.pod.spec.as_ref();
        spec.and_then(|spec| spec.service_account_name.as_deref())
            .unwrap_or("default")
    }

    fn user(&self) -> String {
        let namespace = &self.backend.namespace;
        format!("system:serviceaccount:{namespace}:{}", self.name())
    }

    /// Returns the rights that the account has, and those that it lacks; `None` and a finding if they cannot be read.
    async fn review(
        &self,
        exam: &mut Exam<'_>,
        rights: Vec<Right>,
    ) -> Option<(Vec<Right>, Vec<Right>)> {
        let mut held = Vec::new();
        let mut missing = Vec::new();
        for right in rights {
            let Right {
                verb,
                group,
                resource,
                namespace,
                name,
                ..
            } = &right;
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let attributes = json!({
                "verb": verb, "group": group, "resource": resource, "subresource": subresource,
                "namespace": namespace, "name": name,
            });
            let namespace = &self.backend.namespace;
            let allowed = is_allowed(exam.client, namespace, self.name(), attributes).await;
            let what = "what the service account may do";
            if exam.findings.read(self.check, what, allowed)? {
                held.push(right);
            } else {
                missing.push(right);
            }
        }
        Some((held, missing))
    }

    /// Checks the rights that the process needs. It needs the one to read pull secrets only in namespaces that have some.
    async fn check(&self, exam: &mut Exam<'_>, rights: Vec<Right>) -> Option<()> {
        if rights.is_empty() {
            return Some(());
        }
        let check = self.check;
        let spec = self.pod.spec.as_ref();
        if spec.and_then(|spec| spec.automount_service_account_token) == Some(false) {
            let message = "no token is mounted, and the configuration needs the Kubernetes API";
            let fix = "set automountServiceAccountToken to true on the Pods (the chart sets it if the configuration needs it)";
            exam.findings.failed(check, message, fix);
        }
        let name = self.name();
        let (_, mut missing) = self.review(exam, rights).await?;
        let lacks_pull_secrets = missing.iter().any(|right| right.key == PULL_SECRETS);
        missing.retain(|right| right.key != PULL_SECRETS);
        if !missing.is_empty() {
            let rights = texts(&missing);
            let keys: BTreeSet<&str> = missing.iter().map(|right| right.key).collect();
            let keys = Vec::from_iter(keys).join(", ");
            let message = format!("ServiceAccount {name} may not {rights}: {keys} needs it");
            let fix = "give it a Role or ClusterRole with that (the chart renders them; manifests/warm, manifests/controller and \
                manifests/node-taints have them), or switch off what needs it";
            exam.findings.failed(check, message, fix);
        } else if !lacks_pull_secrets {
            let message =
                format!("ServiceAccount {name} has the rights that the configuration needs");
            exam.findings.ok(check, message);
        }
        if lacks_pull_secrets {
            self.check_pull_secrets(exam).await?;
        }
        Some(())
    }

    /// Checks that the account has no right that only the issuer of managed certificates should have.
    async fn check_excess(&self, exam: &mut Exam<'_>, config: &Config) -> Option<()> {
        let mut excess = Process::Certificates.rights(config, &self.backend.namespace);
        excess.retain(|right| match right.verb {
            "get" => right.name == config.tls.managed.secret.as_str(),
            _ => right.resource == WEBHOOKS,
        });
        let (excess, _) = self.review(exam, excess).await?;
        if !excess.is_empty() {
            let name = self.name();
            let excess = texts(&excess);
            let message = format!(
                "ServiceAccount {name} may {excess}: whoever takes over the webhook could take over the cluster"
            );
            let fix =
                "revoke these rights: only the account of `tolerarch certificates` needs them";
            exam.findings.failed("rights", message, fix);
        }
        Some(())
    }

    /// Checks whether the account may read pull secrets in the namespaces whose Pods have some. Operators may give the
    /// right for single namespaces.
    async fn check_pull_secrets(&self, exam: &mut Exam<'_>) -> Option<()> {
        let right = |namespace| Right {
            verb: "get",
            resource: "secrets",
            namespace,
            ..Right::default()
        };
        let namespaces = self.backend.selected.iter().take(MAX_NAMESPACES);
        let rights = namespaces.map(|namespace| right(name_of(*namespace).to_owned()));
        let (held, missing) = self.review(exam, rights.collect()).await?;
        let mut lacking = Vec::new();
        for Right { namespace, .. } in missing {
            let path = Pod::url_path(&(), Some(&namespace));
            let may_use_some = match exam.client.list::<StoredPod>(&path).await {
                Ok(pods) => pods.iter().any(may_use_pull_secrets),
                Err(_unread) => true,
            };
            if may_use_some {
                lacking.push(namespace);
            }
        }
        let name = self.name();
        let may = format!(
            "ServiceAccount {name} may read pull secrets in {} namespaces",
            held.len()
        );
        let lacking = some_of(lacking.iter().map(String::as_str));
        if lacking.is_empty() {
            let message = format!("{may}, and no Pod in other namespaces has one");
            exam.findings.ok(self.check, message);
        } else if !held.is_empty() {
            let message = format!("{may}, but not in {lacking}");
            exam.findings.unknown(self.check, message);
        } else {
            let message = format!(
                "ServiceAccount {name} has no right to get secrets in {lacking}: {PULL_SECRETS} needs it"
            );
            let fix = "give it a Role and a RoleBinding in the namespaces whose pull secrets it is to use (the chart renders them)";
            exam.findings.failed(self.check, message, fix);
        }
        Some(())
    }
}

/// Returns whether a Pod names pull secrets; true if that cannot be read.
fn may_use_pull_secrets(pod: &StoredPod) -> bool {
    let facts = pod.facts.as_ref();
    facts.is_none_or(|facts| facts.pull_secrets().next().is_some())
}

/// Renders rights: `get secrets tolerarch-serving, …`.
fn texts(rights: &[Right]) -> String {
    let text = |right: &Right| {
        let text = format!("{} {} {}", right.verb, right.resource, right.name);
        text.trim_end().to_owned()
    };
    rights.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// Checks the accounts of the webhook and of the issuer of its certificates.
pub(super) async fn check(
    exam: &mut Exam<'_>,
    backend: &Backend<'_>,
    config: &Config,
) -> Option<()> {
    let account = Account {
        backend,
        check: "rights",
        pod: backend.workload.pods.first()?,
    };
    let needed = Process::Webhook.rights(config, &backend.namespace);
    account.check(exam, needed).await?;
    // Looked for in every mode: an issuer that is not needed does not start, and its Pods are reported.
    let issuer = backend.process(exam, Process::Certificates).await?;
    if config.tls.mode != TlsMode::Managed {
        return Some(());
    }
    account.check_excess(exam, config).await?;
    if let Some(pod) = issuer.pods.first() {
        let account = Account { pod, ..account };
        let needed = Process::Certificates.rights(config, &backend.namespace);
        return account.check(exam, needed).await;
    }
    let fix = match issuer.without_pods(&backend.namespace, 1) {
        Some((_, fix)) => fix,
        None => "install its Deployment (the chart and manifests/ contain it)".to_owned(),
    };
    let message = "nothing issues certificates: there is no Pod of `tolerarch certificates`";
    exam.findings.failed("rights", message, fix);
    Some(())
}

/// Runs all checks of the controller; none if it is not installed.
pub(super) async fn check_controller(exam: &mut Exam<'_>, backend: &Backend<'_>, config: &Config) {
    let namespace = &backend.namespace;
    let Some(controller) = backend.process(exam, Process::Controller).await else {
        return;
    };
    if let Some((message, fix)) = controller.without_pods(namespace, 2) {
        let message = message + ": nothing is repaired, and nothing is learned";
        exam.findings.failed("controller", message, fix);
    }
    let Some(pod) = controller.pods.first() else {
        return;
    };
    let account = Account {
        backend,
        check: "controller",
        pod,
    };
    let lease = config.controller.lease.as_str();
    check_lease(exam, namespace, lease, &controller.pods).await;
    let needed = Process::Controller.rights(config, namespace);
    account.check(exam, needed).await;
    if config.controller.repair {
        check_policy(exam, &account.user(), "pods", POD_POLICY_FIX).await;
    }
    if !config.controller.node_taints.is_empty() {
        check_policy(exam, &account.user(), "nodes", NODE_POLICY_FIX).await;
    }
}

async fn check_lease(exam: &mut Exam<'_>, namespace: &str, name: &str, pods: &[Pod]) -> Option<()> {
    let lease = match get::<Lease>(exam.client, Some(namespace), name).await {
        Err(error) if error.is_missing() => Lease::default(),
        lease => exam
            .findings
            .read("controller", &format!("the Lease {name}"), lease)?,
    };
    let spec = lease.spec.unwrap_or_default();
    let holder = spec.holder_identity.unwrap_or_default();
    let age = match spec.renew_time {
        Some(renewed) if !holder.is_empty() => Some(age(renewed)),
        _ => None,
    };
    let is_pod = pods.iter().any(|pod| holder.starts_with(name_of(pod)));
    let findings = &mut exam.findings;
    match age {
        Some(age) if age <= MAX_LEASE_AGE && is_pod => {
            findings.ok("controller", format!("{holder} leads, by the Lease {name}"));
        }
        // A killed Pod holds the Lease until another Pod takes it over.
        Some(age) if age <= MAX_LEASE_AGE => {
            let message = format!("{holder} holds the Lease {name}, and no Pod has that name");
            let fix = "another Pod takes it over within 20 s; then run this again";
            findings.add(Status::Unknown, "controller", message, fix);
        }
        age => {
            let why = match age {
                Some(age) => format!("was renewed {} s ago", age.as_secs()),
                None => "has no holder".to_owned(),
            };
            let message = format!("no replica leads: the Lease {name} {why}");
            let fix = "see in the log of its Pods why they do not run or cannot write the Lease";
            findings.failed("controller", message, fix);
        }
    }
    Some(())
}

fn age(renewed: MicroTime) -> Duration {
    let age = SystemTime::now().duration_since(renewed.0.into());
    // The time is in the future if the other clock is ahead.
    age.unwrap_or_default()
}

/// Checks whether a policy restricts what the account may change of a resource.
async fn check_policy(
    exam: &mut Exam<'_>,
    user: &str,
    resource: &str,
    fix: &'static str,
) -> Option<()> {
    let client = exam.client;
    let what = "the ValidatingAdmissionPolicies";
    let policies = list::<ValidatingAdmissionPolicy>(client, None, "").await;
    let policies = exam.findings.read("controller", what, policies)?;
    let bindings = list::<ValidatingAdmissionPolicyBinding>(client, None, "").await;
    let bindings = exam.findings.read("controller", what, bindings)?;
    let mut bound = Vec::new();
    for spec in bindings.iter().filter_map(|binding| binding.spec.as_ref()) {
        let mut actions = spec.validation_actions.iter().flatten();
        if actions.any(|action| action == "Deny") {
            bound.push(&spec.policy_name);
        }
    }
    let quoted = format!("'{user}'");
    let restricts = |policy: &&ValidatingAdmissionPolicy| {
        let Some(spec) = &policy.spec else {
            return false;
        };
        let constraints = spec.match_constraints.iter();
        let rules = constraints.flat_map(|matches| matches.resource_rules.iter().flatten());
        let mut rules = rules.map(|rule| [&rule.operations, &rule.api_groups, &rule.resources]);
        let mut conditions = spec.match_conditions.iter().flatten();
        bound.contains(&&policy.metadata.name)
            && rules.any(|rule| covers(rule, ["UPDATE", "", resource]))
            && conditions.any(|condition| condition.expression.contains(&quoted))
    };
    if let Some(policy) = policies.iter().find(restricts) {
        let name = name_of(policy);
        let message =
            format!("the ValidatingAdmissionPolicy {name} restricts its changes of {resource}");
        exam.findings.ok("controller", message);
    } else {
        let message = format!(
            "no ValidatingAdmissionPolicy for {resource} that is bound with Deny restricts {user}: it may change anything of them"
        );
        exam.findings.failed("controller", message, fix);
    }
    Some(())
}
