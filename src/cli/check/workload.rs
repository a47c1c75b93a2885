//! Finds the Pods to decide on in a document: its Pods, and templates from which controllers would create Pods.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::kinds::{self, CustomKind, Pods, is_of_kubernetes, is_templateless};
use super::part::{Part, Step};
use tolerarch_core::image::ImageRef;
use tolerarch_core::pod::{Pod, PodError};
use tolerarch_text::yaml::{Data, Fault, Node};

/// Place of an object or image, in the form of `check -o json`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Place {
    /// Name of the file as the user wrote it; empty for an object of a cluster.
    pub(super) file: String,
    pub(super) document: usize,
    pub line: usize,
    pub(in crate::cli) kind: String,
    pub(in crate::cli) namespace: String,
    pub(in crate::cli) name: String,
    /// Path within the object, such as `.spec.template`; empty for a Pod and a review.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(in crate::cli) path: String,
}

#[derive(Debug, Serialize)]
pub struct Object {
    #[serde(flatten)]
    pub place: Place,
    /// JSON pointer of the path, which begins a patch's paths; `None` for a mere spec: without metadata no patch fits.
    #[serde(skip)]
    pub(super) template: Option<String>,
    /// True if the document has other templates, too.
    #[serde(skip)]
    is_one_of_several: bool,
    #[serde(skip)]
    pub given: Given,
    /// The Pod, its template, or the review of it.
    #[serde(skip)]
    pub value: Value,
}

impl Object {
    /// Returns `Deployment/web`, with the path of the template if there are several.
    pub(in crate::cli) fn label(&self) -> String {
        let Place { kind, name, path, .. } = &self.place;
        if self.is_one_of_several { format!("{kind}/{name}{path}") } else { format!("{kind}/{name}") }
    }

    /// Returns every image that is named anywhere in the object.
    pub(in crate::cli) fn images(&self) -> Vec<ImageRef> {
        let mut images = Vec::new();
        named(&self.value, &mut images);
        images
    }

    /// Returns the labels that the Pod would have.
    pub(in crate::cli) fn labels(&self) -> BTreeMap<String, String> {
        BTreeMap::deserialize(&self.value["metadata"]["labels"]).unwrap_or_default()
    }

    /// Returns the Pod as it would be created.
    pub(in crate::cli) fn pod(&self) -> Result<Pod<'_>, PodError> {
        match &self.given {
            Given::Template { owner } => Pod::of_template(&self.value, owner, &self.place.name),
            // A Pod that was read from a cluster had no node when it was created.
            Given::Pod if self.value["metadata"]["uid"].is_string() => {
                Pod::of_value(&self.value).map(Pod::as_created)
            }
            Given::Pod | Given::Review => Pod::of_value(&self.value),
        }
    }
}

fn named(value: &Value, images: &mut Vec<ImageRef>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| named(item, images)),
        Value::Object(members) => {
            for (key, member) in members {
                let text = member.as_str().filter(|_| key == "image" || key == "reference");
                images.extend(text.and_then(|text| text.parse::<ImageRef>().ok()));
                named(member, images);
            }
        }
        _ => {}
    }
}

#[derive(Debug)]
pub enum Given {
    Pod,
    Template {
        /// Kind of the Pods' controller; empty if they have none.
        owner: String,
    },
    Review,
}

/// Image outside of any template, which is not looked up.
#[derive(Debug, Serialize)]
pub struct UnseenImage {
    #[serde(flatten)]
    pub(super) place: Place,
    pub(super) image: String,
}

#[derive(Debug)]
pub enum Content {
    Object(Object),
    /// A kind that brings no Pods.
    Skipped(String),
    /// Kind and group of an unknown custom resource, and its images outside of templates.
    Foreign(String, Vec<UnseenImage>),
    /// Kind and group of a custom resource that has no template for its operator's Pods.
    Templateless(String),
    Invalid(Fault),
}

/// Returns the contents of a document, with each item of a list by itself.
pub fn contents(document: &Node, custom: &[CustomKind]) -> Vec<Content> {
    let mut all = Vec::new();
    collect(document, None, custom, &mut all);
    all
}

