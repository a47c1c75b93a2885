//! Facts of a Pod: which images it runs, what it tolerates, why it is skipped.
//!
//! A Pod is decoded partially and borrowed from what it came in, the bytes of a review or a value that has been read
//! already: blind to what a decision does not need, so that fields of newer Kubernetes versions neither matter nor get lost.
//! It is never written back.

mod applied;
mod json;
mod kept;
mod labels;
mod mode;
mod preference;
mod scheduling;
mod stored;
mod template;
mod toleration;
mod workload;

use serde::Deserialize;
use serde_json::Value;

pub(crate) use applied::{Applied, AppliedLists};
pub use json::{Text, Texts};
pub use labels::{is_label_key, is_label_value, is_name};
pub use mode::PodMode;
pub use preference::PodPreference;
pub use scheduling::{
    ARCH_KEY, Affinity, BETA_ARCH_KEY, Expression, NodeAffinity, NodeSelector, Scheduling, Term,
    WeightedTerm, names_architecture,
};
pub(crate) use stored::{size_of_json, size_of_value};
pub use template::Template;
pub use toleration::Toleration;

use crate::image::{ImageRef, LookupError};
use crate::reason::Reason;
use json::Annotations;
use labels::{Labels, Own};
use tolerarch_text::json::{First, List, Object, Unread};

/// Label or annotation that takes a Pod (or a namespace) out, `"off"`, or says whether its decisions are carried out.
pub const MODE_KEY: &str = "tolerarch.io/mode";
/// Label by which a namespace chooses a profile.
pub const PROFILE_KEY: &str = "tolerarch.io/profile";
/// Annotation that names the pools opened by tolerarch, comma-separated. By it a later pass knows its own work.
pub const POOLS_KEY: &str = "tolerarch.io/pools";
/// Annotation that names what tolerarch requires of the Pod's nodes, comma-separated. It marks our own, too.
pub(crate) const REQUIRED_KEY: &str = "tolerarch.io/required";
/// The same for what tolerarch prefers: architectures and pools with their weights.
pub(crate) const PREFERRED_KEY: &str = "tolerarch.io/preferred";
/// Label or annotation that says which architecture a Pod prefers, or `none`.
pub(crate) const PREFER_KEY: &str = "tolerarch.io/prefer";
/// The label of nodes for their operating system, and the one that gets none of our Pods.
const OS_KEY: &str = "kubernetes.io/os";
const WINDOWS: &str = "windows";
/// Annotation that says why a Pod stays closed.
pub const REASON_KEY: &str = "tolerarch.io/reason";
/// The annotations that tolerarch itself writes.
pub const ANNOTATIONS: [&str; 4] = [POOLS_KEY, REQUIRED_KEY, PREFERRED_KEY, REASON_KEY];
/// Set by the kubelet on the mirror of a static Pod.
const MIRROR_KEY: &str = "kubernetes.io/config.mirror";

/// The controller whose Pods are skipped: it places them itself.
pub(crate) const DAEMON_SET: &str = "DaemonSet";
/// Pull secrets of one Pod that are looked at.
const PULL_SECRETS: usize = 16;
/// Items of one list that are read. No Pod has as many: etcd takes 1.5 MB, and the API server 3 MiB.
const ITEMS: usize = 4096;

/// What a decision needs of a Pod.
#[derive(Debug, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
pub struct Pod<'a> {
    metadata: Option<Object<Metadata<'a>>>,
    spec: Option<Object<Spec<'a>>>,
    /// Bytes that it takes where it is stored, or some more.
    #[serde(skip)]
    pub(crate) bytes: usize,
    /// Kind and name of the controller, where this is the template of its Pods; both empty where there is none.
    #[serde(skip)]
    template_of: Option<(Text<'a>, Text<'a>)>,
    /// Lists that the owner of the template has applied, where this is one that is updated.
    #[serde(skip)]
    pub(crate) applied: AppliedLists,
}

/// The value is no Pod that the API server would take.
#[derive(Debug, thiserror::Error)]
#[error("{field} has another type than it should")]
pub struct PodError {
    /// As a path: `spec.containers[0].image`.
    field: String,
}

#[derive(Debug, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Metadata<'a> {
    name: Option<Text<'a>>,
    generate_name: Option<Text<'a>>,
    owner_references: Option<List<Owner<'a>, ITEMS>>,
    labels: Option<Labels<'a>>,
    annotations: Option<Annotations<'a>>,
}

#[derive(Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(bound(deserialize = "'de: 'a"))]
struct Owner<'a> {
    kind: Option<Text<'a>>,
    name: Option<Text<'a>>,
    controller: Option<bool>,
}

