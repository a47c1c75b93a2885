//! The Pods that serve: whether there are any, why they do not start, and what they say of themselves.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;

use super::findings::{Exam, Status};
use super::installation::Backend;
use super::webhooks::some_of;
use super::{certificate, registries, version};
use crate::cli::kubernetes::{self, name_of};
use tolerarch_kubernetes::cluster::{RequestError, UserClient};

const ROOM: &str = "make room, or let it on more nodes: nodeSelector, affinity and tolerations of the chart";

/// Why a Pod does not start, and what to do.
pub(super) fn trouble(pod: &Pod) -> Option<(String, &'static str)> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let status = pod.status.as_ref()?;
    let mut conditions = status.conditions.iter().flatten();
    if let Some(found) = conditions.find(|one| one.type_ == "PodScheduled" && one.status == "False") {
        return Some((format!("no node has room: {}", text(&found.message)), ROOM));
    }
    let mut containers =
        [&status.init_container_statuses, &status.container_statuses].into_iter().flatten().flatten();
    containers.find_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref()?;
        let why = format!("{reason}: {}", text(&waiting.message));
        match reason {
            "ContainerCreating" | "PodInitializing" => None,
            "CrashLoopBackOff" => {
                let ended = container.last_state.as_ref().and_then(|state| state.terminated.clone());
                let ended = ended.unwrap_or_default();
                let why = format!("it ends with exit code {}: {}", ended.exit_code, text(&ended.reason));
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

/// Whether a Pod still waits for what it mounts, as its certificate at a first start, and so cannot be asked.
pub(super) fn waits(pod: &Pod) -> bool {
    let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    let mut states = containers.into_iter().flatten().filter_map(|container| container.state.as_ref());
    states.any(|state| state.waiting.is_some())
}

/// The Pods with these labels that serve, or will; others keep their labels until they are deleted. None without a label.
pub(super) async fn list(
    client: &UserClient,
    namespace: &str,
    labels: &str,
) -> Result<Vec<Pod>, RequestError> {
    if labels.is_empty() {
        return Ok(Vec::new());
    }
    let mut pods = kubernetes::list::<Pod>(client, Some(namespace), labels).await?;
    pods.retain(|pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
    });
    Ok(pods)
}

/// The same; and why there are none, or which do not start.
pub(super) async fn read(exam: &mut Exam<'_>, service: &str, namespace: &str, labels: &str) -> Vec<Pod> {
    let read = list(exam.client, namespace, labels);
    let Some(pods) = exam.read("version", "the Pods of tolerarch", read).await else { return Vec::new() };
    let Exam { client, findings, .. } = exam;
    if pods.is_empty() && !labels.is_empty() {
        let (why, fix) = absence(client, service, namespace, labels).await;
        findings.failed("pods", why, fix);
    }
    let mut found: BTreeMap<(String, &str), Vec<&str>> = BTreeMap::new();
    for pod in &pods {
        if let Some(trouble) = trouble(pod) {
            found.entry(trouble).or_default().push(name_of(pod));
        }
    }
    // A replica more than the nodes have room for does no harm.
    let mut conditions = pods.iter().filter_map(|pod| pod.status.as_ref()?.conditions.as_ref()).flatten();
    let one_serves = conditions.any(|one| one.type_ == "Ready" && one.status == "True");
    for ((why, fix), names) in found {
        let status = Status::failed_if(fix != ROOM || !one_serves);
        findings.add(status, "pods", format!("{} cannot start: {why}", some_of(names)), fix);
    }
    pods
}

/// Why a Service has no Pods, and what to do.
async fn absence(client: &UserClient, service: &str, namespace: &str, labels: &str) -> (String, String) {
    let deployments = kubernetes::list::<Deployment>(client, Some(namespace), "").await.unwrap_or_default();
    let is_at_zero = |deployment: &&Deployment| {
        let Some(spec) = &deployment.spec else { return false };
        let own = spec.template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
        let has = |label: &str| {
            let (key, value) = label.split_once('=').unwrap_or_default();
            own.and_then(|own| own.get(key)).is_some_and(|own| own == value)
        };
        spec.replicas == Some(0) && labels.split(',').all(has)
    };
    match deployments.iter().find(is_at_zero).map(name_of) {
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

/// Checks what each replica says of itself, which takes the right to get pods/proxy, and which version it is.
pub(super) async fn check(exam: &mut Exam<'_>, backend: &Backend) {
    let (mut metrics, mut read) = (Vec::new(), 0);
    let mut failed: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, admin) in &backend.admin {
        let (what, path) = (format!("the metrics of {name}"), format!("{admin}/metrics"));
        let text = exam.read("certificate", &what, exam.client.text(&path)).await;
        metrics.extend(text.map(|text| (name.as_str(), text)));
        // A replica whose components cannot be read has a finding already, and its metrics cannot be read either.
        let answer = exam.client.text(&format!("{admin}/readyz?verbose")).await;
        let (Ok(lines) | Err(RequestError::Refused { message: lines, .. })) = answer else { continue };
        read += usize::from(lines.contains("readyz check "));
        for line in lines.lines().filter_map(|line| line.strip_prefix("[-]")) {
            failed.entry(line.to_owned()).or_default().push(name);
        }
    }
    let findings = &mut exam.findings;
    certificate::check_replicas(&metrics, findings);
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
    version::check_pods(backend, findings);
    registries::check(&metrics, findings);
}
