//! What is installed in a cluster, read with the user's own rights: webhooks, the Pods behind them, their configuration.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, PodSpec, Service};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::core::Selector;

use super::kubernetes::{get, list, name_of};
use crate::config::Sources;
use tolerarch_kubernetes::cluster::{RequestError, Scope, UserClient, Webhook};
use tolerarch_support::environment::Environment;

/// Time until a changed ConfigMap is in all Pods: the kubelet's sync period (60 s), the age of its cache, and a margin.
const ARRIVAL: SignedDuration = SignedDuration::from_secs(120);

/// Configuration of an installation, or of a file in its place.
#[derive(Default)]
pub(super) struct Installed {
    pub(super) namespace: String,
    /// Name of the ConfigMap or file, for the user.
    pub(super) source: String,
    pub(super) text: String,
    /// Environment of the Pods, which beats the text.
    pub(super) environment: Environment,
    /// Note that replicas may still decide by an earlier text.
    pub(super) change: Option<String>,
    /// Pods that are reviewed; none where only the configuration is read.
    pub(super) reviewed: Scope,
    /// When its webhook was created, in seconds since 1970; `None` if that is not known.
    pub(super) since: Option<i64>,
}

/// Reason why no configuration is known.
#[derive(Debug)]
pub(super) enum Unconfigured {
    /// Nothing is installed that has one.
    Absent(String),
    /// There may be one, and something on the way to it cannot be read.
    Unread(String),
}

impl Unconfigured {
    /// Makes the reason of an object that has not been read.
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
        let mut ours = webhooks(client)
            .await
            .map_err(|error| Unconfigured::of(configurations, &error))?;
        ours.retain(|entry| entry.is_ours() && entry.is_for_pods());
        let Some(entry) = ours.first() else {
            return Err(Unconfigured::absent(
                "the cluster has no webhook of tolerarch",
            ));
        };
        let Some((namespace, service, _)) = entry.service() else {
            return Err(Unconfigured::absent(
                "its webhook calls a URL, so its Pods are not known",
            ));
        };
        let pods = format!("the Pods of Service {namespace}/{service}");
        let workload = Workload::behind(client, namespace, service)
            .await
            .map_err(|error| Unconfigured::of(&pods, &error))?;
        let mut installed = Self::mounted(client, namespace, &workload).await?;
        let services: BTreeSet<_> = ours.iter().map(|entry| entry.service()).collect();
        if services.len() > 1 {
            installed.source += &format!(", the first of {} installations", services.len());
        }
        installed.since = ours.iter().filter_map(|entry| entry.created).min();
        installed.reviewed = Scope::of(ours);
        Ok(installed)
    }

    /// Reads the ConfigMap that the first Pod with one mounts; fails with the reason why there is none.
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
                    "no Pod shows which ConfigMap it uses; name the file with --config",
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
        let change = changed.and_then(|changed| on_its_way(&source, changed, &workload.pods));
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

/// Returns the name of the ConfigMap with the configuration of a Pod.
fn mount(spec: &PodSpec) -> Option<&str> {
    let mut volumes = spec.volumes.iter().flatten();
    let volume = volumes.find(|volume| volume.name == "config")?;
    Some(&volume.config_map.as_ref()?.name)
}

/// Returns the variables of a Pod's first container that set keys.
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

/// Pods of a process that serve or will, as others keep labels until deleted; without any, Deployments that make some.
#[derive(Default)]
pub(super) struct Workload {
    pub(super) pods: Vec<Pod>,
    deployments: Vec<Deployment>,
    /// Reason why the Deployments are not known.
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

    /// Reads what has these labels, which Deployments of the manifests share with their Pods; nothing without a label.
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

    /// Returns the specs of the Pods, or of those that the Deployments will make.
    pub(super) fn specs(&self) -> impl Iterator<Item = &PodSpec> {
        let pods = self.pods.iter().filter_map(|pod| pod.spec.as_ref());
        let deployments = self.deployments.iter();
        let templates = deployments.filter_map(|one| one.spec.as_ref()?.template.spec.as_ref());
        pods.chain(templates)
    }

    /// Returns a message on a Deployment without a Pod, and advice; `None` if no Deployment can be read.
    pub(super) fn without_pods(&self, namespace: &str, replicas: u8) -> Option<(String, String)> {
        let name = name_of(self.deployments.first()?);
        let scale = format!("kubectl -n {namespace} scale deployment {name} --replicas={replicas}");
        let fix = scale + ", if it has none; otherwise its events say why";
        Some((format!("the Deployment {namespace}/{name} has no Pod"), fix))
    }
}

/// Returns a note on a change that kubelets may not have brought to all Pods yet.
fn on_its_way(source: &str, changed: Timestamp, pods: &[Pod]) -> Option<String> {
    let since = Timestamp::now().duration_since(changed);
    let started = |pod: &Pod| Some(pod.status.as_ref()?.start_time.as_ref()?.0);
    let mut starts = pods.iter().filter_map(started);
    // Where the clock here is behind, nothing is said.
    if !(SignedDuration::ZERO..ARRIVAL).contains(&since) || !starts.any(|start| start < changed) {
        return None;
    }
    Some(format!(
        "{source} was changed {} s ago: replicas may still decide by what it was",
        since.as_secs()
    ))
}
