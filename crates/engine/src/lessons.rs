//! Lessons that the controller records and replicas apply: images that failed on an architecture although their manifests
//! include it, and owners that delete changed Pods.
//!
//! The record is a text in the cluster. It is bounded in total and for each namespace, so that no tenant evicts entries of
//! others. Anyone with access may edit the text, so an entry only counts if the controller could have written it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

pub use k8s_openapi::jiff::Timestamp;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use tolerarch_core::image::{Failure, PlatformSet, is_digest};
use tolerarch_core::pod::is_name;
use tolerarch_images::registry::Digest;

/// Maximum number of recorded lessons. The oldest lesson is evicted.
const ALL: usize = 1000;
/// Maximum number of recorded lessons from the Pods of one namespace. The oldest lesson is evicted.
const OF_NAMESPACE: usize = 50;
/// Maximum bytes of a text that is read: the limit of a ConfigMap.
pub const TEXT: usize = 1 << 20;
/// Maximum bytes of a text that is written. With names of usual lengths, a full record takes a third of it.
const WRITTEN: usize = TEXT / 2;
/// Maximum bytes of a namespace's name.
const NAMESPACE: usize = 63;
/// Time for which a lesson counts at first. The time doubles with each new failure.
const FIRST: Duration = Duration::from_secs(24 * 3600);
/// Maximum time for which a lesson counts.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);
/// Time after which the number of failures of an expired lesson is dropped.
const REMEMBERED: Duration = LONGEST;
/// Number of nodes on which an image must fail by itself before the failure counts in all namespaces: one node may be
/// broken.
const NODES: usize = 2;
/// Number of hexadecimal digits of a node's ID.
const NODE_ID: usize = 16;
/// Maximum difference between the clocks of replicas.
const SKEW: Duration = Duration::from_secs(3600);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Lesson {
    Image(FailedImage),
    Owner(RecreatingOwner),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "WrittenImage")]
pub struct FailedImage {
    #[serde(deserialize_with = "read_digest")]
    pub digest: Digest,
    /// Architecture of the node, as its label names it.
    pub architecture: String,
    pub evidence: Evidence,
    /// Namespace of the Pod that failed.
    pub namespace: String,
    /// IDs of nodes on which the image itself has failed, rather than settings of the Pod. With two nodes, the failure
    /// counts in all namespaces.
    #[serde(default)]
    pub nodes: Vec<String>,
}

/// A failed image as it is recorded.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WrittenImage {
    #[serde(serialize_with = "write_digest")]
    digest: Digest,
    architecture: String,
    evidence: Evidence,
    namespace: String,
    /// Whether the failure counts in all namespaces, for releases that do not read `nodes`. The member is never read, as
    /// those releases set it for a single node.
    all_namespaces: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<String>,
}

impl From<FailedImage> for WrittenImage {
    fn from(image: FailedImage) -> Self {
        let all_namespaces = image.is_for_all();
        let FailedImage {
            digest,
            architecture,
            evidence,
            namespace,
            nodes,
        } = image;
        Self {
            digest,
            architecture,
            evidence,
            namespace,
            all_namespaces,
            nodes,
        }
    }
}

/// Returns the ID of a node in the record: a hash of its name, which is short for any name.
pub fn node_id(name: &str) -> String {
    let digest = Digest::of_content(name.as_bytes()).to_string();
    let hash = digest.trim_start_matches("sha256:");
    hash.chars().take(NODE_ID).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    ExecFormatError,
    NoMatchForPlatform,
}

/// A controller that deletes Pods that were changed, and creates them again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RecreatingOwner {
    #[serde(rename = "owner")]
    pub kind: String,
    pub name: String,
    pub namespace: String,
}

/// All recorded lessons.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lessons(BTreeMap<Key, Entry>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// The digest of an image, then architecture and namespace of the failure. The keys of one digest are adjacent.
    Image(Digest, String, String),
    /// The kind, name and namespace of an owner.
    Owner(String),
}

