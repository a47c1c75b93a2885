//! The proof: a dry-run Pod that only tolerarch can have answered, without asking a registry.
//!
//! It has a value of `tolerarch.io/mode` that means nothing, and that is made up for this one Pod: tolerarch answers it with a
//! warning that quotes the value, and the API server passes warnings on to the creator of the Pod.

use serde_json::{Value, json};
use tokio::time::{Duration, Instant};

use super::findings::Findings;
use super::installation::Entry;
use super::objects::Namespace;
use tolerarch_kubernetes::cluster::{RequestError, UserClient};

/// Namespaces that are tried, as other webhooks and quotas may refuse the Pod.
const TRIES: usize = 3;

/// What the API server counts of one webhook.
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

/// A Pod that no policy should mind, with these labels. It names no user: OpenShift assigns one, and refuses others.
pub(super) fn pod(labels: &Value, annotations: &Value, tolerations: &Value) -> Value {
    let room = json!({"cpu": "10m", "memory": "16Mi"});
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "tolerarch-doctor-", "labels": labels, "annotations": annotations},
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

/// Creates the Pod in a namespace that the webhook selects, and tells what is wrong if no answer is to be seen.
pub(super) async fn check(
    client: &UserClient,
    entry: Entry<'_>,
    namespaces: &[&Namespace],
    findings: &mut Findings,
) {
    let name = entry.name();
    let Some(labels) = entry.webhook.object_selector.example() else { return };
    let before = Calls::read(client, &entry.webhook.name).await;
    let mut refused = None;
    for namespace in namespaces.iter().take(TRIES).map(|namespace| &namespace.metadata.name) {
        let value = nonce();
        let pod = pod(&json!(labels), &json!({"tolerarch.io/mode": value}), &json!([]));
        let begun = Instant::now();
        let (created, warnings) = client.post::<Value>(&dry_run(namespace), &pod).await;
        let took = begun.elapsed();
        if warnings.iter().any(|warning| warning.contains(&value)) {
            let took = took.as_millis();
            findings.ok("dry-run", format!("{name} answered for a dry-run Pod in {namespace}, in {took} ms"));
            check_fail_open(client, entry, before, findings).await;
            return;
        }
        match created {
            Ok(_) => {
                let after = Calls::read(client, &entry.webhook.name).await;
                let calls = before.ok().zip(after.ok());
                diagnose(client, entry, namespace, took, calls, findings).await;
                return;
            }
            Err(error) => refused = Some((namespace, error)),
        }
    }
    match refused {
        Some((namespace, error)) => findings.unknown(
            "dry-run",
            format!("a dry-run Pod in {namespace} was refused, so that {name} is not proven: {error}"),
        ),
        None => findings.unknown("dry-run", format!("there is no namespace to try {name} in")),
    }
}

/// Why a Pod came back without an answer of the webhook.
async fn diagnose(
    client: &UserClient,
    entry: Entry<'_>,
    namespace: &str,
    took: Duration,
    calls: Option<(Calls, Calls)>,
    findings: &mut Findings,
) {
    let name = entry.name();
    let what = format!("a dry-run Pod in {namespace} came back without an answer of {name}");
    let patience = Duration::from_secs(entry.webhook.timeout_seconds.unwrap_or(10).into());
    let failed = calls.map(|(before, after)| after.failed_open > before.failed_open);
    if took >= patience.mul_f64(0.9) {
        findings.failed(
            "dry-run",
            format!("{what}: the API server waited {} s for it", took.as_secs()),
            "open the way from the API server to the Pods: a firewall (private clusters need a rule for the webhook's port), a \
             NetworkPolicy or a security group drops what it sends; with an overlay network set hostNetwork",
        );
        return;
    }
    if failed == Some(false) {
        let called = calls.is_some_and(|(before, after)| after.made > before.made);
        if called {
            findings.failed(
                "dry-run",
                format!("{what}, though it was called: an old version runs, or something else answers there"),
                "upgrade tolerarch to the version of this command",
            );
        } else {
            let own: Vec<&str> =
                entry.webhook.match_conditions.iter().map(|condition| condition.name.as_str()).collect();
            findings.failed(
                "dry-run",
                format!("{what}: the API server did not call it"),
                format!("check its rules, selectors and matchConditions ({})", own.join(", ")),
            );
        }
        return;
    }
    let Some(service) = &entry.webhook.client_config.service else {
        findings.failed(
            "dry-run",
            format!("{what}: the call failed"),
            "compare clientConfig.url and caBundle with what is served there; the API server's log names the error",
        );
        return;
    };
    // The API server can also be a proxy to the Service, and does not verify the certificate then.
    let path = format!(
        "/api/v1/namespaces/{}/services/https:{}:{}/proxy/mutate",
        service.namespace,
        service.name,
        service.port()
    );
    match client.text(&path).await {
        Err(RequestError::Refused { status: 500..=599, message }) => findings.failed(
            "dry-run",
            format!("{what}: the API server cannot reach the Service: {message}"),
            "see that the Pods listen on the Service's targetPort, and that no NetworkPolicy is in the way",
        ),
        Err(RequestError::Refused { status: 401 | 403, .. }) | Err(RequestError::Timeout(_)) => findings.failed(
            "dry-run",
            format!("{what}: the call failed"),
            "compare the caBundle with the certificate, and see that Pods listen; the API server's log names the error",
        ),
        _ => {
            let known = findings.has_failed("certificate") || findings.has_failed("ca-bundle");
            let fix = if known {
                "see above: the certificate or the caBundle is why"
            } else {
                "write the CA that signs the certificate into the caBundle: tls.mode managed and cert-manager's cainjector do that"
            };
            let message = format!("{what}: the API server reaches the Pods and refuses their certificate");
            findings.failed("dry-run", message, fix);
        }
    }
}

/// How many Pods were admitted undecided since the API server started.
async fn check_fail_open(
    client: &UserClient,
    entry: Entry<'_>,
    before: Result<Calls, RequestError>,
    findings: &mut Findings,
) {
    let before = match before {
        Ok(calls) => calls,
        Err(error) => return findings.unread("fail-open", "the API server's metrics", &error),
    };
    let after = Calls::read(client, &entry.webhook.name).await.unwrap_or(before);
    match after.failed_open {
        failed if failed > before.failed_open => findings.failed(
            "fail-open",
            format!("calls of {} fail right now, {failed} since this API server started", entry.webhook.name),
            "see the log of the API server for the error, and whether each replica is reachable",
        ),
        0.0 => findings.ok("fail-open", "this API server has failed no call since it started"),
        failed => findings.unknown(
            "fail-open",
            format!(
                "{failed} of {} calls have failed since this API server started; none does now",
                after.made
            ),
        ),
    }
}

/// A value that occurs nowhere else.
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
