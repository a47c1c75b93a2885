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
    Fault {
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
    let mut fault = |message: &str| all.push(Content::Fault { line: node.line, message: message.to_owned() });
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
        return Content::Fault { line: node.line, message };
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
    Some(Content::Fault { line: value.line, message })
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
mod tests {
    use serde_json::json;

    use super::*;
    use crate::yaml::{self, Copies, Dialect};

    fn contents_of(text: &str) -> Vec<Content> {
        contents(&yaml::read(text, Dialect::Kubernetes, &mut Copies::default()).unwrap()[0])
    }

    fn object_of(text: &str) -> Object {
        let mut contents = contents_of(text);
        assert_eq!(contents.len(), 1);
        match contents.remove(0) {
            Content::Object(object) => object,
            other => panic!("{other:?}"),
        }
    }

    fn pod_of(object: &Object) -> &Value {
        match &object.given {
            Given::Pod(value) | Given::Template { value, .. } => value,
            Given::Review(_) => panic!("no Pod"),
        }
    }

    #[test]
    fn takes_the_template_of_each_kind() {
        let spec = "{template: {metadata: {labels: {a: b}}, spec: {containers: [{image: x}]}}}";
        let cron = format!("{{jobTemplate: {{spec: {spec}}}}}");
        for (version, kind, spec, template, owner) in [
            ("apps/v1", "Deployment", spec, "/spec/template", "ReplicaSet"),
            ("extensions/v1beta1", "Deployment", spec, "/spec/template", "ReplicaSet"),
            ("apps/v1", "ReplicaSet", spec, "/spec/template", "ReplicaSet"),
            ("apps/v1", "StatefulSet", spec, "/spec/template", "StatefulSet"),
            ("apps/v1", "DaemonSet", spec, "/spec/template", "DaemonSet"),
            ("v1", "ReplicationController", spec, "/spec/template", "ReplicationController"),
            ("batch/v1", "Job", spec, "/spec/template", "Job"),
            ("batch/v1beta1", "CronJob", &cron, "/spec/jobTemplate/spec/template", "Job"),
        ] {
            let text = format!(
                "apiVersion: {version}\nkind: {kind}\nmetadata: {{name: web, namespace: shop}}\nspec: {spec}\n"
            );
            let object = object_of(&text);
            assert_eq!((&*object.kind, &*object.namespace, &*object.name), (kind, "shop", "web"));
            assert_eq!(object.template, template);
            assert!(matches!(object.given, Given::Template { owner: kind, .. } if kind == owner));
            let pod = pod_of(&object);
            assert_eq!(pod["metadata"]["labels"], json!({"a": "b"}));
            assert_eq!(pod["spec"]["containers"][0]["image"], "x");
        }
        let template =
            "apiVersion: v1\nkind: PodTemplate\nmetadata: {name: web}\ntemplate: {spec: {containers: []}}";
        let object = object_of(template);
        assert_eq!((&*object.template, pod_of(&object).get("metadata")), ("/template", None));
    }

    #[test]
    fn other_kinds_bring_no_pods_and_other_groups_may() {
        let of = |version: &str, kind: &str| {
            contents_of(&format!("apiVersion: {version}\nkind: {kind}\nspec: {{template: {{}}}}"))
        };
        for (version, kind) in [
            ("v1", "Service"),
            ("policy/v1", "PodDisruptionBudget"),
            ("rbac.authorization.k8s.io/v1", "Role"),
        ] {
            let contents = of(version, kind);
            assert!(matches!(&contents[..], [Content::Skipped(skipped)] if skipped == kind), "{contents:?}");
        }
        for (version, kind, name) in [
            ("batch.volcano.sh/v1alpha1", "Job", "Job.batch.volcano.sh"),
            ("argoproj.io/v1alpha1", "Rollout", "Rollout.argoproj.io"),
            ("jobset.x-k8s.io/v1alpha2", "JobSet", "JobSet.jobset.x-k8s.io"),
        ] {
            let contents = of(version, kind);
            assert!(matches!(&contents[..], [Content::Foreign(foreign)] if foreign == name), "{contents:?}");
        }
    }

    #[test]
    fn takes_lists_apart() {
        let pods = "apiVersion: v1\nkind: PodList\nitems: [{spec: {}}, {metadata: {name: b}, spec: {}}]";
        assert_eq!(contents_of(pods).len(), 2);
        let nested = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Secret}]}\n- 7\n- {kind: Pod}";
        let contents = contents_of(nested);
        assert!(
            matches!(
                &contents[..],
                [Content::Skipped(_), Content::Fault { line: 5, .. }, Content::Fault { line: 6, .. }]
            ),
            "{contents:?}"
        );
        assert!(contents_of("apiVersion: v1\nkind: List\nitems: []").is_empty());
    }

    #[test]
    fn a_pod_of_a_cluster_is_on_no_node_yet() {
        let pod = |uid: &str| {
            let object = object_of(&format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: a{uid}}}\nspec: {{nodeName: node-1}}"
            ));
            pod_of(&object).clone()
        };
        assert_eq!(pod("")["spec"]["nodeName"], "node-1");
        assert_eq!(pod(", uid: u")["spec"], json!({}));
    }

    #[test]
    fn names_values_that_need_quotes() {
        let text = "apiVersion: v1\nkind: Pod\nmetadata:\n  labels:\n    tolerarch.io/mode: off\nspec: {}";
        let contents = contents_of(text);
        let [Content::Fault { line: 5, message }] = &contents[..] else { panic!("{contents:?}") };
        assert!(message.contains("tolerarch.io/mode") && message.contains("quotes"), "{message}");
    }

    #[test]
    fn names_whatever_is_no_text() {
        for (text, place) in [
            ("kind: Pod\nmetadata: {name: 1e3}\nspec: {}", "metadata.name"),
            ("kind: Pod\nmetadata: {name: off}\nspec: {}", "metadata.name"),
            ("kind: Pod\nmetadata: {namespace: 7}\nspec: {}", "metadata.namespace"),
            ("kind: Pod\nspec: {containers: [{image: a}, {image: 7}]}", "spec.containers[1].image"),
            (
                "kind: PodTemplate\ntemplate: {spec: {initContainers: [{env: [{name: PORT, value: 8080}]}]}}",
                "template.spec.initContainers[0].env[0].value",
            ),
            (
                "kind: PodTemplate\ntemplate: {metadata: {annotations: {a.b/c: yes}}}",
                "template.metadata.annotations[\"a.b/c\"]",
            ),
        ] {
            let contents = contents_of(&format!("apiVersion: v1\n{text}"));
            let [Content::Fault { message, .. }] = &contents[..] else { panic!("{contents:?}") };
            assert!(message.contains(&format!("refused: {place} has to be a text")), "{text}: {message}");
        }
    }

    #[test]
    fn what_has_no_template_is_named() {
        let contents = contents_of("apiVersion: apps/v1\nkind: Deployment\nspec: {}");
        assert!(
            matches!(&contents[..], [Content::Fault { message, .. }] if message.contains("spec.template"))
        );
    }
}
