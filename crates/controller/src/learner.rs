//! Writes down which images failed, in a ConfigMap by which all replicas decide: read and changed as a whole, so that nothing
//! is lost with a leader, and what people delete there is gone.

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{Duration, sleep};

use super::Leadership;
use tolerarch_engine::failed_images::{FailedImage, FailedImages};
use tolerarch_kubernetes::cluster::{Cluster, ClusterError, ConfigMap, OwnedName, RECORD, record};
use tolerarch_support::health::Reported;
use tolerarch_support::sync::Mutex;

/// Failures that wait to be written. Those that have no room are seen again as their Pods go on failing.
const WAITING: usize = 256;
/// How long is waited for others before they are written together, and how long at most where that fails.
const TOGETHER: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(60);
const NOT_WRITTEN: &str = "the ConfigMap of images that failed cannot be read or written";

pub struct Learner {
    cluster: Arc<Cluster>,
    name: OwnedName,
    waiting: Mutex<Vec<FailedImage>>,
    more: Notify,
}

impl Learner {
    pub fn new(cluster: Arc<Cluster>, name: OwnedName) -> Self {
        Self { cluster, name, waiting: Mutex::default(), more: Notify::new() }
    }

    pub(super) fn learn(&self, failed: FailedImage) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < WAITING && !waiting.contains(&failed) {
            waiting.push(failed);
            self.more.notify_one();
        }
    }

    /// Writes what is learned. Does not end.
    pub(super) async fn keep(&self, leadership: &Leadership, state: &Reported) {
        let mut pause = TOGETHER;
        loop {
            if self.waiting.lock().is_empty() {
                self.more.notified().await;
            }
            sleep(pause).await;
            let written = self.write(leadership).await;
            let is_wrong = written.is_err_and(|error| error != ClusterError::Conflict);
            if let Err(error) = written
                && is_wrong
                && !state.has(NOT_WRITTEN)
            {
                tracing::error!(%error, "{NOT_WRITTEN}");
            }
            state.set_fault(NOT_WRITTEN, is_wrong);
            pause = if is_wrong { (2 * pause).min(LONGEST) } else { TOGETHER };
        }
    }

    async fn write(&self, leadership: &Leadership) -> Result<(), ClusterError> {
        let Self { cluster, name, waiting, .. } = self;
        let stored: ConfigMap = match name.read(cluster).await {
            // What others have put there is nothing that could be read later, either.
            Err(ClusterError::TooLarge | ClusterError::Malformed) => {
                name.overwrite::<ConfigMap>(cluster, &json!({"data": null, "binaryData": null})).await?;
                name.read(cluster).await?
            }
            stored => stored?,
        };
        let (now, news) = (SystemTime::now(), waiting.lock().clone());
        let mut images = FailedImages::of_text(record(&stored), now);
        let changes = news.iter().filter(|failed| images.record((*failed).clone(), now)).count();
        if changes > 0 && leadership.holds() {
            name.write(cluster, &stored, json!({"data": {RECORD: images.to_text()}})).await?;
            tracing::info!(images = changes, "images that failed on an architecture are recorded");
        }
        waiting.lock().drain(..news.len());
        Ok(())
    }
}
