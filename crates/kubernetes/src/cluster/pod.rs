//! A Pod as the API server stores it, from a list or a watch: what a decision takes of it, and what became of it.

use std::collections::HashMap;
use std::sync::Arc;

use kube::api::ObjectMeta;
use serde::de::{Deserialize, Deserializer, Error};
use serde_json::value::RawValue;

use super::metadata::{first, names_and_labels, or_default, resource};
use super::quantity::Quantity;
use tolerarch_core::pod::Pod;

/// Bytes of an image's name; none that can be pulled is longer.
const IMAGE: usize = 1024;

/// A stored Pod. Clones share what a decision takes.
#[derive(Clone, Debug)]
pub struct StoredPod {
    /// Its name and labels; nothing else but what identifies it.
    pub metadata: ObjectMeta,
    /// Its owners, the controller among them.
    pub owners: Vec<Owner>,
    /// Where it runs, or is about to.
    pub node: Option<String>,
    /// How far it is.
    pub phase: Phase,
    /// What the scheduler says of it: `None` where it has not looked at it yet.
    pub is_scheduled: Option<bool>,
    /// Whether others make room for it on a node (preemption).
    pub is_nominated: bool,
    /// Its containers, init containers first, as far as a kubelet has told of them.
    pub containers: Vec<ContainerStatus>,
    /// What it requests of a node.
    pub requests: Requests,
    /// What a decision takes. `None` where it cannot be read within the limits on untrusted input.
    pub facts: Option<Arc<Pod<'static>>>,
}

resource!(StoredPod, NamespaceResourceScope, "", "v1", "Pod", "pods");

/// An owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Owner {
    /// Its group and version.
    pub api_version: String,
    pub kind: String,
    /// Its name, in the same namespace.
    pub name: String,
    pub uid: String,
    /// Whether it manages the object; at most one does.
    pub controller: bool,
}

/// How far a Pod is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
pub enum Phase {
    /// Not all its containers have begun.
    Pending,
    /// They have.
    Running,
    /// All have ended well.
    Succeeded,
    /// One has failed, and none runs any more.
    Failed,
    /// That is not known.
    #[default]
    #[serde(other)]
    Unknown,
}

/// What a kubelet tells of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerStatus {
    pub name: String,
    /// Its image, as the Pod names it; empty where that is not known, or too long.
    pub image: String,
    /// Why it waits, if it does.
    pub waiting: Option<Waiting>,
    /// How it ended, now or the last time.
    pub terminated: Option<Terminated>,
    /// Whether that was the last time: it has begun anew since, or is about to.
    pub is_previous: bool,
}

/// Why a container waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default)]
pub struct Waiting {
    /// In one word, such as `ErrImagePull`.
    pub reason: String,
    /// In the words of the runtime: untrusted text.
    pub message: String,
}

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Terminated {
    pub exit_code: i32,
    /// In one word, such as `Error`.
    pub reason: String,
    /// Its last words, or those of the runtime: untrusted text.
    pub message: String,
    /// When it began (RFC 3339); empty if that is not known.
    #[serde(deserialize_with = "or_default")]
    pub started_at: String,
    /// When it ended, likewise.
    #[serde(deserialize_with = "or_default")]
    pub finished_at: String,
}

/// What is requested of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default)]
pub struct Requests {
    /// Cores.
    pub cpu: Quantity,
    /// Bytes.
    pub memory: Quantity,
}

impl Requests {
    fn plus(self, other: Self) -> Self {
        Self { cpu: self.cpu + other.cpu, memory: self.memory + other.memory }
    }

    /// The larger one of each.
    fn or_more(self, other: Self) -> Self {
        Self { cpu: self.cpu.max(other.cpu), memory: self.memory.max(other.memory) }
    }
}

impl StoredPod {
    /// Where they are listed.
    pub const PATH: &'static str = "/api/v1/pods";

    /// Selects by fields those that have not ended: the others request nothing any more.
    pub const LIVE: &'static str = "status.phase!=Succeeded,status.phase!=Failed";

    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// What no other Pod has, not even one of the same name.
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Whether it is about to go.
    pub fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Its controller, if it has one.
    pub fn controller(&self) -> Option<&Owner> {
        self.owners.iter().find(|owner| owner.controller)
    }

    /// Whether the scheduler found no place for it, or may not look for one yet.
    pub fn is_waiting_for_a_node(&self) -> bool {
        self.node.is_none() && self.is_scheduled == Some(false) && !self.is_terminating()
    }

