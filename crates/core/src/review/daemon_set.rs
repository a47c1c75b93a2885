//! The DaemonSet under review.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Envelope, Request};
use crate::pod::{self, AppliedLists, DAEMON_SET, Pod, Text};
use tolerarch_text::json::Object;

/// Maximal bytes of a template that is read as a value, which takes some sixteen times as much for a moment.
const VALUE: usize = 256 << 10;

#[derive(Debug)]
pub struct DaemonSet<'a> {
    pub template: Template<'a>,
    /// The template before an update.
    pub before: Option<Template<'a>>,
}

impl DaemonSet<'_> {
    pub const TEMPLATE: &'static str = "/spec/template";
}

#[derive(Debug)]
pub struct Template<'a> {
    /// The Pod, as its controller would create it.
    pub pod: Pod<'a>,
    pub(super) json: Text<'a>,
}

impl Template<'_> {
    /// Parses the template's JSON; `None` if it is too large or nested too deep.
    pub fn value(&self) -> Option<Value> {
        let json = self.json.as_str();
        if json.len() <= VALUE { serde_json::from_str(json).ok() } else { None }
    }
}

#[derive(Deserialize)]
struct Controller<'a> {
    #[serde(borrow, default)]
    metadata: Metadata<'a>,
    #[serde(borrow)]
    spec: Object<TemplateSpec<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    managed_fields: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct TemplateSpec<'a> {
    #[serde(borrow)]
    template: &'a RawValue,
}

impl<'a> Controller<'a> {
    /// Reads the template of a DaemonSet that takes `bytes` in etcd; `None` if it is no template.
    fn template(self, bytes: usize, applied: AppliedLists) -> Option<Template<'a>> {
        let json = self.spec.0.template.get();
        let Object(pod) = pod::read::<Object<Pod<'a>>>(json.as_bytes()).ok()?;
        let mut pod = pod.created_by(DAEMON_SET.into(), self.metadata.name);
        (pod.bytes, pod.applied) = (bytes, applied);
        Some(Template { pod, json: json.into() })
    }
}

/// Reads the object of a review, and the object before the update; `None` if they are no DaemonSets. The body is read a
/// second time, which is fine as such reviews are rare.
pub(super) fn read(body: &[u8]) -> Option<DaemonSet<'_>> {
    type Set<'a> = Object<Controller<'a>>;
    let Object(change): Object<Envelope<'_, Set<'_>, Set<'_>>> = serde_json::from_slice(body).ok()?;
    let Request { object, old_object, .. } = change.request?;
    let Object(object) = object?;
    let bytes = pod::size_of_json(body);
    // A new DaemonSet that is applied with tolerarch's annotations is a copy of a managed one.
    let applied = old_object.as_ref().map_or_else(AppliedLists::default, |Object(old)| {
        AppliedLists::of(object.metadata.managed_fields, old.metadata.managed_fields)
    });
    // An earlier review cannot have added anything to a template that does not decode.
    let before = old_object.and_then(|Object(old)| {
        let applied = AppliedLists::of(old.metadata.managed_fields, old.metadata.managed_fields);
        old.template(bytes, applied)
    });
    Some(DaemonSet { template: object.template(bytes, applied)?, before })
}
