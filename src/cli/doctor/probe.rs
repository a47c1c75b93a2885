//! Proof by a dry-run Pod that only tolerarch can have answered, without a request to a registry.
//!
//! The Pod has a random, meaningless value of `tolerarch.io/mode`: tolerarch answers with a warning that quotes the
//! value, and the API server passes warnings on to the creator of the Pod.

use k8s_openapi::api::admissionregistration::v1::ServiceReference;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Resource;
use kube::core::SelectorExt;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use super::findings::{Exam, Findings, Status};
use super::replicas::sum;
use super::scope::{Labels, ordinary};
use crate::cli::kubernetes::name_of;
use tolerarch_core::pod::MODE_KEY;
use tolerarch_kubernetes::cluster::{RequestError, UserClient, Webhook};

/// Maximal number of namespaces to try, as other webhooks and quotas may refuse the Pod.
const TRIES: usize = 3;

pub(super) enum Outcome {
    Answered,
    /// Nothing is shown, and a dry run for another webhook of the same Service may be answered.
    Unproven,
    /// The call itself fails.
    Broken,
}

/// Counts of a webhook's calls by the API server.
#[derive(Clone, Copy)]
struct Calls {
    made: f64,
    failed_open: f64,
}

impl Calls {
    async fn read(client: &UserClient, webhook: &str) -> Result<Self, RequestError> {
        let metrics = client.text("/metrics").await?;
        let sum = |metric: &str| sum(&metrics, metric, "name", webhook);
        Ok(Self {
            made: sum("apiserver_admission_webhook_request_total"),
            failed_open: sum("apiserver_admission_webhook_fail_open_count"),
        })
    }
}

