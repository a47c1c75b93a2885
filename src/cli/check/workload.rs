//! From a document to the Pods that are decided on: those in it, and the templates of those that a controller would create.

use serde_json::Value;

use super::kinds::{self, CustomKind, Found, Workload, holds_template, is_of_kubernetes, is_templateless};
use tolerarch_core::image::ImageRef;
use tolerarch_text::yaml::{Data, Node};

/// Something that a decision is asked for.
#[derive(Debug)]
pub struct Object {
    /// Where it begins, from 1.
    pub line: usize,
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub given: Given,
    /// Where its Pod template stands, as a JSON pointer: what the paths of a patch begin with.
    pub(super) template: String,
    /// The same as people write it; empty for a Pod and a review.
    pub(super) path: String,
    /// Whether its document has other templates, too.
    pub(super) is_one_of_several: bool,
}

impl Object {
    /// `Deployment/web`; with the place of the template where there are several.
    pub(super) fn label(&self) -> String {
        let Self { kind, name, path, .. } = self;
        if self.is_one_of_several { format!("{kind}/{name}{path}") } else { format!("{kind}/{name}") }
    }

    /// Every image that is named anywhere in it.
    pub(super) fn images(&self) -> Vec<ImageRef> {
        let mut images = Vec::new();
        match &self.given {
            Given::Pod(value) | Given::Template { value, .. } | Given::Review(value) => {
                named(value, &mut images);
            }
        }
        images
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

/// What stands there.
#[derive(Debug)]
pub enum Given {
    Pod(Value),
    Template {
        value: Value,
        /// The kind of the Pods' controller; empty where they have none.
        owner: String,
    },
    /// A review as it was written down.
    Review(Value),
}

/// What a document holds.
#[derive(Debug)]
pub enum Content {
    Object(Object),
    /// A kind that brings no Pods.
    Skipped(String),
    /// A custom resource that is not known, and holds something like a template: with its group.
    Foreign(String),
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
    let mut fault =
        |message: &str| all.push(Content::Invalid { line: node.line, message: message.to_owned() });
    if !matches!(node.data, Data::Map(_)) {
        return fault("it is no object with apiVersion and kind");
    }
    let (version, kind) = (node.text("apiVersion"), node.text("kind"));
    let (given_version, given_kind) = given.unwrap_or_default();
    let version = if version.is_empty() { given_version } else { version };
    let kind = if kind.is_empty() { given_kind } else { kind };
    if version.is_empty() || kind.is_empty() {
        return fault("it has no apiVersion or no kind");
    }
    let group = version.split_once('/').map_or("", |(group, _)| group);
    if let (Some(item), Some(items)) = (kind.strip_suffix("List"), node.get("items")) {
        let Data::List(items) = &items.data else { return fault("its items are no list") };
        for node in items {
            collect(node, (!item.is_empty()).then_some((version, item)), custom, all);
        }
        return;
    }
    if kind == "AdmissionReview" && group == "admission.k8s.io" {
        return all.push(review(node));
    }
    let name = || format!("{kind}.{group}");
    match kinds::workload(group, kind, custom) {
        Some(workload) => objects(node, group, kind, &workload, all),
        None if kind == "List" => {}
        None if is_of_kubernetes(group) => all.push(Content::Skipped(kind.to_owned())),
        None if is_templateless(group, kind) => all.push(Content::Templateless(name())),
        None if holds_template(node) => all.push(Content::Foreign(name())),
        None => all.push(Content::Skipped(name())),
    }
}

/// A review as it was written down.
fn review(node: &Node) -> Content {
    let request = node.get("request");
    let object = request.and_then(|request| request.get("object"));
    let text = |node: Option<&Node>, name: &str| node.map_or("", |node| node.text(name)).to_owned();
    let metadata = object.and_then(|object| object.get("metadata"));
    let names = [text(request, "name"), text(metadata, "name"), text(metadata, "generateName")];
    Content::Object(Object {
        line: node.line,
        kind: "AdmissionReview".to_owned(),
        namespace: text(request, "namespace"),
        name: names.into_iter().find(|name| !name.is_empty()).unwrap_or_default(),
        given: Given::Review(node.value()),
        template: String::new(),
        path: String::new(),
        is_one_of_several: false,
    })
}

/// One for each template.
fn objects(node: &Node, group: &str, kind: &str, workload: &Workload, all: &mut Vec<Content>) {
    let found: Vec<Found<'_>> = workload.paths.iter().flat_map(|path| path.find(node)).collect();
    if found.is_empty() {
        // What creates Pods by a template that stands elsewhere.
        if node.at(&["spec", "workloadRef"]).is_some() {
            return all.push(Content::Templateless(format!("{kind}.{group}")));
        }
        let paths: Vec<String> = workload.paths.iter().map(|path| path.text()).collect();
        let message = format!("the {kind} has no {}", paths.join(" and no ").trim_start_matches('.'));
        return all.push(Content::Invalid { line: node.line, message });
    }
    let is_one_of_several = found.len() > 1;
    for found in found {
        let object = object(node, group, kind, workload, found);
        all.push(match object {
            Content::Object(object) => Content::Object(Object { is_one_of_several, ..object }),
            fault => fault,
        });
    }
}

fn object(node: &Node, group: &str, kind: &str, workload: &Workload, found: Found<'_>) -> Content {
    let Found { node: template, pointer, path } = found;
    if let Some(fault) = no_text(node, kind, template, &path) {
        return fault;
    }
    let metadata = node.get("metadata");
    let text = |name: &str| metadata.map_or("", |metadata| metadata.text(name));
    let name = if text("name").is_empty() { text("generateName") } else { text("name") };
    let namespace = text("namespace");
    let value = template.value();
    let given = match (group, kind) {
        ("", "Pod") => Given::Pod(as_created(value)),
        _ => Given::Template { value, owner: workload.owner.clone() },
    };
    Content::Object(Object {
        line: node.line,
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        given,
        template: pointer,
        path,
        is_one_of_several: false,
    })
}

/// A Pod that was read from a cluster is looked at as it was when it was created: on no node yet.
fn as_created(mut pod: Value) -> Value {
    let is_live = pod.pointer("/metadata/uid").is_some_and(Value::is_string);
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut).filter(|_| is_live) {
        spec.remove("nodeName");
    }
    pod
}

/// What has to be a text in the metadata of an object, and in a Pod; `*` is every item or member.
const METADATA: &[&[&str]] = &[
    &["metadata", "name"],
    &["metadata", "generateName"],
    &["metadata", "namespace"],
    &["metadata", "labels", "*"],
    &["metadata", "annotations", "*"],
];
const POD: &[&[&str]] = &[
    &["spec", "nodeSelector", "*"],
    &["spec", "initContainers", "*", "name"],
    &["spec", "initContainers", "*", "image"],
    &["spec", "initContainers", "*", "env", "*", "value"],
    &["spec", "containers", "*", "name"],
    &["spec", "containers", "*", "image"],
    &["spec", "containers", "*", "env", "*", "value"],
];

/// A value that lacks its quotes: the API server takes only texts there, and would refuse the object.
fn no_text(node: &Node, kind: &str, template: &Node, path: &str) -> Option<Content> {
    let within = path.strip_prefix('.').map(|path| format!("{path}.")).unwrap_or_default();
    let own = METADATA.iter().find_map(|path| bare(node, path, String::new()));
    let (value, place) =
        own.or_else(|| METADATA.iter().chain(POD).find_map(|path| bare(template, path, within.clone())))?;
    let shown = match &value.data {
        Data::Bool(flag) => format!("the boolean {flag}; YAML takes on, off, yes and no for booleans"),
        Data::Number(number) => format!("the number {number}"),
        _ => return None,
    };
    let message =
        format!("the {kind} would be refused: {place} has to be a text, and is {shown}; put it in quotes");
    Some(Content::Invalid { line: value.line, message })
}

/// The first boolean or number that this path leads to, and where that is.
fn bare<'n>(node: &'n Node, path: &[&str], place: String) -> Option<(&'n Node, String)> {
    let Some((&step, path)) = path.split_first() else {
        return matches!(node.data, Data::Bool(_) | Data::Number(_)).then_some((node, place));
    };
    match &node.data {
        Data::List(items) if step == "*" => {
            items.iter().enumerate().find_map(|(at, item)| bare(item, path, format!("{place}[{at}]")))
        }
        Data::Map(members) if step == "*" => {
            members.iter().find_map(|(key, member)| bare(member, path, format!("{place}[{:?}]", key.text)))
        }
        _ => {
            let dot = if place.is_empty() || place.ends_with('.') { "" } else { "." };
            bare(node.get(step)?, path, format!("{place}{dot}{step}"))
        }
    }
}

#[cfg(test)]
mod tests;
