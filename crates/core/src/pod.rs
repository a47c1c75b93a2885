//! The facts of a Pod: its images, its tolerations, and the reasons to skip it. A Pod is decoded in part, and borrows from
//! the bytes of a review or from a value. Fields that a decision does not need are ignored, so that fields of newer
//! Kubernetes versions neither matter nor get lost. A Pod is never written back.

mod applied;
mod json;
mod keys;
mod labels;
mod mode;
mod node_labels;
mod preference;
mod retain;
mod scheduling;
mod stored;
mod toleration;
mod workload;

use serde::Deserialize;
use serde_json::Value;

pub(crate) use applied::{AppliedLists, member};
pub use json::Text;
pub(crate) use json::{Texts, read};
pub(crate) use keys::PREFER_KEY;
pub use keys::{
    ANNOTATIONS, MODE_KEY, POOLS_KEY, PREFERRED_KEY, PROFILE_KEY, REASON_KEY, REQUIRED_KEY,
};
pub use labels::{is_label_key, is_label_value, is_name};
pub use mode::PodMode;
pub use node_labels::{Fit, NodeLabels};
pub use preference::PodPreference;
pub use retain::Retain;
pub(crate) use retain::retain;
pub use scheduling::{ARCH_KEY, BETA_ARCH_KEY, names_architecture};
pub(crate) use scheduling::{Affinity, Expression, NodeSelector, Scheduling, Term, WeightedTerm};
pub(crate) use stored::size_of_json;
pub use toleration::Toleration;

use crate::image::{ImageRef, LookupError};
use crate::reason::Reason;
use json::{ITEMS, first, list, object_or_default, or_default, read_small};
use keys::{Labels, MIRROR_KEY, Member, SelectedMembers};
use tolerarch_text::json::{Object, Unread};

/// The label of nodes for their operating system, and its value that excludes a Pod.
const OS_KEY: &str = "kubernetes.io/os";
const WINDOWS: &str = "windows";
/// The controller whose Pods are skipped: it chooses their nodes itself.
pub(crate) const DAEMON_SET: &str = "DaemonSet";
/// Maximum number of pull secrets of one Pod that are used.
const PULL_SECRETS: usize = 16;
/// Bytes that the lookup of an image holds beside the image's text: the usage, and the rest of the full reference.
const USAGE: usize = size_of::<Usage<'_>>() + 96;

#[derive(Debug, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(default, bound(deserialize = "'de: 'a"))]
pub struct Pod<'a> {
    #[serde(deserialize_with = "object_or_default")]
    metadata: Metadata<'a>,
    #[serde(deserialize_with = "object_or_default")]
    spec: Spec<'a>,
    /// Upper bound of the bytes that the Pod takes in etcd.
    #[serde(skip)]
    pub(crate) bytes: usize,
    /// The controller, if this is the template of the controller's Pods; with an empty kind if there is no controller.
    #[serde(skip)]
    template_of: Option<Owner<'a>>,
    /// Lists that the template's owner has set by server-side apply; only set for an update of a template.
    #[serde(skip)]
    pub(crate) applied: AppliedLists,
}

/// Path of a field, such as `spec.containers[0].image`, whose type makes a value no Pod for the API server.
#[derive(Debug, thiserror::Error)]
#[error("{0} has the wrong type")]
pub struct PodError(String);

#[derive(Debug, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, bound(deserialize = "'de: 'a"))]
struct Metadata<'a> {
    name: Text<'a>,
    generate_name: Text<'a>,
    #[serde(deserialize_with = "list::<_, _, ITEMS>")]
    owner_references: Vec<Owner<'a>>,
    #[serde(deserialize_with = "or_default")]
    labels: Labels<'a>,
    #[serde(deserialize_with = "or_default")]
    annotations: SelectedMembers<'a>,
    /// Unset if the metadata is absent or null.
    #[serde(skip, default = "is_present")]
    is_present: bool,
}

fn is_present() -> bool {
    true
}

#[derive(Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Owner<'a> {
    kind: Text<'a>,
    name: Text<'a>,
    controller: Option<bool>,
}

