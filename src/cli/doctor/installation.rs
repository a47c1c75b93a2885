//! What is installed: the webhooks of tolerarch, the namespaces that there are, and the Pods that serve.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::Value;

use super::findings::Exam;
use super::objects::{Labels, Namespace, Pod, Rule, Webhook, WebhookConfiguration};
use super::replicas;
use crate::cli::configured::Found;
use crate::cli::kubernetes::items;
use crate::config::Config;
use tolerarch_kubernetes::cluster::{RequestError, UserClient};

pub(super) const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

/// The admin port, where nothing says otherwise.
const ADMIN: u16 = 8080;

/// One webhook of ours, with the configuration that it stands in.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) configuration: &'a WebhookConfiguration,
    pub(super) webhook: &'a Webhook,
}

impl<'a> Entry<'a> {
    /// As people see it in the API server's log.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.configuration.metadata.name, self.webhook.name)
    }

    /// Whether both stand in the same configuration, as the entries of one installation do.
    pub(super) fn belongs_with(&self, other: Entry<'_>) -> bool {
        self.configuration.metadata.name == other.configuration.metadata.name
    }

    pub(super) fn path(&self) -> Option<String> {
        let config = &self.webhook.client_config;
        match (&config.service, &config.url) {
            (Some(service), _) => service.path.clone(),
            (None, Some(url)) => Some(url::Url::parse(url).ok()?.path().to_owned()),
            (None, None) => None,
        }
    }

    pub(super) fn profile(&self) -> Option<String> {
        self.path()?.strip_prefix("/mutate/").filter(|profile| !profile.is_empty()).map(ToOwned::to_owned)
    }

    /// The Service that it calls: namespace, name and port.
    pub(super) fn service(&self) -> Option<(&'a str, &'a str, u16)> {
        let service = self.webhook.client_config.service.as_ref()?;
        Some((&service.namespace, &service.name, service.port()))
    }

    /// Whether it is not only there for DaemonSets.
    pub(super) fn is_for_pods(&self) -> bool {
        let rules = &self.webhook.rules;
        rules.iter().any(Rule::has_pods) || !rules.iter().any(Rule::has_daemon_sets)
    }

    pub(super) fn selects(&self, namespace: &Namespace) -> bool {
        self.webhook.namespace_selector.matches(&namespace.metadata.labels)
    }
}

pub(super) fn entries(configuration: &WebhookConfiguration) -> impl Iterator<Item = Entry<'_>> {
    let ours = configuration.webhooks.iter().filter(|webhook| is_ours(webhook));
    ours.map(move |webhook| Entry { configuration, webhook })
}

/// One for each Service that is called: profiles are entries of one installation.
pub(super) fn by_service<'a>(entries: &[Entry<'a>]) -> Vec<Entry<'a>> {
    let mut seen = HashSet::new();
    entries.iter().filter(|entry| seen.insert(entry.service())).copied().collect()
}

/// Whether a webhook is one of tolerarch: they are named below its domain.
pub(super) fn is_ours(webhook: &Webhook) -> bool {
    webhook.name.ends_with(".tolerarch.io")
}

pub(super) async fn namespaces(exam: &mut Exam<'_>) -> Vec<Namespace> {
    let Exam { client, only, findings, .. } = exam;
    let read = match only {
        Some(name) => client.get(&format!("/api/v1/namespaces/{name}")).await.map(|one| vec![one]),
        None => client.list("/api/v1/namespaces").await,
    };
    read.unwrap_or_else(|error| {
        let hint = if only.is_none() { "; name one with -n" } else { "" };
        findings.unknown("scope", format!("the namespaces cannot be read: {error}{hint}"));
        Vec::new()
    })
}

#[derive(Default)]
pub(super) struct Backend {
    pub(super) namespace: String,
    pub(super) pods: Vec<Pod>,
    /// The admin port of each that has started, by what people call it: through the API server as a proxy.
    pub(super) admin: Vec<(String, String)>,
}

