//! A Pod as the API server stores it, from a list or a watch: what a decision takes of it, and what became of it.

mod plain;

use std::collections::HashMap;
use std::sync::Arc;

use kube::api::ObjectMeta;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny};
use serde_json::value::RawValue;

use self::plain::{Mount, Security, Variable};
use super::metadata::{Condition, Metadata, Owner, first, holds, or_default};
use super::quantity::Quantity;
use super::watch::Followed;
use tolerarch_core::pod::Pod;

/// Bytes of an image's name; none that can be pulled is longer.
const IMAGE: usize = 1024;

/// A stored Pod. Clones share what a decision takes.
#[derive(Clone, Debug)]
pub struct StoredPod {
    /// Its name and labels; nothing else but what identifies it.
    pub metadata: ObjectMeta,
    pub owners: Vec<Owner>,
    /// Where it runs, or is about to.
    pub node: Option<String>,
    pub phase: Phase,
    /// What the scheduler says of it: `None` where it has not looked at it yet.
    pub is_scheduled: Option<bool>,
    /// Whether others make room for it on a node (preemption).
    pub is_nominated: bool,
    /// Its containers, init containers first, as far as a kubelet has told of them.
    pub containers: Vec<ContainerStatus>,
    pub requests: Requests,
    /// What a decision takes. `None` where it cannot be read within the limits on untrusted input.
    pub facts: Option<Arc<Pod<'static>>>,
}

impl Followed for StoredPod {
    const LIST: &'static str = Self::PATH;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }
}

/// How far a Pod is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
pub enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
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
    /// What the runtime has pulled, `registry/repository@digest`; empty where that is not known, or too long.
    pub image_id: String,
    /// Whether its image alone decides which program it begins with, and how.
    pub is_plain: bool,
    pub waiting: Option<Waiting>,
    /// How it ended, now or the last time.
    pub terminated: Option<Terminated>,
    /// Whether that was the last time: it has begun anew since, or is about to.
    pub is_previous: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default)]
pub struct Waiting {
    /// In one word, such as `ErrImagePull`.
    pub reason: String,
    /// In the words of the runtime: untrusted text.
    pub message: String,
}

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

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

    /// Whether it has ended: it requests nothing any more.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    pub fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    pub fn controller(&self) -> Option<&Owner> {
        self.owners.iter().find(|owner| owner.controller)
    }

    /// Whether the scheduler found no place for it, or may not look for one yet.
    pub fn is_waiting_for_a_node(&self) -> bool {
        self.node.is_none() && self.is_scheduled == Some(false) && !self.is_terminating()
    }

    /// Reads it from its JSON, of which nothing is built that is not needed.
    fn read(json: &str) -> Result<Self, serde_json::Error> {
        let Object { mut metadata, spec, status } = serde_json::from_str(json)?;
        let requests = spec.requests();
        // A status may name one container again and again.
        let named = spec.init_containers.iter().chain(&spec.containers);
        let named = named.filter(|container| container.image.len() <= IMAGE);
        let named: HashMap<&str, &Container> = named.map(|own| (&*own.name, own)).collect();
        let is_scheduled = holds(&status.conditions, "PodScheduled");
        let statuses = status.init_container_statuses.into_iter().chain(status.container_statuses);
        let containers: Vec<_> = statuses
            .map(|status| {
                let RawContainerStatus { name, image_id, state, last_state } = status;
                let own = named.get(&*name);
                ContainerStatus {
                    image: own.map_or_else(String::new, |own| own.image.clone()),
                    image_id: Some(image_id).filter(|id| id.len() <= IMAGE).unwrap_or_default(),
                    is_plain: spec.is_plain() && own.is_some_and(|own| own.is_plain()),
                    name,
                    is_previous: state.terminated.is_none(),
                    waiting: state.waiting,
                    terminated: state.terminated.or(last_state.terminated),
                }
            })
            .collect();
        Ok(Self {
            owners: std::mem::take(&mut metadata.owner_references),
            metadata: metadata.into(),
            node: Some(spec.node_name).filter(|name| !name.is_empty()),
            phase: status.phase,
            is_scheduled,
            is_nominated: !status.nominated_node_name.is_empty(),
            containers,
            requests,
            facts: Pod::of_json(json).map(Arc::new),
        })
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
    metadata: Metadata,
    #[serde(default, deserialize_with = "or_default")]
    spec: Spec,
    #[serde(default, deserialize_with = "or_default")]
    status: Status,
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
    overhead: Given,
    /// Those of the Pod as a whole (KEP-2837), which replace what its containers request.
    #[serde(deserialize_with = "or_default")]
    resources: Resources,
    #[serde(deserialize_with = "or_default")]
    runtime_class_name: String,
    #[serde(deserialize_with = "or_default")]
    security_context: Security,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Container {
    name: String,
    image: String,
    #[serde(deserialize_with = "or_default")]
    resources: Resources,
    restart_policy: String,
    #[serde(deserialize_with = "or_default")]
    command: Vec<IgnoredAny>,
    #[serde(deserialize_with = "or_default")]
    args: Vec<IgnoredAny>,
    working_dir: String,
    #[serde(deserialize_with = "first")]
    env: Vec<Variable>,
    #[serde(deserialize_with = "or_default")]
    env_from: Vec<IgnoredAny>,
    #[serde(deserialize_with = "first")]
    volume_mounts: Vec<Mount>,
    #[serde(deserialize_with = "or_default")]
    volume_devices: Vec<IgnoredAny>,
    #[serde(deserialize_with = "or_default")]
    security_context: Security,
}

impl Container {
    /// Whether nothing of the Pod chooses, finds, covers or filters its first program.
    fn is_plain(&self) -> bool {
        self.command.is_empty()
            && self.args.is_empty()
            && self.working_dir.is_empty()
            && self.env_from.is_empty()
            && self.volume_devices.is_empty()
            && !self.env.iter().any(|variable| variable.name == "PATH")
            && self.volume_mounts.iter().all(Mount::is_of_tokens)
            && self.security_context.is_plain()
    }
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Resources {
    #[serde(deserialize_with = "or_default")]
    requests: Given,
}

/// Requests, as far as they are written.
#[derive(Clone, Copy, Default, serde::Deserialize)]
#[serde(default)]
struct Given {
    cpu: Option<Quantity>,
    memory: Option<Quantity>,
}

impl Given {
    fn or(self, other: Requests) -> Requests {
        Requests { cpu: self.cpu.unwrap_or(other.cpu), memory: self.memory.unwrap_or(other.memory) }
    }
}

impl Spec {
    /// Whether its containers are run as usual.
    fn is_plain(&self) -> bool {
        self.runtime_class_name.is_empty() && self.security_context.is_plain()
    }

    /// As k8s.io/component-helpers `resource.PodRequests`: init containers one after the other, beside earlier sidecars.
    fn requests(&self) -> Requests {
        let none = Requests::default();
        let of = |container: &Container| container.resources.requests.or(none);
        let mut all = self.containers.iter().fold(none, |all, own| all.plus(of(own)));
        let (mut sidecars, mut init) = (none, none);
        for container in &self.init_containers {
            let own = of(container);
            if container.restart_policy == "Always" {
                all = all.plus(own);
                sidecars = sidecars.plus(own);
                init = init.or_more(sidecars);
            } else {
                init = init.or_more(sidecars.plus(own));
            }
        }
        self.resources.requests.or(all.or_more(init)).plus(self.overhead.or(none))
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
#[serde(default, rename_all = "camelCase")]
struct RawContainerStatus {
    name: String,
    #[serde(rename = "imageID")]
    image_id: String,
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