impl Key {
    fn of_owner(kind: &str, name: &str, namespace: &str) -> Self {
        Self::Owner([kind, name, namespace].join("/"))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    #[serde(flatten)]
    lesson: Lesson,
    since: Timestamp,
    until: Timestamp,
    failures: u32,
}

impl Lessons {
    /// Parses a record, and skips invalid entries.
    pub fn of_text(text: &str, now: Timestamp) -> Self {
        if text.len() > TEXT {
            return Self::default();
        }
        let items: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
        let mut entries: Vec<Entry> = Vec::new();
        for item in items {
            if let Ok(entry) = serde_json::from_str::<Entry>(item.get())
                && entry.is_plausible(now)
            {
                entries.push(entry);
            }
        }
        // The newest entries come first, as the oldest are left out if there are too many.
        entries.sort_by_key(|entry| Reverse(entry.since));
        let mut by_key = BTreeMap::new();
        let mut counts: HashMap<String, usize> = HashMap::new();
        for entry in entries {
            let namespace = entry.lesson.namespace().to_owned();
            let count = counts.entry(namespace).or_default();
            let key = entry.lesson.key();
            if by_key.len() >= ALL || *count >= OF_NAMESPACE || by_key.contains_key(&key) {
                continue;
            }
            *count += 1;
            by_key.insert(key, entry);
        }
        Self(by_key)
    }

