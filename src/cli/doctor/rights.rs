//! Rights that what is switched on takes, and rules of namespaces that are in the way of our tolerations.

use serde_json::{Value, json};

use super::findings::Findings;
use super::installation::{Backend, Settings};
use super::objects::{AccessReview, Namespace};
use super::probe::{dry_run, pod};
use super::webhooks::some_of;
use crate::config::Discover;
use tolerarch_core::pod::Toleration;
use tolerarch_kubernetes::cluster::{ObjectName, RequestError, UserClient};
use tolerarch_webhook::tls::{ManagedSettings, TlsMode};

/// The annotation of PodTolerationRestriction.
const WHITE_LIST: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";

/// Namespaces that are asked for one by one, where a right is not given for all.
const ASKED: usize = 50;

/// Something that the service account does.
pub(super) struct Right<'a> {
    pub(super) verb: &'static str,
    pub(super) group: &'static str,
    /// With a subresource as in `pods/log`.
    pub(super) resource: &'static str,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

impl<'a> Right<'a> {
    fn secret(verb: &'static str, namespace: &'a str, name: &'a str) -> Self {
        Self { verb, group: "", resource: "secrets", namespace, name }
    }
}

/// A service account, whose rights are asked for.
pub(super) struct Account<'a> {
    pub(super) client: &'a UserClient,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
}

