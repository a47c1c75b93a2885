//! Parts that several types read from the Kubernetes API share; namespaces, of which nothing else is read.

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use serde::de::{DeserializeOwned, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use tolerarch_text::json::First;

/// Maximum bytes of each text of an owner that is kept: the author of an object chooses them.
const TEXT: usize = 253;
/// Maximum bytes of an object's labels: nodes have up to some hundreds.
const LABELS: usize = 64 << 10;
/// Maximum items of a list that are read. No Pod has as many containers.
const ITEMS: usize = 4096;
/// Longest grace period in seconds by which the time of a deletion is computed: whoever deletes an object chooses it,
/// and the API server's own sum wraps for one of centuries.
const GRACE: i64 = 24 * 3600;
/// Beginnings of the keys of annotations by which no runtime and no plug-in of a node brings mounts, hooks or devices.
/// All others may be for one: CDI, NRI, the hooks of CRI-O, crun, gVisor.
const HARMLESS: [&str; 5] = [
    "checksum/",
    "kubectl.kubernetes.io/",
    "kubernetes.io/",
    "prometheus.io/",
    "tolerarch.io/",
];

/// Metadata without other annotations and managed fields, which may be most of an object and are not needed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    pub name: String,
    /// Empty for an object of the cluster.
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    #[serde(deserialize_with = "labels")]
    pub labels: BTreeMap<String, String>,
    /// Set if there are annotations by which the node may run a Pod otherwise than its specification says.
    #[serde(rename = "annotations", deserialize_with = "may_direct_the_node")]
    pub may_direct_the_node: bool,
    pub creation_timestamp: Option<Time>,
    pub deletion_timestamp: Option<Time>,
    pub deletion_grace_period_seconds: Option<i64>,
    /// Owner that manages the object. An author may name thousands of others.
    #[serde(rename = "ownerReferences", deserialize_with = "controller")]
    pub controller: Option<OwnerReference>,
}

/// When an object was created and its deletion requested, in seconds since 1970 by the clock of the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    pub created: i64,
    /// At least `created`.
    pub deleted: i64,
}

impl Metadata {
    /// Returns the lifetime of an object that is being deleted; `None` also if its times contradict each other, or its
    /// grace period is negative or longer than a day.
    pub fn lifetime(&self) -> Option<Lifetime> {
        let created = self.creation_timestamp.as_ref()?.0.as_second();
        let end = self.deletion_timestamp.as_ref()?.0.as_second();
        let grace = self.deletion_grace_period_seconds.unwrap_or_default();
        if !(0..=GRACE).contains(&grace) {
            return None;
        }
        // The timestamp of the deletion is the end of the grace period.
        let deleted = end.saturating_sub(grace);
        (created <= deleted).then_some(Lifetime { created, deleted })
    }

    /// Returns the key of an object among those of its kind.
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

/// Returns the status of a condition: `True`, `False` or `Unknown`.
pub(super) fn status_of<'c>(conditions: &'c [Condition], r#type: &str) -> Option<&'c str> {
    let condition = conditions
        .iter()
        .find(|condition| condition.r#type == r#type)?;
    Some(&condition.status)
}

/// Reads `null` as absent, as Kubernetes does.
pub fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Reads `null` as absent, and only the first [`ITEMS`] of a list, so that a longer one takes no more memory.
pub(super) fn first<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    match Option::<First<T, ITEMS>>::deserialize(deserializer)? {
        Some(First(items)) => Ok(items),
        None => Ok(Vec::new()),
    }
}

/// Reads the owner that manages an object, at most one, unless its texts are too large to be kept.
fn controller<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<OwnerReference>, D::Error> {
    let owners: Vec<OwnerReference> = first(deserializer)?;
    let Some(owner) = owners
        .into_iter()
        .find(|owner| owner.controller == Some(true))
    else {
        return Ok(None);
    };
    let texts = [&owner.api_version, &owner.kind, &owner.name, &owner.uid];
    let is_small = texts.iter().all(|text| text.len() <= TEXT);
    Ok(is_small.then_some(owner))
}

/// Reads whether any annotation may be for a runtime or a plug-in of the node.
fn may_direct_the_node<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    has_key(deserializer, |key| {
        !HARMLESS.iter().any(|harmless| key.starts_with(harmless))
    })
}

/// Reads whether an object has such a key; values are skipped. `null` has none.
pub(super) fn has_key<'de, D: Deserializer<'de>>(
    deserializer: D,
    is_such: fn(&str) -> bool,
) -> Result<bool, D::Error> {
    struct Keys(fn(&str) -> bool);

    impl<'de> Visitor<'de> for Keys {
        type Value = bool;

        fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
            to.write_str("an object")
        }

        fn visit_unit<E: Error>(self) -> Result<bool, E> {
            Ok(false)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<bool, A::Error> {
            let mut has_such = false;
            while let Some(key) = object.next_key::<String>()? {
                object.next_value::<IgnoredAny>()?;
                has_such |= self.0(&key);
            }
            Ok(has_such)
        }
    }

    deserializer.deserialize_any(Keys(is_such))
}

