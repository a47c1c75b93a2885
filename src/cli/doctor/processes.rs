//! Checks of the processes of an installation: the rights of their accounts for the enabled features, the issuer of
//! certificates, the controller's Lease, and the policies that fence the controller in.

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
use tolerarch_kubernetes::cluster::{ObjectName, StoredPod, covers};
use tolerarch_webhook::tls::TlsMode;

const PULL_SECRETS: &str = "credentials.pullSecrets";
const WEBHOOKS: &str = "mutatingwebhookconfigurations";
const ADMISSION: &str = "admissionregistration.k8s.io";

/// Advice if no policy restricts the changes of the controller.
const FENCE_PODS: &str = "put the policy and its binding back by helm upgrade, apply manifests/controller/validatingadmissionpolicy.yaml with this account in it, or set controller.repair to false";
const FENCE_NODES: &str = "put the policies and their bindings back by helm upgrade, apply those of manifests/node-taints/nodetaints.yaml with this account in them, or take its right to patch nodes away";
/// Maximal age of a leader's Lease: renewed every 2 s, taken over after 15 s; the rest is for clocks that differ.
const RENEWED: Duration = Duration::from_secs(60);
/// Maximal number of namespaces that are checked one by one, if a right is not given for all.
const ASKED: usize = 50;

/// Components, each a process with an account of its own.
const WEBHOOK: &str = "webhook";
const ISSUER: &str = "certificates";
const CONTROLLER: &str = "controller";

/// Right, and the key of the configuration that needs it.
#[derive(Default)]
struct Right {
    key: &'static str,
    verb: &'static str,
    group: &'static str,
    /// Resource, with a subresource as in `pods/log`.
    resource: &'static str,
    /// Namespace; empty for all.
    namespace: String,
    /// Name; empty for any.
    name: String,
}

