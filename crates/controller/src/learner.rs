//! Records lessons in a ConfigMap, which all replicas use for decisions. Each write reads the ConfigMap first: no
//! record is lost with a leader, and an entry that people delete stays deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Duration, sleep};

use super::Leadership;
use super::recreations::Recreations;
use tolerarch_engine::lessons::{Lesson, Lessons, TEXT, Timestamp};
use tolerarch_kubernetes::cluster::{Cluster, ClusterError, ConfigMap, OwnedName, RECORD, record};
use tolerarch_support::health::Reported;
use tolerarch_support::sync::Mutex;

/// Maximum number of lessons that wait to be written. Beyond this number, one of the namespace with the most is
/// dropped; it is learned again when another Pod fails.
const WAITING: usize = 256;
/// Delay in which lessons are collected for one write.
const COLLECTION: Duration = Duration::from_secs(1);
/// Longest pause after failed writes.
const LONGEST: Duration = Duration::from_secs(60);
const NOT_WRITTEN: &str = "the ConfigMap of images that failed cannot be read or written";

pub struct Learner {
    cluster: Arc<Cluster>,
    name: OwnedName,
    waiting: Mutex<Vec<Lesson>>,
    pub(super) recreations: Mutex<Recreations>,
    more: Notify,
}

impl Learner {
    pub fn new(cluster: Arc<Cluster>, name: OwnedName) -> Self {
        Self {
            cluster,
            name,
            waiting: Mutex::default(),
            recreations: Mutex::default(),
            more: Notify::new(),
        }
    }

    pub(super) fn learn(&self, lesson: Lesson) {
        let mut waiting = self.waiting.lock();
        if waiting.contains(&lesson) {
            return;
        }
        if waiting.len() >= WAITING {
            let Some(dropped) = index_to_drop(&waiting, lesson.namespace()) else {
                return;
            };
            waiting.remove(dropped);
        }
        waiting.push(lesson);
        self.more.notify_one();
    }

    /// Writes lessons as they are learned, until the task is cancelled.
    pub(super) async fn keep(&self, leadership: &Leadership, state: &Reported) {
        let mut pause = COLLECTION;
        loop {
            if self.waiting.lock().is_empty() {
                self.more.notified().await;
            }
            sleep(pause).await;
            match self.write(leadership).await {
                Ok(()) | Err(ClusterError::Conflict) => {
                    state.set_fault(NOT_WRITTEN, false);
                    pause = COLLECTION;
                }
                Err(error) => {
                    if !state.has(NOT_WRITTEN) {
                        tracing::error!(%error, "{NOT_WRITTEN}");
                    }
                    state.set_fault(NOT_WRITTEN, true);
                    pause = (2 * pause).min(LONGEST);
                }
            }
        }
    }

    async fn write(&self, leadership: &Leadership) -> Result<(), ClusterError> {
        let Self {
            cluster,
            name,
            waiting,
            ..
        } = self;
        let stored: ConfigMap = name.read(cluster).await?;
        let now = Timestamp::now();
        let learned = waiting.lock().clone();
        let mut lessons = Lessons::of_text(record(&stored), now);
        let mut changes = 0;
        for lesson in &learned {
            if lessons.record(lesson.clone(), now) {
                changes += 1;
            }
        }
        if changes > 0 {
            // The task may run a moment longer than the Lease. The lessons stay for the next term of this replica.
            if !leadership.holds() {
                return Ok(());
            }
            let patch = patch(&stored, lessons.to_text());
            name.write(cluster, &stored, patch).await?;
            tracing::info!(
                changes,
                "images that failed, or owners that delete changed Pods, are recorded"
            );
        }
        waiting.lock().retain(|lesson| !learned.contains(lesson));
        Ok(())
    }
}

/// Returns the index of the lesson to drop for one of `namespace`: the last lesson of the namespace with the most.
/// `None` if that namespace would then have no more lessons than `namespace`.
fn index_to_drop(waiting: &[Lesson], namespace: &str) -> Option<usize> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for lesson in waiting {
        *counts.entry(lesson.namespace()).or_default() += 1;
    }
    let count = counts.get(namespace).copied().unwrap_or_default();
    let (largest, most) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    if most <= count + 1 {
        return None;
    }
    let mut waiting = waiting.iter();
    waiting.rposition(|lesson| lesson.namespace() == largest)
}

/// Builds the patch that stores a record. Foreign content is removed only if it leaves no room for the record.
fn patch(stored: &ConfigMap, text: String) -> Value {
    let mut bytes = RECORD.len() + text.len();
    let mut without_foreign = json!({"data": {}, "binaryData": null});
    for (key, foreign) in stored.data.iter().flatten() {
        if key != RECORD {
            bytes += key.len() + foreign.len();
            without_foreign["data"][key] = Value::Null;
        }
    }
    for (key, foreign) in stored.binary_data.iter().flatten() {
        bytes += key.len() + foreign.0.len();
    }
    let mut patch = if bytes > TEXT {
        without_foreign
    } else {
        json!({"data": {}})
    };
    patch["data"][RECORD] = text.into();
    patch
}

#[cfg(test)]
mod tests {
    use tokio::task::yield_now;

    use super::*;
    use crate::testing::learner;
    use tolerarch_engine::lessons::RecreatingOwner;
    use tolerarch_kubernetes::cluster::testing::Objects;

    fn owner(namespace: &str, number: usize) -> Lesson {
        Lesson::Owner(RecreatingOwner {
            kind: "Broker".to_owned(),
            name: number.to_string(),
            namespace: namespace.to_owned(),
        })
    }

    #[tokio::test]
    async fn lessons_of_the_largest_namespace_are_dropped() {
        let objects = Objects::start().await;
        let learner = learner(&objects);
        for at in 0..2 * WAITING {
            learner.learn(owner("hostile", at));
        }
        for at in 0..10 {
            learner.learn(owner("team", at));
            learner.learn(owner("team", at));
        }
        let waiting = learner.waiting.lock().clone();
        assert_eq!(waiting.len(), WAITING);
        assert!((0..10).all(|at| waiting.contains(&owner("team", at))));
    }

    #[tokio::test]
    async fn lesson_learned_during_a_write_stays() {
        let objects = Objects::start().await;
        let learner = learner(&objects);
        learner.learn(owner("team", 0));
        let write = async {
            learner.write(&Leadership::held()).await.unwrap();
        };
        let meanwhile = async {
            // The fourth request writes the lesson, after the ConfigMap was created and read.
            while objects.requests() < 4 {
                yield_now().await;
            }
            learner.learn(owner("team", 10));
        };
        tokio::join!(write, meanwhile);
        assert_eq!(*learner.waiting.lock(), [owner("team", 10)]);
        learner.write(&Leadership::held()).await.unwrap();
        assert!(learner.waiting.lock().is_empty());
    }

    #[test]
    fn foreign_content_is_removed_only_without_room() {
        let with = |bytes: usize| {
            let data = json!({"a": "x".repeat(bytes), RECORD: "y".repeat(TEXT / 2)});
            let stored = json!({"metadata": {}, "data": data, "binaryData": {"b": "AAAA"}});
            patch(
                &serde_json::from_value(stored).unwrap(),
                "z".repeat(TEXT / 2),
            )
        };
        let record = "z".repeat(TEXT / 2);
        assert_eq!(with(TEXT / 2 - 16), json!({"data": {RECORD: record}}));
        assert_eq!(
            with(TEXT / 2),
            json!({"data": {RECORD: record, "a": null}, "binaryData": null})
        );
    }
}
