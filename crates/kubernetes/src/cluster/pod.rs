//! A stored Pod, from a list or a watch: the facts that a decision needs, and the Pod's status.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ContainerState, SeccompProfile};
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny};
use serde_json::value::RawValue;

use super::OwnerReference;
use super::metadata::{Condition, Metadata, first_items, has_matching_key, status_of};
use super::quantity::Quantity;
use tolerarch_core::pod::Pod;

/// Maximum bytes of an image's name. An image with a longer name cannot be pulled.
const IMAGE: usize = 1024;
/// Mount path of the tokens of service accounts in most containers.
const TOKENS: &str = "/var/run/secrets/";

/// A stored Pod. Clones share the facts.
#[derive(Clone, Debug)]
pub struct StoredPod {
    pub metadata: Metadata,
    /// Node on which the Pod runs, or is about to.
    pub node: Option<String>,
    pub phase: Phase,
    /// Set if the scheduler has found no node for the Pod, or may not search yet, and no node is nominated. A
    /// preemption nominates a node, and so do the scheduler and an autoscaler that expect the Pod there.
    pub is_waiting_for_a_node: bool,
    /// Set if the Pod ends because of an eviction, a preemption or a taint of its node.
    pub is_disrupted: bool,
    /// Status of the containers, init containers first; those that a kubelet has reported.
    pub containers: Vec<ContainerStatus>,
    pub requests: Requests,
    /// Facts for a decision. `None` if they cannot be read within the limits on untrusted input.
    pub facts: Option<Arc<Pod<'static>>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
pub enum Phase {
    Pending,
    Succeeded,
    Failed,
    #[default]
    #[serde(other)]
    Unknown,
}

/// Status of a container, reported by the kubelet. Its messages are untrusted text.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    pub name: String,
    /// Image in the Pod's specification; empty if it is unknown or too long.
    #[serde(skip)]
    pub image: String,
    /// Image that the runtime has pulled, `registry/repository@digest`; empty if it is unknown.
    #[serde(rename = "imageID")]
    pub image_id: String,
    /// Set if nothing in the Pod affects which program the container starts, and how: the image alone decides.
    #[serde(skip)]
    pub is_plain: bool,
    pub state: ContainerState,
    /// State before the last restart.
    pub last_state: ContainerState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default)]
pub struct Requests {
    /// Number of cores.
    pub cpu: Quantity,
    /// Number of bytes.
    pub memory: Quantity,
}

impl Requests {
    fn plus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            memory: self.memory + other.memory,
        }
    }

    fn or_more(self, other: Self) -> Self {
        Self {
            cpu: self.cpu.max(other.cpu),
            memory: self.memory.max(other.memory),
        }
    }
}

impl StoredPod {
    /// Field selector of Pods that have not ended: ended Pods no longer request anything.
    pub const LIVE: &'static str = "status.phase!=Succeeded,status.phase!=Failed";

    pub fn namespace(&self) -> &str {
        &self.metadata.namespace
    }

    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    pub fn uid(&self) -> &str {
        &self.metadata.uid
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    pub fn controller(&self) -> Option<&OwnerReference> {
        self.metadata.controller.as_ref()
    }

    pub(super) fn read(json: &str) -> Result<Self, serde_json::Error> {
        let Object {
            metadata,
            spec,
            status,
        } = serde_json::from_str(json)?;
        let spec = spec.unwrap_or_default();
        let status = status.unwrap_or_default();
        let requests = spec.requests();
        let mut by_name = HashMap::<&str, &Container>::new();
        for container in spec.init_containers.iter().chain(&spec.containers) {
            if container.image.len() <= IMAGE {
                by_name.insert(&container.name, container);
            }
        }
        let has_node = !spec.node_name.is_empty() || !status.nominated_node_name.is_empty();
        let is_waiting_for_a_node = !has_node
            && metadata.deletion_timestamp.is_none()
            && status_of(&status.conditions, "PodScheduled") == Some("False");
        let is_plain = !metadata.may_direct_the_node && spec.is_plain();
        let mut containers = status.init_container_statuses;
        containers.extend(status.container_statuses);
        // A status may name one container repeatedly.
        for status in &mut containers {
            if let Some(container) = by_name.get(&*status.name) {
                status.image.clone_from(&container.image);
                status.is_plain = is_plain && container.is_plain();
            }
        }
        Ok(Self {
            metadata,
            node: Some(spec.node_name).filter(|name| !name.is_empty()),
            phase: status.phase,
            is_waiting_for_a_node,
            is_disrupted: status_of(&status.conditions, "DisruptionTarget") == Some("True"),
            containers,
            requests,
            facts: Pod::of_json(json).map(Arc::new),
        })
    }
}

impl<'de> Deserialize<'de> for StoredPod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The JSON is read twice: for the facts, whose reader bounds untrusted input, and for all else.
        let json = <&RawValue>::deserialize(deserializer)?;
        Self::read(json.get()).map_err(D::Error::custom)
    }
}

