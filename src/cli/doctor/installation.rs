//! What is installed: the webhooks of tolerarch, the namespaces that there are, and the Pods that serve.

use std::path::Path;

use super::findings::Findings;
use super::objects::{
    ConfigMap, EndpointSlice, Labels, Namespace, Pod, Rule, Service, Webhook, WebhookConfiguration,
};
use crate::config::Config;
use tolerarch_kubernetes::cluster::{RequestError, UserClient};
use tolerarch_text::yaml::{self, Copies, Dialect};

pub(super) const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

/// The admin port, where nothing says otherwise.
const ADMIN: u16 = 8080;

/// One webhook of ours, with the configuration that it stands in.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) configuration: &'a WebhookConfiguration,
    pub(super) webhook: &'a Webhook,
}

impl Entry<'_> {
    /// As people see it in the API server's log.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.configuration.metadata.name, self.webhook.name)
    }

    /// Whether both stand in the same configuration, as the entries of one installation do.
    pub(super) fn belongs_with(&self, other: Entry<'_>) -> bool {
        self.configuration.metadata.name == other.configuration.metadata.name
    }

    /// The profile whose path it calls.
    pub(super) fn profile(&self) -> Option<String> {
        let config = &self.webhook.client_config;
        let path = match (&config.service, &config.url) {
            (Some(service), _) => service.path.clone()?,
            (None, Some(url)) => url::Url::parse(url).ok()?.path().to_owned(),
            (None, None) => return None,
        };
        path.strip_prefix("/mutate/").filter(|profile| !profile.is_empty()).map(ToOwned::to_owned)
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

/// Ours of a configuration.
pub(super) fn entries(configuration: &WebhookConfiguration) -> impl Iterator<Item = Entry<'_>> {
    let ours = configuration.webhooks.iter().filter(|webhook| is_ours(webhook));
    ours.map(move |webhook| Entry { configuration, webhook })
}

/// One for each Service that is called: profiles are entries of one installation.
pub(super) fn by_service<'a>(entries: &[Entry<'a>]) -> Vec<Entry<'a>> {
    let mut first: Vec<Entry<'a>> = Vec::new();
    for &entry in entries {
        let called = |entry: &Entry<'_>| {
            let service = entry.webhook.client_config.service.as_ref();
            service.map(|service| (service.namespace.clone(), service.name.clone(), service.port()))
        };
        if !first.iter().any(|known| called(known) == called(&entry)) {
            first.push(entry);
        }
    }
    first
}

/// Whether a webhook is one of tolerarch: they are named below its domain.
pub(super) fn is_ours(webhook: &Webhook) -> bool {
    webhook.name.ends_with(".tolerarch.io")
}

