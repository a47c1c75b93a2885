//! The template of a controller's Pods.

use serde_json::Value;
use serde_json::value::RawValue;

use super::json::{Text, read};
use super::{DAEMON_SET, Pod};
use tolerarch_text::json::Object;

/// Maximal bytes of a template that is read as a value, which takes some sixteen times as much for a moment.
const VALUE: usize = 256 << 10;

#[derive(Debug)]
pub struct Template<'a> {
    /// The Pod, as its controller would create it.
    pub pod: Pod<'a>,
    pub(super) json: Text<'a>,
}

impl<'a> Template<'a> {
    /// Reads the template of the DaemonSet of this name, which takes `bytes` in etcd; `None` if `json` is no template.
    pub(crate) fn of_json(json: &'a RawValue, name: Text<'a>, bytes: usize) -> Option<Self> {
        let Object(pod) = read::<Object<Pod<'a>>>(json.get().as_bytes()).ok()?;
        let pod = Pod { bytes, ..pod.created_by(DAEMON_SET.into(), name) };
        Some(Self { pod, json: json.get().into() })
    }

    /// Parses the template's JSON; `None` if it is too large or nested too deep.
    pub fn value(&self) -> Option<Value> {
        let json = self.json.as_str();
        if json.len() <= VALUE { serde_json::from_str(json).ok() } else { None }
    }
}
