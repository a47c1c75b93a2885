//! Installed objects: namespaces, the Service of a webhook, the Pods behind it and their faults.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::core::Selector;

use super::findings::{Exam, Findings, Status, some_of};
use crate::cli::kubernetes::{get, list, name_of};
use tolerarch_kubernetes::cluster::{RequestError, UserClient, Webhook};

/// Default admin port.
const ADMIN: i32 = 8080;
const COMPONENT: &str = "app.kubernetes.io/component";
/// Labels that all Pods of one installation have in common.
const NAMES: [&str; 2] = ["app.kubernetes.io/name", "app.kubernetes.io/instance"];
const ROOM: &str = "make room, or let it on more nodes: nodeSelector, affinity and tolerations of the chart";

/// Reads the namespaces: the user's own first, where rights are most likely.
pub(super) async fn namespaces(Exam { client, only, findings, .. }: &mut Exam<'_>) -> Vec<Namespace> {
    let read = match only {
        Some(name) => get(client, None, name).await.map(|one| vec![one]),
        None => list(client, None, "").await,
    };
    let mut namespaces: Vec<Namespace> = read.unwrap_or_else(|error| {
        let hint = if only.is_none() { "; name one with -n" } else { "" };
        findings.unknown("scope", format!("the namespaces cannot be read: {error}{hint}"));
        Vec::new()
    });
    namespaces.sort_by_key(|namespace| {
        let name = name_of(namespace);
        (name != client.namespace, name != "default")
    });
    namespaces
}

#[derive(Default)]
pub(super) struct Backend {
    pub(super) namespace: String,
    pub(super) pods: Vec<Pod>,
    /// True if the Service leads to no Pod that is ready, as far as that can be read.
    pub(super) leads_nowhere: bool,
    /// Name of each Pod that has started, and the path of its admin port through the API server's proxy.
    pub(super) admin: Vec<(String, String)>,
}

impl Backend {
    /// Checks the Service of a webhook, and finds the Pods behind it.
    pub(super) async fn of(exam: &mut Exam<'_>, entry: &Webhook) -> Self {
        let Exam { client, findings, .. } = exam;
        let Some((namespace, name, port)) = entry.service() else { return Self::default() };
        let (called, entry) = (format!("Service {namespace}/{name}"), entry.name());
        let found = get::<Service>(client, Some(namespace), name).await;
        if found.as_ref().is_err_and(RequestError::is_missing) {
            let fix = format!("name the Service of tolerarch in the clientConfig of {entry}, or install it");
            findings.failed("service", format!("{entry} calls {called}, which does not exist"), fix);
            return Self { leads_nowhere: true, ..Self::default() };
        }
        let Some(found) = findings.read("service", &called, found) else { return Self::default() };
        let spec = found.spec.unwrap_or_default();
        let ports: BTreeSet<i32> = spec.ports.iter().flatten().map(|known| known.port).collect();
        let has_port = ports.contains(&port);
        if has_port {
            findings.ok("service", format!("{called} has port {port}"));
        } else {
            let ports = joined(&ports);
            let message =
                format!("{entry} calls port {port} of {called}, which has no such port, only {ports}");
            let fix = "where the Service was changed by hand, delete it and run helm upgrade: its port is 443; otherwise correct \
                clientConfig.service.port";
            findings.failed("service", message, fix);
        }
        let labels: Selector = spec.selector.unwrap_or_default().into_iter().collect();
        let pods = pods(exam, &called, namespace, &labels).await;
        let leads_nowhere = !check_endpoints(exam, (namespace, name), &labels, &pods).await || !has_port;
        let admin = pods.iter().filter(|pod| has_started(pod)).map(|pod| {
            let (name, port) = (name_of(pod), port_of(pod, "admin").unwrap_or(ADMIN));
            (format!("Pod {name}"), format!("/api/v1/namespaces/{namespace}/pods/http:{name}:{port}/proxy"))
        });
        let admin = admin.collect();
        Self { namespace: namespace.to_owned(), pods, leads_nowhere, admin }
    }

    /// Selects another process of this installation: but for the component, its labels are those of the webhook's Pods.
    fn process(&self, component: &str) -> Option<Selector> {
        let labels = self.pods.first()?.labels();
        let component = (COMPONENT.to_owned(), component.to_owned());
        let names = NAMES.into_iter().filter_map(|name| Some((name.to_owned(), labels.get(name)?.clone())));
        Some(names.chain([component]).collect())
    }

    /// Finds the Pods of another process of this installation, and reports those that do not start.
    pub(super) async fn component(
        &self,
        exam: &mut Exam<'_>,
        check: &'static str,
        component: &str,
    ) -> Option<Vec<Pod>> {
        let pods = serving(exam.client, &self.namespace, &self.process(component)?).await;
        let pods = exam.findings.read(check, &format!("the Pods of tolerarch {component}"), pods)?;
        check_start(&pods, &mut exam.findings);
        Some(pods)
    }

    /// Names the Deployment of another process of this installation, and what to do if it has no Pod; `None` if there
    /// is none, or it cannot be read.
    pub(super) async fn deployment(
        &self,
        client: &UserClient,
        component: &str,
        replicas: u8,
    ) -> Option<(String, String)> {
        let namespace = &self.namespace;
        let deployments = deployments(client, namespace, &self.process(component)?).await;
        let name = name_of(deployments.first()?);
        let scale = format!("kubectl -n {namespace} scale deployment {name} --replicas={replicas}");
        Some((format!("{namespace}/{name}"), scale + ", if it has none; otherwise its events say why"))
    }
}

/// Returns the port of this name.
fn port_of(pod: &Pod, name: &str) -> Option<i32> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    ports.find(|port| port.name.as_deref() == Some(name)).map(|port| port.container_port)
}

