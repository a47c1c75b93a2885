//! Records lessons in a ConfigMap, by which all replicas decide. The ConfigMap is read and changed as a whole, so
//! that no record is lost with a leader, and an entry that people delete stays deleted.

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

/// Maximum number of lessons that wait to be written. Beyond that one of the namespace with the most is dropped; it is
/// seen again when its next Pod fails.
const WAITING: usize = 256;
/// Delay in which lessons are collected for one write, and the longest pause after failed writes.
const TOGETHER: Duration = Duration::from_secs(1);
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
            let Some(dropped) = newest_of_the_largest(&waiting, lesson.namespace()) else {
                return;
            };
            waiting.remove(dropped);
        }
        waiting.push(lesson);
        self.more.notify_one();
    }

    /// Writes lessons as they are learned, until the task is cancelled.
    pub(super) async fn keep(&self, leadership: &Leadership, state: &Reported) {
        let mut pause = TOGETHER;
        loop {
            if self.waiting.lock().is_empty() {
                self.more.notified().await;
            }
            sleep(pause).await;
            match self.write(leadership).await {
                Ok(()) | Err(ClusterError::Conflict) => {
                    state.set_fault(NOT_WRITTEN, false);
                    pause = TOGETHER;
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
        let news = waiting.lock().clone();
        let mut lessons = Lessons::of_text(record(&stored), now);
        let mut changes = 0;
        for lesson in &news {
            if lessons.record(lesson.clone(), now) {
                changes += 1;
            }
        }
        if changes > 0 {
            // The task may run a moment longer than the Lease; if the Lease is won back, the lessons are still there.
            if !leadership.holds() {
                return Ok(());
            }
            name.write(cluster, &stored, patch(&stored, lessons.to_text()))
                .await?;
            tracing::info!(
                changes,
                "images that failed, or owners that delete changed Pods, are recorded"
            );
        }
        waiting.lock().retain(|lesson| !news.contains(lesson));
        Ok(())
    }
}

/// Returns the place of the last lesson of the namespace with the most, unless the other one would then have as many.
fn newest_of_the_largest(waiting: &[Lesson], other: &str) -> Option<usize> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for lesson in waiting {
        *counts.entry(lesson.namespace()).or_default() += 1;
    }
    let own = counts.get(other).copied().unwrap_or_default();
    let (largest, most) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    if most <= own + 1 {
        return None;
    }
    waiting
        .iter()
        .rposition(|lesson| lesson.namespace() == largest)
}

/// Builds the patch that stores a record. Foreign content goes only where it leaves the record no room.
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

    #[tokio::test]
    async fn a_namespace_with_many_lessons_takes_no_place_of_others() {
        let objects = Objects::start().await;
        let learner = learner(&objects);
        let owner = |namespace: &str, at: usize| {
            let [kind, name, namespace] = ["Broker", &at.to_string(), namespace].map(str::to_owned);
            Lesson::Owner(RecreatingOwner {
                kind,
                name,
                namespace,
            })
        };
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
        // What is learned while others are written stays.
        let write = async {
            learner.write(&Leadership::held()).await.unwrap();
        };
        let meanwhile = async {
            // The fourth request writes them, after the ConfigMap was created and read.
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
    fn foreign_content_stays_while_there_is_room() {
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
