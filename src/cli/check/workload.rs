//! Finds the Pods to decide on in a document: its Pods, and templates from which controllers would create Pods.

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
    /// `Deployment/web`, with the path of the template if there are several; of an object to decide on.
    #[serde(skip)]
    pub(in crate::cli) label: String,
}

#[derive(Debug)]
pub struct Object {
    pub place: Place,
    /// JSON pointer of the path, which begins a patch's paths; `None` for a mere spec: without metadata no patch fits.
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

    /// Returns what the webhook would decide on, or why the API server would refuse the Pod.
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

    /// Returns the Pod as it would be created.
    pub(in crate::cli) fn pod(&self) -> Result<Pod<'_>, PodError> {
        match &self.given {
            Given::Template { owner } => {
                let pod = Pod::of_value(&self.value)?;
                Ok(pod.created_by(owner.as_str(), &*self.place.name))
            }
            // A Pod that was read from a cluster had no node when it was created.
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
    pub(super) fn fault(&self, Fault { line, message }: Fault) -> InputError {
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
    /// Adds what a document at this place has, with each item of a list by itself. `given` are version and kind from a
    /// typed list, whose items have none of their own.
    pub fn add(
        &mut self,
        node: &Node,
        at: &Place,
        given: Option<(&str, &str)>,
        custom: &[CustomKind],
    ) {
        if let Err(message) = self.add_object(node, at, given, custom) {
            let line = node.line;
            self.objects.push(Err(at.fault(Fault { line, message })));
        }
    }

    /// Adds an object, or returns its fault.
    fn add_object(
        &mut self,
        node: &Node,
        at: &Place,
        given: Option<(&str, &str)>,
        custom: &[CustomKind],
    ) -> Result<(), String> {
        if !matches!(node.data, Data::Map(_)) {
            return Err("it is no object with apiVersion and kind".to_owned());
        }
        let (given_version, given_kind) = given.unwrap_or_default();
        let version = match node.text("apiVersion") {
            "" => given_version,
            version => version,
        };
        let kind = match node.text("kind") {
            "" => given_kind,
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
            let given = if item.is_empty() {
                None
            } else {
                Some((version, item))
            };
            for node in items {
                self.add(node, at, given, custom);
            }
            return Ok(());
        }
        let pods = kinds::pods(node, group, kind, custom);
        match &pods.sought {
            Some(sought) if pods.templates.is_empty() && pods.images.is_empty() => {
                return Err(format!("the {kind} has no {sought}"));
            }
            _ => self.add_pods(node, at, group, kind, pods),
        }
        Ok(())
    }

    /// Counts an object if a part of it is passed over, or all of it.
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
            sought,
            templates,
            images,
        } = pods;
        let given = match (group, kind) {
            ("", "Pod") => Given::Pod,
            // By a path of the command line it is an object like others.
            ("admission.k8s.io", "AdmissionReview") if sought.is_none() => Given::Review,
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
            // Only objects of known types are checked: others may have numbers there.
            if sought.is_some()
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

/// Returns the namespace and the name of an object, or of the one that a review is about.
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

/// Members of metadata and of Pods that are always strings, and those whose own members always are.
const TEXTS: &[&str] = &["name", "generateName", "namespace", "image", "value"];
const OF_TEXTS: &[&str] = &["labels", "annotations", "nodeSelector"];

/// Returns a fault for a value without quotes where the API server takes only strings, and would refuse the object.
fn unquoted(object: &Node, kind: &str, template: &Part<'_>) -> Option<Fault> {
    let is_bare = |node: &Node, way: &[Step<'_>]| {
        let is_text = match way {
            [.., Step::Member(parent), Step::Member(_)] if OF_TEXTS.contains(parent) => true,
            [.., Step::Member(name)] => TEXTS.contains(name),
            _ => false,
        };
        is_text && matches!(node.data, Data::Bool(_) | Data::Number(_))
    };
    let metadata = Part::whole(object).within(&|_, way| matches!(way, [Step::Member("metadata")]));
    let checked = metadata.into_iter().chain([template.clone()]);
    let part = checked.flat_map(|part| part.within(&is_bare)).next()?;
    let shown = match &part.node.data {
        Data::Bool(flag) => {
            format!("the boolean {flag}; YAML takes on, off, yes and no for booleans")
        }
        _ => format!("the number {}", part.node.value()),
    };
    let path = part.path();
    let place = path.trim_start_matches('.');
    Some(Fault {
        line: part.node.line,
        message: format!(
            "the {kind} would be refused: {place} has to be a text, and is {shown}; put it in quotes"
        ),
    })
}

#[cfg(test)]
mod tests;
