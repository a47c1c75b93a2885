//! Dry-run Pods that only tolerarch can have answered, as a proof that it is called. They cause no request to a registry.
//!
//! Such a Pod has a random, meaningless value of `tolerarch.io/mode`. tolerarch answers with a warning that quotes the
//! value, and the API server forwards the warning to the creator of the Pod.

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, ServiceReference};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::core::{Selector, SelectorExt};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use super::findings::{Exam, Findings, Status, some_of};
use super::installation::Backend;
use super::replicas::sum;
use super::webhooks::{Labels, deployment_labels};
use crate::cli::kubernetes::name_of;
use tolerarch_core::pod::{MODE_KEY, Toleration};
use tolerarch_core::policy::Pool;
use tolerarch_kubernetes::cluster::{RequestError, UserClient, Webhook};

pub(super) const WHITE_LIST: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";
/// Maximum number of namespaces to try: other webhooks and quotas may refuse the Pod in some.
const TRIES: usize = 3;

/// Number of calls of a webhook since the API server started.
#[derive(Clone, Copy)]
struct Calls {
    made: f64,
    /// Calls that failed, so that the API server admitted the Pod without an answer.
    failed: f64,
}

impl Calls {
    async fn read(client: &UserClient, webhook: &str) -> Result<Self, RequestError> {
        let metrics = client.text("/metrics").await?;
        let sum = |metric| sum(&metrics, metric, "name", webhook);
        Ok(Self {
            made: sum("apiserver_admission_webhook_request_total"),
            failed: sum("apiserver_admission_webhook_fail_open_count"),
        })
    }
}

/// Returns a Pod that no policy should refuse. Except for `labels`, it is like a Pod of a Deployment, so that selectors
/// and conditions treat both alike. It names no user: OpenShift assigns one, and refuses others.
fn pod(labels: &Value, annotations: &Value, tolerations: &Value) -> Value {
    let room = json!({"cpu": "10m", "memory": "16Mi"});
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "tolerarch-doctor", "controller": true,
        "uid": "00000000-0000-4000-8000-000000000000",
    });
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "tolerarch-doctor-", "labels": labels, "annotations": annotations, "ownerReferences": [owner],
        },
        "spec": {
            "restartPolicy": "Never",
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "tolerations": tolerations,
            "containers": [{
                "name": "doctor",
                "image": "registry.k8s.io/pause:3.10",
                "resources": {"requests": room, "limits": room},
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            }],
        },
    })
}

fn dry_run(namespace: &str) -> String {
    let path = Pod::url_path(&(), Some(namespace));
    format!("{path}?dryRun=All&fieldManager=tolerarch")
}

/// Outcome of the creation of a dry-run Pod.
struct Answer {
    /// Whether a webhook of tolerarch has reviewed the Pod.
    is_reviewed: bool,
    duration: Duration,
}

/// Creates a dry-run Pod. Fails if it is refused before tolerarch has reviewed it.
async fn attempt(
    client: &UserClient,
    namespace: &str,
    labels: &Labels,
) -> Result<Answer, RequestError> {
    let value = nonce();
    let start = Instant::now();
    let pod = pod(&json!(labels), &json!({MODE_KEY: value}), &json!([]));
    let (created, warnings) = client.post::<Value>(&dry_run(namespace), &pod).await;
    let is_reviewed = warnings.iter().any(|warning| warning.contains(&value));
    if !is_reviewed {
        created?;
    }
    Ok(Answer {
        is_reviewed,
        duration: start.elapsed(),
    })
}

/// Tries a dry run in one namespace if webhooks or namespaces cannot be read: an answer is proof nevertheless.
pub(super) async fn check_unread(
    Exam {
        client,
        only,
        findings,
        ..
    }: &mut Exam<'_>,
) {
    let namespace = only.unwrap_or(&client.namespace);
    let pod = format!("a dry-run Pod in {namespace}");
    match attempt(client, namespace, &deployment_labels()).await {
        Ok(answer) if answer.is_reviewed => {
            let milliseconds = answer.duration.as_millis();
            let message = format!("tolerarch answered for {pod}, in {milliseconds} ms");
            findings.ok("dry-run", message);
        }
        Ok(_) => {
            let message = format!("{pod} came back without an answer of tolerarch");
            let fix = "have this run by someone who may list mutatingwebhookconfigurations and namespaces";
            findings.add(Status::failed_if(only.is_some()), "dry-run", message, fix);
        }
        Err(error) => findings.unknown("dry-run", format!("{pod} was refused: {error}")),
    }
}