fn rights(component: &str, config: &Config, namespace: &str) -> Vec<Right> {
    let Config {
        tls,
        controller,
        discover,
        ..
    } = config;
    let managed = tls.mode == TlsMode::Managed;
    let failed_images = config.server.failed_images && controller.learn;
    let events = controller.events;
    let looks = controller.events || controller.learn;
    let looker = if events {
        "controller.events"
    } else {
        "controller.learn"
    };
    let evicts = controller.learn && controller.evict_failed;
    let taints = !controller.node_taints.is_empty();
    let ca = tls.managed.secret.as_str();
    let serving = tls.managed.serving_secret.as_str();
    let lease = controller.lease.as_str();
    let record = controller.failed_images();
    let any = vec![""];
    let record = vec![record.as_str()];
    let issued = tls
        .managed
        .webhook_configurations
        .iter()
        .map(ObjectName::as_str)
        .collect();
    let followed = controller
        .webhook_configurations
        .iter()
        .map(ObjectName::as_str)
        .collect();
    // Component, enabled or not, key, verbs, API group, resource, and names.
    let table = [
        (
            WEBHOOK,
            discover.nodes,
            "discover",
            "get list watch",
            "",
            "nodes",
            &any,
        ),
        (
            WEBHOOK,
            discover.node_pools,
            "discover",
            "get list watch",
            "karpenter.sh",
            "nodepools",
            &any,
        ),
        (
            WEBHOOK,
            config.warm.from_pods,
            "cache.warm.fromPods",
            "list",
            "",
            "pods",
            &any,
        ),
        (
            WEBHOOK,
            config.credentials.pull_secrets,
            PULL_SECRETS,
            "get",
            "",
            "secrets",
            &any,
        ),
        (
            WEBHOOK,
            failed_images,
            "server.failedImages",
            "get list watch",
            "",
            "configmaps",
            &record,
        ),
        (
            ISSUER,
            managed,
            "tls.mode",
            "get patch delete",
            "",
            "secrets",
            &vec![ca, serving],
        ),
        (
            ISSUER,
            managed,
            "tls.mode",
            "get patch",
            ADMISSION,
            WEBHOOKS,
            &issued,
        ),
        (
            CONTROLLER,
            true,
            "controller",
            "list watch",
            "",
            "pods",
            &any,
        ),
        (
            CONTROLLER,
            true,
            "controller",
            "list watch",
            "",
            "namespaces",
            &any,
        ),
        (
            CONTROLLER,
            true,
            "controller",
            "get",
            ADMISSION,
            WEBHOOKS,
            &followed,
        ),
        (
            CONTROLLER,
            true,
            "controller",
            "get patch",
            "coordination.k8s.io",
            "leases",
            &vec![lease],
        ),
        (
            CONTROLLER,
            controller.repair,
            "controller.repair",
            "patch",
            "",
            "pods",
            &any,
        ),
        (
            CONTROLLER,
            events,
            "controller.events",
            "create",
            "events.k8s.io",
            "events",
            &any,
        ),
        (CONTROLLER, looks, looker, "get", "", "nodes", &any),
        (CONTROLLER, looks, looker, "get", "", "namespaces", &any),
        (
            CONTROLLER,
            looks && controller.pod_logs,
            "controller.podLogs",
            "get",
            "",
            "pods/log",
            &any,
        ),
        (
            CONTROLLER,
            controller.learn,
            "controller.learn",
            "get list watch patch",
            "",
            "configmaps",
            &record,
        ),
        (
            CONTROLLER,
            evicts,
            "controller.evictFailed",
            "create",
            "",
            "pods/eviction",
            &any,
        ),
        (
            CONTROLLER,
            taints,
            "controller.nodeTaints",
            "list watch patch",
            "",
            "nodes",
            &any,
        ),
    ];
    let mut rights = Vec::new();
    for (whose, is_on, key, verbs, group, resource, names) in table {
        for verb in verbs.split(' ').filter(|_| whose == component && is_on) {
            rights.extend(names.iter().map(|name| {
                let namespace = if name.is_empty() || group == ADMISSION {
                    ""
                } else {
                    namespace
                };
                let namespace = namespace.to_owned();
                let name = (*name).to_owned();
                Right {
                    key,
                    verb,
                    group,
                    resource,
                    namespace,
                    name,
                }
            }));
        }
    }
    rights
}

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
        format!(
            "system:serviceaccount:{}:{}",
            self.backend.namespace,
            self.name()
        )
    }

    /// Returns the rights that the account has, and those that it lacks; `None`, and a finding, if they cannot be read.
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
            let allowed = is_allowed(
                exam.client,
                &self.backend.namespace,
                self.name(),
                attributes,
            )
            .await;
            let is_held =
                exam.findings
                    .read(self.check, "what the service account may do", allowed)?;
            let list = if is_held { &mut held } else { &mut missing };
            list.push(right);
        }
        Some((held, missing))
    }

    /// Checks the rights that the process needs; the one to read pull secrets is needed in namespaces with some.
    async fn check(&self, exam: &mut Exam<'_>, rights: Vec<Right>) -> Option<()> {
        let check = self.check;
        let name = self.name();
        if rights.is_empty() {
            return Some(());
        }
        if self
            .pod
            .spec
            .as_ref()
            .and_then(|spec| spec.automount_service_account_token)
            == Some(false)
        {
            let message = "no token is mounted, and the configuration needs the Kubernetes API";
            let fix = "set automountServiceAccountToken to true on the Pods (the chart does it with what needs it)";
            exam.findings.failed(check, message, fix);
        }
        let (_, missing) = self.review(exam, rights).await?;
        let (secrets, missing): (Vec<_>, Vec<_>) = missing
            .into_iter()
            .partition(|right| right.key == PULL_SECRETS);
        if !missing.is_empty() {
            let keys: BTreeSet<&str> = missing.iter().map(|right| right.key).collect();
            let keys = Vec::from_iter(keys).join(", ");
            let message = format!(
                "ServiceAccount {name} may not {}: {keys} needs it",
                texts(&missing)
            );
            let fix = "give it a Role or ClusterRole with that (the chart renders them; manifests/warm, manifests/controller and \
                manifests/node-taints have them), or switch off what needs it";
            exam.findings.failed(check, message, fix);
        } else if secrets.is_empty() {
            exam.findings.ok(
                check,
                format!("ServiceAccount {name} may do what is switched on"),
            );
        }
        if secrets.is_empty() {
            Some(())
        } else {
            self.check_pull_secrets(exam).await
        }
    }

    /// Checks that the account has no right of the one that issues managed certificates.
    async fn check_excess(&self, exam: &mut Exam<'_>, config: &Config) -> Option<()> {
        let mut excess = rights(ISSUER, config, &self.backend.namespace);
        excess.retain(|right| match right.verb {
            "get" => right.name == config.tls.managed.secret.as_str(),
            _ => right.resource == WEBHOOKS,
        });
        let (excess, _) = self.review(exam, excess).await?;
        if !excess.is_empty() {
            let name = self.name();
            let excess = texts(&excess);
            let message = format!(
                "ServiceAccount {name} may {excess}: who takes over the webhook owns the cluster"
            );
            let fix = "take that away: only the account of `tolerarch certificates` needs it";
            exam.findings.failed("rights", message, fix);
        }
        Some(())
    }

    /// Checks whether pull secrets can be read where Pods have any: some operators give the right per namespace.
    async fn check_pull_secrets(&self, exam: &mut Exam<'_>) -> Option<()> {
        let right = |namespace| Right {
            verb: "get",
            resource: "secrets",
            namespace,
            ..Right::default()
        };
        let asked = self.backend.selected.iter().take(ASKED);
        let asked = asked.map(|namespace| right(name_of(*namespace).to_owned()));
        let (held, missing) = self.review(exam, asked.collect()).await?;
        let mut lacking = Vec::new();
        for Right { namespace, .. } in missing {
            let pods = exam
                .client
                .list::<StoredPod>(&Pod::url_path(&(), Some(&namespace)))
                .await;
            let uses = |pod: StoredPod| {
                pod.facts
                    .is_none_or(|facts| facts.pull_secrets().next().is_some())
            };
            // What cannot be read may have some.
            if pods.map_or(true, |pods| pods.into_iter().any(uses)) {
                lacking.push(namespace);
            }
        }
        let name = self.name();
        let may = held.len();
        let lacking = some_of(lacking.iter().map(String::as_str));
        let message =
            format!("ServiceAccount {name} may read pull secrets in {may} namespaces, and ");
        if lacking.is_empty() {
            exam.findings
                .ok("rights", message + "no Pod of others has any");
        } else if may > 0 {
            exam.findings
                .unknown("rights", message + "not in " + &lacking);
        } else {
            let message = format!(
                "ServiceAccount {name} has no right to get secrets in {lacking}: {PULL_SECRETS} needs it"
            );
            let fix = "give it a Role and a RoleBinding in the namespaces whose pull secrets it is to use (the chart renders them)";
            exam.findings.failed("rights", message, fix);
        }
        Some(())
    }
}

