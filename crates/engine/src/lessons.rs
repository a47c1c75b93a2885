//! Lessons of the controller, heeded by replicas: images that failed on an architecture whatever their manifests say,
//! and owners that delete changed Pods.
//!
//! The record is a text in the cluster. It is bounded in all and for each namespace, so that no tenant evicts entries
//! of others. Entries of other authors than the controller count as far as the controller could have written them.

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

/// Maximal number of recorded lessons, in all and of the Pods of one namespace. The oldest one is evicted.
const ALL: usize = 1000;
const OF_NAMESPACE: usize = 50;
/// Maximal bytes of a text that is read: as many as a ConfigMap can have.
pub const TEXT: usize = 1 << 20;
/// Maximal bytes of a text that is written. Names of usual lengths take a third of it.
const WRITTEN: usize = TEXT / 2;
/// Maximal bytes of a namespace's name.
const NAMESPACE: usize = 63;
/// Time for which a lesson counts: first, and at most. The time doubles with each new failure.
const FIRST: Duration = Duration::from_secs(24 * 3600);
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);
/// Time after that for which failures are remembered.
const REMEMBERED: Duration = LONGEST;
/// Number of nodes on which the image alone has to fail before that counts in all namespaces: one node may be broken.
const NODES: usize = 2;
/// Number of hexadecimal digits of a node's ID.
const NODE_ID: usize = 16;
/// Maximal difference between the clocks of replicas.
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
    /// IDs of nodes on which it failed by the image alone, and by nothing that the Pod itself says or sets. On two of
    /// them it counts in all namespaces.
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
    /// What `nodes` say, for releases that do not read them. It is not read: those set it for a single node.
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

/// Returns the ID of a node in the record: a hash of its name, which is short whatever the name.
pub fn node_id(name: &str) -> String {
    let digest = Digest::of_content(name.as_bytes()).to_string();
    digest
        .trim_start_matches("sha256:")
        .chars()
        .take(NODE_ID)
        .collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Evidence {
    ExecFormatError,
    NoMatchForPlatform,
}

/// A controller of Pods that deletes changed Pods, and creates them again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RecreatingOwner {
    #[serde(rename = "owner")]
    pub kind: String,
    pub name: String,
    pub namespace: String,
}

