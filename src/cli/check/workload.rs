//! Finds the objects to decide on in a document: Pods, and templates from which controllers would create Pods.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

use super::kinds::{self, CustomKind, Pods, is_of_kubernetes, is_templateless};
use super::part::{Part, Step};
use tolerarch_core::image::ImageRef;
use tolerarch_core::pod::{Pod, PodError};
use tolerarch_core::reason::Reason;
use tolerarch_core::review::{self, Subject};
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
    /// Label of an object to decide on: `Deployment/web`, with the path of the template if there are several.
    #[serde(skip)]
    pub(in crate::cli) label: String,
}

#[derive(Debug)]
pub struct Object {
    pub place: Place,
    /// JSON pointer of the template, with which the paths of a patch begin; `None` for a spec without metadata, for which
    /// no patch is possible.
    pub(super) template: Option<String>,
    pub given: Given,
    /// The Pod, its template, or the review of it.
    pub value: Value,
}

impl Object {
    fn new(part: &Part<'_>, place: Place, given: Given) -> Self {
        let mut value = part.node.value();
        let is_spec = value.get("spec").is_none() && value.get("containers").is_some();
        if is_spec && !matches!(given, Given::Pod) {
            value = json!({"spec": value});
        }
        Self {
            place,
            template: (!is_spec).then(|| part.pointer()),
            given,
            value,
        }
    }

    /// Returns the images to look up.
    pub(in crate::cli) fn images(&self) -> Vec<ImageRef> {
        let subject = self.subject().ok();
        let Some((_, pod)) = subject.as_ref().and_then(Subject::pod) else {
            return Vec::new();
        };
        let usages = pod.images().into_iter();
        usages.filter_map(|usage| usage.image.ok()).collect()
    }

    /// Returns the subject of the webhook's decision, or why the API server would refuse the Pod.
    pub(super) fn subject(&self) -> Result<Subject<'_>, String> {
        let unread = |error: PodError| self.malformed(&error.to_string());
        if !matches!(self.given, Given::Review) {
            return Ok(Subject::Pod(self.pod().map_err(unread)?.into()));
        }
        let review = review::of_value(&self.value).map_err(|error| error.to_string())?;
        if !matches!(review.subject, Subject::Skipped(Reason::Malformed)) {
            return Ok(review.subject);
        }
        match self.value.pointer("/request/object") {
            None | Some(Value::Null) => Err(self.malformed("request.object is missing")),
            Some(object) => Ok(Subject::Pod(Pod::of_value(object).map_err(unread)?.into())),
        }
    }

    pub(super) fn malformed(&self, why: &str) -> String {
        let Place { kind, name, .. } = &self.place;
        format!("the Pod of {kind} {name:?} is malformed: {why}")
    }

    /// Returns the Pod as it would be when it is created.
    pub(in crate::cli) fn pod(&self) -> Result<Pod<'_>, PodError> {
        match &self.given {
            Given::Template { owner } => {
                let pod = Pod::of_value(&self.value)?;
                Ok(pod.created_by(owner.as_str(), &*self.place.name))
            }
            // A Pod that was read from a cluster is decided as it was created: without a node.
            Given::Pod if self.value["metadata"]["uid"].is_string() => {
                Pod::of_value(&self.value).map(Pod::as_created)
            }
            Given::Pod | Given::Review => Pod::of_value(&self.value),
        }
    }
}

#[derive(Clone, Debug)]
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

#[derive(Debug, Serialize)]
pub struct InputError {
    pub(super) file: String,
    /// Number of the document from 1; 0 for the whole file.
    pub(super) document: usize,
    /// Line from 1; 0 for the whole file.
    pub line: usize,
    pub message: String,
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            document,
            line,
            message,
        } = self;
        let file = if file == "-" { "standard input" } else { file };
        match document {
            0 => write!(f, "{file}: {message}"),
            _ => write!(f, "{file}: document {document}, line {line}: {message}"),
        }
    }
}

impl Place {
    pub(super) fn fault(&self, fault: Fault) -> InputError {
        let Fault { line, message, .. } = fault;
        InputError {
            file: self.file.clone(),
            document: self.document,
            line,
            message,
        }
    }
}

/// Contents of documents, in the form of `check -o json`.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Contents {
    /// Objects to decide on, and errors, in the order of the documents.
    #[serde(skip)]
    pub objects: Vec<Result<Object, InputError>>,
    /// Number of objects of each kind that brings no Pods.
    pub(super) skipped: BTreeMap<String, usize>,
    /// Number of objects of each kind that names images outside the templates that are found.
    pub(super) not_looked_at: BTreeMap<String, usize>,
    #[serde(rename = "imagesNotLookedAt")]
    pub(super) unseen_images: Vec<UnseenImage>,
    /// Number of objects of each kind that has no template for its operator's Pods.
    pub(super) without_template: BTreeMap<String, usize>,
}

impl Contents {
    /// Adds the objects of a document, with each item of a list separately. `inherited` are version and kind from a typed
    /// list, whose items have none.
    pub fn add(
        &mut self,
        node: &Node,
        at: &Place,
        inherited: Option<(&str, &str)>,
        custom: &[CustomKind],
    ) {
        if let Err(message) = self.add_object(node, at, inherited, custom) {
            let fault = Fault::new(node.line, message);
            self.objects.push(Err(at.fault(fault)));
        }
    }