#[derive(Debug, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, bound(deserialize = "'de: 'a"))]
struct Spec<'a> {
    node_name: Text<'a>,
    os: Option<Named<'a>>,
    node_selector: Option<Unread<'a>>,
    affinity: Option<Unread<'a>>,
    #[serde(deserialize_with = "list::<_, _, ITEMS>")]
    containers: Vec<Container<'a>>,
    #[serde(deserialize_with = "list::<_, _, ITEMS>")]
    init_containers: Vec<Container<'a>>,
    #[serde(deserialize_with = "list::<_, _, ITEMS>")]
    volumes: Vec<Volume<'a>>,
    #[serde(deserialize_with = "first::<_, _, PULL_SECRETS>")]
    image_pull_secrets: Vec<Named<'a>>,
    #[serde(deserialize_with = "list::<_, _, ITEMS>")]
    tolerations: Vec<Toleration<'a>>,
}

/// An operating system, or a reference to a Secret.
#[derive(Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Named<'a> {
    name: Text<'a>,
}

#[derive(Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Container<'a> {
    image: Text<'a>,
    image_pull_policy: Text<'a>,
}

#[derive(Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Volume<'a> {
    image: Option<VolumeImage<'a>>,
}

#[derive(Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct VolumeImage<'a> {
    reference: Text<'a>,
    pull_policy: Text<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A container, init container or native sidecar runs the image.
    Run,
    /// A volume mounts the image (KEP-4639).
    Mount,
}

/// One image of a Pod.
#[derive(Debug)]
pub struct Usage<'p> {
    /// The image as the Pod names it.
    pub given: &'p str,
    pub image: Result<ImageRef, LookupError>,
    pub purpose: Purpose,
}

retain! {
    Text { 0 }
    Unread { 0 }
    Pod { metadata, spec, template_of; bytes, applied }
    Metadata { name, generate_name, owner_references, labels, annotations; is_present }
    Owner { kind, name; controller }
    Labels { picked, all }
    SelectedMembers { members; count, bytes }
    Member { text; key }
    Spec { node_name, os, node_selector, affinity, containers, init_containers, volumes, image_pull_secrets, tolerations }
    Named { name }
    Container { image, image_pull_policy } + USAGE
    Volume { image } + USAGE
    VolumeImage { reference, pull_policy }
    Toleration { key, operator, value, effect; toleration_seconds }
}

impl<'a> Pod<'a> {
    /// Reads a Pod of a list or a file. An error names a field that has the wrong type.
    pub fn of_value(value: &'a Value) -> Result<Self, PodError> {
        let Object(mut pod) = match serde_path_to_error::deserialize::<_, Object<Self>>(value) {
            Ok(pod) => pod,
            Err(error) => {
                let path = error.path().to_string();
                if path == "." {
                    return Err(PodError("the Pod".to_owned()));
                }
                return Err(PodError(path));
            }
        };
        pod.bytes = size_of_json(value.to_string().as_bytes());
        Ok(pod)
    }

    /// Reads a Pod as the API server writes it; `None` if it exceeds the limits on untrusted input, or is malformed.
    pub fn of_json(json: &'a str) -> Option<Pod<'static>> {
        let Object(mut pod) = read::<Object<Pod<'_>>>(json.as_bytes()).ok()?;
        pod.bytes = size_of_json(json.as_bytes());
        Some(pod.into_owned())
    }

    /// Returns the Pod that this controller would create from a template, or that no controller would create if kind and
    /// name are empty.
    #[must_use]
    pub fn created_by(mut self, kind: impl Into<Text<'a>>, name: impl Into<Text<'a>>) -> Self {
        self.template_of = Some(Owner {
            kind: kind.into(),
            name: name.into(),
            controller: None,
        });
        self
    }
}

impl Pod<'_> {
    /// Returns whether this is the template of a DaemonSet's Pods, which is decided on only if the policy says so.
    pub(crate) fn is_of_daemon_set(&self) -> bool {
        match &self.template_of {
            Some(owner) => owner.kind == *DAEMON_SET,
            None => false,
        }
    }

    /// Returns the reason to skip the Pod, if one of its fields is a reason; the images do not matter then.
    pub fn skipped(&self) -> Option<Reason> {
        if self.has_annotation(MIRROR_KEY) {
            return Some(Reason::MirrorPod);
        }
        if matches!(self.mode(), PodMode::Off | PodMode::Unknown(_)) {
            return Some(Reason::OptedOut);
        }
        let Spec {
            node_name,
            os,
            node_selector,
            ..
        } = &self.spec;
        if !node_name.is_empty() {
            return Some(Reason::NodeAssigned);
        }
        if self.template_of.is_none() && self.has_controller_of(DAEMON_SET) {
            return Some(Reason::DaemonSet);
        }
        if let Some(os) = os
            && os.name == *WINDOWS
        {
            return Some(Reason::Windows);
        }
        let selector = node_selector.as_ref()?;
        if !selector.may_have(WINDOWS) {
            return None;
        }
        let selector: Texts<'_> = read_small(Some(selector))?;
        let os = selector.get(OS_KEY)?;
        if *os == *WINDOWS {
            Some(Reason::Windows)
        } else {
            None
        }
    }

