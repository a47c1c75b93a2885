//! From a document to the Pods that are decided on: those in it, and the templates of those that a controller would create.

use serde::Serialize;
use serde_json::{Value, json};

use super::kinds::{self, CustomKind, Pods, is_of_kubernetes, is_templateless};
use super::part::{Part, Step};
use tolerarch_core::image::ImageRef;
use tolerarch_core::pod::{Pod, PodError};
use tolerarch_text::yaml::{Data, Node};

/// Where something stands, as `check -o json` names it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Place {
    /// The name of its file as it was given; empty for an object of a cluster.
    pub(super) file: String,
    pub(super) document: usize,
    pub line: usize,
    pub(in crate::cli) kind: String,
    pub(in crate::cli) namespace: String,
    pub(in crate::cli) name: String,
    /// The path within the object, as people write paths; empty for a Pod and a review.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(in crate::cli) path: String,
}

/// Something that a decision is asked for.
#[derive(Debug, Serialize)]
pub struct Object {
    #[serde(flatten)]
    pub place: Place,
    /// The same path as a JSON pointer: what the paths of a patch begin with. A spec alone cannot be patched: it has no metadata.
    #[serde(skip)]
    pub(super) template: Option<String>,
    /// Whether its document has other templates, too.
    #[serde(skip)]
    is_one_of_several: bool,
    #[serde(skip)]
    pub given: Given,
}

impl Object {
    /// `Deployment/web`; with the place of the template where there are several.
    pub(in crate::cli) fn label(&self) -> String {
        let Place { kind, name, path, .. } = &self.place;
        if self.is_one_of_several { format!("{kind}/{name}{path}") } else { format!("{kind}/{name}") }
    }

    /// Every image that is named anywhere in it.
    pub(in crate::cli) fn images(&self) -> Vec<ImageRef> {
        let mut images = Vec::new();
        let (Given::Pod(value) | Given::Template { value, .. } | Given::Review(value)) = &self.given;
        named(value, &mut images);
        images
    }

    /// The Pod as it would be created.
    pub(in crate::cli) fn pod(&self) -> Result<Pod<'_>, PodError> {
        match &self.given {
            Given::Template { value, owner } => Pod::of_template(value, owner, &self.place.name),
            Given::Pod(value) | Given::Review(value) => Pod::of_value(value),
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
    Pod(Value),
    Template {
        value: Value,
        /// The kind of the Pods' controller; empty where they have none.
        owner: String,
    },
    Review(Value),
}

/// An image that is not looked at.
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
    /// A custom resource that is not known, with its group, and images of it that are in no template.
    Foreign(String, Vec<UnseenImage>),
    /// A custom resource whose operator makes Pods by no template that stands in it: with its group.
    Templateless(String),
    Invalid {
        line: usize,
        message: String,
    },
}

/// All that a document holds, its lists taken apart.
pub fn contents(document: &Node, custom: &[CustomKind]) -> Vec<Content> {
    let mut all = Vec::new();
    collect(document, None, custom, &mut all);
    all
}

/// `given` is what the list says of its items: those of a typed list have no kind of their own.
fn collect(node: &Node, given: Option<(&str, &str)>, custom: &[CustomKind], all: &mut Vec<Content>) {
    let fault = |message: &str| Content::Invalid { line: node.line, message: message.to_owned() };
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
        // What is not known to be of Kubernetes' types may have numbers there.
        if let Some(fault) = sought.as_ref().and_then(|_| no_text(node, kind, &found)) {
            all.push(fault);
            continue;
        }
        let value = found.node.value();
        let is_spec = value.get("spec").is_none() && value.get("containers").is_some();
        let given = match (group, kind) {
            ("", "Pod") => Given::Pod(as_created(value)),
            _ => Given::Template {
                value: if is_spec { json!({"spec": value}) } else { value },
                owner: kinds::controller(group, kind).to_owned(),
            },
        };
        all.push(Content::Object(Object {
            place: place(node.line, &found),
            template: (!is_spec).then(|| found.pointer()),
            is_one_of_several,
            given,
        }));
    }
}

/// Namespace and name of an object.
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
    let (template, given) = (Some(String::new()), Given::Review(node.value()));
    Content::Object(Object { place, template, is_one_of_several: false, given })
}

/// A Pod that was read from a cluster is looked at as it was when it was created: on no node yet.
fn as_created(mut pod: Value) -> Value {
    let is_live = pod.pointer("/metadata/uid").is_some_and(Value::is_string);
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut).filter(|_| is_live) {
        spec.remove("nodeName");
    }
    pod
}

/// Members of metadata and of Pods that are texts wherever they stand, and those whose own members all are.
const TEXTS: &[&str] = &["name", "generateName", "namespace", "image", "value"];
const OF_TEXTS: &[&str] = &["labels", "annotations", "nodeSelector"];

/// A value that lacks its quotes: the API server takes only texts there, and would refuse the object.
fn no_text(object: &Node, kind: &str, template: &Part<'_>) -> Option<Content> {
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
    Some(Content::Invalid { line, message })
}

#[cfg(test)]
mod tests;
