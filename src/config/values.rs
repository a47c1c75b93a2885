//! The scalars of the configuration: what a text may be, and how it is written again.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::ValueEnum;
use ipnet::IpNet;
use serde_json::{Value as Json, json};

use super::shape::Value;
use tolerarch_core::image::canonical_name;
use tolerarch_core::pod::Text;
use tolerarch_core::policy::Mode;
use tolerarch_images::credentials::ImagePattern;
use tolerarch_kubernetes::cluster::ObjectName;

impl Value for usize {
    fn expected(&self) -> Cow<'static, str> {
        format!("a number from 1 to {COUNT_MAX}").into()
    }

    fn schema(&self) -> Json {
        json!({"type": "integer", "minimum": 1, "maximum": COUNT_MAX})
    }

    fn read(&mut self, text: &str) -> bool {
        taken(self, text.parse().ok().filter(|number| (1..=COUNT_MAX).contains(number)))
    }

    fn written(&self) -> Json {
        json!(self)
    }
}

const COUNT_MAX: usize = 100_000_000;

impl Value for Option<i64> {
    fn expected(&self) -> Cow<'static, str> {
        "a number of seconds".into()
    }

    fn schema(&self) -> Json {
        json!({"type": "integer"})
    }

    fn read(&mut self, text: &str) -> bool {
        taken(self, text.parse().ok().map(Some))
    }

    fn written(&self) -> Json {
        json!(self)
    }
}

impl Value for bool {
    fn expected(&self) -> Cow<'static, str> {
        "true or false".into()
    }

    fn schema(&self) -> Json {
        json!({"type": "boolean"})
    }

    fn read(&mut self, text: &str) -> bool {
        taken(self, text.parse().ok())
    }

    fn written(&self) -> Json {
        json!(self)
    }
}

impl Value for SocketAddr {
    fn expected(&self) -> Cow<'static, str> {
        "an address and a port such as \"[::]:8443\"".into()
    }

    fn schema(&self) -> Json {
        json!({"type": "string", "pattern": r"^([0-9.]+|\[[0-9A-Fa-f:.%]+\]):[0-9]+$"})
    }

    fn read(&mut self, text: &str) -> bool {
        taken(self, text.parse().ok())
    }

    fn written(&self) -> Json {
        json!(self.to_string())
    }
}

impl Value for IpNet {
    fn expected(&self) -> Cow<'static, str> {
        "a network such as 10.0.0.0/8".into()
    }

    fn schema(&self) -> Json {
        json!({"type": "string", "pattern": "^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$", "examples": ["10.0.0.0/8"]})
    }

    fn read(&mut self, text: &str) -> bool {
        taken(self, text.parse().or_else(|_| text.parse::<IpAddr>().map(Self::from)).ok())
    }

    fn written(&self) -> Json {
        json!(self.to_string())
    }
}

impl Value for PathBuf {
    fn expected(&self) -> Cow<'static, str> {
        "the path of a file".into()
    }

    fn schema(&self) -> Json {
        json!({"type": "string", "minLength": 1})
    }

    fn read(&mut self, text: &str) -> bool {
        taken(self, (!text.is_empty()).then(|| text.into()))
    }

    fn written(&self) -> Json {
        json!(self.to_string_lossy())
    }

    fn file(&self) -> Option<PathBuf> {
        Some(self.clone())
    }
}

/// A path that may be missing, written as `""`.
impl Value for Option<PathBuf> {
    fn expected(&self) -> Cow<'static, str> {
        "the path of a file".into()
    }

    fn schema(&self) -> Json {
        json!({"type": "string"})
    }

    fn read(&mut self, text: &str) -> bool {
        *self = (!text.is_empty()).then(|| text.into());
        true
    }

    fn written(&self) -> Json {
        self.as_ref().map_or_else(|| json!(""), |path| json!(path.to_string_lossy()))
    }

    fn file(&self) -> Option<PathBuf> {
        self.clone()
    }
}

impl Value for ImagePattern {
    fn expected(&self) -> Cow<'static, str> {
        "a pattern of images such as *.dkr.ecr.*.amazonaws.com or registry.example.com:5000/team, without https://"
            .into()
    }

    fn schema(&self) -> Json {
        json!({"type": "string", "pattern": r"^[^/:@?#\s][^@?#\s]*$", "examples": ["*.dkr.ecr.*.amazonaws.com"]})
    }

    fn read(&mut self, text: &str) -> bool {
        taken(self, canonical_name(text).parse().ok())
    }

    fn written(&self) -> Json {
        json!(self.as_str())
    }
}

