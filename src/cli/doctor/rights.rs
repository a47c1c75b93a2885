//! Checks of the rights for the enabled features, and of rules of namespaces that refuse the pools' tolerations.

use std::collections::BTreeSet;

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::findings::{Exam, some_of};
use super::installation::Backend;
use super::probe::{dry_run, pod};
use crate::cli::kubernetes::name_of;
use crate::config::Config;
use tolerarch_core::pod::Toleration;
use tolerarch_core::policy::Pool;
use tolerarch_kubernetes::cluster::{ObjectName, RequestError, StoredPod, UserClient};
use tolerarch_webhook::tls::TlsMode;

const WHITE_LIST: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";
const WEBHOOKS: &str = "mutatingwebhookconfigurations";
const ADMISSION: &str = "admissionregistration.k8s.io";

/// Maximal number of namespaces that are checked one by one, if a right is not given for all.
const ASKED: usize = 50;

/// Process of an installation, with its own account.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Process {
    Webhook,
    Issuer,
    Controller,
}

/// Right, and the key of the configuration that needs it.
#[derive(Default)]
struct Right<'a> {
    key: &'static str,
    verb: &'static str,
    group: &'static str,
    /// Resource, with a subresource as in `pods/log`.
    resource: &'static str,
    /// Namespace; empty for all.
    namespace: &'a str,
    /// Name; empty for any.
    name: String,
}

fn rights<'a>(process: Process, config: &Config, namespace: &'a str) -> Vec<Right<'a>> {
    use Process::{Controller, Issuer, Webhook};
    let Config { tls, controller, discover, .. } = config;
    let managed = tls.mode == TlsMode::Managed;
    let failed_images = config.server.failed_images && controller.learn;
    let (events, looks) = (controller.events, controller.events || controller.learn);
    let looker = if events { "controller.events" } else { "controller.learn" };
    let (evicts, taints) = (controller.learn && controller.evict_failed, !controller.node_taints.is_empty());
    let (ca, serving) = (tls.managed.secret.as_str(), tls.managed.serving_secret.as_str());
    let (lease, record) = (controller.lease.as_str(), controller.failed_images());
    let (any, record) = (vec![""], vec![record.as_str()]);
    let issued = tls.managed.webhook_configurations.iter().map(ObjectName::as_str).collect();
    let followed = controller.webhook_configurations.iter().map(ObjectName::as_str).collect();
    // Process, enabled or not, key, verbs, API group, resource, and names.
    let table = [
        (Webhook, discover.nodes, "discover", "get list watch", "", "nodes", &any),
        (Webhook, discover.node_pools, "discover", "get list watch", "karpenter.sh", "nodepools", &any),
        (Webhook, config.warm.from_pods, "cache.warm.fromPods", "list", "", "pods", &any),
        (Webhook, failed_images, "server.failedImages", "get list watch", "", "configmaps", &record),
        (Issuer, managed, "tls.mode", "get patch", "", "secrets", &vec![ca, serving]),
        (Issuer, managed, "tls.mode", "get patch", ADMISSION, WEBHOOKS, &issued),
        (Controller, true, "controller", "list watch", "", "pods", &any),
        (Controller, true, "controller", "list watch", "", "namespaces", &any),
        (Controller, true, "controller", "get", ADMISSION, WEBHOOKS, &followed),
        (Controller, true, "controller", "get patch", "coordination.k8s.io", "leases", &vec![lease]),
        (Controller, controller.repair, "controller.repair", "patch", "", "pods", &any),
        (Controller, events, "controller.events", "create", "events.k8s.io", "events", &any),
        (Controller, looks, looker, "get", "", "nodes", &any),
        (Controller, looks, looker, "get", "", "namespaces", &any),
        (Controller, looks && controller.pod_logs, "controller.podLogs", "get", "", "pods/log", &any),
        (Controller, controller.learn, "controller.learn", "get list watch patch", "", "configmaps", &record),
        (Controller, evicts, "controller.evictFailed", "create", "", "pods/eviction", &any),
        (Controller, taints, "controller.nodeTaints", "list watch patch", "", "nodes", &any),
    ];
    let mut rights = Vec::new();
    for (whose, is_on, key, verbs, group, resource, names) in table {
        for verb in verbs.split(' ').filter(|_| whose == process && is_on) {
            rights.extend(names.iter().map(|name| {
                let namespace = if name.is_empty() || group == ADMISSION { "" } else { namespace };
                Right { key, verb, group, resource, namespace, name: (*name).to_owned() }
            }));
        }
    }
    rights
}