/// Creates a dry-run Pod in a namespace that the webhook selects, and reports the fault if the webhook does not answer.
/// `has_backend`: whether the Service leads to a Pod that is ready.
pub(super) async fn check(
    exam: &mut Exam<'_>,
    entry: &Webhook,
    namespaces: &[Namespace],
    has_backend: bool,
) -> Status {
    let client = exam.client;
    let webhook = &entry.spec.name;
    let mut selected: Vec<&str> = Vec::new();
    for namespace in namespaces {
        if entry.selects(namespace) {
            selected.push(name_of(namespace));
        }
    }
    if selected.is_empty() {
        return Status::Unknown;
    }
    let Some(required) = entry.example() else {
        return Status::Unknown;
    };
    let suffix = label_suffix(&required);
    let labels = labels_for(entry, required);
    let before = Calls::read(client, webhook).await;
    let before = exam
        .findings
        .read("fail-open", "the API server's metrics", before);
    let mut refusal = String::new();
    for namespace in selected.into_iter().take(TRIES) {
        let pod = format!("a dry-run Pod{suffix} in {namespace}");
        match attempt(client, namespace, &labels).await {
            Ok(answer) => {
                let calls = before.zip(Calls::read(client, webhook).await.ok());
                return report(exam, entry, &pod, &answer, calls, has_backend).await;
            }
            Err(error) => {
                let name = entry.name();
                refusal =
                    format!("{pod} was refused, so it does not prove that {name} works: {error}");
            }
        }
    }
    exam.findings.unknown("dry-run", refusal);
    Status::Unknown
}

/// Returns ` with a=b` for the labels that a webhook requires of Pods; empty without any.
fn label_suffix(required: &Labels) -> String {
    let selector: Selector = required.clone().into_iter().collect();
    if selector.selects_all() {
        String::new()
    } else {
        format!(" with {selector}")
    }
}

/// Reports whether a webhook has answered for a Pod. `calls` are the numbers of its calls before and after.
async fn report(
    exam: &mut Exam<'_>,
    entry: &Webhook,
    pod: &str,
    answer: &Answer,
    calls: Option<(Calls, Calls)>,
    has_backend: bool,
) -> Status {
    let name = entry.name();
    if !answer.is_reviewed {
        let (why, fix) = diagnose(exam.client, &entry.spec, answer.duration, calls).await;
        let message = format!("{pod} came back without an answer of {name}: {why}");
        exam.findings.failed("dry-run", message, fix);
        return Status::Failed;
    }
    let milliseconds = answer.duration.as_millis();
    let message = format!("{name} answered for {pod}, in {milliseconds} ms");
    // If the Service leads nowhere, API servers keep their connections to the Pods to which it led before.
    let status = if has_backend {
        exam.findings.ok("dry-run", message);
        Status::Ok
    } else {
        let message = message + ", over a connection that was open before";
        exam.findings.unknown("dry-run", message);
        Status::Unknown
    };
    if let Some((before, after)) = calls {
        check_fail_open(&entry.spec.name, before, after, &mut exam.findings);
    }
    status
}

/// Returns labels for which a webhook is called: the `required` ones and those of a Deployment's Pods, unless the webhook
/// excludes the latter.
fn labels_for(entry: &Webhook, required: Labels) -> Labels {
    let mut labels = deployment_labels();
    labels.extend(required.clone());
    if entry.objects.matches(&labels) {
        labels
    } else {
        required
    }
}

/// Returns why a Pod came back without an answer of the webhook, and advice.
async fn diagnose(
    client: &UserClient,
    webhook: &MutatingWebhook,
    duration: Duration,
    calls: Option<(Calls, Calls)>,
) -> (String, &'static str) {
    let timeout = webhook.timeout_seconds.unwrap_or(10).unsigned_abs();
    let timeout = Duration::from_secs(timeout.into());
    if duration >= timeout.mul_f64(0.9) {
        return (
            format!("the API server waited {} s for it", duration.as_secs()),
            "allow connections from the API server to the Pods: a firewall (private clusters need a rule for the webhook's \
             port), a NetworkPolicy or a security group drops them; with an overlay network set hostNetwork",
        );
    }
    match calls {
        Some((before, after)) if after.failed > before.failed => {}
        Some((before, after)) if after.made > before.made => {
            return (
                "it was called, and did not answer as tolerarch of this version does".to_owned(),
                "if no other finding says why, upgrade tolerarch to the version of this command",
            );
        }
        Some(_) => return not_called(webhook),
        None => {}
    }
    failed_call(client, webhook.client_config.service.as_ref()).await
}

/// Returns why the API server did not call the webhook, and advice.
fn not_called(webhook: &MutatingWebhook) -> (String, &'static str) {
    let mut why = "the API server did not call it".to_owned();
    for condition in webhook.match_conditions.iter().flatten() {
        why += &format!(
            "; its matchCondition {} requires `{}`",
            condition.name, condition.expression
        );
    }
    (
        why,
        "correct its rules, selectors or matchConditions (webhook.matchConditions in the chart); \
         docs/runbooks/TolerarchNotCalled.md shows how to remove those that your values do not have",
    )
}

