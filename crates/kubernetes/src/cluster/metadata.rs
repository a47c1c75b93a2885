//! Metadata and other parts that several types of objects share. Namespaces are here, because only their metadata is
//! read.

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use serde::de::{DeserializeOwned, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use tolerarch_text::json::First;

/// Maximum bytes of each text of an owner. The author of an object chooses these texts. An owner with a larger text is
/// dropped.
const MAX_OWNER_TEXT: usize = 253;
/// Maximum bytes of the JSON of an object's labels. Nodes have up to a few hundred labels.
const MAX_LABELS_BYTES: usize = 64 << 10;
/// Maximum items of a list that are read. No Pod has so many containers.
const MAX_ITEMS: usize = 4096;
/// Maximum grace period, in seconds, from which the time of a deletion is computed. The client that deletes an object
/// chooses the grace period. The sum that the API server computes overflows for a period of centuries.
const MAX_GRACE_SECONDS: i64 = 24 * 3600;
/// Prefixes of the keys of annotations that cannot add mounts, hooks or devices to a container. All other annotations
/// may be for a runtime or a plug-in of the node: CDI, NRI, the hooks of CRI-O, crun, gVisor.
const HARMLESS_PREFIXES: [&str; 5] = [
    "checksum/",
    "kubectl.kubernetes.io/",
    "kubernetes.io/",
    "prometheus.io/",
    "tolerarch.io/",
];

/// Metadata of an object. Annotations and managed fields are left out, because they are not needed and may be most of
/// an object.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    pub name: String,
    /// Empty for a cluster-scoped object.
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    #[serde(deserialize_with = "labels")]
    pub labels: BTreeMap<String, String>,
    /// True if an annotation may make the node run a Pod differently from the Pod's specification.
    #[serde(rename = "annotations", deserialize_with = "may_direct_the_node")]
    pub may_direct_the_node: bool,
    pub creation_timestamp: Option<Time>,
    pub deletion_timestamp: Option<Time>,
    pub deletion_grace_period_seconds: Option<i64>,
    /// Owner that manages the object. Other owners are left out, because an author may name thousands of them.
    #[serde(rename = "ownerReferences", deserialize_with = "controller")]
    pub controller: Option<OwnerReference>,
}

/// Times at which an object was created and at which its deletion was requested, in seconds since 1970 by the API
/// server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    pub created: i64,
    /// At least `created`.
    pub deleted: i64,
}

impl Metadata {
    /// Returns the lifetime of an object that is being deleted, and `None` for other objects. Also returns `None` if
    /// the times contradict each other, or if the grace period is negative or longer than a day.
    pub fn lifetime(&self) -> Option<Lifetime> {
        let created = self.creation_timestamp.as_ref()?.0.as_second();
        let end = self.deletion_timestamp.as_ref()?.0.as_second();
        let grace = self.deletion_grace_period_seconds.unwrap_or_default();
        if !(0..=MAX_GRACE_SECONDS).contains(&grace) {
            return None;
        }
        // The deletion timestamp is the end of the grace period.
        let deleted = end.saturating_sub(grace);
        if created > deleted {
            return None;
        }
        Some(Lifetime { created, deleted })
    }

    /// Returns a key that is unique among the objects of one kind.
    pub(super) fn key(&self) -> String {
        match &*self.namespace {
            "" => self.name.clone(),
            namespace => format!("{namespace}/{}", self.name),
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
pub struct Namespace {
    pub metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Condition {
    pub(super) r#type: String,
    pub(super) status: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) message: String,
}

/// Returns the status of the condition of this type: `True`, `False` or `Unknown`; `None` if there is no such
/// condition.
pub(super) fn status_of<'c>(conditions: &'c [Condition], r#type: &str) -> Option<&'c str> {
    let mut conditions = conditions.iter();
    let condition = conditions.find(|condition| condition.r#type == r#type)?;
    Some(&condition.status)
}

/// Reads `null` as the default value, as Kubernetes does.
pub fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads only the first [`MAX_ITEMS`] items of a list, so that a longer list takes no more memory. `null` counts as an
/// empty list.
pub(super) fn first_items<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    match Option::<First<T, MAX_ITEMS>>::deserialize(deserializer)? {
        Some(First(items)) => Ok(items),
        None => Ok(Vec::new()),
    }
}

/// Reads the owner that manages an object. There is at most one such owner. Returns `None` if one of its texts is too
/// large.
fn controller<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<OwnerReference>, D::Error> {
    let owners: Vec<OwnerReference> = first_items(deserializer)?;
    for owner in owners {
        if owner.controller == Some(true) {
            let texts = [&owner.api_version, &owner.kind, &owner.name, &owner.uid];
            let is_small = texts.iter().all(|text| text.len() <= MAX_OWNER_TEXT);
            return if is_small { Ok(Some(owner)) } else { Ok(None) };
        }
    }
    Ok(None)
}

/// Reads whether any annotation may be for a runtime or a plug-in of the node.
fn may_direct_the_node<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    has_matching_key(deserializer, |key| {
        !HARMLESS_PREFIXES
            .iter()
            .any(|prefix| key.starts_with(prefix))
    })
}

/// Reads whether any key of an object meets a condition. Values are skipped; `null` counts as an empty object.
pub(super) fn has_matching_key<'de, D: Deserializer<'de>>(
    deserializer: D,
    is_match: fn(&str) -> bool,
) -> Result<bool, D::Error> {
    struct KeyVisitor {
        is_match: fn(&str) -> bool,
    }

    impl<'de> Visitor<'de> for KeyVisitor {
        type Value = bool;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an object")
        }

        fn visit_unit<E: Error>(self) -> Result<bool, E> {
            Ok(false)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<bool, A::Error> {
            let mut has_match = false;
            while let Some(key) = object.next_key::<String>()? {
                object.next_value::<IgnoredAny>()?;
                has_match |= (self.is_match)(&key);
            }
            Ok(has_match)
        }
    }

    deserializer.deserialize_any(KeyVisitor { is_match })
}

/// Reads labels. Refuses more labels than any object needs, because labels in memory may take twenty times the bytes of
/// their JSON.
fn labels<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let value = Option::<Box<RawValue>>::deserialize(deserializer)?;
    let json = value.as_deref().map_or("{}", RawValue::get);
    if json.len() > MAX_LABELS_BYTES {
        return Err(D::Error::custom("too many labels"));
    }
    serde_json::from_str(json).map_err(D::Error::custom)
}