/// Checks the endpoints of a Service. Returns whether it leads to a Pod that is ready, as far as that can be read.
async fn check_endpoints(
    exam: &mut Exam<'_>,
    (namespace, name): (&str, &str),
    labels: &Selector,
    pods: &[Pod],
) -> bool {
    let of_service = format!("kubernetes.io/service-name={name}");
    let findings = &mut exam.findings;
    let slices = list::<EndpointSlice>(exam.client, Some(namespace), &of_service).await;
    let Some(slices) = findings.read("endpoints", "the EndpointSlices", slices) else { return true };
    let conditions = slices.iter().flat_map(|slice| &slice.endpoints).map(|one| &one.conditions);
    // An unknown readiness counts as ready, as in Kubernetes.
    let ready =
        conditions.filter(|known| known.as_ref().and_then(|known| known.ready) != Some(false)).count();
    let service = format!("Service {namespace}/{name}");
    match ready {
        0 => findings.failed(
            "endpoints",
            format!("{service} has no endpoint that is ready: Pods are admitted undecided"),
            format!("find out why its Pods are not ready: kubectl -n {namespace} describe pods -l {labels}"),
        ),
        1 => findings.ok("endpoints", "1 endpoint is ready"),
        _ => findings.ok("endpoints", format!("{ready} endpoints are ready")),
    }
    // Only a port that the Pods name is known to be the one.
    let wanted: BTreeSet<i32> = pods.iter().filter_map(|pod| port_of(pod, "webhook")).collect();
    let targets = slices.iter().flat_map(|slice| slice.ports.iter().flatten()).filter_map(|port| port.port);
    let targets: BTreeSet<i32> = targets.collect();
    if let Some(wanted) = wanted.first().filter(|_| !targets.is_empty() && wanted.is_disjoint(&targets)) {
        let targets = joined(&targets);
        let message =
            format!("{service} leads to port {targets} of its Pods; the webhook listens at {wanted}");
        let fix = "set its targetPort to the name of the container's port (helm upgrade --force-conflicts puts the chart's back)";
        findings.failed("endpoints", message, fix);
        return false;
    }
    ready > 0
}

fn joined(ports: &BTreeSet<i32>) -> String {
    ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns why a Pod does not start, and advice.
fn trouble(pod: &Pod) -> Option<(String, &'static str)> {
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
                "correct image.registry, image.repository, image.tag or image.pullSecrets of the chart (helm upgrade --force-conflicts where it was set by hand)",
            )),
            _ => Some((why, "kubectl describe pod says more")),
        }
    })
}

/// Returns whether a Pod waits for nothing: a node, an image or a volume, such as its first certificate.
fn has_started(pod: &Pod) -> bool {
    let waits = pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Pending"));
    !waits && trouble(pod).is_none()
}

/// Lists the Pods with these labels that serve or will, as others keep labels until deleted; none without a label.
pub(super) async fn serving(
    client: &UserClient,
    namespace: &str,
    labels: &Selector,
) -> Result<Vec<Pod>, RequestError> {
    if labels.selects_all() {
        return Ok(Vec::new());
    }
    let mut pods = list::<Pod>(client, Some(namespace), &labels.to_string()).await?;
    pods.retain(|pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
    });
    Ok(pods)
}

/// Lists the Pods that serve, or will; reports why there are none, or which do not start.
async fn pods(exam: &mut Exam<'_>, service: &str, namespace: &str, labels: &Selector) -> Vec<Pod> {
    let pods = serving(exam.client, namespace, labels).await;
    let Some(pods) = exam.findings.read("version", "the Pods of tolerarch", pods) else { return Vec::new() };
    if pods.is_empty() && !labels.selects_all() {
        let deployments = deployments(exam.client, namespace, labels).await;
        let at_zero = |known: &&Deployment| known.spec.as_ref().is_some_and(|spec| spec.replicas == Some(0));
        if let Some(name) = deployments.iter().find(at_zero).map(name_of) {
            let fix = format!("kubectl -n {namespace} scale deployment {name} --replicas=2");
            exam.findings.failed("pods", format!("the Deployment {namespace}/{name} has 0 replicas"), fix);
        } else {
            let fix = format!(
                "compare it with the labels of the Pods (helm upgrade --force-conflicts puts the chart's back), or see \
                 what refuses them: kubectl -n {namespace} get events"
            );
            exam.findings.failed("pods", format!("the selector of {service} matches no Pod"), fix);
        }
    }
    check_start(&pods, &mut exam.findings);
    pods
}

fn check_start(pods: &[Pod], findings: &mut Findings) {
    let mut found: BTreeMap<(String, &str), Vec<&str>> = BTreeMap::new();
    for pod in pods {
        if let Some(trouble) = trouble(pod) {
            found.entry(trouble).or_default().push(name_of(pod));
        }
    }
    // As long as one replica serves, one without room on the nodes does no harm.
    let mut conditions = pods.iter().filter_map(|pod| pod.status.as_ref()?.conditions.as_ref()).flatten();
    let one_serves = conditions.any(|one| one.type_ == "Ready" && one.status == "True");
    for ((why, fix), names) in found {
        let status = Status::failed_if(fix != ROOM || !one_serves);
        findings.add(status, "pods", format!("{} cannot start: {why}", some_of(names)), fix);
    }
}

/// Lists the Deployments with the labels of their Pods, as the manifests have them; none where they cannot be read.
pub(super) async fn deployments(client: &UserClient, namespace: &str, labels: &Selector) -> Vec<Deployment> {
    list(client, Some(namespace), &labels.to_string()).await.unwrap_or_default()
}