#[derive(Clone, Copy)]
pub(super) struct Account<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

impl<'a> Account<'a> {
    pub(super) fn of(namespace: &'a str, pod: &'a Pod) -> Self {
        let name = pod.spec.as_ref().and_then(|spec| spec.service_account_name.as_deref());
        Self { namespace, name: name.unwrap_or("default") }
    }

    pub(super) fn user(self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    /// Returns the rights that the account has, or those that it lacks; `None`, and a finding, if nobody can say.
    async fn select<'r>(
        self,
        exam: &mut Exam<'_>,
        check: &'static str,
        has: bool,
        rights: Vec<Right<'r>>,
    ) -> Option<Vec<Right<'r>>> {
        let path = SubjectAccessReview::url_path(&(), None);
        let own = format!("system:serviceaccounts:{}", self.namespace);
        let mut selected = Vec::new();
        for right in rights {
            let Right { verb, group, resource, namespace, name, .. } = &right;
            let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
            let review = json!({
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {
                    "user": self.user(),
                    "groups": ["system:serviceaccounts", own, "system:authenticated"],
                    "resourceAttributes": {
                        "verb": verb, "group": group, "resource": resource, "subresource": subresource,
                        "namespace": namespace, "name": name,
                    },
                },
            });
            let (review, _) = exam.client.post::<SubjectAccessReview>(&path, &review).await;
            let review = exam.findings.read(check, "what the service account may do", review)?;
            if review.status.is_some_and(|status| status.allowed) == has {
                selected.push(right);
            }
        }
        Some(selected)
    }

    pub(super) async fn check(self, exam: &mut Exam<'_>, process: Process, config: &Config) -> Option<()> {
        let check = if process == Process::Controller { "controller" } else { "rights" };
        let (name, rights) = (self.name, rights(process, config, self.namespace));
        let takes_any = !rights.is_empty();
        let missing = self.select(exam, check, false, rights).await?;
        if !missing.is_empty() {
            let keys: BTreeSet<&str> = missing.iter().map(|right| right.key).collect();
            let keys = Vec::from_iter(keys).join(", ");
            let message = format!("ServiceAccount {name} may not {}: {keys} needs it", texts(&missing));
            let fix = "give it a Role or ClusterRole with that (the chart renders them; manifests/warm, manifests/controller and \
                manifests/node-taints have them), or switch off what needs it";
            exam.findings.failed(check, message, fix);
        } else if takes_any {
            exam.findings.ok(check, format!("ServiceAccount {name} may do what is switched on"));
        }
        Some(())
    }

    /// Checks that the account has no right of the one that issues managed certificates.
    async fn check_excess(self, exam: &mut Exam<'_>, config: &Config) -> Option<()> {
        let mut excess = rights(Process::Issuer, config, self.namespace);
        excess.retain(|right| match right.verb {
            "get" => right.name == config.tls.managed.secret.as_str(),
            _ => right.resource == WEBHOOKS,
        });
        let excess = texts(&self.select(exam, "rights", true, excess).await?);
        if !excess.is_empty() {
            let name = self.name;
            let message =
                format!("ServiceAccount {name} may {excess}: who takes over the webhook owns the cluster");
            let fix = "take that away: only the account of `tolerarch certificates` needs it";
            exam.findings.failed("rights", message, fix);
        }
        Some(())
    }

    /// Checks whether pull secrets can be read where Pods have any: some operators give the right per namespace.
    async fn check_pull_secrets(self, exam: &mut Exam<'_>, namespaces: &[&Namespace]) -> Option<()> {
        let (client, name) = (exam.client, self.name);
        let right = |namespace| Right { verb: "get", resource: "secrets", namespace, ..Right::default() };
        if self.select(exam, "rights", false, vec![right("")]).await?.is_empty() {
            exam.findings.ok("rights", format!("ServiceAccount {name} may read pull secrets everywhere"));
            return Some(());
        }
        let asked: Vec<&str> = namespaces.iter().take(ASKED).map(|namespace| name_of(*namespace)).collect();
        let missing = self.select(exam, "rights", false, asked.iter().copied().map(right).collect()).await?;
        let (may, mut lacking) = (asked.len() - missing.len(), Vec::new());
        for Right { namespace, .. } in missing {
            if uses_pull_secrets(client, namespace).await {
                lacking.push(namespace);
            }
        }
        let message = format!("ServiceAccount {name} may read pull secrets in {may} namespaces, and ");
        let lacking = some_of(lacking);
        if lacking.is_empty() {
            exam.findings.ok("rights", message + "no Pod of others has any");
        } else if may > 0 {
            exam.findings.unknown("rights", message + "not in " + &lacking);
        } else {
            let message = format!(
                "ServiceAccount {name} has no right to get secrets in {lacking}: credentials.pullSecrets needs it"
            );
            let fix = "give it a Role and a RoleBinding in the namespaces whose pull secrets it is to use (the chart renders them)";
            exam.findings.failed("rights", message, fix);
        }
        Some(())
    }
}

