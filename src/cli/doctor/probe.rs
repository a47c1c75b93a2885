//! Proof by a dry-run Pod that only tolerarch can have answered, without a request to a registry.
//!
//! The Pod has a random, meaningless value of `tolerarch.io/mode`: tolerarch answers with a warning that quotes the
//! value, and the API server passes warnings on to the creator of the Pod.

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, ServiceReference};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::core::{Selector, SelectorExt};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use super::findings::{Exam, Findings, Status, some_of};
use super::installation::Backend;
use super::replicas::sum;
use super::webhooks::{Labels, ordinary};
use crate::cli::kubernetes::name_of;
use tolerarch_core::pod::{MODE_KEY, Toleration};
use tolerarch_core::policy::Pool;
use tolerarch_kubernetes::cluster::{RequestError, UserClient, Webhook};

pub(super) const WHITE_LIST: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";
/// Maximum number of namespaces to try, as other webhooks and quotas may refuse the Pod.
const TRIES: usize = 3;

/// Calls of a webhook since its API server started.
#[derive(Clone, Copy)]
struct Calls {
    made: f64,
    /// Calls without an answer, after which the API server went on.
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

/// Returns a Pod that no policy should refuse, with these labels, and otherwise as a Deployment makes it, so that both
/// are excluded alike. The Pod names no user: OpenShift assigns one, and refuses others.
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

/// Answer of the API server to the Pod.
struct Answer {
    /// Whether a webhook of tolerarch has answered the API server.
    is_reviewed: bool,
    took: Duration,
}

/// Creates the Pod.
async fn attempt(
    client: &UserClient,
    namespace: &str,
    labels: &Labels,
) -> Result<Answer, RequestError> {
    let value = nonce();
    let begun = Instant::now();
    let pod = pod(&json!(labels), &json!({MODE_KEY: value}), &json!([]));
    let (created, warnings) = client.post::<Value>(&dry_run(namespace), &pod).await;
    let is_reviewed = warnings.iter().any(|warning| warning.contains(&value));
    if !is_reviewed {
        created?;
    }
    Ok(Answer {
        is_reviewed,
        took: begun.elapsed(),
    })
}

/// Tries a dry run in one namespace if webhooks or namespaces cannot be read: an answer is proof all the same.
pub(super) async fn check_unseen(
    Exam {
        client,
        only,
        findings,
        ..
    }: &mut Exam<'_>,
) {
    let namespace = only.unwrap_or(&client.namespace);
    let pod = format!("a dry-run Pod in {namespace}");
    match attempt(client, namespace, &ordinary()).await {
        Ok(answer) if answer.is_reviewed => {
            let took = answer.took.as_millis();
            let message = format!("tolerarch answered for {pod}, in {took} ms");
            findings.ok("dry-run", message);
        }
        Ok(_) => {
            let message = format!("{pod} came back without an answer of tolerarch");
            let fix = "let somebody look who may list mutatingwebhookconfigurations and namespaces";
            findings.add(Status::failed_if(only.is_some()), "dry-run", message, fix);
        }
        Err(error) => findings.unknown("dry-run", format!("{pod} was refused: {error}")),
    }
}

/// Creates the Pod in a namespace that the webhook selects, and reports the fault if there is no answer.
pub(super) async fn check(
    exam: &mut Exam<'_>,
    entry: &Webhook,
    namespaces: &[Namespace],
    leads: bool,
) -> Status {
    let client = exam.client;
    let name = entry.name();
    let webhook = &entry.spec.name;
    let mut selected = namespaces
        .iter()
        .filter(|namespace| entry.selects(namespace))
        .map(name_of)
        .peekable();
    let Some((needed, _)) = entry.example().zip(selected.peek()) else {
        return Status::Unknown;
    };
    let selector: Selector = needed.clone().into_iter().collect();
    let with = if selector.selects_all() {
        String::new()
    } else {
        format!(" with {selector}")
    };
    let labels = labels_for(entry, needed);
    let before = Calls::read(client, webhook).await;
    let before = exam
        .findings
        .read("fail-open", "the API server's metrics", before);
    let mut refused = String::new();
    for namespace in selected.take(TRIES) {
        let pod = format!("a dry-run Pod{with} in {namespace}");
        match attempt(client, namespace, &labels).await {
            Ok(answer) => {
                let calls = before.zip(Calls::read(client, webhook).await.ok());
                return report(exam, entry, &pod, &answer, calls, leads).await;
            }
            Err(error) => {
                refused = format!("{pod} was refused, so that {name} is not proven: {error}");
            }
        }
    }
    exam.findings.unknown("dry-run", refused);
    Status::Unknown
}

/// Reports whether a webhook has answered for a Pod; `calls` are its calls before and after.
async fn report(
    exam: &mut Exam<'_>,
    entry: &Webhook,
    pod: &str,
    answer: &Answer,
    calls: Option<(Calls, Calls)>,
    leads: bool,
) -> Status {
    let name = entry.name();
    if !answer.is_reviewed {
        let (why, fix) = diagnose(exam.client, &entry.spec, answer.took, calls).await;
        let message = format!("{pod} came back without an answer of {name}: {why}");
        exam.findings.failed("dry-run", message, fix);
        return Status::Failed;
    }
    let took = answer.took.as_millis();
    let message = format!("{name} answered for {pod}, in {took} ms");
    // Where the Service leads nowhere, API servers keep connections to where it led before.
    let status = if leads {
        exam.findings.ok("dry-run", message);
        Status::Ok
    } else {
        let message = message + ", by a connection from before";
        exam.findings.unknown("dry-run", message);
        Status::Unknown
    };
    if let Some((before, now)) = calls {
        check_fail_open(&entry.spec.name, before, now, &mut exam.findings);
    }
    status
}

/// Returns labels for which a webhook is called: those of any Deployment's Pods as well, unless it excludes them.
fn labels_for(entry: &Webhook, needed: Labels) -> Labels {
    let mut labels = ordinary();
    labels.extend(needed.clone());
    if entry.objects.matches(&labels) {
        labels
    } else {
        needed
    }
}

/// Returns why a Pod came back without an answer of the webhook, and advice.
async fn diagnose(
    client: &UserClient,
    webhook: &MutatingWebhook,
    took: Duration,
    calls: Option<(Calls, Calls)>,
) -> (String, &'static str) {
    let patience = Duration::from_secs(webhook.timeout_seconds.unwrap_or(10).unsigned_abs().into());
    let is_late = took >= patience.mul_f64(0.9);
    let was_called = match calls {
        Some((before, after)) if after.failed <= before.failed => Some(after.made > before.made),
        _ => None,
    };
    match was_called {
        _ if is_late => (
            format!("the API server waited {} s for it", took.as_secs()),
            "open the way from the API server to the Pods: a firewall (private clusters need a rule for the webhook's port), a \
             NetworkPolicy or a security group drops what it sends; with an overlay network set hostNetwork",
        ),
        Some(true) => (
            "it was called, and did not answer as tolerarch of this version does".to_owned(),
            "where no other finding says why, upgrade tolerarch to the version of this command",
        ),
        Some(false) => {
            let mut why = "the API server did not call it".to_owned();
            for condition in webhook.match_conditions.iter().flatten() {
                why += &format!(
                    "; its matchCondition {} wants `{}`",
                    condition.name, condition.expression
                );
            }
            (
                why,
                "correct its rules, selectors or matchConditions (webhook.matchConditions in the chart); \
                 docs/runbooks/TolerarchNotCalled.md takes out what your values do not have",
            )
        }
        None => failed_call(client, webhook.client_config.service.as_ref()).await,
    }
}

/// Returns why a call of the API server failed, and advice. Calls a Service through the API server as a proxy, too, which
/// does not verify the certificate.
async fn failed_call(
    client: &UserClient,
    service: Option<&ServiceReference>,
) -> (String, &'static str) {
    let unseen = (
        "the call failed".to_owned(),
        "compare the Service or clientConfig.url, and the caBundle, with what is served there: a certificate that has expired, is \
         not valid yet, is for another name, or of another CA is refused; the API server's log names the error",
    );
    let Some(ServiceReference {
        name,
        namespace,
        port,
        path,
    }) = service
    else {
        return unseen;
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
            "see that the Pods listen on the Service's targetPort, and that no NetworkPolicy is in the way",
        ),
        Err(
            RequestError::Refused {
                status: 401 | 403, ..
            }
            | RequestError::Timeout(..),
        ) => unseen,
        Err(RequestError::Refused { status: 404, .. }) => (
            "the Pods answer no reviews at its path".to_owned(),
            "set the path to /mutate, or to /mutate/PROFILE (helm upgrade with the values of the release)",
        ),
        _ => (
            "the API server reaches the Pods and refuses their certificate".to_owned(),
            "unless a finding names a fault of the certificate or the caBundle, the caBundle has not the CA that signs the \
             certificate: write it there, as `tolerarch certificates` and cert-manager's cainjector do where they run",
        ),
    }
}

/// Reports how many Pods were admitted undecided since the API server started.
fn check_fail_open(webhook: &str, before: Calls, now: Calls, findings: &mut Findings) {
    let since = "since this API server started";
    let Calls { made, failed } = now;
    if failed > before.failed {
        let message = format!("calls of {webhook} fail right now, {failed} {since}");
        let fix =
            "see the log of the API server for the error, and whether each replica is reachable";
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

/// Creates a Pod with these tolerations in a dry run, and returns it as it would be stored. Opted out by a label, so that
/// tolerarch is not called for it.
pub(super) async fn admit(
    client: &UserClient,
    namespace: &str,
    tolerations: &[&Toleration<'_>],
) -> Result<Value, RequestError> {
    let pod = pod(&json!({MODE_KEY: "off"}), &json!({}), &json!(tolerations));
    client.post(&dry_run(namespace), &pod).await.0
}

/// Returns whether a namespace's white list refuses the tolerations: the plugin may be off.
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
    fn the_webhook_quotes_the_value_in_its_warning() {
        let value = nonce();
        assert!(PodMode::Unknown(&value).warning().unwrap().contains(&value));
        assert_ne!(value, nonce());
    }
}
