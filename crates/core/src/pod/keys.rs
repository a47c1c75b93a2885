//! The labels and annotations of a Pod that concern tolerarch.

use serde::de::{Deserialize, Deserializer, Error};

use super::json::{Name, Text, Texts, read_small};
use super::retain::Retain;
use tolerarch_text::json::{self, Unread};

/// Label or annotation that excludes a Pod or namespace (`"off"`), or says whether decisions are carried out.
pub const MODE_KEY: &str = "tolerarch.io/mode";
/// Label by which a namespace chooses a profile.
pub const PROFILE_KEY: &str = "tolerarch.io/profile";
/// Annotation with the names of the opened pools, comma-separated. A later pass recognises managed tolerations by it.
pub const POOLS_KEY: &str = "tolerarch.io/pools";
/// Annotation with the managed requirements on nodes, comma-separated. A later pass recognises them by it.
pub const REQUIRED_KEY: &str = "tolerarch.io/required";
/// Annotation with the managed preferences: architectures and pools with their weights.
pub const PREFERRED_KEY: &str = "tolerarch.io/preferred";
/// Annotation that says why a Pod stays ineligible.
pub const REASON_KEY: &str = "tolerarch.io/reason";
/// The annotations that tolerarch itself writes.
pub const ANNOTATIONS: [&str; 4] = [POOLS_KEY, REQUIRED_KEY, PREFERRED_KEY, REASON_KEY];
/// Label or annotation that says which architecture a Pod prefers, or `none`.
pub(crate) const PREFER_KEY: &str = "tolerarch.io/prefer";
/// Set by the kubelet on the mirror of a static Pod.
pub(super) const MIRROR_KEY: &str = "kubernetes.io/config.mirror";

/// All keys of a Pod that a decision reads.
const KEYS: [&str; 7] = [
    MODE_KEY,
    POOLS_KEY,
    REQUIRED_KEY,
    PREFERRED_KEY,
    REASON_KEY,
    PREFER_KEY,
    MIRROR_KEY,
];
/// Prefix of all labels that concern tolerarch.
const PREFIX: &str = "tolerarch.io/";

/// The members of an object with text values that a decision reads, and the size of the object.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct SelectedMembers<'a> {
    pub(super) members: Vec<Member<'a>>,
    /// Number of all members of the object.
    pub(super) count: usize,
    /// Bytes of all members, keys and values.
    pub(super) bytes: usize,
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Member<'a> {
    pub(super) key: &'static str,
    pub(super) text: Text<'a>,
}

impl SelectedMembers<'_> {
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        let mut members = self.members.iter();
        let member = members.find(|member| member.key == key)?;
        Some(member.text.as_str())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for SelectedMembers<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut picked = Self::default();
        json::members(deserializer, |Name(name): Name<'a>, text: Text<'a>| {
            picked.count += 1;
            picked.bytes += name.len() + text.as_str().len();
            let Some(key) = KEYS.into_iter().find(|key| *key == name) else {
                return;
            };
            // The last of several members with one name counts, as in Go.
            picked.members.retain(|member| member.key != key);
            picked.members.push(Member { key, text });
        })?;
        Ok(picked)
    }
}

/// The labels of a Pod. Most Pods have no label that concerns tolerarch, so the labels stay unread until one is needed.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Labels<'a> {
    /// The labels that concern tolerarch.
    pub(super) picked: SelectedMembers<'a>,
    pub(super) all: Unread<'a>,
}

impl Labels<'_> {
    pub(super) fn get(&self, key: &str) -> Option<String> {
        if !self.all.may_have(key) {
            return None;
        }
        let all: Texts<'_> = read_small(Some(&self.all))?;
        Some(all.get(key)?.as_str().to_owned())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Labels<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let all = Unread::deserialize(deserializer)?;
        let mut picked = SelectedMembers::default();
        if all.may_have(PREFIX) {
            let read: Option<SelectedMembers<'_>> = all.read();
            let Some(read) = read else {
                return Err(D::Error::custom("labels are texts"));
            };
            picked = read.into_owned();
        }
        Ok(Self { picked, all })
    }
}
