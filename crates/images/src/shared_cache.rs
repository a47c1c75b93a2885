//! Cache that replicas share: answers of registries in a Valkey or Redis, behind the cache in each replica's memory. It
//! is optional: no Pod waits for it longer than one short timeout, and after a failure the circuit is open until the
//! server answers again. Its content is untrusted input, and is checked like a registry's responses.

mod entry;
mod fault;
mod keeper;
mod metrics;
mod server;
mod settings;

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::future::join_all;
use redis::{Cmd, FromRedisValue, RedisResult, cmd};
use tokio::sync::{mpsc, watch};
use tokio::time::{Duration, timeout};

pub use keeper::SharedCacheKeeper;
pub use metrics::SharedCacheMetrics;
pub use settings::{ParseUrlError, ServerUrl, SharedCacheSettings};

use crate::credentials::{CredentialCandidate, CredentialId};
use crate::registry::{Digest, ResolvedImage, VerifiedPlatforms};
use server::Server;
use tolerarch_core::image::ImageRef;

/// Maximum number of candidates of one image whose answers are read, all at once.
const CANDIDATES: usize = 8;
/// Lifetime of the platforms of a digest: they never change, but unused ones must not stay.
const DIGEST_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Client of the cache that replicas share. Clones share the connection, under several configurations.
#[derive(Clone)]
pub struct SharedCache {
    timeout: Duration,
    metrics: SharedCacheMetrics,
    /// Server in use; `None` while the circuit is open.
    server: watch::Sender<Option<Arc<Server>>>,
    writes: mpsc::Sender<Write>,
    /// Platforms for whose nodes answers are verified: an answer that is verified for other platforms means something
    /// else.
    verified: VerifiedPlatforms,
    tag_life: Duration,
}

type Write = (&'static str, Cmd);

impl SharedCache {
    /// Returns the cache for answers verified for nodes of these platforms, with this lifetime of answers about tags.
    #[must_use]
    pub(crate) fn configured(self, verified: VerifiedPlatforms, tag_life: Duration) -> Self {
        Self {
            verified,
            tag_life,
            ..self
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.server.borrow().is_some()
    }

    /// Reads the shared answers about the image's tag, or about this digest in the image's repository. Each has the
    /// time since a registry reported it. A candidate whose credential a program gives has no shared answer.
    pub(crate) async fn find(
        &self,
        image: &ImageRef,
        digest: Option<Digest>,
        candidates: &[CredentialCandidate],
    ) -> Vec<(CredentialId, ResolvedImage, Duration)> {
        let Some(server) = self.server("get") else {
            return Vec::new();
        };
        let keys = candidates.iter().filter_map(|candidate| {
            let credential = candidate.held_credential()?;
            let key = server.keys.of(image, digest, credential, self.verified)?;
            Some((candidate.id, key))
        });
        let answers = keys.take(CANDIDATES).map(async |(id, key)| {
            let (resolved, age) = self.get(&server, &key).await?;
            Some((id, resolved, age))
        });
        join_all(answers).await.into_iter().flatten().collect()
    }

    /// Shares a registry's answer, if no part is missing.
    pub(crate) fn share(
        &self,
        image: &ImageRef,
        candidate: &CredentialCandidate,
        resolved: ResolvedImage,
    ) {
        if resolved.lacks_parts {
            return;
        }
        let Some(credential) = candidate.held_credential() else {
            return;
        };
        let Some(server) = self.server("set") else {
            return;
        };
        let mut digests = vec![Some(resolved.digest), Digest::named_by(image)];
        digests.dedup();
        for digest in digests {
            let Some(key) = server.keys.of(image, digest, credential, self.verified) else {
                return;
            };
            let entry = entry::encode(resolved, &server.keys, &key, now());
            let life = match digest {
                Some(_) => DIGEST_LIFE,
                None => self.tag_life,
            };
            let seconds = life.as_secs().max(1);
            let mut set = cmd("SET");
            set.arg(key).arg(&entry).arg("EX").arg(seconds);
            self.write("set", set);
        }
    }

    /// Removes the shared answer about the image's tag.
    pub(crate) fn forget(&self, image: &ImageRef, candidate: &CredentialCandidate) {
        if image.digest().is_none()
            && let Some(credential) = candidate.held_credential()
            && let Some(server) = self.server("delete")
            && let Some(key) = server.keys.of(image, None, credential, self.verified)
        {
            let mut delete = cmd("DEL");
            delete.arg(key);
            self.write("delete", delete);
        }
    }

    async fn get(&self, server: &Arc<Server>, key: &str) -> Option<(ResolvedImage, Duration)> {
        let value = match self.send::<Vec<u8>>(server, "get", &server::get(key)).await {
            Ok(value) => value,
            Err(error) => {
                if metrics::failure(&error) != "invalid" {
                    self.open_circuit(server);
                }
                return None;
            }
        };
        let entry = entry::decode(&value, &server.keys, key, now());
        let result = match entry {
            Some(_) => "hit",
            None if value.is_empty() => "miss",
            None => "invalid",
        };
        self.metrics.count("get", result);
        entry
    }

    /// Queues a command for the keeper.
    fn write(&self, operation: &'static str, command: Cmd) {
        if self.writes.try_send((operation, command)).is_err() {
            self.metrics.count(operation, "dropped");
        }
    }

    /// Returns the server if the circuit is closed.
    fn server(&self, operation: &'static str) -> Option<Arc<Server>> {
        let server = self.server.borrow().clone();
        if server.is_none() {
            self.metrics.count(operation, "skipped");
        }
        server
    }

    /// Sends a command within the timeout of one operation, and counts a failure.
    async fn send<T: FromRedisValue>(
        &self,
        server: &Server,
        operation: &'static str,
        command: &Cmd,
    ) -> RedisResult<T> {
        let durations = self.metrics.durations.with_label_values(&[operation]);
        let _measured = durations.start_timer();
        let result = within(self.timeout, server.send(command)).await;
        if let Err(error) = &result {
            self.metrics.count(operation, metrics::failure(error));
            tracing::debug!(%error, "no answer of the shared cache");
        }
        result
    }

    /// Opens the circuit if this server is still in use; the keeper reconnects.
    fn open_circuit(&self, server: &Arc<Server>) {
        let is_used = |current: &mut Arc<Server>| Arc::ptr_eq(current, server);
        self.server
            .send_if_modified(|current| current.take_if(is_used).is_some());
    }
}

/// Limits the time of a command.
async fn within<T>(time: Duration, work: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    match timeout(time, work).await {
        Ok(result) => result,
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "no answer in time").into()),
    }
}

/// Returns the time since the Unix epoch.
fn now() -> Duration {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
}