/// Renders rights: `get secrets tolerarch-serving, …`.
fn texts(rights: &[Right<'_>]) -> String {
    let texts = rights.iter().map(|right| format!("{} {} {}", right.verb, right.resource, right.name));
    texts.map(|text| text.trim_end().to_owned()).collect::<Vec<_>>().join(", ")
}

/// Returns whether a Pod of the namespace has pull secrets; true if that cannot be read.
async fn uses_pull_secrets(client: &UserClient, namespace: &str) -> bool {
    let uses = |pod: &StoredPod| pod.facts.as_ref().is_none_or(|facts| facts.pull_secrets().next().is_some());
    let pods = client.list::<StoredPod>(&Pod::url_path(&(), Some(namespace))).await;
    pods.map_or(true, |pods| pods.iter().any(uses))
}

pub(super) async fn check(
    exam: &mut Exam<'_>,
    backend: &Backend,
    config: &Config,
    namespaces: &[&Namespace],
) -> Option<()> {
    let pod = backend.pods.first()?;
    let account = Account::of(&backend.namespace, pod);
    let pull_secrets = config.credentials.pull_secrets;
    let takes_any = pull_secrets || !rights(Process::Webhook, config, account.namespace).is_empty();
    if takes_any && pod.spec.as_ref()?.automount_service_account_token == Some(false) {
        let message = "no token is mounted, and the configuration needs the Kubernetes API";
        let fix =
            "set automountServiceAccountToken to true on the Pods (the chart does it with what needs it)";
        exam.findings.failed("rights", message, fix);
    }
    account.check(exam, Process::Webhook, config).await?;
    // One that is there without being needed does not start.
    let issuers = backend.component(exam, "rights", "certificates").await?;
    if config.tls.mode == TlsMode::Managed {
        account.check_excess(exam, config).await?;
        if let Some(pod) = issuers.first() {
            Account::of(account.namespace, pod).check(exam, Process::Issuer, config).await?;
        } else {
            let install = || "install its Deployment (the chart and manifests/ bring it)".to_owned();
            let deployment = backend.deployment(exam.client, "certificates", 1).await;
            let message = "nothing issues certificates: there is no Pod of `tolerarch certificates`";
            exam.findings.failed("rights", message, deployment.map_or_else(install, |(_, fix)| fix));
        }
    }
    if pull_secrets {
        account.check_pull_secrets(exam, namespaces).await?;
    }
    Some(())
}

/// Checks by dry runs whether a namespace's white list refuses the pools' tolerations: the plugin may be off.
pub(super) async fn check_restrictions(exam: &mut Exam<'_>, pools: &[Pool], namespaces: &[&Namespace]) {
    let Exam { client, findings, .. } = exam;
    let tolerations: Vec<&Toleration<'_>> = pools.iter().flat_map(|pool| &pool.tolerations).collect();
    // Opted out by a label, so that the webhook is not called for it.
    let pod = pod(&json!({"tolerarch.io/mode": "off"}), &json!({}), &json!(tolerations));
    let mut refusing = Vec::new();
    for namespace in namespaces.iter().filter(|namespace| namespace.annotations().contains_key(WHITE_LIST)) {
        let name = name_of(*namespace);
        if let Err(RequestError::Refused { message, .. }) = client.post::<Value>(&dry_run(name), &pod).await.0
            && message.contains("whitelist")
        {
            refusing.push(name);
        }
    }
    let (check, refusing) = ("toleration-restriction", some_of(refusing));
    if refusing.is_empty() {
        findings.ok(check, "no namespace that was read refuses the tolerations of the pools");
    } else {
        findings.failed(
            check,
            format!("PodTolerationRestriction refuses Pods with the tolerations of the pools in {refusing}"),
            format!("add the tolerations to the annotation {WHITE_LIST}, or label the namespaces tolerarch.io/mode=off"),
        );
    }
}