    /// Reads it from its JSON, of which nothing is built that is not needed.
    fn read(json: &str) -> Result<Self, serde_json::Error> {
        let Object { metadata, spec, status } = serde_json::from_str(json)?;
        let requests = spec.requests();
        // A status may name one container again and again.
        let named = spec.init_containers.iter().chain(&spec.containers);
        let named = named.filter(|container| container.image.len() <= IMAGE);
        let images: HashMap<&str, &str> = named.map(|own| (&*own.name, &*own.image)).collect();
        let is_scheduled = status.conditions.iter().find(|condition| condition.r#type == "PodScheduled");
        let statuses = status.init_container_statuses.into_iter().chain(status.container_statuses);
        let containers = statuses.map(|status| {
            let RawContainerStatus { name, state, last_state } = status;
            ContainerStatus {
                image: images.get(&*name).map_or_else(String::new, |&image| image.to_owned()),
                name,
                is_previous: state.terminated.is_none(),
                waiting: state.waiting,
                terminated: state.terminated.or(last_state.terminated),
            }
        });
        let containers = containers.collect();
        Ok(Self {
            metadata,
            owners: serde_json::from_str::<Owners>(json)?.metadata.owner_references,
            node: Some(spec.node_name).filter(|name| !name.is_empty()),
            phase: status.phase,
            is_scheduled: is_scheduled.map(|condition| condition.status == "True"),
            is_nominated: !status.nominated_node_name.is_empty(),
            containers,
            requests,
            facts: Pod::of_json(json).map(Arc::new),
        })
    }

    /// The same, from a value.
    #[cfg(any(test, feature = "testing"))]
    pub fn of_value(value: &serde_json::Value) -> Result<Self, serde_json::Error> {
        Self::read(&value.to_string())
    }
}

impl<'de> Deserialize<'de> for StoredPod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Read more than once: as facts, which bound what is untrusted, and as the rest.
        Self::read(<&RawValue>::deserialize(deserializer)?.get()).map_err(D::Error::custom)
    }
}

#[derive(serde::Deserialize)]
struct Object {
    #[serde(deserialize_with = "names_and_labels")]
    metadata: ObjectMeta,
    #[serde(default, deserialize_with = "or_default")]
    spec: Spec,
    #[serde(default, deserialize_with = "or_default")]
    status: Status,
}

#[derive(serde::Deserialize)]
struct Owners {
    metadata: OwnerReferences,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnerReferences {
    #[serde(default, deserialize_with = "first")]
    owner_references: Vec<Owner>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    node_name: String,
    #[serde(deserialize_with = "first")]
    containers: Vec<Container>,
    #[serde(deserialize_with = "first")]
    init_containers: Vec<Container>,
    #[serde(deserialize_with = "or_default")]
    overhead: Requests,
    /// Those of the Pod as a whole (KEP-2837), which replace what its containers request.
    #[serde(deserialize_with = "or_default")]
    resources: PodResources,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Container {
    name: String,
    image: String,
    #[serde(deserialize_with = "or_default")]
    resources: Resources,
    restart_policy: String,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Resources {
    #[serde(deserialize_with = "or_default")]
    requests: Requests,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct PodResources {
    #[serde(deserialize_with = "or_default")]
    requests: PodRequests,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct PodRequests {
    cpu: Option<Quantity>,
    memory: Option<Quantity>,
}

impl Spec {
    /// As the scheduler counts (k8s.io/component-helpers `resource.PodRequests`): init containers run one after the other,
    /// beside the sidecars that began before them.
    fn requests(&self) -> Requests {
        let mut all =
            self.containers.iter().fold(Requests::default(), |all, own| all.plus(own.resources.requests));
        let (mut sidecars, mut init) = (Requests::default(), Requests::default());
        for container in &self.init_containers {
            let own = container.resources.requests;
            if container.restart_policy == "Always" {
                all = all.plus(own);
                sidecars = sidecars.plus(own);
                init = init.or_more(sidecars);
            } else {
                init = init.or_more(sidecars.plus(own));
            }
        }
        let all = all.or_more(init);
        let whole = &self.resources.requests;
        let all = Requests { cpu: whole.cpu.unwrap_or(all.cpu), memory: whole.memory.unwrap_or(all.memory) };
        all.plus(self.overhead)
    }
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    phase: Phase,
    nominated_node_name: String,
    #[serde(deserialize_with = "first")]
    conditions: Vec<Condition>,
    #[serde(deserialize_with = "first")]
    init_container_statuses: Vec<RawContainerStatus>,
    #[serde(deserialize_with = "first")]
    container_statuses: Vec<RawContainerStatus>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Condition {
    r#type: String,
    status: String,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawContainerStatus {
    name: String,
    state: State,
    last_state: State,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct State {
    waiting: Option<Waiting>,
    terminated: Option<Terminated>,
}

#[cfg(test)]
mod tests;