/// Everything that the controller has learned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lessons(BTreeMap<Key, Entry>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// Digest of an image, then the architecture and the namespace of the failure: those of one digest are neighbours.
    Image(Digest, String, String),
    /// Names of an owner.
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
    /// Parses a record, and skips whatever is no valid entry.
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
        // Sorted with the newest first, as the oldest entries have to go if there is no room.
        entries.sort_by_key(|entry| Reverse(entry.since));
        let mut read = BTreeMap::new();
        let mut counts: HashMap<String, usize> = HashMap::new();
        for entry in entries {
            let namespace = entry.lesson.namespace().to_owned();
            let count = counts.entry(namespace).or_default();
            let key = entry.lesson.key();
            if read.len() < ALL && *count < OF_NAMESPACE && !read.contains_key(&key) {
                *count += 1;
                read.insert(key, entry);
            }
        }
        Self(read)
    }

    /// Writes a text for [`Lessons::of_text`], the oldest entry first, of half of the bytes at most that are read. Where
    /// the entries have more, the oldest ones of the namespace with the most bytes are left out.
    pub fn to_text(&self) -> String {
        let mut items: Vec<Item<'_>> = self.0.values().filter_map(Item::of).collect();
        items.sort_by_key(|item| item.entry.since);
        let mut bytes: usize = items.iter().map(Item::bytes).sum();
        while bytes + BRACKETS > WRITTEN
            && let Some(left_out) = oldest_of_the_largest(&items)
        {
            bytes -= items.remove(left_out).bytes();
        }
        let texts: Vec<&str> = items.iter().map(|item| &*item.text).collect();
        format!("[{}]", texts.join(","))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn failure(&self, digest: &Digest, namespace: &str, now: Timestamp) -> Option<Failure> {
        let first = Key::Image(*digest, String::new(), String::new());
        let mut failure: Option<Failure> = None;
        for entry in self.0.range(first..).map(|(_, entry)| entry) {
            let Lesson::Image(image) = &entry.lesson else {
                break;
            };
            if image.digest != *digest {
                break;
            }
            if now >= entry.until || !image.is_for_all() && image.namespace != namespace {
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

    pub fn recreates(&self, namespace: &str, kind: &str, name: &str, now: Timestamp) -> bool {
        let entry = self.0.get(&Key::of_owner(kind, name, namespace));
        entry.is_some_and(|entry| now < entry.until)
    }

    /// Counts the images that are kept from an architecture now, and the owners whose Pods stay unchanged.
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

    /// Records a lesson of just now. Returns whether that changes anything.
    pub fn record(&mut self, mut lesson: Lesson, now: Timestamp) -> bool {
        // Truncates to seconds, as stored.
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        self.0
            .retain(|_, entry| now < after(entry.until, REMEMBERED));
        let key = lesson.key();
        if let Lesson::Image(image) = &mut lesson {
            self.add_nodes_of_others(image, now);
        }
        let Some(known) = self.0.get_mut(&key) else {
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
        if now >= known.until {
            // The image was tried again. Whoever prolongs an entry needs evidence as good as the first.
            let failures = known.failures.saturating_add(1);
            let life = FIRST
                .saturating_mul(1 << (failures - 1).min(8))
                .min(LONGEST);
            *known = Entry {
                lesson,
                since: now,
                until: after(now, life),
                failures,
            };
            return true;
        }
        match (&mut known.lesson, lesson) {
            (Lesson::Image(image), Lesson::Image(more)) => image.add_nodes(&more.nodes),
            _ => false,
        }
    }

    /// Adds the nodes on which the same image has failed in other namespaces, by evidence that is as good.
    fn add_nodes_of_others(&self, image: &mut FailedImage, now: Timestamp) {
        if image.nodes.is_empty() {
            return;
        }
        for entry in self.0.values().filter(|entry| now < entry.until) {
            if let Lesson::Image(other) = &entry.lesson
                && (other.digest, &other.architecture) == (image.digest, &image.architecture)
                && other.namespace != image.namespace
            {
                image.add_nodes(&other.nodes);
            }
        }
    }

    /// Evicts the oldest entry of the namespace if it has its share, else, if all are too many, of the one with most.
    fn make_room(&mut self, namespace: &str) {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for entry in self.0.values() {
            *counts.entry(entry.lesson.namespace()).or_default() += 1;
        }
        let has_its_share = counts
            .get(namespace)
            .is_some_and(|count| *count >= OF_NAMESPACE);
        let full = if has_its_share {
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

    /// Adds nodes, as far as more are needed. Returns whether there were any to add.
    fn add_nodes(&mut self, more: &[String]) -> bool {
        let before = self.nodes.len();
        for node in more {
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
        let is_distinct = self.nodes.iter().collect::<HashSet<_>>().len() == self.nodes.len();
        self.nodes.len() <= NODES && is_distinct && self.nodes.iter().all(is_id)
    }
}

impl RecreatingOwner {
    /// Returns whether the API server could have such an owner: the author of a Pod chooses the names.
    pub fn is_plausible(&self) -> bool {
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-.:".contains(&b);
        let is_short =
            |text: &str, most| (1..=most).contains(&text.len()) && text.bytes().all(is_plain);
        is_short(&self.kind, 63) && is_short(&self.name, 253)
    }
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

    /// Returns the namespace of the Pods that showed it.
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

/// Returns the place of the first item of the namespace whose items have the most bytes.
fn oldest_of_the_largest(items: &[Item<'_>]) -> Option<usize> {
    let mut shares: BTreeMap<&str, usize> = BTreeMap::new();
    for item in items {
        *shares.entry(item.entry.lesson.namespace()).or_default() += item.bytes();
    }
    let largest = shares.into_iter().max_by_key(|(_, bytes)| *bytes)?.0;
    items
        .iter()
        .position(|item| item.entry.lesson.namespace() == largest)
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
                !PlatformSet::of_architecture(&image.architecture).is_empty()
                    && image.has_plausible_nodes()
            }
            Lesson::Owner(owner) => owner.is_plausible(),
        };
        is_possible
            && is_name(lesson.namespace())
            && lesson.namespace().len() <= NAMESPACE
            && *failures > 0
            // No earlier time can be rendered.
            && *since >= Timestamp::UNIX_EPOCH
            && *since <= after(now, SKEW)
            && (*since..=after(*since, LONGEST)).contains(until)
            && now < after(*until, REMEMBERED)
    }
}

/// Returns the time that much later, or the last one: a sum of jiff panics beyond the year 9999.
fn after(time: Timestamp, duration: Duration) -> Timestamp {
    time.saturating_add(duration).unwrap_or(Timestamp::MAX)
}

fn read_digest<'de, D: Deserializer<'de>>(from: D) -> Result<Digest, D::Error> {
    let text = Some(String::deserialize(from)?)
        .filter(|text| is_digest(text) && text.starts_with("sha256:"));
    text.map(|text| Digest::of_text(&text))
        .ok_or_else(|| D::Error::custom("not a SHA-256 digest"))
}

fn write_digest<S: Serializer>(digest: &Digest, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(digest)
}

#[cfg(test)]
mod tests;