impl Account<'_> {
    async fn has(&self, right: &Right<'_>) -> Result<bool, RequestError> {
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
        Ok(self.client.post::<AccessReview>(path, &review).await.0?.status.allowed)
    }

    /// Which of these it has not.
    pub(super) async fn lacks(&self, rights: &[Right<'_>]) -> Result<Vec<String>, RequestError> {
        let mut missing = Vec::new();
        for right in rights {
            if !self.has(right).await? {
                missing
                    .push(format!("{} {} {}", right.verb, right.resource, right.name).trim_end().to_owned());
            }
        }
        Ok(missing)
    }

    /// What a warm start takes.
    async fn check_warm(&self, findings: &mut Findings) -> Result<(), RequestError> {
        let list = Right { verb: "list", group: "", resource: "pods", namespace: "", name: "" };
        if self.lacks(&[list]).await?.is_empty() {
            findings.ok("rights", format!("ServiceAccount {} may list Pods for a warm start", self.name));
        } else {
            findings.failed(
                "rights",
                format!("ServiceAccount {} may not list pods: cache.warm.fromPods needs it", self.name),
                "give it a ClusterRole with that (the chart and manifests/warm bring it)",
            );
        }
        Ok(())
    }

    /// What managed certificates take: the webhook reads what it serves, and another account does the rest.
    async fn check_managed(
        &self,
        backend: &Backend,
        managed: &ManagedSettings,
        findings: &mut Findings,
    ) -> Result<(), RequestError> {
        let (namespace, name) = (self.namespace, self.name);
        let (secret, serving) = (managed.secret.as_str(), managed.serving_secret.as_str());
        if self.has(&Right::secret("get", namespace, serving)).await? {
            findings.ok("rights", format!("ServiceAccount {name} may read the certificate that it serves"));
        } else {
            findings.failed(
                "rights",
                format!("ServiceAccount {name} may not get secrets {serving}: tls.mode managed needs it"),
                "give it a Role with that (the chart renders it)",
            );
        }
        let webhooks = |verb| {
            let names = managed.webhook_configurations.iter().map(ObjectName::as_str);
            names.map(move |name| Right {
                verb,
                group: "admissionregistration.k8s.io",
                resource: "mutatingwebhookconfigurations",
                namespace: "",
                name,
            })
        };
        for right in webhooks("patch").chain([Right::secret("get", namespace, secret)]) {
            if self.has(&right).await? {
                let Right { verb, resource, name: object, .. } = right;
                findings.failed(
                    "rights",
                    format!("ServiceAccount {name} may {verb} {resource} {object}: who takes over the webhook owns the cluster"),
                    "take that right away: only the account of `tolerarch certificates` needs it",
                );
            }
        }
        let Some(pod) = backend.component(self.client, "certificates").await? else {
            findings.failed(
                "rights",
                "nothing issues certificates: there is no Pod of `tolerarch certificates`",
                "install its Deployment (the chart and manifests/ bring it)",
            );
            return Ok(());
        };
        let issuer = Account { name: pod.spec.service_account(), ..*self };
        let secrets = [secret, serving];
        let rights = ["get", "patch"].into_iter().flat_map(|verb| {
            secrets.map(|name| Right::secret(verb, namespace, name)).into_iter().chain(webhooks(verb))
        });
        let missing = issuer.lacks(&rights.collect::<Vec<_>>()).await?;
        if missing.is_empty() {
            findings.ok("rights", format!("ServiceAccount {} may issue certificates", issuer.name));
        } else {
            let missing = missing.join(", ");
            findings.failed(
                "rights",
                format!("ServiceAccount {} may not {missing}: tls.mode managed needs it", issuer.name),
                "give it a Role or ClusterRole with that (the chart renders them)",
            );
        }
        Ok(())
    }

    /// What following the cluster takes.
    async fn check_discover(&self, discover: Discover, findings: &mut Findings) -> Result<(), RequestError> {
        let kinds = [("", "nodes", discover.nodes), ("karpenter.sh", "nodepools", discover.node_pools)];
        let followed = kinds.iter().filter(|(.., is_on)| *is_on);
        let rights = followed.flat_map(|&(group, resource, _)| {
            ["get", "list", "watch"].map(|verb| Right { verb, group, resource, namespace: "", name: "" })
        });
        let missing = self.lacks(&rights.collect::<Vec<_>>()).await?;
        if missing.is_empty() {
            findings.ok("rights", format!("ServiceAccount {} may follow what discover names", self.name));
        } else {
            let missing = missing.join(", ");
            findings.failed(
                "rights",
                format!("ServiceAccount {} may not {missing}: discover needs it", self.name),
                "give it a ClusterRole with that (the chart renders it)",
            );
        }
        Ok(())
    }

    /// Whether pull secrets can be read where Pods are. Some operators give the right for some namespaces only.
    async fn check_pull_secrets(
        &self,
        namespaces: &[&Namespace],
        findings: &mut Findings,
    ) -> Result<(), RequestError> {
        let name = self.name;
        if self.has(&Right::secret("get", "", "")).await? {
            findings.ok("rights", format!("ServiceAccount {name} may read pull secrets everywhere"));
            return Ok(());
        }
        let (mut may, mut may_not) = (0, Vec::new());
        for namespace in namespaces.iter().take(ASKED).map(|namespace| namespace.metadata.name.as_str()) {
            if self.has(&Right::secret("get", namespace, "")).await? {
                may += 1;
            } else {
                may_not.push(namespace);
            }
        }
        let lacking = some_of(may_not.iter().copied());
        if may_not.is_empty() {
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

/// Whether the service account of the Pods has what the configuration takes.
pub(super) async fn check(
    client: &UserClient,
    backend: &Backend,
    settings: &Settings,
    namespaces: &[&Namespace],
    findings: &mut Findings,
) {
    let pull_secrets = settings.config.credentials.pull_secrets;
    let managed = settings.config.tls.mode == TlsMode::Managed;
    let discover = settings.config.discover;
    let warm = settings.config.warm.from_pods;
    let needs_any = pull_secrets || managed || warm || discover.is_on();
    let Some(pod) = backend.pods.first().filter(|_| needs_any) else { return };
    if pod.spec.automount_service_account_token == Some(false) {
        findings.failed(
            "rights",
            "no token is mounted, and the configuration needs the Kubernetes API",
            "set automountServiceAccountToken to true on the Pods (the chart does it with what needs it)",
        );
    }
    let name = pod.spec.service_account();
    let account = Account { client, namespace: &backend.namespace, name };
    let mut asked = Ok(());
    if managed {
        asked = account.check_managed(backend, &settings.config.tls.managed, findings).await;
    }
    if discover.is_on() && asked.is_ok() {
        asked = account.check_discover(discover, findings).await;
    }
    if warm && asked.is_ok() {
        asked = account.check_warm(findings).await;
    }
    if pull_secrets && asked.is_ok() {
        asked = account.check_pull_secrets(namespaces, findings).await;
    }
    if let Err(error) = asked {
        findings.unread("rights", "what the service account may do", &error);
    }
}

/// Whether a namespace's white list refuses our tolerations. The plugin may be off; a dry run tells.
pub(super) async fn check_restrictions(
    client: &UserClient,
    tolerations: &[Toleration<'_>],
    namespaces: &[&Namespace],
    findings: &mut Findings,
) {
    let limited = |namespace: &&&Namespace| namespace.metadata.annotations.contains_key(WHITE_LIST);
    let mut refusing = Vec::new();
    for namespace in namespaces.iter().filter(limited) {
        let name = &namespace.metadata.name;
        let ours: Vec<Value> = tolerations.iter().map(value).collect();
        // Opted out, so that no registry is asked for it.
        let pod = pod(&json!({}), &json!({"tolerarch.io/mode": "off"}), &json!(ours));
        if let Err(RequestError::Refused { message, .. }) = client.post::<Value>(&dry_run(name), &pod).await.0
            && message.contains("whitelist")
        {
            refusing.push(name.as_str());
        }
    }
    if refusing.is_empty() {
        findings.ok("toleration-restriction", "no namespace refuses the tolerations of the pools");
    } else {
        findings.failed(
            "toleration-restriction",
            format!(
                "PodTolerationRestriction refuses Pods with the tolerations of the pools in {}",
                some_of(refusing)
            ),
            format!("add the tolerations to the annotation {WHITE_LIST}, or label the namespaces tolerarch.io/mode=off"),
        );
    }
}

fn value(toleration: &Toleration<'_>) -> Value {
    let fields = [
        ("key", &toleration.key),
        ("operator", &toleration.operator),
        ("value", &toleration.value),
        ("effect", &toleration.effect),
    ];
    let fields = fields.into_iter().filter(|(_, text)| !text.is_empty());
    fields.map(|(name, text)| (name.to_owned(), json!(text.as_str()))).collect()
}