#[derive(serde::Deserialize)]
struct Object {
    metadata: Metadata,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    node_name: String,
    #[serde(deserialize_with = "first_items")]
    containers: Vec<Container>,
    #[serde(deserialize_with = "first_items")]
    init_containers: Vec<Container>,
    overhead: Option<Requests>,
    /// Requests of the Pod as a whole (KEP-2837), at least those of its containers.
    resources: Option<Resources>,
    runtime_class_name: Option<String>,
    security_context: Option<Security>,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Container {
    name: String,
    image: String,
    resources: Option<Resources>,
    restart_policy: String,
    command: Option<Vec<IgnoredAny>>,
    args: Option<Vec<IgnoredAny>>,
    working_dir: String,
    #[serde(deserialize_with = "first_items")]
    env: Vec<Variable>,
    env_from: Option<Vec<IgnoredAny>>,
    #[serde(deserialize_with = "first_items")]
    volume_mounts: Vec<Mount>,
    volume_devices: Option<Vec<IgnoredAny>>,
    security_context: Option<Security>,
}

impl Container {
    /// Returns whether nothing in the container selects, finds, covers or filters its first program, and it has no
    /// devices, which may add mounts and hooks.
    fn is_plain(&self) -> bool {
        let lists = [
            &self.command,
            &self.args,
            &self.env_from,
            &self.volume_devices,
        ];
        if !lists.into_iter().flatten().all(Vec::is_empty) || !self.working_dir.is_empty() {
            return false;
        }
        if self.env.iter().any(|variable| variable.name == "PATH") {
            return false;
        }
        if let Some(resources) = &self.resources
            && (resources.has_claims || resources.has_devices)
        {
            return false;
        }
        self.volume_mounts.iter().all(Mount::is_of_tokens)
            && self.security_context.iter().all(Security::is_plain)
    }
}

#[derive(Clone, Copy, Default, serde::Deserialize)]
#[serde(default)]
struct Resources {
    requests: Option<Requests>,
    /// Set if the container uses devices by dynamic resource allocation.
    #[serde(rename = "claims", deserialize_with = "is_filled")]
    has_claims: bool,
    /// Set if the container uses extended resources: a device plug-in of the node may add mounts and devices.
    /// Kubernetes requires extended resources to be among the limits.
    #[serde(rename = "limits", deserialize_with = "has_extended_resources")]
    has_devices: bool,
}

/// Reads whether a list has items.
fn is_filled<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let items: Option<Vec<IgnoredAny>> = Option::deserialize(deserializer)?;
    Ok(items.is_some_and(|items| !items.is_empty()))
}

/// Reads whether the name of any resource has a domain. Only Kubernetes' own resources have none.
fn has_extended_resources<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    has_matching_key(deserializer, |name| name.contains('/'))
}

fn requested(resources: Option<Resources>) -> Requests {
    let requests = resources.and_then(|resources| resources.requests);
    requests.unwrap_or_default()
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Variable {
    name: String,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Mount {
    mount_path: String,
}

impl Mount {
    /// Returns whether the mount holds tokens of a service account, so that it covers no program.
    fn is_of_tokens(&self) -> bool {
        self.mount_path.starts_with(TOKENS) && !self.mount_path.contains("..")
    }
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Security {
    seccomp_profile: Option<SeccompProfile>,
}

impl Security {
    /// Returns whether no seccomp profile is a file of the node: such a profile may make a program fail in any way.
    fn is_plain(&self) -> bool {
        let profile = self.seccomp_profile.as_ref();
        profile.is_none_or(|profile| profile.type_ != "Localhost")
    }
}

impl Spec {
    fn is_plain(&self) -> bool {
        self.runtime_class_name.iter().all(String::is_empty)
            && self.security_context.iter().all(Security::is_plain)
    }

    /// Sums the requests as k8s.io/component-helpers `resource.PodRequests` does: init containers run one after the
    /// other, beside earlier sidecars.
    fn requests(&self) -> Requests {
        let mut all = Requests::default();
        for container in &self.containers {
            all = all.plus(requested(container.resources));
        }
        let mut sidecars = Requests::default();
        let mut init = Requests::default();
        for container in &self.init_containers {
            let requests = requested(container.resources);
            if container.restart_policy == "Always" {
                all = all.plus(requests);
                sidecars = sidecars.plus(requests);
                init = init.or_more(sidecars);
            } else {
                init = init.or_more(sidecars.plus(requests));
            }
        }
        let of_pod = requested(self.resources);
        let overhead = self.overhead.unwrap_or_default();
        of_pod.or_more(all).or_more(init).plus(overhead)
    }
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    phase: Phase,
    nominated_node_name: String,
    #[serde(deserialize_with = "first_items")]
    conditions: Vec<Condition>,
    #[serde(deserialize_with = "first_items")]
    init_container_statuses: Vec<ContainerStatus>,
    #[serde(deserialize_with = "first_items")]
    container_statuses: Vec<ContainerStatus>,
}

#[cfg(test)]
mod tests;
