//! The template by which a controller makes its Pods.

use std::borrow::Cow;

use serde_json::Value;
use serde_json::value::RawValue;

use super::{Pod, Text};
use tolerarch_text::json::{self, Object};

/// Bytes of a template that is read as a value, which takes some sixteen times as much for a moment.
const VALUE: usize = 256 << 10;

/// A template, and the Pod that it describes.
#[derive(Debug)]
pub struct Template<'a> {
    /// The Pod, as its controller would create it.
    pub pod: Pod<'a>,
    json: Cow<'a, str>,
}

impl<'a> Template<'a> {
    /// The template of the controller of this kind and name, which takes `bytes` where it is stored; `None` if it is none.
    pub(crate) fn of_json(
        json: &'a RawValue,
        kind: &'static str,
        name: Text<'a>,
        bytes: usize,
    ) -> Option<Self> {
        let json = json.get();
        let read = json::read::<Object<Pod<'a>>>(json.as_bytes());
        let Object(pod) = read.or_else(|_| serde_json::from_str(json)).ok()?;
        let pod = Pod { bytes, template_of: Some((kind.into(), name)), ..pod };
        Some(Self { pod, json: json.into() })
    }

    /// All of it; `None` where it is too large or too deep for that.
    pub fn value(&self) -> Option<Value> {
        (self.json.len() <= VALUE).then(|| serde_json::from_str(&self.json).ok()).flatten()
    }

    /// The same, without the bytes that it was read from.
    pub(crate) fn into_owned(self) -> Template<'static> {
        Template { pod: self.pod.into_owned(), json: self.json.into_owned().into() }
    }

    /// Bytes that it holds while its images are looked up, or a few more.
    pub(crate) fn held(&self) -> usize {
        self.pod.held() + self.json.len()
    }
}