    /// Adds an object, or returns its fault.
    fn add_object(
        &mut self,
        node: &Node,
        at: &Place,
        inherited: Option<(&str, &str)>,
        custom: &[CustomKind],
    ) -> Result<(), String> {
        if !matches!(node.data, Data::Map(_)) {
            return Err("it is no object with apiVersion and kind".to_owned());
        }
        let (inherited_version, inherited_kind) = inherited.unwrap_or_default();
        let version = match node.text("apiVersion") {
            "" => inherited_version,
            version => version,
        };
        let kind = match node.text("kind") {
            "" => inherited_kind,
            kind => kind,
        };
        if version.is_empty() || kind.is_empty() {
            return Err("it has no apiVersion or no kind".to_owned());
        }
        let group = version.split_once('/').map_or("", |(group, _)| group);
        if let (Some(item), Some(items)) = (kind.strip_suffix("List"), node.get("items")) {
            let Data::List(items) = &items.data else {
                return Err("its items are no list".to_owned());
            };
            let inherited = if item.is_empty() {
                None
            } else {
                Some((version, item))
            };
            for node in items {
                self.add(node, at, inherited, custom);
            }
            return Ok(());
        }
        let pods = kinds::pods(node, group, kind, custom);
        match &pods.required_template {
            Some(template) if pods.templates.is_empty() && pods.images.is_empty() => {
                return Err(format!("the {kind} has no {template}"));
            }
            _ => self.add_pods(node, at, group, kind, pods),
        }
        Ok(())
    }

    /// Counts an object of which a part or everything is skipped.
    fn count(&mut self, node: &Node, group: &str, kind: &str, pods: &Pods<'_>) {
        let counts = if !pods.images.is_empty() {
            &mut self.not_looked_at
        } else if !pods.templates.is_empty() || kind == "List" {
            return;
        } else if is_templateless(node, group, kind) {
            &mut self.without_template
        } else {
            &mut self.skipped
        };
        let full_kind = if group.is_empty() || is_of_kubernetes(group, kind) {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        *counts.entry(full_kind).or_default() += 1;
    }

    /// Adds the Pods of an object and the images outside of them.
    fn add_pods(&mut self, node: &Node, at: &Place, group: &str, kind: &str, pods: Pods<'_>) {
        self.count(node, group, kind, &pods);
        let Pods {
            required_template,
            templates,
            images,
        } = pods;
        let given = match (group, kind) {
            ("", "Pod") => Given::Pod,
            // If the command line names a path in this kind, it is an object like others.
            ("admission.k8s.io", "AdmissionReview") if required_template.is_none() => Given::Review,
            _ => Given::Template {
                owner: kinds::controller(group, kind).unwrap_or(kind).to_owned(),
            },
        };
        let (namespace, name) = identity(node, &given);
        let object = Place {
            kind: kind.to_owned(),
            namespace,
            name,
            ..at.clone()
        };
        let place = |line, part: &Part<'_>| Place {
            line,
            path: part.path(),
            ..object.clone()
        };
        for part in &images {
            self.unseen_images.push(UnseenImage {
                place: place(part.node.line, part),
                image: kinds::image(part.node).to_owned(),
            });
        }
        let is_one_of_several = templates.len() > 1;
        for part in templates {
            // Only objects of known types are checked: others may have numbers in these members.
            if required_template.is_some()
                && let Some(fault) = unquoted(node, kind, &part)
            {
                self.objects.push(Err(at.fault(fault)));
                continue;
            }
            let mut place = place(node.line, &part);
            place.label = format!("{kind}/{}", place.name);
            if is_one_of_several {
                place.label += &place.path;
            }
            self.objects
                .push(Ok(Object::new(&part, place, given.clone())));
        }
    }
}

/// Returns the namespace and the name of an object, or of the object in a review.
fn identity(node: &Node, given: &Given) -> (String, String) {
    let parts: &[&[&str]] = match given {
        Given::Review => &[&["request"], &["request", "object", "metadata"]],
        Given::Pod | Given::Template { .. } => &[&["metadata"]],
    };
    let text = |name: &str| {
        let mut texts = parts
            .iter()
            .filter_map(|part| Some(node.at(part)?.text(name)));
        let text = texts.find(|text| !text.is_empty());
        text.unwrap_or_default().to_owned()
    };
    let mut name = text("name");
    if name.is_empty() {
        name = text("generateName");
    }
    (text("namespace"), name)
}

/// Members of metadata and of Pods that are always strings.
const TEXTS: &[&str] = &["name", "generateName", "namespace", "image", "value"];
/// Members of metadata and of Pods whose own members are always strings.
const MAPS_OF_TEXTS: &[&str] = &["labels", "annotations", "nodeSelector"];

/// Returns a fault for a value without quotes where the API server accepts only strings, and would refuse the object.
fn unquoted(object: &Node, kind: &str, template: &Part<'_>) -> Option<Fault> {
    let is_unquoted = |node: &Node, path: &[Step<'_>]| {
        let is_text = match path {
            [.., Step::Member(parent), Step::Member(_)] if MAPS_OF_TEXTS.contains(parent) => true,
            [.., Step::Member(name)] => TEXTS.contains(name),
            _ => false,
        };
        is_text && matches!(node.data, Data::Bool(_) | Data::Number(_))
    };
    let is_metadata = |_: &Node, path: &[Step<'_>]| matches!(path, [Step::Member("metadata")]);
    let mut parts = Part::whole(object).within(&is_metadata);
    parts.push(template.clone());
    let unquoted = parts.into_iter().flat_map(|part| part.within(&is_unquoted));
    let part = unquoted.into_iter().next()?;
    let value = match &part.node.data {
        Data::Bool(flag) => {
            format!("the boolean {flag}; YAML takes on, off, yes and no for booleans")
        }
        _ => format!("the number {}", part.node.value()),
    };
    let path = part.path();
    let path = path.trim_start_matches('.');
    let message = format!(
        "the {kind} would be refused: {path} has to be a text, and is {value}; put it in quotes"
    );
    Some(Fault::new(part.node.line, message))
}

#[cfg(test)]
mod tests;
