//! Templates under review. Controllers create Pods from these templates.

use serde_json::Value;
use serde_json::value::RawValue;

use crate::pod::{self, AppliedLists, DAEMON_SET, Pod, Text, member};
use tolerarch_text::json::Object;

/// Maximum bytes of a template that is parsed as a value. For a moment, the value takes some sixteen times as much
/// memory as the JSON.
const MAX_VALUE_BYTES: usize = 256 << 10;

/// The kind of an object whose template is decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplateKind {
    DaemonSet,
    /// Autoscalers read PodTemplates, and prepare nodes for Pods like the template.
    PodTemplate,
}

impl TemplateKind {
    pub(super) const ALL: [Self; 2] = [Self::DaemonSet, Self::PodTemplate];

    pub(super) fn group(self) -> &'static str {
        match self {
            Self::DaemonSet => "apps",
            Self::PodTemplate => "",
        }
    }

    pub(super) fn resource(self) -> &'static str {
        match self {
            Self::DaemonSet => "daemonsets",
            Self::PodTemplate => "podtemplates",
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::DaemonSet => DAEMON_SET,
            Self::PodTemplate => "PodTemplate",
        }
    }

    /// Returns the JSON pointer to the template in an object of this kind.
    pub fn template_pointer(self) -> &'static str {
        match self {
            Self::DaemonSet => "/spec/template",
            Self::PodTemplate => "/template",
        }
    }

    /// Returns the JSON pointer to the template's spec in `fieldsV1`.
    fn spec_pointer_in_fields(self) -> &'static str {
        match self {
            Self::DaemonSet => "/f:spec/f:template/f:spec",
            Self::PodTemplate => "/f:template/f:spec",
        }
    }
}

/// The creation or update of an object with a template.
#[derive(Debug)]
pub struct TemplateChange<'a> {
    pub kind: TemplateKind,
    pub template: Template<'a>,
    /// The template before an update; `None` for a new object, or if the template does not decode.
    pub previous: Option<Template<'a>>,
}

#[derive(Debug)]
pub struct Template<'a> {
    /// The Pod that a controller would create from the template.
    pub pod: Pod<'a>,
    pub(super) json: Text<'a>,
}

impl Template<'_> {
    /// Parses the template's JSON; `None` if it is too large or nested too deep.
    pub fn value(&self) -> Option<Value> {
        let json = self.json.as_str();
        if json.len() > MAX_VALUE_BYTES {
            return None;
        }
        serde_json::from_str(json).ok()
    }
}

/// Reads the template of an object that takes at most `bytes` in etcd; `None` if the object has no valid template.
fn read_template(
    kind: TemplateKind,
    object: &RawValue,
    bytes: usize,
    applied: AppliedLists,
) -> Option<Template<'_>> {
    let mut name = read_text(object, "/metadata/name")?;
    if name.is_empty() {
        name = read_text(object, "/metadata/generateName")?;
    }
    let json = member(object, kind.template_pointer())?.get();
    let result = pod::read::<Object<Pod<'_>>>(json.as_bytes());
    let Object(pod) = result.ok()?;
    let mut pod = pod.created_by(kind.name(), name);
    pod.bytes = bytes;
    pod.applied = applied;
    Some(Template {
        pod,
        json: json.into(),
    })
}

/// Reads a member that is a string. Returns an empty text if the member is absent, and `None` if it is not a string.
fn read_text<'a>(object: &'a RawValue, pointer: &str) -> Option<Text<'a>> {
    match member(object, pointer) {
        Some(value) => serde_json::from_str(value.get()).ok(),
        None => Some(Text::default()),
    }
}

/// Reads the template in the object of a review, and the template before an update; `None` if either object has no
/// template. The body is parsed several times. That is acceptable, because such reviews are rare.
pub(super) fn read(kind: TemplateKind, body: &[u8]) -> Option<TemplateChange<'_>> {
    let review: &RawValue = serde_json::from_slice(body).ok()?;
    let object_at = |pointer| {
        let object = member(review, pointer)?;
        if object.get() == "null" {
            return None;
        }
        Some(object)
    };
    let new = object_at("/request/object")?;
    let bytes = pod::size_of_json(body);
    let Some(old) = object_at("/request/oldObject") else {
        // No list of a new object counts as applied. An object that is applied with tolerarch's annotations is a copy
        // of a managed object.
        let template = read_template(kind, new, bytes, AppliedLists::default())?;
        return Some(TemplateChange {
            kind,
            template,
            previous: None,
        });
    };
    member(old, kind.template_pointer())?;
    let applied = AppliedLists::of(new, old, kind.spec_pointer_in_fields());
    let applied_before = AppliedLists::of(old, old, kind.spec_pointer_in_fields());
    Some(TemplateChange {
        kind,
        template: read_template(kind, new, bytes, applied)?,
        // If the old template does not decode, no earlier review can have added anything to it.
        previous: read_template(kind, old, bytes, applied_before),
    })
}
