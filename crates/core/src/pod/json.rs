//! Reads parts of a Pod from JSON: borrowed, and null like an absent or empty member, as the API server reads it.

use std::borrow::{Borrow, Cow};
use std::collections::BTreeMap;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use tolerarch_text::json::{self, First, Object, Unread};

/// Maximal items of one list that are read. No Pod has as many: etcd takes 1.5 MB, and the API server 3 MiB.
pub(super) const ITEMS: usize = 4096;
/// Maximal bytes of labels, a node selector or an affinity that are read. Their lists take up to sixty times as many
/// bytes until the Pod is decided; people write a few hundred.
const SMALL: usize = 64 << 10;

/// A text that borrows from the JSON unless it had to be unescaped; empty if it is null or absent.
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
        Ok(Option::<Name<'a>>::deserialize(json)?
            .map(|Name(text)| Self(text))
            .unwrap_or_default())
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

/// Reads the API server's JSON fast, and any other JSON by serde_json.
pub(crate) fn read<'a, T: Deserialize<'a>>(json: &'a [u8]) -> serde_json::Result<T> {
    json::read(json).or_else(|_| serde_json::from_slice(json))
}

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
    Ok(Option::deserialize(json)?
        .map(|Object(members)| members)
        .unwrap_or_default())
}

pub(super) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    json: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(json)?.unwrap_or_default())
}

pub(super) fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>, const N: usize>(
    json: D,
) -> Result<Vec<T>, D::Error> {
    let items = first::<D, T, N>(json)?;
    if items.len() > N {
        Err(D::Error::custom("too many items"))
    } else {
        Ok(items)
    }
}

pub(super) fn first<'de, D: Deserializer<'de>, T: Deserialize<'de>, const N: usize>(
    json: D,
) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(json)?
        .map(|First::<T, N>(items)| items)
        .unwrap_or_default())
}
