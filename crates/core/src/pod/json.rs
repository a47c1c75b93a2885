//! Deserializers for parts of a Pod. Values borrow from the JSON, and null means the same as an absent or empty member, as
//! for the API server.

use std::borrow::{Borrow, Cow};
use std::collections::BTreeMap;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use tolerarch_text::json::{self, First, Object, Unread};

/// Maximum number of items in a list. No Pod has more: etcd takes 1.5 MB, and the API server 3 MiB.
pub(super) const ITEMS: usize = 4096;
/// Maximum bytes of labels, of a node selector or of an affinity. Their lists take up to sixty times as many bytes while
/// the Pod is decided on. People write a few hundred bytes.
const SMALL: usize = 64 << 10;

/// A text that borrows from the JSON unless it has escapes; empty if it is null or absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Text<'a>(pub(super) Cow<'a, str>);

/// A text that is not null. (serde borrows into a plain `Cow<str>` field, but not within an `Option` or a list.)
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct Name<'a>(#[serde(borrow)] pub(super) Cow<'a, str>);

pub(crate) type Texts<'a> = BTreeMap<Text<'a>, Text<'a>>;

impl Text<'_> {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        match Option::<Name<'a>>::deserialize(json)? {
            Some(Name(text)) => Ok(Self(text)),
            None => Ok(Self::default()),
        }
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

impl PartialEq<str> for Text<'_> {
    fn eq(&self, text: &str) -> bool {
        self.as_str() == text
    }
}

impl Borrow<str> for Text<'_> {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

/// Reads the API server's JSON with the fast reader, and any other JSON with serde_json.
pub(crate) fn read<'a, T: Deserialize<'a>>(json: &'a [u8]) -> serde_json::Result<T> {
    match json::read(json) {
        Ok(value) => Ok(value),
        Err(_) => serde_json::from_slice(json),
    }
}

/// Reads a member, whose default stands for an absent one; `None` if the JSON is too long, or cannot be parsed.
pub(super) fn read_small<'p, T: Deserialize<'p> + Default>(
    json: Option<&'p Unread<'_>>,
) -> Option<T> {
    match json {
        Some(json) if json.0.len() > SMALL => None,
        Some(json) => json.read(),
        None => Some(T::default()),
    }
}

pub(super) fn object_or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    json: D,
) -> Result<T, D::Error> {
    match Option::deserialize(json)? {
        Some(Object(members)) => Ok(members),
        None => Ok(T::default()),
    }
}

pub(super) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    json: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(json)?.unwrap_or_default())
}

/// Reads a list, which may have at most `N` items.
pub(super) fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>, const N: usize>(
    json: D,
) -> Result<Vec<T>, D::Error> {
    let items = first::<D, T, N>(json)?;
    if items.len() > N {
        return Err(D::Error::custom("too many items"));
    }
    Ok(items)
}

/// Reads the first items of a list: `N` of them, and one more if there is one.
pub(super) fn first<'de, D: Deserializer<'de>, T: Deserialize<'de>, const N: usize>(
    json: D,
) -> Result<Vec<T>, D::Error> {
    match Option::deserialize(json)? {
        Some(First::<T, N>(items)) => Ok(items),
        None => Ok(Vec::new()),
    }
}
