//! From a document to the Pods that are decided on: those in it, and the templates of those that a controller would create.

use serde_json::Value;

use crate::image::ImageRef;
use crate::yaml::{Data, Node};

/// Something that a decision is asked for.
#[derive(Debug)]
pub(super) struct Object {
    /// Where it begins, from 1.
    pub(super) line: usize,
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) given: Given,
    /// Where its Pod template stands, as a JSON pointer: what the paths of a patch begin with.
    pub(super) template: String,
}

impl Object {
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
pub(super) enum Given {
    Pod(Value),
    Template {
        value: Value,
        /// The kind of the Pods' controller; empty where they have none.
        owner: &'static str,
    },
    /// A review as it was written down.
    Review(Value),
}

/// What a document holds.
#[derive(Debug)]
pub(super) enum Content {
    Object(Object),
    /// A kind that brings no Pods.
    Skipped(String),
    /// A custom resource, which may create Pods: with its group.
    Foreign(String),
    Invalid {
        line: usize,
        message: String,
    },
}

/// What creates Pods, and how.
struct Workload {
    /// Where the template of the Pod is.
    template: &'static [&'static str],
    /// The kind of the Pod's controller; empty where it has none.
    owner: &'static str,
}

fn workload(group: &str, kind: &str) -> Option<Workload> {
    const TEMPLATE: &[&str] = &["spec", "template"];
    let (template, owner) = match (group, kind) {
        ("", "Pod") => (&[][..], ""),
        ("", "PodTemplate") => (&["template"][..], ""),
        ("", "ReplicationController") => (TEMPLATE, "ReplicationController"),
        ("apps" | "extensions", "Deployment" | "ReplicaSet") => (TEMPLATE, "ReplicaSet"),
        ("apps" | "extensions", "DaemonSet") => (TEMPLATE, "DaemonSet"),
        ("apps", "StatefulSet") => (TEMPLATE, "StatefulSet"),
        ("batch", "Job") => (TEMPLATE, "Job"),
        ("batch", "CronJob") => (&["spec", "jobTemplate", "spec", "template"][..], "Job"),
        _ => return None,
    };
    Some(Workload { template, owner })
}

/// Whether Kubernetes itself serves this group: all its kinds that bring Pods are known. `*.x-k8s.io` are its projects'.
fn is_of_kubernetes(group: &str) -> bool {
    matches!(group, "" | "apps" | "autoscaling" | "batch" | "extensions" | "policy")
        || group.ends_with(".k8s.io")
}

/// All that a document holds, its lists taken apart.
pub(super) fn contents(document: &Node) -> Vec<Content> {
    let mut all = Vec::new();
    collect(document, None, &mut all);
    all
}

/// `given` is what the list says of its items: those of a typed list have no kind of their own.
fn collect(node: &Node, given: Option<(&str, &str)>, all: &mut Vec<Content>) {
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
            collect(node, (!item.is_empty()).then_some((version, item)), all);
        }
        return;
    }
    if kind == "AdmissionReview" && group == "admission.k8s.io" {
        return all.push(review(node));
    }
    all.push(match workload(group, kind) {
        Some(workload) => object(node, kind, &workload),
        None if kind == "List" => return,
        None if is_of_kubernetes(group) => Content::Skipped(kind.to_owned()),
        None => Content::Foreign(format!("{kind}.{group}")),
    });
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
    })
}

fn object(node: &Node, kind: &str, workload: &Workload) -> Content {
    let Some(template) = node.at(workload.template) else {
        let message = format!("the {kind} has no {}", workload.template.join("."));
        return Content::Invalid { line: node.line, message };
    };
    if let Some(fault) = no_text(node, kind, workload) {
        return fault;
    }
    let metadata = node.get("metadata");
    let text = |name: &str| metadata.map_or("", |metadata| metadata.text(name));
    let name = if text("name").is_empty() { text("generateName") } else { text("name") };
    let namespace = text("namespace");
    let value = template.value();
    let given = match kind {
        "Pod" => Given::Pod(as_created(value)),
        _ => Given::Template { value, owner: workload.owner },
    };
    Content::Object(Object {
        line: node.line,
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        given,
        template: workload.template.iter().map(|name| format!("/{name}")).collect(),
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
fn no_text(node: &Node, kind: &str, workload: &Workload) -> Option<Content> {
    let template = node.at(workload.template)?;
    let within = workload.template.iter().map(|name| format!("{name}.")).collect::<String>();
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
