//! The proof: a dry-run Pod that only tolerarch can have answered, without asking a registry.
//!
//! It has a value of `tolerarch.io/mode` that means nothing, and that is made up for this one Pod: tolerarch answers it with a
//! warning that quotes the value, and the API server passes warnings on to the creator of the Pod.

use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use super::findings::{Exam, Findings};
use super::installation::Entry;
use super::objects::{Labels, Namespace, ServiceReference};
use super::scope::ordinary;
use tolerarch_core::pod::MODE_KEY;
use tolerarch_kubernetes::cluster::{RequestError, UserClient};

/// Namespaces that are tried, as other webhooks and quotas may refuse the Pod.
const TRIES: usize = 3;

#[derive(Clone, Copy, Default, PartialEq)]
struct Calls {
    made: f64,
    failed_open: f64,
}

impl Calls {
    async fn read(client: &UserClient, webhook: &str) -> Result<Self, RequestError> {
        let metrics = client.text("/metrics").await?;
        let label = format!("name=\"{webhook}\"");
        let sum = |metric: &str| {
            let lines = metrics.lines().filter(|line| line.starts_with(metric) && line.contains(&label));
            lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
        };
        Ok(Self {
            made: sum("apiserver_admission_webhook_request_total{"),
            failed_open: sum("apiserver_admission_webhook_fail_open_count{"),
        })
    }
}

/// A Pod that no policy should mind, with these labels, and otherwise as a Deployment makes it, so that what excludes those
/// excludes this one, too. It names no user: OpenShift assigns one, and refuses others.
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
    format!("/api/v1/namespaces/{namespace}/pods?dryRun=All&fieldManager=tolerarch")
}

/// Creates the Pod. Whether a webhook of tolerarch has answered, and how long it took.
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

fn prove(name: &str, namespace: &str, took: Duration, findings: &mut Findings) {
    let took = took.as_millis();
    findings.ok("dry-run", format!("{name} answered for a dry-run Pod in {namespace}, in {took} ms"));
}

/// Tries what is not known, in one namespace: an answer proves it all the same.
pub(super) async fn check_unseen(exam: &mut Exam<'_>) {
    let Exam { client, only, findings, .. } = exam;
    let namespace = only.unwrap_or(client.namespace());
    match attempt(client, namespace, &ordinary()).await {
        (Ok(true), took) => prove("tolerarch", namespace, took, findings),
        (Ok(false), _) => findings.failed_if(
            only.is_some(),
            "dry-run",
            format!("a dry-run Pod in {namespace} came back without an answer of tolerarch"),
            "let somebody look who may list mutatingwebhookconfigurations and namespaces",
        ),
        (Err(error), _) => {
            findings.unknown("dry-run", format!("a dry-run Pod in {namespace} was refused: {error}"));
        }
    }
}

/// Creates the Pod in a namespace that the webhook selects, and tells what is wrong if no answer is to be seen. Whether the
/// call itself worked, and so may work for another webhook of the same Service.
pub(super) async fn check(exam: &mut Exam<'_>, entry: Entry<'_>, namespaces: &[&Namespace]) -> bool {
    let client = exam.client;
    let name = entry.name();
    let selector = &entry.webhook.object_selector;
    let Some(needed) = selector.example() else { return true };
    let labels: Labels = ordinary().into_iter().chain(needed.clone()).collect();
    let labels = if selector.matches(&labels) { labels } else { needed };
    let before = Calls::read(client, &entry.webhook.name).await;
    let mut refused = None;
    for namespace in namespaces.iter().take(TRIES).map(|namespace| &namespace.metadata.name) {
        match attempt(client, namespace, &labels).await {
            (Ok(true), took) => {
                prove(&name, namespace, took, &mut exam.findings);
                check_fail_open(exam, entry, before).await;
                return true;
            }
            (Ok(false), took) => {
                let after = Calls::read(client, &entry.webhook.name).await;
                let calls = before.ok().zip(after.ok());
                return diagnose(exam, entry, namespace, took, calls).await;
            }
            (Err(error), _) => refused = Some((namespace, error)),
        }
    }
    if let Some((namespace, error)) = refused {
        exam.findings.unknown(
            "dry-run",
            format!("a dry-run Pod in {namespace} was refused, so that {name} is not proven: {error}"),
        );
    }
    true
}