/// The namespaces, or the one that was asked for.
pub(super) async fn namespaces(
    client: &UserClient,
    only: Option<&str>,
    findings: &mut Findings,
) -> Vec<Namespace> {
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

/// What serves a webhook.
#[derive(Default)]
pub(super) struct Backend {
    pub(super) namespace: String,
    pub(super) pods: Vec<Pod>,
    /// Where it tells its metrics, by what people call it: through the API server as a proxy.
    pub(super) metrics: Vec<(String, String)>,
}

impl Backend {
    /// The Service of a webhook with what is behind it.
    pub(super) async fn of(client: &UserClient, entry: Entry<'_>, findings: &mut Findings) -> Self {
        let Some(service) = &entry.webhook.client_config.service else { return Self::default() };
        let (name, namespace, port) = (&service.name, &service.namespace, service.port());
        let called = format!("Service {namespace}/{name}");
        let path = format!("/api/v1/namespaces/{namespace}/services/{name}");
        let spec = match client.get::<Service>(&path).await {
            Ok(found) => found.spec,
            Err(error) if error.is_missing() => {
                findings.failed(
                    "service",
                    format!("{} calls {called}, which does not exist", entry.name()),
                    format!(
                        "name the Service of tolerarch in the clientConfig of {}, or install it",
                        entry.name()
                    ),
                );
                return Self::default();
            }
            Err(error) => {
                findings.unread("service", &called, &error);
                return Self::default();
            }
        };
        let ports: Vec<String> = spec.ports.iter().map(|known| known.port.to_string()).collect();
        if spec.ports.iter().any(|known| known.port == port) {
            findings.ok("service", format!("{called} has port {port}"));
        } else {
            findings.failed(
                "service",
                format!(
                    "{} calls port {port} of {called}, which has no such port, only {}",
                    entry.name(),
                    ports.join(", ")
                ),
                "set clientConfig.service.port to the port of the Service that leads to the webhook, 443 in the chart",
            );
        }
        let path = format!(
            "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D{name}"
        );
        match client.list::<EndpointSlice>(&path).await {
            Ok(slices) => match slices.iter().map(EndpointSlice::ready).sum::<usize>() {
                0 => findings.failed(
                    "endpoints",
                    format!("{called} has no endpoint that is ready: every Pod is admitted undecided"),
                    format!(
                        "find out why its Pods are not ready: kubectl -n {namespace} describe pods -l {}",
                        selector(&spec.selector)
                    ),
                ),
                1 => findings.ok("endpoints", "1 endpoint is ready"),
                ready => findings.ok("endpoints", format!("{ready} endpoints are ready")),
            },
            Err(error) => findings.unread("endpoints", "the EndpointSlices", &error),
        }
        // Without a selector its Pods are not known.
        if spec.selector.is_empty() {
            let path = format!("/api/v1/namespaces/{namespace}/services/http:{name}:{ADMIN}/proxy/metrics");
            let shown = spec.ports.iter().any(|known| known.port == ADMIN);
            let metrics = shown.then_some((called, path)).into_iter().collect();
            return Self { namespace: namespace.clone(), pods: Vec::new(), metrics };
        }
        let query: String =
            url::form_urlencoded::byte_serialize(selector(&spec.selector).as_bytes()).collect();
        let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector={query}");
        let pods: Vec<Pod> = client.list(&path).await.unwrap_or_else(|error| {
            findings.unread("version", "the Pods of tolerarch", &error);
            Vec::new()
        });
        let metrics = pods.iter().map(|pod| {
            let name = &pod.metadata.name;
            let ports = pod.spec.containers.iter().flat_map(|container| &container.ports);
            let admin = ports.filter(|port| port.name == "admin").map(|port| port.container_port).next();
            let port = admin.unwrap_or(ADMIN);
            let path = format!("/api/v1/namespaces/{namespace}/pods/http:{name}:{port}/proxy/metrics");
            (format!("Pod {name}"), path)
        });
        Self { namespace: namespace.clone(), metrics: metrics.collect(), pods }
    }
}

impl Backend {
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

fn selector(labels: &Labels) -> String {
    let all: Vec<String> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    all.join(",")
}

/// The configuration that the Pods run with.
pub(super) struct Settings {
    pub(super) config: Config,
    /// The names in `profiles`.
    pub(super) profiles: Vec<String>,
}

impl Settings {
    /// From the file, if one is named; otherwise from the ConfigMap that is mounted.
    pub(super) async fn read(
        client: &UserClient,
        backend: &Backend,
        file: Option<&Path>,
        findings: &mut Findings,
    ) -> Option<Self> {
        let (source, text) = match file {
            Some(file) => match std::fs::read_to_string(file) {
                Ok(text) => (file.display().to_string(), text),
                Err(error) => {
                    findings.unknown("configuration", format!("{} cannot be read: {error}", file.display()));
                    return None;
                }
            },
            None => mounted(client, backend, findings).await?,
        };
        match Config::parse(&text) {
            Ok(config) => {
                findings.ok("configuration", format!("{source} is valid"));
                Some(Self { config, profiles: profiles(&text) })
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
}

/// The ConfigMap of the first Pod that has one, and its text.
async fn mounted(
    client: &UserClient,
    backend: &Backend,
    findings: &mut Findings,
) -> Option<(String, String)> {
    let volumes = backend.pods.iter().flat_map(|pod| &pod.spec.volumes);
    let name = volumes.filter(|volume| volume.name == "config").find_map(|volume| volume.config_map.as_ref());
    let Some(name) = name.map(|reference| &reference.name) else {
        findings
            .unknown("configuration", "no Pod shows which ConfigMap it uses; name the file with --config");
        return None;
    };
    let source = format!("ConfigMap {}/{name}", backend.namespace);
    let path = format!("/api/v1/namespaces/{}/configmaps/{name}", backend.namespace);
    match client.get::<ConfigMap>(&path).await {
        Ok(ConfigMap { mut data }) => {
            if let Some(text) = data.remove("config.yaml") {
                return Some((source, text));
            }
            findings.unknown("configuration", format!("{source} has no config.yaml"));
        }
        Err(error) => findings.unread("configuration", &source, &error),
    }
    None
}

fn profiles(text: &str) -> Vec<String> {
    let documents = yaml::read(text, Dialect::Text, &mut Copies::default()).unwrap_or_default();
    let value = documents.first().map(yaml::Node::value).unwrap_or_default();
    value["profiles"].as_object().into_iter().flat_map(|profiles| profiles.keys().cloned()).collect()
}
