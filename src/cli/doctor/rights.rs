//! Rights that what is switched on takes, and rules of namespaces that are in the way of our tolerations.

use serde_json::{Value, json};

use super::findings::Findings;
use super::installation::{Backend, Settings};
use super::objects::{AccessReview, Namespace};
use super::probe::{dry_run, pod};
use super::webhooks::some_of;
use crate::cluster::{RequestError, UserClient};
use crate::pod::Toleration;
use crate::tls::TlsMode;

/// The annotation of PodTolerationRestriction.
const WHITE_LIST: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";

/// Something that the service account does.
struct Right {
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    namespace: String,
    name: String,
    why: &'static str,
}

/// What this configuration takes. Pull secrets are looked for in `namespace`, where Pods are.
fn needed(settings: &Settings, own: &str, namespace: &str) -> Vec<Right> {
    let mut all = Vec::new();
    if settings.config.credentials.pull_secrets {
        all.push(Right {
            verb: "get",
            group: "",
            resource: "secrets",
            namespace: namespace.to_owned(),
            name: String::new(),
            why: "credentials.pullSecrets",
        });
    }
    let tls = &settings.config.tls;
    if tls.mode == TlsMode::Managed {
        for verb in ["get", "patch"] {
            all.push(Right {
                verb,
                group: "",
                resource: "secrets",
                namespace: own.to_owned(),
                name: tls.managed.secret.as_str().to_owned(),
                why: "tls.mode managed",
            });
            all.extend(tls.managed.webhook_configurations.iter().map(|name| Right {
                verb,
                group: "admissionregistration.k8s.io",
                resource: "mutatingwebhookconfigurations",
                namespace: String::new(),
                name: name.as_str().to_owned(),
                why: "tls.mode managed",
            }));
        }
    }
    all
}

/// Whether the service account of the Pods has them.
pub(super) async fn check(
    client: &UserClient,
    backend: &Backend,
    settings: &Settings,
    namespace: &str,
    findings: &mut Findings,
) {
    let rights = needed(settings, &backend.namespace, namespace);
    let Some(pod) = backend.pods.first().filter(|_| !rights.is_empty()) else { return };
    let account = match pod.spec.service_account_name.as_str() {
        "" => "default",
        account => account,
    };
    if pod.spec.automount_service_account_token == Some(false) {
        findings.failed(
            "rights",
            format!(
                "no token is mounted, and {} uses the Kubernetes API",
                rights.first().map_or("", |right| right.why)
            ),
            "set automountServiceAccountToken to true on the Pods (the chart does it with what needs it)",
        );
    }
    let user = format!("system:serviceaccount:{}:{account}", backend.namespace);
    let groups = ["system:serviceaccounts", &format!("system:serviceaccounts:{}", backend.namespace)];
    let mut has_all = true;
    for Right { verb, group, resource, namespace, name, why } in &rights {
        let attributes =
            json!({"verb": verb, "group": group, "resource": resource, "namespace": namespace, "name": name});
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "groups": groups, "resourceAttributes": attributes},
        });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        match client.post::<AccessReview>(path, &review).await.0 {
            Ok(review) if review.status.allowed => {}
            Ok(_) => {
                has_all = false;
                let place = if namespace.is_empty() { String::new() } else { format!(" in {namespace}") };
                let name = if name.is_empty() { String::new() } else { format!(" {name}") };
                findings.failed(
                    "rights",
                    format!("ServiceAccount {account} has no right to {verb} {resource}{name}{place}: {why} needs it"),
                    "give it a Role and a RoleBinding for that (the chart renders them with what is switched on)",
                );
            }
            Err(error) => return findings.unread("rights", "what the service account may do", &error),
        }
    }
    if has_all {
        findings
            .ok("rights", format!("ServiceAccount {account} has the {} rights that it needs", rights.len()));
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
