//! Records failed images in a ConfigMap, by which all replicas decide. The ConfigMap is read and changed as a whole, so
//! that no record is lost with a leader, and an entry that people delete stays deleted.

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

/// Maximal number of failures that wait to be written. A dropped one is seen again when its next Pod fails.
const WAITING: usize = 256;
/// Delay in which failures are collected for one write, and the longest pause after failed writes.
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

    /// Writes failures as they are learned, until the task is cancelled.
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
            // Foreign content of the ConfigMap could not be read later, either.
            Err(ClusterError::TooLarge | ClusterError::Malformed) => {
                name.overwrite::<ConfigMap>(cluster, &json!({"data": null, "binaryData": null})).await?;
                name.read(cluster).await?
            }
            stored => stored?,
        };
        let (now, news) = (SystemTime::now(), waiting.lock().clone());
        let mut images = FailedImages::of_text(record(&stored), now);
        let changes = news.iter().filter(|failed| images.record((*failed).clone(), now)).count();
        if changes > 0 {
            // The task may run a moment longer than the Lease; if the Lease is won back, the failures are still there.
            if !leadership.holds() {
                return Ok(());
            }
            name.write(cluster, &stored, json!({"data": {RECORD: images.to_text()}})).await?;
            tracing::info!(images = changes, "images that failed on an architecture are recorded");
        }
        waiting.lock().drain(..news.len());
        Ok(())
    }
}