/// Reads labels, unless there are too many for any object: as many as fit into a Pod take twenty times its bytes.
fn labels<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let text = Option::<Box<RawValue>>::deserialize(deserializer)?;
    let text = text.as_deref().map_or("{}", RawValue::get);
    if text.len() > LABELS {
        return Err(D::Error::custom("too many labels"));
    }
    serde_json::from_str(text).map_err(D::Error::custom)
}

/// Takes the value at a JSON pointer out of an object that only kubelets and administrators write.
pub(super) fn take<T: Default + DeserializeOwned>(
    object: &mut Value,
    place: &str,
) -> Result<T, serde_json::Error> {
    let value = object.pointer_mut(place).map(Value::take);
    or_default(value.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_tenant_writes_of_an_owner_takes_no_memory() {
        for (uid, is_kept) in [("a".repeat(253), true), ("a".repeat(254), false)] {
            let owner =
                json!([{"kind": "ReplicaSet", "name": "web", "uid": uid, "controller": true}]);
            let read: Metadata = serde_json::from_value(json!({"ownerReferences": owner})).unwrap();
            assert_eq!(read.controller.is_some(), is_kept);
        }
    }

    #[test]
    fn a_lifetime_is_that_of_times_which_agree() {
        let of = |created: &str, end: &str, grace: i64| {
            let times = json!({
                "creationTimestamp": created, "deletionTimestamp": end, "deletionGracePeriodSeconds": grace,
            });
            let metadata: Metadata = serde_json::from_value(times).unwrap();
            metadata
                .lifetime()
                .map(|Lifetime { created, deleted }| deleted - created)
        };
        let noon = "2027-01-15T12:00:00Z";
        assert_eq!(of(noon, "2027-01-15T12:01:00Z", 30), Some(30));
        assert_eq!(of(noon, "2027-01-16T12:00:00Z", GRACE), Some(0));
        assert_eq!(
            of("9999-12-29T00:00:00Z", "9999-12-30T00:00:00Z", 0),
            Some(86_400)
        );
        for (end, grace) in [
            ("2027-01-15T12:00:29Z", 30),
            ("2027-01-15T12:01:00Z", -1),
            ("2027-01-15T12:01:00Z", i64::MIN),
            ("2027-01-17T12:00:00Z", GRACE + 1),
            ("2027-01-15T11:59:59Z", i64::MAX),
            ("-009999-01-02T01:59:59Z", 0),
            ("9999-12-30T00:00:00Z", i64::MAX),
        ] {
            assert_eq!(of(noon, end, grace), None, "{end} {grace}");
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
            -10..=GRACE + 10,
            any::<i64>()
        ]
    }

    proptest! {
        #[test]
        fn no_times_make_up_a_lifetime(created in any_time(), end in any_time(), grace in any_grace()) {
            let metadata = Metadata {
                creation_timestamp: Some(Time(created)),
                deletion_timestamp: Some(Time(end)),
                deletion_grace_period_seconds: Some(grace),
                ..Metadata::default()
            };
            if let Some(Lifetime { created: from, deleted }) = metadata.lifetime() {
                prop_assert_eq!(from, created.as_second());
                prop_assert!(from <= deleted && (0..=GRACE).contains(&grace));
                prop_assert_eq!(deleted.checked_add(grace), Some(end.as_second()));
            }
        }
    }

    /// Labels beyond the bound are not even looked at, so they take no more memory than their text.
    #[test]
    fn too_many_labels_are_not_read() {
        let labels = |bytes: usize, last: &str| {
            let before = r#"{"a":"","last":"#.len() + last.len() + "}".len();
            let padding = " ".repeat(bytes - before);
            serde_json::from_str::<Metadata>(&format!(
                r#"{{"labels":{{"a":"",{padding}"last":{last}}}}}"#
            ))
        };
        assert_eq!(labels(LABELS, "\"\"").unwrap().labels.len(), 2);
        assert!(labels(LABELS, "7").is_err());
        for last in ["\"\"", "7"] {
            let error = labels(LABELS + 1, last).err().unwrap().to_string();
            assert!(error.contains("too many labels"), "{error}");
        }
        let none = [r#"{"labels":null}"#, "{}"]
            .map(|text| serde_json::from_str::<Metadata>(text).unwrap());
        assert!(none.iter().all(|metadata| metadata.labels.is_empty()));
    }
}
