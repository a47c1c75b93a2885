//! Rights that what is switched on takes, and rules of namespaces that are in the way of our tolerations.

use serde_json::{Value, json};

use super::findings::Exam;
use super::installation::Backend;
use super::objects::{Namespace, Pod};
use super::probe::{dry_run, pod};
use super::webhooks::some_of;
use crate::cli::pools::fields;
use crate::config::Config;
use tolerarch_core::policy::Pool;
use tolerarch_kubernetes::cluster::{RequestError, UserClient};
use tolerarch_webhook::tls::{ManagedSettings, TlsMode};

const WHITE_LIST: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";

const MANAGED: &str = "tls.mode managed";

/// Namespaces that are asked for one by one, where a right is not given for all.
const ASKED: usize = 50;

#[derive(Clone, Copy)]
pub(super) struct Right<'a> {
    verb: &'static str,
    group: &'static str,
    /// With a subresource as in `pods/log`.
    resource: &'static str,
    /// Empty for all.
    namespace: &'a str,
    /// Empty for any.
    name: &'a str,
}

impl<'a> Right<'a> {
    pub(super) fn everywhere(verb: &'static str, group: &'static str, resource: &'static str) -> Self {
        Self { verb, group, resource, namespace: "", name: "" }
    }

    pub(super) fn named(self, namespace: &'a str, name: &'a str) -> Self {
        Self { namespace, name, ..self }
    }

    fn secret(verb: &'static str, namespace: &'a str, name: &'a str) -> Self {
        Self::everywhere(verb, "", "secrets").named(namespace, name)
    }
}

/// Whether rights could be asked for; what is said of them is among the findings.
pub(super) type Asked = Result<(), RequestError>;

/// What is switched on, and takes rights.
pub(super) struct Need<'a> {
    /// What these rights allow: `read the certificate that it serves`.
    pub(super) what: &'static str,
    pub(super) by: &'static str,
    pub(super) rights: Vec<Right<'a>>,
    pub(super) fix: &'static str,
}

#[derive(Clone, Copy)]
pub(super) struct Account<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