/// Collects the contents of a node. `given` are version and kind from a typed list, whose items have none of their own.
fn collect(node: &Node, given: Option<(&str, &str)>, custom: &[CustomKind], all: &mut Vec<Content>) {
    let fault = |message: &str| Content::Invalid(Fault { line: node.line, message: message.to_owned() });
    if !matches!(node.data, Data::Map(_)) {
        return all.push(fault("it is no object with apiVersion and kind"));
    }
    let (version, kind) = (node.text("apiVersion"), node.text("kind"));
    let (given_version, given_kind) = given.unwrap_or_default();
    let version = if version.is_empty() { given_version } else { version };
    let kind = if kind.is_empty() { given_kind } else { kind };
    if version.is_empty() || kind.is_empty() {
        return all.push(fault("it has no apiVersion or no kind"));
    }
    let group = version.split_once('/').map_or("", |(group, _)| group);
    if let (Some(item), Some(items)) = (kind.strip_suffix("List"), node.get("items")) {
        let Data::List(items) = &items.data else { return all.push(fault("its items are no list")) };
        for node in items {
            collect(node, (!item.is_empty()).then_some((version, item)), custom, all);
        }
        return;
    }
    if kind == "AdmissionReview" && group == "admission.k8s.io" {
        return all.push(review(node));
    }
    let with_group = || format!("{kind}.{group}");
    let Pods { sought, templates, images } = kinds::pods(node, group, kind, custom);
    let (namespace, name) = identity(node);
    let place = |line: usize, part: &Part<'_>| Place {
        line,
        kind: kind.to_owned(),
        namespace: namespace.clone(),
        name: name.clone(),
        path: part.path(),
        ..Place::default()
    };
    let is_named = !images.is_empty();
    if is_named {
        let unseen = images.iter().map(|part| UnseenImage {
            place: place(part.node.line, part),
            image: kinds::image(part.node).to_owned(),
        });
        all.push(Content::Foreign(with_group(), unseen.collect()));
    }
    if templates.is_empty() {
        all.push(match &sought {
            Some(sought) => fault(&format!("the {kind} has no {sought}")),
            None if kind == "List" || is_named => return,
            None if is_of_kubernetes(group) => Content::Skipped(kind.to_owned()),
            None if is_templateless(node, group, kind) => Content::Templateless(with_group()),
            None => Content::Skipped(with_group()),
        });
    }
    let is_one_of_several = templates.len() > 1;
    for found in templates {
        // Only objects of known types are checked: others may have numbers there.
        if let Some(fault) = sought.as_ref().and_then(|_| no_text(node, kind, &found)) {
            all.push(Content::Invalid(fault));
            continue;
        }
        let given = match (group, kind) {
            ("", "Pod") => Given::Pod,
            _ => Given::Template { owner: kinds::controller(group, kind).to_owned() },
        };
        let mut value = found.node.value();
        let is_spec = value.get("spec").is_none() && value.get("containers").is_some();
        if is_spec && !matches!(given, Given::Pod) {
            value = json!({"spec": value});
        }
        all.push(Content::Object(Object {
            place: place(node.line, &found),
            template: (!is_spec).then(|| found.pointer()),
            is_one_of_several,
            given,
            value,
        }));
    }
}

/// Returns the namespace and the name of an object.
fn identity(node: &Node) -> (String, String) {
    let metadata = node.get("metadata");
    let text = |name: &str| metadata.map_or("", |metadata| metadata.text(name)).to_owned();
    let name = Some(text("name")).filter(|name| !name.is_empty()).unwrap_or_else(|| text("generateName"));
    (text("namespace"), name)
}

fn review(node: &Node) -> Content {
    let request = node.get("request");
    let object = request.and_then(|request| request.get("object"));
    let text = |name: &str| request.map_or("", |request| request.text(name)).to_owned();
    let own = || object.map(identity).unwrap_or_default().1;
    let place = Place {
        line: node.line,
        kind: "AdmissionReview".to_owned(),
        namespace: text("namespace"),
        name: Some(text("name")).filter(|name| !name.is_empty()).unwrap_or_else(own),
        ..Place::default()
    };
    let (template, given, value) = (Some(String::new()), Given::Review, node.value());
    Content::Object(Object { place, template, is_one_of_several: false, given, value })
}

/// Members of metadata and of Pods that are always strings, and those whose own members always are.
const TEXTS: &[&str] = &["name", "generateName", "namespace", "image", "value"];
const OF_TEXTS: &[&str] = &["labels", "annotations", "nodeSelector"];

/// Returns a fault for a value without quotes where the API server takes only strings, and would refuse the object.
fn no_text(object: &Node, kind: &str, template: &Part<'_>) -> Option<Fault> {
    let is_bare = |node: &Node, way: &[Step<'_>]| {
        let is_text = match way {
            [.., Step::Member(parent), Step::Member(_)] if OF_TEXTS.contains(parent) => true,
            [.., Step::Member(name)] => TEXTS.contains(name),
            _ => false,
        };
        is_text && matches!(node.data, Data::Bool(_) | Data::Number(_))
    };
    let own = Part::whole(object).within(&|_, way| matches!(way, [Step::Member("metadata")]));
    let part = own.into_iter().chain([template.clone()]).flat_map(|part| part.within(&is_bare)).next()?;
    let shown = match &part.node.data {
        Data::Bool(flag) => format!("the boolean {flag}; YAML takes on, off, yes and no for booleans"),
        _ => format!("the number {}", part.node.value()),
    };
    let (line, path) = (part.node.line, part.path());
    let place = path.trim_start_matches('.');
    let message =
        format!("the {kind} would be refused: {place} has to be a text, and is {shown}; put it in quotes");
    Some(Fault { line, message })
}

#[cfg(test)]
mod tests;