    /// Renders the text for [`Lessons::of_text`], with the oldest entry first. The text has at most half of the bytes that
    /// are read. If the entries take more, the oldest entries of the namespace with the most bytes are left out.
    pub fn to_text(&self) -> String {
        let mut bytes = BRACKETS;
        let mut items = Vec::new();
        for entry in self.0.values() {
            if let Some(item) = Item::of(entry) {
                bytes += item.bytes();
                items.push(item);
            }
        }
        items.sort_by_key(|item| item.entry.since);
        while bytes > WRITTEN
            && let Some(index) = oldest_of_the_largest(&items)
        {
            bytes -= items.remove(index).bytes();
        }
        let mut texts = Vec::new();
        for item in &items {
            texts.push(item.text.as_str());
        }
        format!("[{}]", texts.join(","))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the failure of an image for Pods of a namespace. It has all platforms where the image has failed, and the
    /// time of the first failure.
    pub fn failure(&self, digest: &Digest, namespace: &str, now: Timestamp) -> Option<Failure> {
        let first = Key::Image(*digest, String::new(), String::new());
        let mut failure: Option<Failure> = None;
        for (_, entry) in self.0.range(first..) {
            let Lesson::Image(image) = &entry.lesson else {
                break;
            };
            if image.digest != *digest {
                break;
            }
            let is_in_force = image.is_for_all() || image.namespace == namespace;
            if now >= entry.until || !is_in_force {
                continue;
            }
            let since = entry.since.into();
            let failure = failure.get_or_insert(Failure {
                platforms: PlatformSet::EMPTY,
                since,
            });
            let platforms = PlatformSet::of_architecture(&image.architecture);
            failure.platforms = failure.platforms.union(platforms);
            failure.since = failure.since.min(since);
        }
        failure
    }

    /// Returns whether this owner deletes changed Pods.
    pub fn recreates(&self, namespace: &str, kind: &str, name: &str, now: Timestamp) -> bool {
        match self.0.get(&Key::of_owner(kind, name, namespace)) {
            Some(entry) => now < entry.until,
            None => false,
        }
    }

    /// Returns the number of images that are kept off an architecture now, and of owners whose Pods stay unchanged.
    pub fn count(&self, now: Timestamp) -> [usize; 2] {
        let mut digests: HashSet<&Digest> = HashSet::new();
        let mut owners = 0;
        for (key, entry) in &self.0 {
            if now >= entry.until {
                continue;
            }
            match key {
                Key::Image(digest, ..) => {
                    digests.insert(digest);
                }
                Key::Owner(_) => owners += 1,
            }
        }
        [digests.len(), owners]
    }

    /// Records a lesson that was learnt at `now`. Returns whether the record has changed.
    pub fn record(&mut self, mut lesson: Lesson, now: Timestamp) -> bool {
        // Truncated to seconds, as stored.
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        self.0
            .retain(|_, entry| now < after(entry.until, REMEMBERED));
        let key = lesson.key();
        if let Lesson::Image(image) = &mut lesson {
            self.add_nodes_of_others(image, now);
        }
        let Some(entry) = self.0.get_mut(&key) else {
            self.make_room(lesson.namespace());
            let entry = Entry {
                lesson,
                since: now,
                until: after(now, FIRST),
                failures: 1,
            };
            self.0.insert(key, entry);
            return true;
        };
        if now >= entry.until {
            // The entry had expired, so the image was tried again. The new evidence replaces the old: to extend an entry,
            // evidence must be as good as for the first.
            let failures = entry.failures.saturating_add(1);
            let doublings = (failures - 1).min(8);
            let lifetime = FIRST.saturating_mul(1 << doublings).min(LONGEST);
            *entry = Entry {
                lesson,
                since: now,
                until: after(now, lifetime),
                failures,
            };
            return true;
        }
        match (&mut entry.lesson, lesson) {
            (Lesson::Image(image), Lesson::Image(new)) => image.add_nodes(&new.nodes),
            _ => false,
        }
    }

    /// Adds the nodes on which the same image has failed by itself in other namespaces.
    fn add_nodes_of_others(&self, image: &mut FailedImage, now: Timestamp) {
        if image.nodes.is_empty() {
            return;
        }
        for entry in self.0.values() {
            if now >= entry.until {
                continue;
            }
            let Lesson::Image(other) = &entry.lesson else {
                continue;
            };
            let is_same_image =
                other.digest == image.digest && other.architecture == image.architecture;
            if is_same_image && other.namespace != image.namespace {
                image.add_nodes(&other.nodes);
            }
        }
    }

    /// Evicts an entry if there is no room for another one of this namespace. If the namespace has its share, its oldest
    /// entry is evicted, or else the oldest entry of the namespace with the most.
    fn make_room(&mut self, namespace: &str) {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for entry in self.0.values() {
            *counts.entry(entry.lesson.namespace()).or_default() += 1;
        }
        let count = *counts.get(namespace).unwrap_or(&0);
        let full = if count >= OF_NAMESPACE {
            namespace
        } else if self.0.len() >= ALL
            && let Some((largest, _)) = counts.into_iter().max_by_key(|(_, count)| *count)
        {
            largest
        } else {
            return;
        };
        let is_of_full = |(_, entry): &(&Key, &Entry)| entry.lesson.namespace() == full;
        let entries = self.0.iter().filter(is_of_full);
        let Some((oldest, _)) = entries.min_by_key(|(_, entry)| entry.since) else {
            return;
        };
        let oldest = oldest.clone();
        self.0.remove(&oldest);
    }
}

impl FailedImage {
    /// Returns whether the failure counts in all namespaces.
    pub fn is_for_all(&self) -> bool {
        self.nodes.len() >= NODES
    }

    /// Adds nodes until there are enough. Returns whether a node was added.
    fn add_nodes(&mut self, nodes: &[String]) -> bool {
        let before = self.nodes.len();
        for node in nodes {
            if self.nodes.len() < NODES && !self.nodes.contains(node) {
                self.nodes.push(node.clone());
            }
        }
        self.nodes.len() > before
    }