impl Account<'_> {
    async fn has(self, client: &UserClient, right: Right<'_>) -> Result<bool, RequestError> {
        let Right { verb, group, resource, namespace, name } = right;
        let own = self.namespace;
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": format!("system:serviceaccount:{own}:{}", self.name),
                "groups": ["system:serviceaccounts", format!("system:serviceaccounts:{own}"), "system:authenticated"],
                "resourceAttributes": {
                    "verb": verb, "group": group, "resource": resource, "subresource": subresource,
                    "namespace": namespace, "name": name,
                },
            },
        });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        Ok(client.post::<Value>(path, &review).await.0?["status"]["allowed"] == true)
    }

    pub(super) async fn check(self, exam: &mut Exam<'_>, check: &'static str, need: Need<'_>) -> Asked {
        let Exam { client, findings, .. } = exam;
        let Need { what, by, rights, fix } = need;
        let (name, mut missing) = (self.name, Vec::new());
        for right in rights {
            if !self.has(client, right).await? {
                let right = format!("{} {} {}", right.verb, right.resource, right.name);
                missing.push(right.trim_end().to_owned());
            }
        }
        if missing.is_empty() {
            findings.ok(check, format!("ServiceAccount {name} may {what}"));
        } else {
            let missing = missing.join(", ");
            findings.failed(check, format!("ServiceAccount {name} may not {missing}: {by} needs it"), fix);
        }
        Ok(())
    }

    /// What managed certificates take: the webhook reads what it serves, and another account does the rest.
    async fn check_managed(self, exam: &mut Exam<'_>, backend: &Backend, managed: &ManagedSettings) -> Asked {
        let namespace = self.namespace;
        let (secret, serving) = (managed.secret.as_str(), managed.serving_secret.as_str());
        let serve = Need {
            what: "read the certificate that it serves",
            by: MANAGED,
            rights: vec![Right::secret("get", namespace, serving)],
            fix: "give it a Role with that (the chart renders it)",
        };
        self.check(exam, "rights", serve).await?;
        let webhooks = |verb| {
            let right =
                Right::everywhere(verb, "admissionregistration.k8s.io", "mutatingwebhookconfigurations");
            managed.webhook_configurations.iter().map(move |name| right.named("", name.as_str()))
        };
        for right in webhooks("patch").chain([Right::secret("get", namespace, secret)]) {
            if self.has(exam.client, right).await? {
                let (name, Right { verb, resource, name: object, .. }) = (self.name, right);
                exam.findings.failed(
                    "rights",
                    format!("ServiceAccount {name} may {verb} {resource} {object}: who takes over the webhook owns the cluster"),
                    "take that right away: only the account of `tolerarch certificates` needs it",
                );
            }
        }
        let Some(pod) = backend.component(exam.client, "certificates").await? else {
            exam.findings.failed(
                "rights",
                "nothing issues certificates: there is no Pod of `tolerarch certificates`",
                "install its Deployment (the chart and manifests/ bring it)",
            );
            return Ok(());
        };
        let rights = ["get", "patch"].into_iter().flat_map(|verb| {
            [secret, serving]
                .map(|name| Right::secret(verb, namespace, name))
                .into_iter()
                .chain(webhooks(verb))
        });
        let issue = Need {
            what: "issue certificates",
            by: MANAGED,
            rights: rights.collect(),
            fix: "give it a Role or ClusterRole with that (the chart renders them)",
        };
        Account { name: pod.service_account(), ..self }.check(exam, "rights", issue).await
    }

    /// Whether pull secrets can be read where Pods are. Some operators give the right for some namespaces only.
    async fn check_pull_secrets(self, exam: &mut Exam<'_>, namespaces: &[&Namespace]) -> Asked {
        let Exam { client, findings, .. } = exam;
        let name = self.name;
        if self.has(client, Right::secret("get", "", "")).await? {
            findings.ok("rights", format!("ServiceAccount {name} may read pull secrets everywhere"));
            return Ok(());
        }
        let (mut may, mut may_not) = (0, Vec::new());
        for namespace in namespaces.iter().take(ASKED).map(|namespace| namespace.metadata.name.as_str()) {
            if self.has(client, Right::secret("get", namespace, "")).await? {
                may += 1;
            } else if uses_pull_secrets(client, namespace).await {
                may_not.push(namespace);
            }
        }
        let lacking = some_of(may_not.iter().copied());
        if may_not.is_empty() && may == 0 {
            findings
                .ok("rights", format!("ServiceAccount {name} may read no pull secrets, and no Pod has any"));
        } else if may_not.is_empty() {
            findings.ok("rights", format!("ServiceAccount {name} may read pull secrets in {may} namespaces"));
        } else if may > 0 {
            findings.unknown(
                "rights",
                format!(
                    "ServiceAccount {name} may read pull secrets in {may} namespaces, and not in {lacking}"
                ),
            );
        } else {
            findings.failed(
                "rights",
                format!("ServiceAccount {name} has no right to get secrets in {lacking}: credentials.pullSecrets needs it"),
                "give it a Role and a RoleBinding in the namespaces whose pull secrets it is to use (the chart renders them)",
            );
        }
        Ok(())
    }
}

/// Whether a Pod of the namespace has any; also where that cannot be seen.
async fn uses_pull_secrets(client: &UserClient, namespace: &str) -> bool {
    let pods = client.list::<Pod>(&format!("/api/v1/namespaces/{namespace}/pods")).await;
    !pods.is_ok_and(|pods| pods.iter().all(|pod| pod.spec.image_pull_secrets.is_empty()))
}