impl Backend {
    /// The Service of a webhook with what is behind it.
    pub(super) async fn of(exam: &mut Exam<'_>, entry: Entry<'_>) -> Self {
        let Exam { client, findings, .. } = exam;
        let Some((namespace, name, port)) = entry.service() else { return Self::default() };
        let called = format!("Service {namespace}/{name}");
        let path = format!("/api/v1/namespaces/{namespace}/services/{name}");
        let spec = match client.get::<Value>(&path).await {
            Ok(mut found) => found["spec"].take(),
            Err(error) if error.is_missing() => {
                let entry = entry.name();
                findings.failed(
                    "service",
                    format!("{entry} calls {called}, which does not exist"),
                    format!("name the Service of tolerarch in the clientConfig of {entry}, or install it"),
                );
                return Self::default();
            }
            Err(error) => {
                findings.unread("service", &called, &error);
                return Self::default();
            }
        };
        let ports: Vec<String> = items(&spec["ports"]).map(|known| known["port"].to_string()).collect();
        if ports.contains(&port.to_string()) {
            findings.ok("service", format!("{called} has port {port}"));
        } else {
            let (entry, ports) = (entry.name(), ports.join(", "));
            findings.failed(
                "service",
                format!("{entry} calls port {port} of {called}, which has no such port, only {ports}"),
                "set clientConfig.service.port to the port of the Service that leads to the webhook, 443 in the chart",
            );
        }
        let selector = Labels::deserialize(&spec["selector"]).unwrap_or_default();
        let pods = replicas::read(exam, &called, namespace, &selector).await;
        let list: Vec<String> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
        check_endpoints(exam, entry, &list.join(",")).await;
        let admin = |kind: &str, name: &str, port: u16| {
            format!("/api/v1/namespaces/{namespace}/{kind}/http:{name}:{port}/proxy")
        };
        // Without a selector its Pods are not known.
        let admin = if selector.is_empty() {
            let is_shown = ports.contains(&ADMIN.to_string());
            is_shown.then(|| (called, admin("services", name, ADMIN))).into_iter().collect()
        } else {
            let started = pods.iter().filter(|pod| pod.trouble().is_none());
            let admin = started.map(|pod| {
                let (name, port) = (&pod.metadata.name, pod.admin().map_or(ADMIN, |(_, port)| port));
                (format!("Pod {name}"), admin("pods", name, port))
            });
            admin.collect()
        };
        Self { namespace: namespace.to_owned(), pods, admin }
    }

    /// A Pod of another process of this installation; none where that is not installed.
    pub(super) async fn component(
        &self,
        client: &UserClient,
        component: &str,
    ) -> Result<Option<Pod>, RequestError> {
        let namespace = &*self.namespace;
        let path = format!(
            "/api/v1/namespaces/{namespace}/pods?labelSelector=app.kubernetes.io%2Fcomponent%3D{component}"
        );
        let pods: Vec<Pod> = client.list(&path).await?;
        // Others may have one there, too.
        let image = |pod: &Pod| pod.spec.containers.first().map(|container| container.image.clone());
        let is_ours = |pod: &Pod| {
            pod.metadata.labels.get("app.kubernetes.io/component").is_some_and(|own| own == component)
                && self.pods.iter().any(|own| image(own) == image(pod))
        };
        Ok(pods.into_iter().find(is_ours))
    }
}

async fn check_endpoints(exam: &mut Exam<'_>, entry: Entry<'_>, selector: &str) {
    let Exam { client, findings, .. } = exam;
    let Some((namespace, name, _)) = entry.service() else { return };
    let path = format!(
        "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D{name}"
    );
    match client.list::<Value>(&path).await {
        Ok(slices) => match slices.iter().map(ready).sum::<usize>() {
            0 => findings.failed(
                "endpoints",
                format!("Service {namespace}/{name} has no endpoint that is ready: every Pod is admitted undecided"),
                format!("find out why its Pods are not ready: kubectl -n {namespace} describe pods -l {selector}"),
            ),
            1 => findings.ok("endpoints", "1 endpoint is ready"),
            ready => findings.ok("endpoints", format!("{ready} endpoints are ready")),
        },
        Err(error) => findings.unread("endpoints", "the EndpointSlices", &error),
    }
}

