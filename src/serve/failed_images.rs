//! Follows the ConfigMap in which the controller records failed images. Both the webhook and the controller do so.

use futures_util::StreamExt;
use tokio::time::{Duration, interval};

use super::snapshot::Live;
use tolerarch_engine::lessons::{Lessons, Timestamp};
use tolerarch_kubernetes::cluster::{Change, ConfigMap, ObjectStore, OwnedName, Watcher, record};
use tolerarch_support::health::{Reported, State};

/// Interval at which the entries that have not expired are counted.
const COUNT: Duration = Duration::from_secs(30);
const UNREAD: &str = "the ConfigMap of failed images cannot be read; its last state counts";

pub(super) struct Record {
    pub(super) watcher: Watcher,
    pub(super) name: OwnedName,
    pub(super) live: Live,
    pub(super) state: Reported,
}

impl Record {
    pub(super) async fn run(&mut self) {
        let mut changes = self
            .watcher
            .follow_one(&self.name.namespace, &self.name.name);
        let mut maps = ObjectStore::default();
        let mut ticks = interval(COUNT);
        loop {
            tokio::select! {
                Some(change) = changes.next() => {
                    match &change {
                        Change::Failed(error) => {
                            if self.state.get() == State::Healthy {
                                tracing::error!(%error, "{UNREAD}");
                            }
                            self.state.set(State::Degraded(UNREAD));
                        }
                        Change::Complete => self.state.set(State::Healthy),
                        _ => {}
                    }
                    if maps.take(change, |map: ConfigMap| record(&map).to_owned()) {
                        let text = maps.objects().values().next().map_or("", String::as_str);
                        self.live.publish_lessons(Lessons::of_text(text, Timestamp::now()));
                    }
                }
                _ = ticks.tick() => {}
            }
            let snapshot = self.live.current.load_full();
            let [images, owners] = snapshot.lessons.count(Timestamp::now());
            let metrics = &self.live.metrics.changes;
            for (gauge, count) in [
                (&metrics.failed_images, images),
                (&metrics.recreating_owners, owners),
            ] {
                gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
            }
        }
    }
}