    /// Returns whether the controller could have written these nodes.
    fn has_plausible_nodes(&self) -> bool {
        let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        let is_id = |id: &String| id.len() == NODE_ID && id.bytes().all(is_digit);
        let distinct: HashSet<&String> = self.nodes.iter().collect();
        let is_distinct = distinct.len() == self.nodes.len();
        is_distinct && self.nodes.len() <= NODES && self.nodes.iter().all(is_id)
    }
}

impl RecreatingOwner {
    /// Returns whether the API server could have such an owner. The author of a Pod chooses the names.
    pub fn is_plausible(&self) -> bool {
        is_plausible_name(&self.kind, 63) && is_plausible_name(&self.name, 253)
    }
}

fn is_plausible_name(text: &str, limit: usize) -> bool {
    if text.is_empty() || text.len() > limit {
        return false;
    }
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"-.:".contains(&b);
    text.bytes().all(is_allowed)
}

impl Lesson {
    fn key(&self) -> Key {
        match self {
            Self::Image(FailedImage {
                digest,
                architecture,
                namespace,
                ..
            }) => Key::Image(*digest, architecture.clone(), namespace.clone()),
            Self::Owner(RecreatingOwner {
                kind,
                name,
                namespace,
            }) => Key::of_owner(kind, name, namespace),
        }
    }

    /// Returns the namespace of the Pods that the lesson is from.
    pub fn namespace(&self) -> &str {
        match self {
            Self::Image(FailedImage { namespace, .. })
            | Self::Owner(RecreatingOwner { namespace, .. }) => namespace,
        }
    }
}

/// An entry, and the text that is written for it.
struct Item<'e> {
    entry: &'e Entry,
    text: String,
}

/// Bytes of a list around its items.
const BRACKETS: usize = 2;

impl<'e> Item<'e> {
    fn of(entry: &'e Entry) -> Option<Self> {
        let text = serde_json::to_string(entry).ok()?;
        Some(Self { entry, text })
    }

    /// Returns the bytes of the item in a list, with its comma.
    fn bytes(&self) -> usize {
        self.text.len() + 1
    }
}

/// Returns the index of the first item of the namespace whose items have the most bytes.
fn oldest_of_the_largest(items: &[Item<'_>]) -> Option<usize> {
    let mut shares: BTreeMap<&str, usize> = BTreeMap::new();
    for item in items {
        *shares.entry(item.entry.lesson.namespace()).or_default() += item.bytes();
    }
    let (largest, _) = shares.into_iter().max_by_key(|(_, bytes)| *bytes)?;
    let mut items = items.iter();
    items.position(|item| item.entry.lesson.namespace() == largest)
}

#[warn(clippy::arithmetic_side_effects)]
impl Entry {
    /// Returns whether the controller could have written the entry.
    fn is_plausible(&self, now: Timestamp) -> bool {
        let Self {
            lesson,
            since,
            until,
            failures,
        } = self;
        let is_possible = match lesson {
            Lesson::Image(image) => {
                let platforms = PlatformSet::of_architecture(&image.architecture);
                !platforms.is_empty() && image.has_plausible_nodes()
            }
            Lesson::Owner(owner) => owner.is_plausible(),
        };
        let namespace = lesson.namespace();
        if !is_possible || !is_name(namespace) || namespace.len() > NAMESPACE || *failures == 0 {
            return false;
        }
        // No time before 1970 can be rendered.
        let is_past = *since >= Timestamp::UNIX_EPOCH && *since <= after(now, SKEW);
        let is_limited = *until >= *since && *until <= after(*since, LONGEST);
        is_past && is_limited && now < after(*until, REMEMBERED)
    }
}

/// Returns the time after this duration, or the last possible time: a sum of jiff panics beyond the year 9999.
fn after(time: Timestamp, duration: Duration) -> Timestamp {
    time.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

fn read_digest<'de, D: Deserializer<'de>>(from: D) -> Result<Digest, D::Error> {
    let text = String::deserialize(from)?;
    if !is_digest(&text) || !text.starts_with("sha256:") {
        return Err(D::Error::custom("not a SHA-256 digest"));
    }
    Ok(Digest::of_text(&text))
}

fn write_digest<S: Serializer>(digest: &Digest, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(digest)
}

#[cfg(test)]
mod tests;
