//! How parts of a Pod are read from JSON: borrowed.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

use super::{ITEMS, MIRROR_KEY, MODE_KEY, POOLS_KEY, PREFER_KEY, PREFERRED_KEY, REASON_KEY, REQUIRED_KEY};

/// A text that borrows from the JSON unless it had to be unescaped.
///
/// (serde borrows into a plain `Cow<str>` field, but not into one within an `Option` or a list.)
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, serde::Deserialize, serde::Serialize)]
#[serde(transparent)]
pub struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Text<'_> {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> From<&'a str> for Text<'a> {
    fn from(text: &'a str) -> Self {
        Self(text.into())
    }
}

impl From<Text<'_>> for String {
    fn from(text: Text<'_>) -> Self {
        text.0.into_owned()
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

/// Reads null as the empty text, as the API server does, which is not as if the member were absent.
pub(super) fn empty_if_null<'de: 'a, 'a, D: Deserializer<'de>>(
    json: D,
) -> Result<Option<Text<'a>>, D::Error> {
    Ok(Some(Option::deserialize(json)?.unwrap_or_default()))
}

/// The annotations that matter, and whether there are any.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Annotations<'a> {
    /// How many there are, these and others.
    pub(super) count: usize,
    /// Bytes of all of them, keys and values.
    pub(super) bytes: usize,
    pub(super) mode: Option<Text<'a>>,
    pub(super) pools: Option<Text<'a>>,
    pub(super) required: Option<Text<'a>>,
    pub(super) reason: Option<Text<'a>>,
    pub(super) preferred: Option<Text<'a>>,
    pub(super) prefer: Option<Text<'a>>,
    pub(super) mirror: bool,
}

impl<'de: 'a, 'a> Deserialize<'de> for Annotations<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pick;
        impl<'de> Visitor<'de> for Pick {
            type Value = Annotations<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut picked = Annotations::default();
                while let Some(key) = map.next_key::<Text<'de>>()? {
                    picked.count += 1;
                    let value = map.next_value::<Option<Text<'de>>>()?;
                    picked.bytes +=
                        key.as_str().len() + value.as_ref().map_or(0, |value| value.as_str().len());
                    match key.as_str() {
                        // The API server reads null as the empty text.
                        MODE_KEY => picked.mode = Some(value.unwrap_or_default()),
                        POOLS_KEY => picked.pools = value,
                        REQUIRED_KEY => picked.required = value,
                        REASON_KEY => picked.reason = Some(value.unwrap_or_default()),
                        PREFERRED_KEY => picked.preferred = value,
                        PREFER_KEY => picked.prefer = value,
                        MIRROR_KEY => picked.mirror = true,
                        _ => {}
                    }
                }
                Ok(picked)
            }
        }
        deserializer.deserialize_map(Pick)
    }
}

/// An object of texts, such as labels.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Texts<'a>(Vec<(Text<'a>, Text<'a>)>);

impl Texts<'_> {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key.as_str() == name).map(|(_, text)| text.as_str())
    }

    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.iter().map(|(key, _)| key.as_str())
    }

    /// The same with another value of this name, or without the name.
    pub(crate) fn with(&self, name: &'static str, value: Option<&'static str>) -> Self {
        let others = self.0.iter().filter(|(key, _)| key.as_str() != name).cloned();
        Self(others.chain(value.map(|value| (name.into(), value.into()))).collect())
    }
}

impl serde::Serialize for Texts<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, text)| (name, text)))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Texts<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Texts<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of strings")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((name, text)) = map.next_entry::<_, Option<Text<'de>>>()? {
                    if members.len() == ITEMS {
                        return Err(A::Error::custom("too many members"));
                    }
                    members.push((name, text.unwrap_or_default()));
                }
                Ok(Texts(members))
            }
        }
        deserializer.deserialize_map(Members)
    }
}