#[derive(Debug, PartialEq, Eq, Hash, Default, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Spec<'a> {
    node_name: Option<Text<'a>>,
    os: Option<Os<'a>>,
    node_selector: Option<Unread<'a>>,
    affinity: Option<Unread<'a>>,
    containers: Option<List<Container<'a>, ITEMS>>,
    init_containers: Option<List<Container<'a>, ITEMS>>,
    volumes: Option<List<Volume<'a>, ITEMS>>,
    image_pull_secrets: Option<First<SecretName<'a>, PULL_SECRETS>>,
    tolerations: Option<List<Toleration<'a>, ITEMS>>,
}

#[derive(Debug, PartialEq, Eq, Hash, Deserialize)]
struct Os<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
}

#[derive(Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct Container<'a> {
    image: Option<Text<'a>>,
    image_pull_policy: Option<Text<'a>>,
}

#[derive(Debug, PartialEq, Eq, Hash, Deserialize)]
struct Volume<'a> {
    #[serde(borrow)]
    image: Option<VolumeImage<'a>>,
}

#[derive(Debug, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "'de: 'a"))]
struct VolumeImage<'a> {
    reference: Option<Text<'a>>,
    pull_policy: Option<Text<'a>>,
}

#[derive(Debug, PartialEq, Eq, Hash, Deserialize)]
struct SecretName<'a> {
    #[serde(borrow)]
    name: Option<Text<'a>>,
}

/// What a Pod does with an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Runs it, as a container, init container or native sidecar.
    Run,
    /// Mounts it as a volume (KEP-4639).
    Mount,
}

/// One image of a Pod, as it stands there.
#[derive(Debug)]
pub struct Usage<'p> {
    /// The text in the Pod.
    pub given: &'p str,
    /// The reference, or why it cannot be looked up.
    pub image: Result<ImageRef, LookupError>,
    pub purpose: Purpose,
}

impl<'a> Pod<'a> {
    /// A Pod that stands in a list or a file, unless a field that matters has another type than it should.
    pub fn of_value(value: &'a Value) -> Result<Self, PodError> {
        let Object(pod) = serde_path_to_error::deserialize::<_, Object<Self>>(value).map_err(|error| {
            let path = error.path().to_string();
            PodError { field: if path == "." { "the Pod".to_owned() } else { path } }
        })?;
        Ok(Self { bytes: size_of_value(value), ..pod })
    }

    /// A Pod as the API server writes it; `None` where it cannot be read within the limits on untrusted input.
    pub fn of_json(json: &'a str) -> Option<Pod<'static>> {
        let read = tolerarch_text::json::read::<Object<Self>>(json.as_bytes());
        let Object(pod) = read.or_else(|_| serde_json::from_str(json)).ok()?;
        Some(Self { bytes: size_of_json(json.as_bytes()), ..pod }.into_owned())
    }

    /// The Pod that the controller of this kind and name would create by a template; of no controller where both are empty.
    pub fn of_template(value: &'a Value, kind: &'a str, name: &'a str) -> Result<Self, PodError> {
        Ok(Self { template_of: Some((kind.into(), name.into())), ..Self::of_value(value)? })
    }
}

impl Pod<'_> {
    /// Whether this is the template of a DaemonSet's Pods, which is decided where the policy says so.
    pub(crate) fn is_of_daemon_set(&self) -> bool {
        self.is_template() && self.controller().is_some_and(|(kind, _)| kind == DAEMON_SET)
    }

    fn is_template(&self) -> bool {
        self.template_of.is_some()
    }

    /// Why the Pod is skipped without a look at its images, if it is.
    pub fn skipped(&self) -> Option<Reason> {
        let spec = self.spec.as_ref();
        let is = |text: Option<&Text<'_>>, value: &str| text.is_some_and(|text| text.as_str() == value);
        let annotations = self.annotations();
        if annotations.is_some_and(|a| a.mirror) {
            return Some(Reason::MirrorPod);
        }
        if matches!(self.mode(), PodMode::Off | PodMode::Unknown(_)) {
            return Some(Reason::OptedOut);
        }
        if spec.and_then(|s| s.node_name.as_ref()).is_some_and(|name| !name.as_str().is_empty()) {
            return Some(Reason::NodeAssigned);
        }
        if self.controller().is_some_and(|(kind, _)| kind == DAEMON_SET) && !self.is_template() {
            return Some(Reason::DaemonSet);
        }
        let os = spec.and_then(|s| s.os.as_ref()).and_then(|os| os.name.as_ref());
        let selector = spec.and_then(|s| s.node_selector.as_ref());
        let selector = selector.filter(|json| json.size() <= scheduling::BYTES && json.may_have(WINDOWS));
        let selects_windows = selector
            .and_then(Unread::read::<Texts<'_>>)
            .is_some_and(|selector| selector.get(OS_KEY) == Some(WINDOWS));
        if is(os, WINDOWS) || selects_windows {
            return Some(Reason::Windows);
        }
        None
    }

    /// What the Pod says itself about whether decisions on it are carried out.
    pub fn mode(&self) -> PodMode<'_> {
        let labels = self.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
        let label = labels.and_then(|labels| labels.own.mode.as_ref()).map(Text::as_str);
        let annotation =
            self.annotations().and_then(|annotations| annotations.mode.as_ref()).map(Text::as_str);
        PodMode::of(label.into_iter().chain(annotation))
    }

