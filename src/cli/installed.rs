//! Installation of tolerarch in a cluster: its webhooks, the Pods behind them, and their configuration. Read with the
//! user's own rights.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, PodSpec, Service};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::core::Selector;

use super::kubernetes::{get, list, name_of};
use crate::config::Sources;
use tolerarch_core::pod::{MODE_KEY, PROFILE_KEY};
use tolerarch_kubernetes::cluster::{RequestError, Scope, UserClient, Webhook};
use tolerarch_support::environment::Environment;

/// Time until all Pods have a changed ConfigMap: the kubelet's sync period (60 s), the age of its cache, and a margin.
const ARRIVAL: SignedDuration = SignedDuration::from_secs(120);

/// Configuration of an installation, or of a file that replaces it.
#[derive(Default)]
pub(super) struct Installed {
    pub(super) namespace: String,
    /// Name of the ConfigMap or file, for messages.
    pub(super) source: String,
    pub(super) text: String,
    /// Environment of the Pods, which overrides the text.
    pub(super) environment: Environment,
    /// Note that replicas may still use an earlier text.
    pub(super) change: Option<String>,
    /// Pods that are reviewed; none if only the configuration was read.
    pub(super) reviewed: Scope,
    /// When the webhook was created, in seconds since 1970; `None` if unknown.
    pub(super) since: Option<i64>,
}

/// Reason why the configuration of an installation is unknown.
#[derive(Debug)]
pub(super) enum Unconfigured {
    /// Nothing is installed that has a configuration.
    Absent(String),
    /// There may be a configuration, but it or an object that leads to it cannot be read.
    Unread(String),
}

impl Unconfigured {
    /// Makes the reason from an object that cannot be read.
    fn of(what: &str, error: &RequestError) -> Self {
        let why = format!("{what} cannot be read: {error}");
        if error.is_missing() {
            Self::Absent(why)
        } else {
            Self::Unread(why)
        }
    }

    fn absent(why: impl Into<String>) -> Self {
        Self::Absent(why.into())
    }
}

impl Installed {
    /// Reads the configuration of the first installation.
    pub(super) async fn read(client: &UserClient) -> Result<Self, Unconfigured> {
        let configurations = "the MutatingWebhookConfigurations";
        let mut webhooks = webhooks(client)
            .await
            .map_err(|error| Unconfigured::of(configurations, &error))?;
        webhooks.retain(|webhook| webhook.is_of_tolerarch() && webhook.is_for_pods());
        let Some(entry) = webhooks.first() else {
            return Err(Unconfigured::absent(
                "the cluster has no webhook of tolerarch",
            ));
        };
        let Some((namespace, service, _)) = entry.service() else {
            return Err(Unconfigured::absent(
                "its webhook calls a URL, so its Pods are unknown",
            ));
        };
        let pods = format!("the Pods of Service {namespace}/{service}");
        let workload = Workload::behind(client, namespace, service)
            .await
            .map_err(|error| Unconfigured::of(&pods, &error))?;
        let mut installed = Self::mounted(client, namespace, &workload).await?;
        let services: BTreeSet<_> = webhooks.iter().map(|entry| entry.service()).collect();
        if services.len() > 1 {
            installed.source += &format!(", the first of {} installations", services.len());
        }
        installed.since = webhooks.iter().filter_map(|entry| entry.created).min();
        installed.reviewed = Scope::of(webhooks);
        Ok(installed)
    }

    /// Reads the ConfigMap of the first Pod that mounts one; fails with the reason why there is none.
    pub(super) async fn mounted(
        client: &UserClient,
        namespace: &str,
        workload: &Workload,
    ) -> Result<Self, Unconfigured> {
        let mut mounting = workload
            .specs()
            .filter_map(|spec| Some((spec, mount(spec)?)));
        let Some((spec, name)) = mounting.next() else {
            return Err(match &workload.unread {
                Some(error) => {
                    Unconfigured::of(&format!("the Deployments of namespace {namespace}"), error)
                }
                None => Unconfigured::absent(
                    "no Pod mounts a ConfigMap as its configuration; name the file with --config",
                ),
            });
        };
        let mut source = format!("ConfigMap {namespace}/{name}");
        let map = get::<ConfigMap>(client, Some(namespace), name)
            .await
            .map_err(|error| Unconfigured::of(&source, &error))?;
        let times = map.managed_fields().iter();
        let changed = times
            .filter_map(|fields| Some(fields.time.as_ref()?.0))
            .max();
        let Some(text) = map.data.and_then(|mut data| data.remove("config.yaml")) else {
            return Err(Unconfigured::absent(format!("{source} has no config.yaml")));
        };
        let environment = environment(spec);
        if environment != Environment::default() {
            source += " with the environment of its Pods";
        }
        let change = changed.and_then(|changed| recent_change(&source, changed, &workload.pods));
        Ok(Self {
            namespace: namespace.to_owned(),
            source,
            text,
            environment,
            change,
            reviewed: Scope::default(),
            since: None,
        })
    }
}

