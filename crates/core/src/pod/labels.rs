//! The labels of a Pod. Of most Pods none concerns tolerarch, so they are skipped, and read when one is asked for.

use serde::de::{Deserialize, Deserializer, Error};

use super::Text;
use super::json::{Texts, empty_if_null};
use tolerarch_text::json::{self, Unread};

/// What all labels begin with that concern tolerarch.
const PREFIX: &str = "tolerarch.io/";

/// The labels that matter, and the others unread.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Labels<'a> {
    pub(super) own: Own<'a>,
    pub(super) all: Unread<'a>,
}

#[derive(Debug, Default, PartialEq, Eq, Hash, serde::Deserialize)]
pub(super) struct Own<'a> {
    #[serde(borrow, default, rename = "tolerarch.io/mode", deserialize_with = "empty_if_null")]
    pub(super) mode: Option<Text<'a>>,
    #[serde(borrow, rename = "tolerarch.io/prefer")]
    pub(super) prefer: Option<Text<'a>>,
}

impl Labels<'_> {
    pub(super) fn get(&self, key: &str) -> Option<String> {
        let all = self.all.may_have(key).then(|| self.all.read::<Texts<'_>>())??;
        all.get(key).map(str::to_owned)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Labels<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = Unread::deserialize(deserializer)?;
        if !all.may_have(PREFIX) {
            return Ok(Self { own: Own::default(), all });
        }
        let own = match all.borrowed() {
            Some(text) => json::read(text.as_bytes()).ok(),
            None => all.read().map(Own::into_owned),
        };
        Ok(Self { own: own.ok_or_else(|| D::Error::custom("labels are texts"))?, all })
    }
}

/// `IsValidLabelValue` of k8s.io/apimachinery.
pub fn is_label_value(text: &str) -> bool {
    let edge = |b: Option<u8>| b.is_none_or(|b| b.is_ascii_alphanumeric());
    text.len() <= 63
        && edge(text.bytes().next())
        && edge(text.bytes().next_back())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

/// `IsQualifiedName` of k8s.io/apimachinery: an optional DNS subdomain, a slash, and a name.
pub fn is_label_key(text: &str) -> bool {
    let (prefix, name) = text.rsplit_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    !name.is_empty() && is_label_value(name) && prefix.is_none_or(is_name)
}

/// A DNS subdomain, as Kubernetes wants the names of most objects (RFC 1123). No name is a step of a path.
pub fn is_name(text: &str) -> bool {
    let plain = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.first().is_some_and(plain)
            && bytes.last().is_some_and(plain)
            && bytes.iter().all(|b| plain(b) || *b == b'-')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}