/// Returns why a call of the API server failed, and advice. Also calls the Service with the API server as a proxy, which
/// does not verify the certificate.
async fn failed_call(
    client: &UserClient,
    service: Option<&ServiceReference>,
) -> (String, &'static str) {
    let unknown = (
        "the call failed".to_owned(),
        "compare the Service or clientConfig.url, and the caBundle, with the certificate that is served there: the API server \
         refuses one that has expired, is not valid yet, is for another name, or is of another CA; its log names the error",
    );
    let Some(ServiceReference {
        name,
        namespace,
        port,
        path,
    }) = service
    else {
        return unknown;
    };
    let port = port.unwrap_or(443);
    let path = path.as_deref().unwrap_or_default();
    let path = format!("/api/v1/namespaces/{namespace}/services/https:{name}:{port}/proxy{path}");
    match client.text(&path).await {
        Err(RequestError::Refused {
            status: 500..=599,
            message,
            ..
        }) => (
            format!("the API server cannot reach the Service: {message}"),
            "check that the Pods listen on the Service's targetPort, and that no NetworkPolicy forbids the connection",
        ),
        Err(
            RequestError::Refused {
                status: 401 | 403, ..
            }
            | RequestError::Timeout(..),
        ) => unknown,
        Err(RequestError::Refused { status: 404, .. }) => (
            "the Pods answer no reviews at its path".to_owned(),
            "set the path to /mutate, or to /mutate/PROFILE (helm upgrade with the values of the release)",
        ),
        _ => (
            "the API server reaches the Pods and refuses their certificate".to_owned(),
            "unless a finding names a fault of the certificate or the caBundle, the caBundle lacks the CA that signs the \
             certificate: write it there, as `tolerarch certificates` and cert-manager's cainjector do where they run",
        ),
    }
}

/// Reports how many Pods were admitted undecided since the API server started.
fn check_fail_open(webhook: &str, before: Calls, after: Calls, findings: &mut Findings) {
    let since = "since this API server started";
    let Calls { made, failed } = after;
    if failed > before.failed {
        let message = format!("calls of {webhook} fail right now, {failed} {since}");
        let fix =
            "see the error in the log of the API server, and check that each replica is reachable";
        findings.failed("fail-open", message, fix);
    } else if failed > 0.0 {
        let message =
            format!("{failed} of {made} calls of {webhook} have failed {since}; none does now");
        findings.unknown("fail-open", message);
    } else {
        findings.ok(
            "fail-open",
            format!("no call of {webhook} has failed {since}"),
        );
    }
}

/// Creates a dry-run Pod with these tolerations, and returns it as it would be stored. A label opts it out, so that
/// tolerarch is not called for it.
pub(super) async fn admit(
    client: &UserClient,
    namespace: &str,
    tolerations: &[&Toleration<'_>],
) -> Result<Value, RequestError> {
    let pod = pod(&json!({MODE_KEY: "off"}), &json!({}), &json!(tolerations));
    client.post(&dry_run(namespace), &pod).await.0
}

/// Returns whether a namespace's white list refuses the tolerations. It does not if the plugin is off.
pub(super) async fn is_restricted(
    client: &UserClient,
    namespace: &str,
    tolerations: &[&Toleration<'_>],
) -> Result<bool, RequestError> {
    match admit(client, namespace, tolerations).await {
        Ok(_) => Ok(false),
        Err(RequestError::Refused { message, .. }) if message.contains("whitelist") => Ok(true),
        Err(error) => Err(error),
    }
}

/// Checks by dry runs whether a namespace's white list refuses the pools' tolerations.
pub(super) async fn check_restrictions(exam: &mut Exam<'_>, backend: &Backend<'_>, pools: &[Pool]) {
    let Exam {
        client, findings, ..
    } = exam;
    let tolerations: Vec<&Toleration<'_>> =
        pools.iter().flat_map(|pool| &pool.tolerations).collect();
    let mut refusing = Vec::new();
    for namespace in &backend.selected {
        if !namespace.annotations().contains_key(WHITE_LIST) {
            continue;
        }
        let name = name_of(*namespace);
        if let Ok(true) = is_restricted(client, name, &tolerations).await {
            refusing.push(name);
        }
    }
    report_restrictions(&refusing, findings);
}

pub(super) fn report_restrictions(refusing: &[&str], findings: &mut Findings) {
    let check = "toleration-restriction";
    let refusing = some_of(refusing.iter().copied());
    if refusing.is_empty() {
        findings.ok(
            check,
            "no namespace that was read refuses the tolerations of the pools",
        );
    } else {
        findings.failed(
            check,
            format!("PodTolerationRestriction refuses Pods with the tolerations of the pools in {refusing}"),
            format!("add the tolerations to the annotation {WHITE_LIST}, or label the namespaces tolerarch.io/mode=off"),
        );
    }
}

fn nonce() -> String {
    format!("doctor-{:016x}", fastrand::u64(..))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tolerarch_core::pod::PodMode;

    #[test]
    fn warning_quotes_the_unknown_mode() {
        let value = nonce();
        assert!(PodMode::Unknown(&value).warning().unwrap().contains(&value));
        assert_ne!(value, nonce());
    }
}
