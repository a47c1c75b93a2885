//! The DaemonSet under review.

use serde_json::Value;
use serde_json::value::RawValue;

use crate::pod::{self, AppliedLists, DAEMON_SET, Pod, Text, member};
use tolerarch_text::json::Object;

/// JSON pointer to the template in a DaemonSet.
pub const TEMPLATE: &str = "/spec/template";
/// Maximal bytes of a template that is read as a value, which takes some sixteen times as much for a moment.
const VALUE: usize = 256 << 10;

#[derive(Debug)]
pub struct DaemonSet<'a> {
    pub template: Template<'a>,
    /// The template before an update.
    pub before: Option<Template<'a>>,
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
        if json.len() <= VALUE {
            serde_json::from_str(json).ok()
        } else {
            None
        }
    }
}

/// Reads the template of a DaemonSet that takes `bytes` in etcd; `None` if it is no template.
fn template(set: &RawValue, bytes: usize, applied: AppliedLists) -> Option<Template<'_>> {
    let name: Text<'_> = match member(set, "/metadata/name") {
        Some(name) => serde_json::from_str(name.get()).ok()?,
        None => Text::default(),
    };
    let json = member(set, TEMPLATE)?.get();
    let Object(pod) = pod::read::<Object<Pod<'_>>>(json.as_bytes()).ok()?;
    let mut pod = pod.created_by(DAEMON_SET, name);
    pod.bytes = bytes;
    pod.applied = applied;
    Some(Template {
        pod,
        json: json.into(),
    })
}

/// Reads the object of a review, and the object before the update; `None` if they are no DaemonSets. The body is read
/// several times, which is fine as such reviews are rare.
pub(super) fn read(body: &[u8]) -> Option<DaemonSet<'_>> {
    let review: &RawValue = serde_json::from_slice(body).ok()?;
    let object = |pointer| member(review, pointer).filter(|object| object.get() != "null");
    let new = object("/request/object")?;
    let bytes = pod::size_of_json(body);
    let Some(old) = object("/request/oldObject") else {
        // A new DaemonSet that is applied with tolerarch's annotations is a copy of a managed one.
        return Some(DaemonSet {
            template: template(new, bytes, AppliedLists::default())?,
            before: None,
        });
    };
    member(old, TEMPLATE)?;
    Some(DaemonSet {
        template: template(new, bytes, AppliedLists::of(new, old))?,
        // An earlier review cannot have added anything to a template that does not decode.
        before: template(old, bytes, AppliedLists::of(old, old)),
    })
}