    fn has_controller_of(&self, kind: &str) -> bool {
        match self.controller() {
            Some((controller, _)) => controller == kind,
            None => false,
        }
    }

    pub fn mode(&self) -> PodMode<'_> {
        PodMode::of(self.label_and_annotation(MODE_KEY))
    }

    pub fn preference(&self) -> PodPreference<'_> {
        PodPreference::of(self.label_and_annotation(PREFER_KEY).next())
    }

    /// Returns the values of the label and of the annotation with this key.
    fn label_and_annotation(&self, key: &str) -> impl Iterator<Item = &str> {
        let label = self.metadata.labels.picked.get(key);
        let annotation = self.metadata.annotations.get(key);
        label.into_iter().chain(annotation)
    }

    /// Returns the usages of images in the Pod: of init containers, then containers, then image volumes.
    pub fn images(&self) -> Vec<Usage<'_>> {
        let Spec {
            init_containers,
            containers,
            volumes,
            ..
        } = &self.spec;
        let mut usages = Vec::with_capacity(init_containers.len() + containers.len());
        for container in init_containers.iter().chain(containers) {
            let policy = &container.image_pull_policy;
            usages.push(usage(&container.image, policy, Purpose::Run));
        }
        for volume in volumes {
            if let Some(image) = &volume.image {
                usages.push(usage(&image.reference, &image.pull_policy, Purpose::Mount));
            }
        }
        usages
    }

    /// Returns whether the Pod has a container; a Pod without one is not valid.
    pub fn has_containers(&self) -> bool {
        !self.spec.containers.is_empty()
    }

    /// Returns the names of the first pull secrets, unchecked. The API server has added those of the service account.
    pub fn pull_secrets(&self) -> impl Iterator<Item = &str> {
        let secrets = self.spec.image_pull_secrets.iter();
        let names = secrets.map(|secret| secret.name.as_str());
        names.filter(|name| !name.is_empty()).take(PULL_SECRETS)
    }

    pub fn tolerations(&self) -> &[Toleration<'_>] {
        &self.spec.tolerations
    }

    /// Returns an annotation that tolerarch reads or writes; empty if the Pod lacks it.
    pub fn annotation(&self, key: &str) -> &str {
        self.metadata.annotations.get(key).unwrap_or_default()
    }

    pub fn has_annotation(&self, key: &str) -> bool {
        self.metadata.annotations.get(key).is_some()
    }

    pub fn label(&self, key: &str) -> Option<String> {
        self.metadata.labels.get(key)
    }

    pub fn has_annotations(&self) -> bool {
        self.metadata.annotations.count > 0
    }

    pub(crate) fn annotation_bytes(&self) -> usize {
        self.metadata.annotations.bytes
    }

    pub(crate) fn has_metadata(&self) -> bool {
        self.metadata.is_present
    }

    /// Returns the Pod's name for people: its controller as `Kind/name`, else its own name or the prefix of its name.
    pub fn described(&self) -> String {
        match self.controller() {
            Some((kind, name)) => [kind, "/", name].concat(),
            None => self.name().to_owned(),
        }
    }

    fn name(&self) -> &str {
        let Metadata {
            name,
            generate_name,
            ..
        } = &self.metadata;
        if name.is_empty() {
            generate_name.as_str()
        } else {
            name.as_str()
        }
    }

    /// Returns the kind and the name of the Pod's controller.
    pub fn controller(&self) -> Option<(&str, &str)> {
        let owner = match &self.template_of {
            Some(owner) if owner.kind.is_empty() => return None,
            Some(owner) => owner,
            None => {
                let mut owners = self.metadata.owner_references.iter();
                owners.find(|owner| owner.controller == Some(true))?
            }
        };
        let Owner { kind, name, .. } = owner;
        Some((kind.as_str(), name.as_str()))
    }
}

fn usage<'p>(given: &'p Text<'_>, policy: &Text<'_>, purpose: Purpose) -> Usage<'p> {
    let given = given.as_str();
    let image = match policy.as_str() {
        "Never" => Err(LookupError::PullNever),
        _ => given.parse().map_err(|_| LookupError::Invalid),
    };
    Usage {
        given,
        image,
        purpose,
    }
}

#[cfg(test)]
mod tests;