    /// Every image that counts, in the order of the Pod: init containers, containers, image volumes.
    pub fn images(&self) -> Vec<Usage<'_>> {
        let Some(spec) = self.spec.as_ref() else {
            return Vec::new();
        };
        let containers =
            [&spec.init_containers, &spec.containers].into_iter().flatten().flat_map(|list| list.iter());
        let run = containers.map(|c| usage(c.image.as_ref(), c.image_pull_policy.as_ref(), Purpose::Run));
        let volumes = spec.volumes.iter().flat_map(|list| list.iter()).filter_map(|v| v.image.as_ref());
        let mount = volumes.map(|v| usage(v.reference.as_ref(), v.pull_policy.as_ref(), Purpose::Mount));
        run.chain(mount).collect()
    }

    /// Whether there is a container at all; a Pod without one is not valid.
    pub fn has_containers(&self) -> bool {
        self.spec.as_ref().is_some_and(|spec| spec.containers.as_ref().is_some_and(|list| !list.is_empty()))
    }

    /// The names of the first pull secrets, those of the service account among them; whatever the Pod calls them.
    pub fn pull_secrets(&self) -> impl Iterator<Item = &str> {
        let secrets = self.spec.as_ref().and_then(|spec| spec.image_pull_secrets.as_ref());
        let names =
            secrets.into_iter().flat_map(|secrets| &secrets.0).filter_map(|secret| secret.name.as_ref());
        names.map(Text::as_str).take(PULL_SECRETS)
    }

    pub fn tolerations(&self) -> &[Toleration<'_>] {
        self.spec.as_ref().and_then(|spec| spec.tolerations.as_ref()).map_or(&[], |list| list)
    }

    pub fn pools_annotation(&self) -> &str {
        text(self.annotations().and_then(|annotations| annotations.pools.as_ref()))
    }

    pub fn required_annotation(&self) -> &str {
        text(self.annotations().and_then(|annotations| annotations.required.as_ref()))
    }

    pub fn reason_annotation(&self) -> Option<&str> {
        self.annotations()?.reason.as_ref().map(Text::as_str)
    }

    pub fn preferred_annotation(&self) -> &str {
        text(self.annotations().and_then(|annotations| annotations.preferred.as_ref()))
    }

    pub fn label(&self, key: &str) -> Option<String> {
        self.metadata.as_ref()?.labels.as_ref()?.get(key)
    }

    pub fn has_annotations(&self) -> bool {
        self.annotations().is_some_and(|annotations| annotations.count > 0)
    }

    pub(crate) fn annotation_bytes(&self) -> usize {
        self.annotations().map_or(0, |annotations| annotations.bytes)
    }

    pub(crate) fn has_metadata(&self) -> bool {
        self.metadata.is_some()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How people find the Pod: its controller as `Kind/name`, else its name, else the name's prefix.
    pub fn described(&self) -> String {
        if let Some((kind, name)) = self.controller() {
            return [kind, "/", name].concat();
        }
        self.name().to_owned()
    }

    /// Its name, or the name's prefix.
    fn name(&self) -> &str {
        let metadata = self.metadata.as_ref();
        let names = metadata.map(|m| [text(m.name.as_ref()), text(m.generate_name.as_ref())]);
        names.into_iter().flatten().find(|name| !name.is_empty()).unwrap_or_default()
    }

    fn annotations(&self) -> Option<&Annotations<'_>> {
        self.metadata.as_ref()?.annotations.as_ref()
    }

    fn controller(&self) -> Option<(&str, &str)> {
        if let Some((kind, name)) = &self.template_of {
            return (!kind.is_empty()).then_some((kind.as_str(), name.as_str()));
        }
        let owners = self.metadata.as_ref()?.owner_references.as_ref()?;
        let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
        Some((text(owner.kind.as_ref()), text(owner.name.as_ref())))
    }
}

fn text<'p>(text: Option<&'p Text<'_>>) -> &'p str {
    text.map_or("", Text::as_str)
}

fn usage<'p>(given: Option<&'p Text<'_>>, policy: Option<&Text<'_>>, purpose: Purpose) -> Usage<'p> {
    let given = text(given);
    let image = if policy.is_some_and(|policy| policy.as_str() == "Never") {
        Err(LookupError::PullNever)
    } else {
        given.parse().map_err(|_| LookupError::Invalid)
    };
    Usage { given, image, purpose }
}

#[cfg(test)]
mod tests;