impl Value for ObjectName {
    fn expected(&self) -> Cow<'static, str> {
        "the name of a Kubernetes object".into()
    }

    fn schema(&self) -> Json {
        json!({"type": "string", "pattern": r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$", "maxLength": 253})
    }

    fn read(&mut self, text: &str) -> bool {
        taken(self, Self::new(text))
    }

    fn written(&self) -> Json {
        json!(self.as_str())
    }
}

/// A name that may be missing, written as `""`.
impl Value for Option<ObjectName> {
    fn expected(&self) -> Cow<'static, str> {
        "a name such as tolerarch.tolerarch.svc".into()
    }

    fn schema(&self) -> Json {
        json!({"type": "string", "pattern": r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*)?$", "maxLength": 253})
    }

    fn read(&mut self, text: &str) -> bool {
        taken(self, if text.is_empty() { Some(None) } else { ObjectName::new(text).map(Some) })
    }

    fn written(&self) -> Json {
        json!(self.as_ref().map_or("", ObjectName::as_str))
    }
}

const MODES: [(&str, Mode); 2] = [("enforce", Mode::Enforce), ("observe", Mode::Observe)];

impl Value for Mode {
    fn expected(&self) -> Cow<'static, str> {
        either(&MODES.map(|(name, _)| name)).into()
    }

    fn schema(&self) -> Json {
        json!({"enum": MODES.map(|(name, _)| name)})
    }

    fn read(&mut self, text: &str) -> bool {
        taken(self, MODES.iter().find(|(name, _)| *name == text).map(|(_, mode)| *mode))
    }

    fn written(&self) -> Json {
        json!(MODES.iter().find(|(_, mode)| mode == self).map(|(name, _)| name))
    }
}

/// One of the variants of a type, by the names that the command line knows them by, too.
pub(super) struct Choice<'a, T>(pub(super) &'a mut T);

/// The names of all variants.
fn names<T: ValueEnum>() -> Vec<String> {
    T::value_variants().iter().filter_map(name).collect()
}

/// The name of one variant.
fn name<T: ValueEnum>(variant: &T) -> Option<String> {
    variant.to_possible_value().map(|value| value.get_name().to_owned())
}

impl<T: ValueEnum> Value for Choice<'_, T> {
    fn expected(&self) -> Cow<'static, str> {
        either(&names::<T>()).into()
    }

    fn schema(&self) -> Json {
        json!({"enum": names::<T>()})
    }

    fn read(&mut self, text: &str) -> bool {
        taken(self.0, T::from_str(text, false).ok())
    }

    fn written(&self) -> Json {
        json!(name(self.0))
    }
}

/// One of the variants, or nothing, which is not written.
pub(super) struct Maybe<'a, T>(pub(super) &'a mut Option<T>);

impl<T: ValueEnum> Value for Maybe<'_, T> {
    fn expected(&self) -> Cow<'static, str> {
        either(&names::<T>()).into()
    }

    fn schema(&self) -> Json {
        json!({"enum": names::<T>()})
    }

    fn read(&mut self, text: &str) -> bool {
        taken(self.0, T::from_str(text, false).ok().map(Some))
    }

    fn written(&self) -> Json {
        json!(self.0.as_ref().and_then(name))
    }
}

/// A text that has to pass a check; nothing is written for the empty one.
pub(super) struct Checked<'a> {
    pub(super) text: &'a mut Text<'static>,
    pub(super) expected: &'static str,
    /// As a regular expression, for the schema.
    pub(super) pattern: &'static str,
    pub(super) check: fn(&str) -> bool,
}

impl Value for Checked<'_> {
    fn expected(&self) -> Cow<'static, str> {
        self.expected.into()
    }

    fn schema(&self) -> Json {
        json!({"type": "string", "pattern": self.pattern})
    }

    fn read(&mut self, text: &str) -> bool {
        taken(self.text, (self.check)(text).then(|| text.to_owned().into()))
    }

    fn written(&self) -> Json {
        if self.text.is_empty() { Json::Null } else { json!(self.text.as_str()) }
    }
}

/// One of these texts; nothing is written for the empty one.
pub(super) struct OneOf<'a>(pub(super) &'a mut Text<'static>, pub(super) &'static [&'static str]);

impl Value for OneOf<'_> {
    fn expected(&self) -> Cow<'static, str> {
        let names: Vec<&str> =
            self.1.iter().map(|name| if name.is_empty() { "\"\"" } else { *name }).collect();
        either(&names).into()
    }

    fn schema(&self) -> Json {
        json!({"enum": self.1})
    }

    fn read(&mut self, text: &str) -> bool {
        taken(self.0, self.1.contains(&text).then(|| text.to_owned().into()))
    }

    fn written(&self) -> Json {
        if self.0.is_empty() { Json::Null } else { json!(self.0.as_str()) }
    }
}

/// `a, b or c`.
pub(super) fn either<T: AsRef<str>>(names: &[T]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.split_last() {
        Some((last, first)) if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => names.concat(),
    }
}

/// Puts a value that there is into its slot.
pub(super) fn taken<T>(slot: &mut T, value: Option<T>) -> bool {
    let there = value.is_some();
    if let Some(value) = value {
        *slot = value;
    }
    there
}