/// Why a Pod came back without an answer of the webhook. Whether the call itself worked.
async fn diagnose(
    exam: &mut Exam<'_>,
    entry: Entry<'_>,
    namespace: &str,
    took: Duration,
    calls: Option<(Calls, Calls)>,
) -> bool {
    let Exam { client, findings, .. } = exam;
    let webhook = entry.webhook;
    let patience = Duration::from_secs(webhook.timeout_seconds.unwrap_or(10).into());
    let mut works = false;
    let (why, fix) = if took >= patience.mul_f64(0.9) {
        (
            format!("the API server waited {} s for it", took.as_secs()),
            "open the way from the API server to the Pods: a firewall (private clusters need a rule for the webhook's port), a \
             NetworkPolicy or a security group drops what it sends; with an overlay network set hostNetwork"
                .to_owned(),
        )
    } else if let Some((before, after)) =
        calls.filter(|(before, after)| after.failed_open <= before.failed_open)
    {
        works = true;
        if after.made > before.made {
            (
                "it was called, so that an old version runs, or something else answers there".to_owned(),
                "upgrade tolerarch to the version of this command".to_owned(),
            )
        } else {
            let own = webhook.match_conditions.iter();
            let own: Vec<_> = own.map(|own| format!("{}: {}", own.name, own.expression)).collect();
            let fix = if own.is_empty() {
                "check its rules and selectors".to_owned()
            } else {
                format!(
                    "correct its matchConditions (webhook.matchConditions in the chart), where a Pod needs {}; \
                     docs/runbooks/TolerarchNotCalled.md takes out what your values do not have",
                    own.join(", ")
                )
            };
            ("the API server did not call it".to_owned(), fix)
        }
    } else if let Some(service) = &webhook.client_config.service {
        let known = findings.has_failed("certificate") || findings.has_failed("ca-bundle");
        failed_call(client, service, known).await
    } else {
        (
            "the call failed".to_owned(),
            "compare clientConfig.url and caBundle with what is served there; the API server's log names the error"
                .to_owned(),
        )
    };
    let name = entry.name();
    findings.failed(
        "dry-run",
        format!("a dry-run Pod in {namespace} came back without an answer of {name}: {why}"),
        fix,
    );
    works
}

/// Why the API server's call of a Service failed, and what to do. It can also be a proxy to the Service, and does not verify
/// the certificate then. `known` is whether a fault of the certificate has been found.
async fn failed_call(client: &UserClient, service: &ServiceReference, known: bool) -> (String, String) {
    let ServiceReference { name, namespace, .. } = service;
    let port = service.port();
    let path = format!("/api/v1/namespaces/{namespace}/services/https:{name}:{port}/proxy/mutate");
    let (why, fix) = match client.text(&path).await {
        Err(RequestError::Refused { status: 500..=599, message, .. }) => (
            format!("the API server cannot reach the Service: {message}"),
            "see that the Pods listen on the Service's targetPort, and that no NetworkPolicy is in the way",
        ),
        Err(RequestError::Refused { status: 401 | 403, .. }) | Err(RequestError::Timeout(..)) => (
            "the call failed".to_owned(),
            "compare the caBundle with the certificate, and see that Pods listen; the API server's log names the error",
        ),
        _ => (
            "the API server reaches the Pods and refuses their certificate".to_owned(),
            if known {
                "see above: the certificate or the caBundle is why"
            } else {
                "write the CA that signs the certificate into the caBundle: tls.mode managed and cert-manager's cainjector do that"
            },
        ),
    };
    (why, fix.to_owned())
}

/// How many Pods were admitted undecided since the API server started.
async fn check_fail_open(exam: &mut Exam<'_>, entry: Entry<'_>, before: Result<Calls, RequestError>) {
    let Exam { client, findings, .. } = exam;
    let before = match before {
        Ok(calls) => calls,
        Err(error) => return findings.unread("fail-open", "the API server's metrics", &error),
    };
    let after = Calls::read(client, &entry.webhook.name).await.unwrap_or(before);
    let made = after.made;
    match after.failed_open {
        failed if failed > before.failed_open => findings.failed(
            "fail-open",
            format!("calls of {} fail right now, {failed} since this API server started", entry.webhook.name),
            "see the log of the API server for the error, and whether each replica is reachable",
        ),
        0.0 => findings.ok("fail-open", "this API server has failed no call since it started"),
        failed => findings.unknown(
            "fail-open",
            format!("{failed} of {made} calls have failed since this API server started; none does now"),
        ),
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
