//! Objects of an installation: the namespaces, the Service of a webhook, and the Pods behind it with their faults.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::ResourceExt;
use kube::core::Selector;

use super::findings::{Exam, Findings, Status, SubjectFindings};
use crate::cli::installed::Workload;
use crate::cli::kubernetes::{get, list, name_of};
use crate::cli::output::count;
use crate::rights::Process;
use tolerarch_kubernetes::cluster::Webhook;

/// Advice for a Pod that no node has room for.
const NO_ROOM_FIX: &str = "free resources, or let the Pod run on more nodes: nodeSelector, affinity and tolerations of the chart";

/// Reads the namespaces. That of the user's context comes first, because the user most likely has rights there.
pub(super) async fn namespaces(
    Exam {
        client,
        only,
        findings,
        ..
    }: &mut Exam<'_>,
) -> Vec<Namespace> {
    let (what, read) = match only {
        Some(name) => {
            let namespace = get(client, None, name).await;
            ("the namespace", namespace.map(|one| vec![one]))
        }
        None => {
            let all = list(client, None, "").await;
            ("the namespaces (name one with -n)", all)
        }
    };
    let mut namespaces: Vec<Namespace> = findings.read("scope", what, read).unwrap_or_default();
    namespaces.sort_by_key(|namespace| {
        let name = name_of(namespace);
        (name != client.namespace, name != "default")
    });
    namespaces
}

/// Service of a webhook and the Pods behind it.
#[derive(Default)]
pub(super) struct Backend<'n> {
    /// Namespaces that the webhook selects.
    pub(super) selected: Vec<&'n Namespace>,
    pub(super) namespace: String,
    pub(super) workload: Workload,
    /// True if the Service does not exist or leads to no Pod that is ready, as far as that can be read.
    pub(super) leads_nowhere: bool,
}

impl<'n> Backend<'n> {
    /// Checks the Service of a webhook and the Pods behind it.
    pub(super) async fn of(
        exam: &mut Exam<'_>,
        entry: &Webhook,
        namespaces: &'n [Namespace],
    ) -> Self {
        let Exam {
            client, findings, ..
        } = exam;
        let is_selected = |namespace: &&Namespace| entry.selects(namespace);
        let unknown = Self {
            selected: namespaces.iter().filter(is_selected).collect(),
            ..Self::default()
        };
        let Some((namespace, name, port)) = entry.service() else {
            return unknown;
        };
        let service = format!("Service {namespace}/{name}");
        let entry = entry.name();
        let spec = match get::<Service>(client, Some(namespace), name).await {
            Ok(service) => service.spec.unwrap_or_default(),
            Err(error) if error.is_missing() => {
                report_no_service(&entry, &service, findings);
                return Self {
                    leads_nowhere: true,
                    ..unknown
                };
            }
            Err(error) => {
                findings.unknown("service", format!("{service} cannot be read: {error}"));
                return unknown;
            }
        };
        let ports = spec.ports.iter().flatten().map(|port| port.port).collect();
        let has_port = check_port(&entry, &service, port, &ports, findings);
        let labels: Selector = spec.selector.unwrap_or_default().into_iter().collect();
        let workload = Workload::read(client, namespace, &labels).await;
        let pods = format!("the Pods of {service}");
        let workload = findings.read("pods", &pods, workload);
        if let Some(workload) = &workload
            && workload.pods.is_empty()
            && !labels.selects_all()
        {
            report_no_pod(&service, namespace, workload, findings);
        }
        let workload = workload.unwrap_or_default();
        check_start(&workload.pods, findings);
        let is_ready = check_endpoints(exam, (namespace, name), &labels, &workload.pods).await;
        Self {
            namespace: namespace.to_owned(),
            workload,
            leads_nowhere: !is_ready || !has_port,
            ..unknown
        }
    }

    /// Returns the Pods of another process of this installation, and reports those that do not start. Their labels are
    /// those of the webhook's Pods, except for the component.
    pub(super) async fn process(&self, exam: &mut Exam<'_>, process: Process) -> Option<Workload> {
        let component = process.component();
        let mut labels = self.workload.pods.first()?.labels().clone();
        labels.retain(|key, _| {
            ["app.kubernetes.io/name", "app.kubernetes.io/instance"].contains(&&**key)
        });
        labels.insert(
            "app.kubernetes.io/component".to_owned(),
            component.to_owned(),
        );
        let labels = labels.into_iter().collect();
        let workload = Workload::read(exam.client, &self.namespace, &labels).await;
        let pods = format!("the Pods of tolerarch {component}");
        let workload = exam.findings.read("pods", &pods, workload)?;
        check_start(&workload.pods, &mut exam.findings);
        Some(workload)
    }
}

fn report_no_service(entry: &str, service: &str, findings: &mut Findings) {
    let message = format!("{entry} calls {service}, which does not exist");
    let fix =
        format!("name the Service of tolerarch in the clientConfig of {entry}, or install it");
    findings.failed("service", message, fix);
}

