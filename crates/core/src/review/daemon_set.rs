//! The DaemonSet under review.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Subject;
use crate::pod::{self, AppliedLists, Template, Text};
use tolerarch_text::json::Object;

#[derive(Debug)]
pub struct DaemonSet<'a> {
    pub template: Template<'a>,
    /// The template before an update.
    pub before: Option<Template<'a>>,
}

impl DaemonSet<'_> {
    pub const TEMPLATE: &'static str = "/spec/template";
}

/// The body of a review of a DaemonSet, read a second time, which is fine as such reviews are rare.
#[derive(Deserialize)]
struct Change<'a> {
    #[serde(borrow)]
    request: Objects<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Objects<'a> {
    #[serde(borrow)]
    object: Object<Controller<'a>>,
    #[serde(borrow)]
    old_object: Option<Object<Controller<'a>>>,
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
    fn template(self, bytes: usize, applied: AppliedLists) -> Option<Template<'a>> {
        let mut template = Template::of_json(self.spec.0.template, self.metadata.name, bytes)?;
        template.pod.applied = applied;
        Some(template)
    }
}

/// Reads the object of a review, and the object before the update.
pub(super) fn read(body: &[u8]) -> Subject<'_> {
    let Ok(Change { request: Objects { object, old_object } }) = serde_json::from_slice(body) else {
        return Subject::Malformed;
    };
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
    let template = object.0.template(bytes, applied);
    template
        .map_or(Subject::Malformed, |template| Subject::DaemonSet(Box::new(DaemonSet { template, before })))
}
