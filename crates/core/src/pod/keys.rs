//! The labels and annotations that concern tolerarch, picked from all those of a Pod.

use serde::de::{Deserialize, Deserializer, Error};

use super::json::{Name, Text, Texts, read_small};
use super::kept::Kept;
use tolerarch_text::json::{self, Unread};

/// Label or annotation that excludes a Pod (or a namespace), `"off"`, or says whether its decisions are carried out.
pub const MODE_KEY: &str = "tolerarch.io/mode";
/// Label by which a namespace chooses a profile.
pub const PROFILE_KEY: &str = "tolerarch.io/profile";
/// Annotation that names the pools opened by tolerarch, comma-separated. A later pass knows managed tolerations by it.
pub const POOLS_KEY: &str = "tolerarch.io/pools";
/// Annotation that names the managed requirements on the Pod's nodes, comma-separated. A later pass knows them by it.
pub const REQUIRED_KEY: &str = "tolerarch.io/required";
/// Annotation that names the managed preferences: architectures and pools with their weights.
pub const PREFERRED_KEY: &str = "tolerarch.io/preferred";
/// Annotation that says why a Pod stays closed.
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

/// The members of an object of texts that a decision reads, and the size of the object.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Picked<'a> {
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

impl Picked<'_> {
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        let mut members = self.members.iter();
        let member = members.find(|member| member.key == key)?;
        Some(member.text.as_str())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Picked<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut picked = Self::default();
        json::members(deserializer, |Name(name): Name<'a>, text: Text<'a>| {
            picked.count += 1;
            picked.bytes += name.len() + text.as_str().len();
            if let Some(key) = KEYS.into_iter().find(|key| *key == name) {
                // The last of several members with one name counts, as in Go.
                picked.members.retain(|member| member.key != key);
                picked.members.push(Member { key, text });
            }
        })?;
        Ok(picked)
    }
}

/// The labels of a Pod. Most Pods have none that concerns tolerarch, so the labels are skipped, and read on demand.
#[derive(Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Labels<'a> {
    pub(super) own: Picked<'a>,
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
        if !all.may_have(PREFIX) {
            return Ok(Self {
                own: Picked::default(),
                all,
            });
        }
        let own = all.read().map(Picked::into_owned);
        Ok(Self {
            own: own.ok_or_else(|| D::Error::custom("labels are texts"))?,
            all,
        })
    }
}