/// Returns a Pod that no policy should refuse, with these labels, and otherwise as a Deployment makes it, so that both
/// are excluded alike. The Pod names no user: OpenShift assigns one, and refuses others.
pub(super) fn pod(labels: &Value, annotations: &Value, tolerations: &Value) -> Value {
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

pub(super) fn dry_run(namespace: &str) -> String {
    format!("{}?dryRun=All&fieldManager=tolerarch", Pod::url_path(&(), Some(namespace)))
}

/// Creates the Pod. Returns whether a webhook of tolerarch has answered, and the duration.
async fn attempt(
    client: &UserClient,
    namespace: &str,
    labels: &Labels,
) -> (Result<bool, RequestError>, Duration) {
    let value = nonce();
    let pod = pod(&json!(labels), &json!({MODE_KEY: value}), &json!([]));
    let begun = Instant::now();
    let (created, warnings) = client.post::<Value>(&dry_run(namespace), &pod).await;
    let has_answered = warnings.iter().any(|warning| warning.contains(&value));
    (if has_answered { Ok(true) } else { created.map(|_| false) }, begun.elapsed())
}

/// Reports an answer for a Pod with these labels, and those that an ordinary Pod lacks. `leads` is false if the Service
/// leads nowhere: API servers keep connections to where it led before.
fn prove(name: &str, namespace: &str, labels: &Labels, took: Duration, leads: bool, findings: &mut Findings) {
    let (took, ordinary) = (took.as_millis(), ordinary());
    let own = labels.iter().filter(|(key, _)| !ordinary.contains_key(*key));
    let own: Vec<String> = own.map(|(key, value)| format!("{key}={value}")).collect();
    let with = if own.is_empty() { String::new() } else { format!(" with {}", own.join(",")) };
    let (status, by) =
        if leads { (Status::Ok, "") } else { (Status::Unknown, ", by a connection from before") };
    let message = format!("{name} answered for a dry-run Pod{with} in {namespace}, in {took} ms{by}");
    findings.add(status, "dry-run", message, "");
}

/// Tries a dry run in one namespace if webhooks or namespaces cannot be read: an answer is proof all the same.
pub(super) async fn check_unseen(Exam { client, only, findings, .. }: &mut Exam<'_>) {
    let namespace = only.unwrap_or(&client.namespace);
    let labels = ordinary();
    match attempt(client, namespace, &labels).await {
        (Ok(true), took) => prove("tolerarch", namespace, &labels, took, true, findings),
        (Ok(false), _) => {
            let message = format!("a dry-run Pod in {namespace} came back without an answer of tolerarch");
            let fix = "let somebody look who may list mutatingwebhookconfigurations and namespaces";
            findings.add(Status::failed_if(only.is_some()), "dry-run", message, fix);
        }
        (Err(error), _) => {
            findings.unknown("dry-run", format!("a dry-run Pod in {namespace} was refused: {error}"));
        }
    }
}

/// Creates the Pod in a namespace that the webhook selects, and reports the fault if there is no answer.
pub(super) async fn check(
    exam: &mut Exam<'_>,
    entry: &Webhook,
    namespaces: &[&Namespace],
    leads: bool,
) -> Outcome {
    let (client, name, webhook) = (exam.client, entry.name(), &entry.spec.name);
    let Some(needed) = entry.example() else { return Outcome::Unproven };
    let labels: Labels = ordinary().into_iter().chain(needed.clone()).collect();
    let labels = if entry.objects.matches(&labels) { labels } else { needed };
    let before = Calls::read(client, webhook).await;
    let before = exam.findings.read("fail-open", "the API server's metrics", before);
    let mut refused = None;
    for namespace in namespaces.iter().take(TRIES).map(|namespace| name_of(*namespace)) {
        match attempt(client, namespace, &labels).await {
            (Ok(true), took) => {
                prove(&name, namespace, &labels, took, leads, &mut exam.findings);
                if let Some(before) = before {
                    check_fail_open(exam, entry, before).await;
                }
                return if leads { Outcome::Answered } else { Outcome::Unproven };
            }
            (Ok(false), took) => {
                let calls = before.zip(Calls::read(client, webhook).await.ok());
                return diagnose(exam, entry, namespace, took, calls).await;
            }
            (Err(error), _) => refused = Some((namespace, error)),
        }
    }
    if let Some((namespace, error)) = refused {
        let message =
            format!("a dry-run Pod in {namespace} was refused, so that {name} is not proven: {error}");
        exam.findings.unknown("dry-run", message);
    }
    Outcome::Unproven
}

/// Reports why a Pod came back without an answer of the webhook.
async fn diagnose(
    exam: &mut Exam<'_>,
    entry: &Webhook,
    namespace: &str,
    took: Duration,
    calls: Option<(Calls, Calls)>,
) -> Outcome {
    let Exam { client, findings, .. } = exam;
    let webhook = &entry.spec;
    let patience =
        Duration::from_secs(webhook.timeout_seconds.and_then(|time| time.try_into().ok()).unwrap_or(10));
    let made = calls.filter(|(before, after)| after.failed_open <= before.failed_open);
    let made = made.map(|(before, after)| after.made > before.made);
    let is_late = took >= patience.mul_f64(0.9);
    let (why, fix) = match (made, &webhook.client_config.service) {
        _ if is_late => (
            format!("the API server waited {} s for it", took.as_secs()),
            "open the way from the API server to the Pods: a firewall (private clusters need a rule for the webhook's port), a \
             NetworkPolicy or a security group drops what it sends; with an overlay network set hostNetwork",
        ),
        (Some(true), _) => (
            "it was called, and did not answer as tolerarch of this version does".to_owned(),
            "where no other finding says why, upgrade tolerarch to the version of this command",
        ),
        (Some(false), _) => {
            let own = webhook.match_conditions.iter().flatten();
            let own: Vec<_> = own
                .map(|own| format!("; its matchCondition {} wants `{}`", own.name, own.expression))
                .collect();
            (
                format!("the API server did not call it{}", own.concat()),
                "correct its rules, selectors or matchConditions (webhook.matchConditions in the chart); \
                 docs/runbooks/TolerarchNotCalled.md takes out what your values do not have",
            )
        }
        (None, Some(service)) => failed_call(client, service).await,
        (None, None) => (
            "the call failed".to_owned(),
            "compare clientConfig.url and caBundle with what is served there: a certificate that has expired, is not valid yet, \
             is for another name, or of another CA is refused; the API server's log names the error",
        ),
    };
    let name = entry.name();
    let message = format!("a dry-run Pod in {namespace} came back without an answer of {name}: {why}");
    findings.failed("dry-run", message, fix);
    if is_late || made.is_none() { Outcome::Broken } else { Outcome::Unproven }
}

/// Returns why the API server's call of a Service failed, and advice. Calls the Service through the API server as a
/// proxy, too, which does not verify the certificate.
async fn failed_call(client: &UserClient, service: &ServiceReference) -> (String, &'static str) {
    let ServiceReference { name, namespace, port, path } = service;
    let (port, path) = (port.unwrap_or(443), path.as_deref().unwrap_or_default());
    let path = format!("/api/v1/namespaces/{namespace}/services/https:{name}:{port}/proxy{path}");
    match client.text(&path).await {
        Err(RequestError::Refused { status: 500..=599, message, .. }) => (
            format!("the API server cannot reach the Service: {message}"),
            "see that the Pods listen on the Service's targetPort, and that no NetworkPolicy is in the way",
        ),
        Err(RequestError::Refused { status: 401 | 403, .. } | RequestError::Timeout(..)) => (
            "the call failed".to_owned(),
            "compare the caBundle with the certificate, and see that Pods listen; the API server's log names the error",
        ),
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
async fn check_fail_open(exam: &mut Exam<'_>, entry: &Webhook, before: Calls) {
    let (findings, webhook) = (&mut exam.findings, &entry.spec.name);
    let Calls { made, failed_open } = Calls::read(exam.client, webhook).await.unwrap_or(before);
    let since = "since this API server started";
    if failed_open > before.failed_open {
        let message = format!("calls of {webhook} fail right now, {failed_open} {since}");
        let fix = "see the log of the API server for the error, and whether each replica is reachable";
        findings.failed("fail-open", message, fix);
    } else if failed_open > 0.0 {
        let message =
            format!("{failed_open} of {made} calls of {webhook} have failed {since}; none does now");
        findings.unknown("fail-open", message);
    } else {
        findings.ok("fail-open", format!("no call of {webhook} has failed {since}"));
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