/// Takes the value at a JSON pointer out of an object. The value is bounded only with the answer of the API server that
/// contains the object.
pub(super) fn take<T: Default + DeserializeOwned>(
    object: &mut Value,
    pointer: &str,
) -> Result<T, serde_json::Error> {
    let value = object.pointer_mut(pointer).map(Value::take);
    or_default(value.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn owner_with_a_large_text_is_dropped() {
        for (uid, is_kept) in [("a".repeat(253), true), ("a".repeat(254), false)] {
            let owner =
                json!([{"kind": "ReplicaSet", "name": "web", "uid": uid, "controller": true}]);
            let read: Metadata = serde_json::from_value(json!({"ownerReferences": owner})).unwrap();
            assert_eq!(read.controller.is_some(), is_kept);
        }
    }

    #[test]
    fn contradictory_times_give_no_lifetime() {
        let seconds = |created: &str, end: &str, grace: i64| {
            let times = json!({
                "creationTimestamp": created, "deletionTimestamp": end, "deletionGracePeriodSeconds": grace,
            });
            let metadata: Metadata = serde_json::from_value(times).unwrap();
            metadata
                .lifetime()
                .map(|Lifetime { created, deleted }| deleted - created)
        };
        let noon = "2027-01-15T12:00:00Z";
        assert_eq!(seconds(noon, "2027-01-15T12:01:00Z", 30), Some(30));
        assert_eq!(
            seconds(noon, "2027-01-16T12:00:00Z", MAX_GRACE_SECONDS),
            Some(0)
        );
        assert_eq!(
            seconds("9999-12-29T00:00:00Z", "9999-12-30T00:00:00Z", 0),
            Some(86_400)
        );
        for (end, grace) in [
            ("2027-01-15T12:00:29Z", 30),
            ("2027-01-15T12:01:00Z", -1),
            ("2027-01-15T12:01:00Z", i64::MIN),
            ("2027-01-17T12:00:00Z", MAX_GRACE_SECONDS + 1),
            ("2027-01-15T11:59:59Z", i64::MAX),
            ("-009999-01-02T01:59:59Z", 0),
            ("9999-12-30T00:00:00Z", i64::MAX),
        ] {
            assert_eq!(seconds(noon, end, grace), None, "{end} {grace}");
        }
        assert_eq!(Metadata::default().lifetime(), None);
    }

    fn any_time() -> impl Strategy<Value = Timestamp> {
        let [least, most] = [Timestamp::MIN, Timestamp::MAX].map(Timestamp::as_second);
        let second = prop_oneof![Just(least), Just(most), -100_000..100_000_i64, least..=most];
        second.prop_map(|second| Timestamp::from_second(second).unwrap())
    }

    fn any_grace() -> impl Strategy<Value = i64> {
        prop_oneof![
            Just(i64::MIN),
            Just(i64::MAX),
            -10..=MAX_GRACE_SECONDS + 10,
            any::<i64>()
        ]
    }

    proptest! {
        #[test]
        fn lifetime_agrees_with_the_timestamps(created in any_time(), end in any_time(), grace in any_grace()) {
            let metadata = Metadata {
                creation_timestamp: Some(Time(created)),
                deletion_timestamp: Some(Time(end)),
                deletion_grace_period_seconds: Some(grace),
                ..Metadata::default()
            };
            if let Some(Lifetime { created: from, deleted }) = metadata.lifetime() {
                prop_assert_eq!(from, created.as_second());
                prop_assert!(from <= deleted && (0..=MAX_GRACE_SECONDS).contains(&grace));
                prop_assert_eq!(deleted.checked_add(grace), Some(end.as_second()));
            }
        }
    }

    /// Labels beyond the bound are not parsed, so they take no more memory than their text.
    #[test]
    fn too_many_labels_are_refused() {
        let labels = |bytes: usize, last: &str| {
            let before = r#"{"a":"","last":"#.len() + last.len() + "}".len();
            let padding = " ".repeat(bytes - before);
            let json = format!(r#"{{"labels":{{"a":"",{padding}"last":{last}}}}}"#);
            serde_json::from_str::<Metadata>(&json)
        };
        assert_eq!(labels(MAX_LABELS_BYTES, "\"\"").unwrap().labels.len(), 2);
        assert!(labels(MAX_LABELS_BYTES, "7").is_err());
        for last in ["\"\"", "7"] {
            let error = labels(MAX_LABELS_BYTES + 1, last).unwrap_err().to_string();
            assert!(error.contains("too many labels"), "{error}");
        }
        for json in [r#"{"labels":null}"#, "{}"] {
            let metadata: Metadata = serde_json::from_str(json).unwrap();
            assert!(metadata.labels.is_empty());
        }
    }
}