/// Returns the name of the ConfigMap that a Pod mounts as its configuration.
fn mount(spec: &PodSpec) -> Option<&str> {
    let mut volumes = spec.volumes.iter().flatten();
    let volume = volumes.find(|volume| volume.name == "config")?;
    Some(&volume.config_map.as_ref()?.name)
}

/// Returns the variables of a Pod's first container that set keys of the configuration.
fn environment(spec: &PodSpec) -> Environment {
    let Some(first) = spec.containers.first() else {
        return Environment::default();
    };
    let variables = first.env.iter().flatten();
    let values = variables.filter_map(|variable| Some((&variable.name, variable.value.as_ref()?)));
    values
        .filter(|(name, _)| name.starts_with(Sources::PREFIX))
        .collect()
}

/// Lists the webhooks of the cluster.
pub(super) async fn webhooks(client: &UserClient) -> Result<Vec<Webhook>, RequestError> {
    let configurations = list(client, None, "").await?.into_iter();
    Ok(configurations.flat_map(Webhook::all_of).collect())
}

/// Returns the labels of a namespace that look like settings of tolerarch, but do not change whether and how the webhooks
/// are called for its Pods.
pub(super) fn ignored_labels<'a>(
    called: &Scope,
    labels: &'a BTreeMap<String, String>,
) -> Vec<(&'static str, &'a str)> {
    let mut ignored = Vec::new();
    for key in [MODE_KEY, PROFILE_KEY] {
        let Some(value) = labels.get(key) else {
            continue;
        };
        // A custom selector may ignore `off`. The check of the scope shows that the namespace is selected.
        let opts_out = key == MODE_KEY && value == "off";
        if !opts_out && called.ignores(labels, key) {
            ignored.push((key, value.as_str()));
        }
    }
    ignored
}

/// Pods of a process, or the Deployments that create them if there is no Pod yet.
#[derive(Default)]
pub(super) struct Workload {
    /// Pods that run or will run. Others keep their labels until they are deleted, and are left out.
    pub(super) pods: Vec<Pod>,
    deployments: Vec<Deployment>,
    /// Reason why the Deployments are unknown.
    pub(super) unread: Option<RequestError>,
}

impl Workload {
    /// Reads the Pods behind a Service.
    async fn behind(
        client: &UserClient,
        namespace: &str,
        service: &str,
    ) -> Result<Self, RequestError> {
        let service = get::<Service>(client, Some(namespace), service).await?;
        let labels = service.spec.unwrap_or_default().selector;
        let labels = labels.unwrap_or_default().into_iter().collect();
        Self::read(client, namespace, &labels).await
    }

    /// Reads the Pods or Deployments that have these labels; nothing if there is no label. In the manifests, Deployments
    /// have the labels of their Pods.
    pub(super) async fn read(
        client: &UserClient,
        namespace: &str,
        labels: &Selector,
    ) -> Result<Self, RequestError> {
        let labels = labels.to_string();
        let mut workload = Self::default();
        if labels.is_empty() {
            return Ok(workload);
        }
        workload.pods = list(client, Some(namespace), &labels).await?;
        workload.pods.retain(|pod| {
            let status = pod.status.as_ref();
            let phase = status.and_then(|status| status.phase.as_deref());
            let has_ended = matches!(phase, Some("Succeeded" | "Failed"));
            pod.metadata.deletion_timestamp.is_none() && !has_ended
        });
        if workload.pods.is_empty() {
            match list(client, Some(namespace), &labels).await {
                Ok(deployments) => workload.deployments = deployments,
                Err(error) => workload.unread = Some(error),
            }
        }
        Ok(workload)
    }

    /// Returns the specs of the Pods, or of those that the Deployments will create.
    pub(super) fn specs(&self) -> impl Iterator<Item = &PodSpec> {
        let pods = self.pods.iter().filter_map(|pod| pod.spec.as_ref());
        let deployments = self.deployments.iter();
        let templates = deployments.filter_map(|one| one.spec.as_ref()?.template.spec.as_ref());
        pods.chain(templates)
    }

    /// Returns a message that the Deployment has no Pod, and advice; `None` if no Deployment was read.
    pub(super) fn without_pods(&self, namespace: &str, replicas: u8) -> Option<(String, String)> {
        let name = name_of(self.deployments.first()?);
        let scale = format!("kubectl -n {namespace} scale deployment {name} --replicas={replicas}");
        let fix = scale + ", if it has none; otherwise its events say why";
        Some((format!("the Deployment {namespace}/{name} has no Pod"), fix))
    }
}

/// Returns a note on a change that may not have reached all Pods yet.
fn recent_change(source: &str, changed: Timestamp, pods: &[Pod]) -> Option<String> {
    let since = Timestamp::now().duration_since(changed);
    let started = |pod: &Pod| Some(pod.status.as_ref()?.start_time.as_ref()?.0);
    let mut starts = pods.iter().filter_map(started);
    // A negative age means that the clock of this machine is behind.
    if !(SignedDuration::ZERO..ARRIVAL).contains(&since) || !starts.any(|start| start < changed) {
        return None;
    }
    Some(format!(
        "{source} was changed {} s ago: replicas may still use the earlier version",
        since.as_secs()
    ))
}