/// How many endpoints of a slice are ready. An unknown readiness counts as ready, as in Kubernetes.
fn ready(slice: &Value) -> usize {
    items(&slice["endpoints"]).filter(|endpoint| endpoint["conditions"]["ready"] != false).count()
}

/// The configuration that the Pods run with: from the file, if one is named; otherwise from the ConfigMap that is mounted.
pub(super) async fn configuration(exam: &mut Exam<'_>, backend: &Backend) -> Option<Config> {
    let Exam { client, config, findings, .. } = exam;
    let read = match config {
        Some(file) => {
            let source = file.display().to_string();
            let text =
                std::fs::read_to_string(file).map_err(|error| format!("{source} cannot be read: {error}"));
            text.map(|text| (source, text))
        }
        None => mounted(client, &backend.namespace, &backend.pods).await,
    };
    let (source, text) = read.map_err(|message| findings.unknown("configuration", message)).ok()?;
    match Config::parse(&text) {
        Ok(config) => {
            findings.ok("configuration", format!("{source} is valid"));
            Some(config)
        }
        Err(faults) => {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            findings.failed(
                "configuration",
                format!("{source} is not valid: {}", faults.join("; ")),
                "correct it: Pods that run keep the last valid one, new ones do not start",
            );
            None
        }
    }
}

/// The ConfigMap of the first Pod that has one, and its text; why there is none.
async fn mounted(client: &UserClient, namespace: &str, pods: &[Pod]) -> Found {
    let mut volumes = pods.iter().flat_map(|pod| &pod.spec.volumes);
    let name = volumes
        .find_map(|volume| volume["configMap"]["name"].as_str().filter(|_| volume["name"] == "config"));
    let Some(name) = name else {
        return Err("no Pod shows which ConfigMap it uses; name the file with --config".to_owned());
    };
    let source = format!("ConfigMap {namespace}/{name}");
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
    let found =
        client.get::<Value>(&path).await.map_err(|error| format!("{source} cannot be read: {error}"))?;
    match found["data"]["config.yaml"].as_str() {
        Some(text) => Ok((source, text.to_owned())),
        None => Err(format!("{source} has no config.yaml")),
    }
}

/// The configuration of the first installation.
pub(in crate::cli) async fn configured(client: &UserClient) -> Found {
    let all = client.list::<WebhookConfiguration>(WEBHOOKS).await;
    let all = all.map_err(|error| format!("the MutatingWebhookConfigurations cannot be read: {error}"))?;
    let ours: Vec<Entry<'_>> = all.iter().flat_map(entries).filter(Entry::is_for_pods).collect();
    let installed = by_service(&ours);
    let entry = installed.first().ok_or("the cluster has no webhook of tolerarch")?;
    let (namespace, service, _) =
        entry.service().ok_or("its webhook calls a URL, so its Pods are not known")?;
    let path = format!("/api/v1/namespaces/{namespace}/services/{service}");
    let pods = async {
        let service: Value = client.get(&path).await?;
        let selector = Labels::deserialize(&service["spec"]["selector"]).unwrap_or_default();
        replicas::list(client, namespace, &selector).await
    };
    let unread = |error| format!("the Pods of Service {namespace}/{service} cannot be read: {error}");
    let pods = pods.await.map_err(unread)?;
    let (mut source, text) = mounted(client, namespace, &pods).await?;
    if installed.len() > 1 {
        source += &format!(", the first of {} installations", installed.len());
    }
    Ok((source, text))
}