/// Renders rights: `get secrets tolerarch-serving, …`.
fn texts(rights: &[Right]) -> String {
    let texts = rights
        .iter()
        .map(|right| format!("{} {} {}", right.verb, right.resource, right.name));
    texts
        .map(|text| text.trim_end().to_owned())
        .collect::<Vec<_>>()
        .join(", ")
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
    account
        .check(exam, rights(WEBHOOK, config, &backend.namespace))
        .await?;
    // One that is there without being needed does not start.
    let issuer = backend.process(exam, ISSUER).await?;
    if config.tls.mode != TlsMode::Managed {
        return Some(());
    }
    account.check_excess(exam, config).await?;
    if let Some(pod) = issuer.pods.first() {
        let needed = rights(ISSUER, config, &backend.namespace);
        return Account {
            backend,
            check: "rights",
            pod,
        }
        .check(exam, needed)
        .await;
    }
    let install = || "install its Deployment (the chart and manifests/ bring it)".to_owned();
    let fix = issuer
        .without_pods(&backend.namespace, 1)
        .map_or_else(install, |(_, fix)| fix);
    let message = "nothing issues certificates: there is no Pod of `tolerarch certificates`";
    exam.findings.failed("rights", message, fix);
    Some(())
}

/// Runs all checks of the controller; none if it is not installed.
pub(super) async fn check_controller(exam: &mut Exam<'_>, backend: &Backend<'_>, config: &Config) {
    let Some(found) = backend.process(exam, CONTROLLER).await else {
        return;
    };
    if let Some((message, fix)) = found.without_pods(&backend.namespace, 2) {
        let message = message + ": nothing is repaired, and nothing is learned";
        exam.findings.failed("controller", message, fix);
    }
    let Some(pod) = found.pods.first() else {
        return;
    };
    let account = Account {
        backend,
        check: "controller",
        pod,
    };
    check_lease(
        exam,
        &backend.namespace,
        config.controller.lease.as_str(),
        &found.pods,
    )
    .await;
    account
        .check(exam, rights(CONTROLLER, config, &backend.namespace))
        .await;
    if config.controller.repair {
        check_fence(exam, &account.user(), "pods", FENCE_PODS).await;
    }
    if !config.controller.node_taints.is_empty() {
        check_fence(exam, &account.user(), "nodes", FENCE_NODES).await;
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
    let age = |renewed: MicroTime| {
        SystemTime::now()
            .duration_since(renewed.0.into())
            .unwrap_or_default()
    };
    let holder = spec.holder_identity.unwrap_or_default();
    let (status, message, fix) = match spec.renew_time.map(age).filter(|_| !holder.is_empty()) {
        Some(age) if age <= RENEWED && pods.iter().any(|pod| holder.starts_with(name_of(pod))) => (
            Status::Ok,
            format!("{holder} leads, by the Lease {name}"),
            "",
        ),
        // A Pod that was killed holds the Lease until another one takes it over.
        Some(age) if age <= RENEWED => {
            let message = format!("{holder} holds the Lease {name}, and no Pod has that name");
            (
                Status::Unknown,
                message,
                "another one leads within 20 s; then run this again",
            )
        }
        age => {
            let stale = |age: Duration| format!("was renewed {} s ago", age.as_secs());
            let why = age.map_or_else(|| "has no holder".to_owned(), stale);
            let fix = "find out why its Pods do not run, or why they cannot write the Lease: their log says it";
            (
                Status::Failed,
                format!("no replica leads: the Lease {name} {why}"),
                fix,
            )
        }
    };
    exam.findings.add(status, "controller", message, fix);
    Some(())
}

async fn check_fence(
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
    let deny = bindings.iter().filter_map(|binding| binding.spec.as_ref());
    let deny = deny.filter(|spec| {
        spec.validation_actions
            .iter()
            .flatten()
            .any(|action| action == "Deny")
    });
    let bound: Vec<_> = deny.map(|spec| &spec.policy_name).collect();
    let quoted = format!("'{user}'");
    let fences = |policy: &&ValidatingAdmissionPolicy| {
        let Some(spec) = &policy.spec else {
            return false;
        };
        let rules = spec
            .match_constraints
            .iter()
            .flat_map(|matches| matches.resource_rules.iter().flatten());
        let mut rules = rules.map(|rule| [&rule.operations, &rule.api_groups, &rule.resources]);
        let mut conditions = spec.match_conditions.iter().flatten();
        bound.contains(&&policy.metadata.name)
            && rules.any(|rule| covers(rule, ["UPDATE", "", resource]))
            && conditions.any(|condition| condition.expression.contains(&quoted))
    };
    if let Some(policy) = policies.iter().find(fences) {
        let name = name_of(policy);
        let message =
            format!("the ValidatingAdmissionPolicy {name} fences in what it changes of {resource}");
        exam.findings.ok("controller", message);
    } else {
        let message = format!(
            "no ValidatingAdmissionPolicy for {resource} that is bound with Deny fences in {user}: it may change all of them"
        );
        exam.findings.failed("controller", message, fix);
    }
    Some(())
}
