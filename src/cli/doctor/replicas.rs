//! The Pods that serve: whether there are any, why they do not start, and which of their components have failed.

use std::collections::BTreeMap;

use serde_json::Value;

use super::findings::Exam;
use super::installation::Backend;
use super::objects::{Labels, Pod};
use super::webhooks::some_of;
use crate::cli::kubernetes::items;
use tolerarch_kubernetes::cluster::{RequestError, UserClient};

const ROOM: &str = "make room, or let it on more nodes: nodeSelector, affinity and tolerations of the chart";

impl Pod {
    /// Why it does not start, and what to do.
    pub(super) fn trouble(&self) -> Option<(String, &'static str)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let is_unscheduled = |one: &&Value| one["type"] == "PodScheduled" && one["status"] == "False";
        if let Some(condition) = items(&self.status["conditions"]).find(is_unscheduled) {
            return Some((format!("no node has room: {}", text(&condition["message"])), ROOM));
        }
        let containers = ["initContainerStatuses", "containerStatuses"].map(|of| items(&self.status[of]));
        containers.into_iter().flatten().find_map(|container| {
            let waiting = &container["state"]["waiting"];
            let reason = waiting["reason"].as_str()?;
            let why = format!("{reason}: {}", text(&waiting["message"]));
            match reason {
                "ContainerCreating" | "PodInitializing" => None,
                "CrashLoopBackOff" => {
                    let ended = &container["lastState"]["terminated"];
                    let why =
                        format!("it ends with exit code {}: {}", ended["exitCode"], text(&ended["reason"]));
                    Some((why, "its log says why: kubectl logs --previous"))
                }
                _ if reason.contains("Image") => Some((
                    why,
                    "correct image.registry, image.repository, image.tag or image.pullSecrets of the chart",
                )),
                _ => Some((why, "kubectl describe pod says more")),
            }
        })
    }

    /// Whether it is one of those that serve, or will; others keep their labels until they are deleted.
    fn is_current(&self) -> bool {
        let has_ended = ["Succeeded", "Failed"].iter().any(|phase| self.status["phase"] == *phase);
        self.metadata.deletion_timestamp.is_none() && !has_ended
    }
}

/// The Pods behind a Service, none without a selector.
pub(super) async fn list(
    client: &UserClient,
    namespace: &str,
    selector: &Labels,
) -> Result<Vec<Pod>, RequestError> {
    if selector.is_empty() {
        return Ok(Vec::new());
    }
    let query = selector.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",");
    let query: String = url::form_urlencoded::byte_serialize(query.as_bytes()).collect();
    let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector={query}");
    let mut pods: Vec<Pod> = client.list(&path).await?;
    pods.retain(Pod::is_current);
    Ok(pods)
}

/// The same; and why there are none, or which do not start.
pub(super) async fn read(exam: &mut Exam<'_>, service: &str, namespace: &str, selector: &Labels) -> Vec<Pod> {
    let Exam { client, findings, .. } = exam;
    let pods = match list(client, namespace, selector).await {
        Ok(pods) => pods,
        Err(error) => {
            findings.unread("version", "the Pods of tolerarch", &error);
            return Vec::new();
        }
    };
    if pods.is_empty() && !selector.is_empty() {
        let (why, fix) = absence(client, service, namespace, selector).await;
        findings.failed("pods", why, fix);
    }
    let mut found: BTreeMap<(String, &str), Vec<&str>> = BTreeMap::new();
    for pod in &pods {
        if let Some(trouble) = pod.trouble() {
            found.entry(trouble).or_default().push(&pod.metadata.name);
        }
    }
    // A replica more than the nodes have room for does no harm.
    let is_ready = |one: &Value| one["type"] == "Ready" && one["status"] == "True";
    let one_serves = pods.iter().any(|pod| items(&pod.status["conditions"]).any(is_ready));
    for ((why, fix), names) in found {
        let message = format!("{} cannot start: {why}", some_of(names));
        findings.failed_if(fix != ROOM || !one_serves, "pods", message, fix);
    }
    pods
}

/// Why a Service has no Pods, and what to do.
async fn absence(client: &UserClient, service: &str, namespace: &str, selector: &Labels) -> (String, String) {
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    let deployments: Vec<Value> = client.list(&path).await.unwrap_or_default();
    let is_at_zero = |deployment: &&Value| {
        let (spec, labels) = (&deployment["spec"], &deployment["spec"]["template"]["metadata"]["labels"]);
        spec["replicas"] == 0 && selector.iter().all(|(key, value)| labels[key] == **value)
    };
    match deployments.iter().find(is_at_zero).and_then(|found| found["metadata"]["name"].as_str()) {
        Some(name) => (
            format!("the Deployment {namespace}/{name} has 0 replicas"),
            format!("kubectl -n {namespace} scale deployment {name} --replicas=2"),
        ),
        None => (
            format!("the selector of {service} matches no Pod"),
            format!(
                "compare it with the labels of the Pods, or see what refuses them: kubectl -n {namespace} get events"
            ),
        ),
    }
}

/// What each replica says of its components. Where it cannot be read, neither can its certificate, and that is told there.
pub(super) async fn check_components(exam: &mut Exam<'_>, backend: &Backend) {
    let Exam { client, findings, .. } = exam;
    let mut failed: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut read = 0;
    for (name, admin) in &backend.admin {
        let answer = client.text(&format!("{admin}/readyz?verbose")).await;
        let (Ok(lines) | Err(RequestError::Refused { message: lines, .. })) = answer else { continue };
        read += usize::from(lines.contains("readyz check "));
        for line in lines.lines().filter_map(|line| line.strip_prefix("[-]")) {
            failed.entry(line.to_owned()).or_default().push(name);
        }
    }
    if read > 0 && failed.is_empty() {
        findings.ok("components", format!("all of them work, in {read} of {} replicas", backend.admin.len()));
    }
    for (line, names) in failed {
        findings.failed(
            "components",
            format!("{line} ({})", some_of(names)),
            "look at the log of the Pod, and at docs/runbooks/TolerarchDegraded.md",
        );
    }
}