/// Checks whether a Service has the port that a webhook calls.
fn check_port(
    entry: &str,
    service: &str,
    port: i32,
    ports: &BTreeSet<i32>,
    findings: &mut Findings,
) -> bool {
    if ports.contains(&port) {
        findings.ok("service", format!("{service} has port {port}"));
        return true;
    }
    let ports = joined(ports);
    let message =
        format!("{entry} calls port {port} of {service}, which has no such port, only {ports}");
    let fix = "if the Service was changed by hand, delete it and run helm upgrade: its port is 443; otherwise correct \
        clientConfig.service.port";
    findings.failed("service", message, fix);
    false
}

fn report_no_pod(service: &str, namespace: &str, workload: &Workload, findings: &mut Findings) {
    if let Some((message, fix)) = workload.without_pods(namespace, 2) {
        return findings.failed("pods", message, fix);
    }
    let message = format!("the selector of {service} matches no Pod");
    let fix = format!(
        "compare it with the labels of the Pods (helm upgrade --force-conflicts restores the chart's), or see \
         what refuses the Pods: kubectl -n {namespace} get events"
    );
    findings.failed("pods", message, fix);
}

/// Returns the container port of this name.
pub(super) fn port_of(pod: &Pod, name: &str) -> Option<i32> {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let mut ports = containers.flat_map(|container| container.ports.iter().flatten());
    let port = ports.find(|port| port.name.as_deref() == Some(name))?;
    Some(port.container_port)
}

/// Checks the endpoints of a Service. Returns whether it leads to a Pod that is ready, as far as that can be read.
async fn check_endpoints(
    Exam {
        client, findings, ..
    }: &mut Exam<'_>,
    (namespace, name): (&str, &str),
    labels: &Selector,
    pods: &[Pod],
) -> bool {
    let slices = format!("kubernetes.io/service-name={name}");
    let slices = list::<EndpointSlice>(client, Some(namespace), &slices).await;
    let Some(slices) = findings.read("endpoints", "the EndpointSlices", slices) else {
        return true;
    };
    let endpoints = slices.iter().flat_map(|slice| &slice.endpoints);
    // An unknown readiness counts as ready, as in Kubernetes.
    let is_ready = |one: &&Endpoint| {
        let conditions = one.conditions.as_ref();
        conditions.and_then(|conditions| conditions.ready) != Some(false)
    };
    let ready = endpoints.filter(is_ready).count();
    if ready == 0 {
        findings.failed(
            "endpoints",
            format!("Service {namespace}/{name} has no endpoint that is ready: Pods are admitted undecided"),
            format!("find out why its Pods are not ready: kubectl -n {namespace} describe pods -l {labels}"),
        );
    } else {
        let endpoints = count(ready as u64, "endpoint");
        let verb = if ready == 1 { "is" } else { "are" };
        findings.ok("endpoints", format!("{endpoints} {verb} ready"));
    }
    // Without a port of this name in the Pods the right one is unknown.
    let listening = pods.iter().filter_map(|pod| port_of(pod, "webhook"));
    let listening: BTreeSet<i32> = listening.collect();
    let targets = slices.iter().flat_map(|slice| slice.ports.iter().flatten());
    let targets: BTreeSet<i32> = targets.filter_map(|port| port.port).collect();
    let Some(port) = listening.first() else {
        return ready > 0;
    };
    if targets.is_empty() || !listening.is_disjoint(&targets) {
        return ready > 0;
    }
    let targets = joined(&targets);
    let message = format!(
        "Service {namespace}/{name} leads to port {targets} of its Pods; the webhook listens at {port}"
    );
    let fix = "set its targetPort to the name of the container's port (helm upgrade --force-conflicts restores the chart's)";
    findings.failed("endpoints", message, fix);
    false
}

fn joined(ports: &BTreeSet<i32>) -> String {
    let ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
    ports.join(", ")
}

/// Returns why a Pod does not start, and advice.
fn start_fault(pod: &Pod) -> Option<(String, &'static str)> {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let status = pod.status.as_ref()?;
    let mut conditions = status.conditions.iter().flatten();
    let unscheduled = conditions.find(|one| one.type_ == "PodScheduled" && one.status == "False");
    if let Some(condition) = unscheduled {
        let why = format!("no node has room: {}", text(&condition.message));
        return Some((why, NO_ROOM_FIX));
    }
    let mut containers = [&status.init_container_statuses, &status.container_statuses]
        .into_iter()
        .flatten()
        .flatten();
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

/// Returns whether a Pod no longer waits for a node, an image or a volume, such as one with its first certificate.
pub(super) fn has_started(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let waits = status.is_some_and(|status| status.phase.as_deref() == Some("Pending"));
    !waits && start_fault(pod).is_none()
}

/// Reports the Pods that do not start. As long as another one serves, a Pod that no node has room for is no fault.
fn check_start(pods: &[Pod], findings: &mut Findings) {
    let conditions = pods
        .iter()
        .filter_map(|pod| pod.status.as_ref()?.conditions.as_ref());
    let one_serves = conditions
        .flatten()
        .any(|one| one.type_ == "Ready" && one.status == "True");
    findings.merge(pods.iter().filter_map(|pod| {
        let (why, fix) = start_fault(pod)?;
        let status = Status::failed_if(fix != NO_ROOM_FIX || !one_serves);
        let mut findings = SubjectFindings::on(name_of(pod));
        let message = |name: &str| format!("{name} cannot start: {why}");
        findings.add(status, "pods", message, fix);
        Some(findings)
    }));
}