/// Whether the service account of the Pods has what the configuration takes.
pub(super) async fn check(
    exam: &mut Exam<'_>,
    backend: &Backend,
    config: &Config,
    namespaces: &[&Namespace],
) {
    let pull_secrets = config.credentials.pull_secrets;
    let managed = config.tls.mode == TlsMode::Managed;
    let (discover, warm) = (config.discover, config.warm.from_pods);
    let failed_images = config.server.failed_images && config.controller.learn;
    let needs_any = pull_secrets || managed || warm || failed_images || discover.is_on();
    let Some(pod) = backend.pods.first().filter(|_| needs_any) else { return };
    if pod.spec.automount_service_account_token == Some(false) {
        exam.findings.failed(
            "rights",
            "no token is mounted, and the configuration needs the Kubernetes API",
            "set automountServiceAccountToken to true on the Pods (the chart does it with what needs it)",
        );
    }
    let account = Account { namespace: &backend.namespace, name: pod.service_account() };
    let asked = async {
        if managed {
            account.check_managed(exam, backend, &config.tls.managed).await?;
        }
        if discover.is_on() {
            let kinds = [("", "nodes", discover.nodes), ("karpenter.sh", "nodepools", discover.node_pools)];
            let rights = kinds.into_iter().filter(|(.., is_on)| *is_on).flat_map(|(group, resource, _)| {
                ["get", "list", "watch"].map(|verb| Right::everywhere(verb, group, resource))
            });
            let follow = Need {
                what: "follow what discover names",
                by: "discover",
                rights: rights.collect(),
                fix: "give it a ClusterRole with that (the chart renders it)",
            };
            account.check(exam, "rights", follow).await?;
        }
        if warm {
            let list = Need {
                what: "list Pods for a warm start",
                by: "cache.warm.fromPods",
                rights: vec![Right::everywhere("list", "", "pods")],
                fix: "give it a ClusterRole with that (the chart and manifests/warm bring it)",
            };
            account.check(exam, "rights", list).await?;
        }
        if failed_images {
            let record = config.controller.failed_images();
            let follow =
                |verb| Right::everywhere(verb, "", "configmaps").named(account.namespace, record.as_str());
            let follow = Need {
                what: "follow the images that failed",
                by: "server.failedImages",
                rights: ["get", "list", "watch"].map(follow).into(),
                fix: "give it a Role with that (the chart and manifests/controller bring it)",
            };
            account.check(exam, "rights", follow).await?;
        }
        if pull_secrets {
            account.check_pull_secrets(exam, namespaces).await?;
        }
        Ok::<_, RequestError>(())
    };
    if let Err(error) = asked.await {
        exam.findings.unread("rights", "what the service account may do", &error);
    }
}

/// Whether a namespace's white list refuses our tolerations. The plugin may be off; a dry run tells.
pub(super) async fn check_restrictions(exam: &mut Exam<'_>, pools: &[Pool], namespaces: &[&Namespace]) {
    let Exam { client, findings, .. } = exam;
    let limited = |namespace: &&&Namespace| namespace.metadata.annotations.contains_key(WHITE_LIST);
    let mut refusing = Vec::new();
    for namespace in namespaces.iter().filter(limited) {
        let name = &namespace.metadata.name;
        let ours: Vec<Value> =
            pools.iter().flat_map(|pool| &pool.tolerations).map(|own| fields(own).collect()).collect();
        // Opted out by a label, so that the webhook is not called for it.
        let pod = pod(&json!({"tolerarch.io/mode": "off"}), &json!({}), &json!(ours));
        if let Err(RequestError::Refused { message, .. }) = client.post::<Value>(&dry_run(name), &pod).await.0
            && message.contains("whitelist")
        {
            refusing.push(name.as_str());
        }
    }
    let refusing = some_of(refusing);
    if refusing.is_empty() {
        findings.ok("toleration-restriction", "no namespace refuses the tolerations of the pools");
    } else {
        findings.failed(
            "toleration-restriction",
            format!("PodTolerationRestriction refuses Pods with the tolerations of the pools in {refusing}"),
            format!("add the tolerations to the annotation {WHITE_LIST}, or label the namespaces tolerarch.io/mode=off"),
        );
    }
}
