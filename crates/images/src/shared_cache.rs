//! The cache that replicas share: answers of registries in a Valkey or Redis, behind each replica's memory.
//!
//! It is a help, never a need: no Pod waits longer for it than one short timeout, and while it does not answer it is not
//! asked. What comes out of it is untrusted input, and is checked like what a registry sends.
//!
//! # Layout
//! - `url`, `key`, `entry`: where the servers are, and what is stored there, without I/O.
//! - `server`: what one URL leads to, and commands.
//! - `node`, `cluster`: one connection, and several.
//! - `keeper`: the background task, which connects and writes.
//! - `metrics`.

mod cluster;
mod entry;
mod keeper;
mod key;
mod metrics;
mod node;
mod server;
mod url;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use futures_util::future::join_all;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Duration, Instant, timeout};

pub(crate) use entry::Entry;
pub use keeper::SharedCacheKeeper;
pub use metrics::SharedCacheMetrics;
pub use url::{ParseUrlError, ServerUrl};

use crate::credentials::{Credential, CredentialCandidate, CredentialId};
use crate::registry::{Digest, Found};
use key::{Key, Keys};
use metrics::{Operation, OperationResult};
use server::{Server, ServerError};
use tolerarch_core::image::{ImageRef, PlatformSet, Support};
use tolerarch_support::health::{Reported, State};

/// Writes that wait, of some 150 bytes each; more are dropped.
const WRITES: usize = 4096;
/// Candidates of one image that are looked for; they are asked for at once.
const CANDIDATES: usize = 8;
/// How long the platforms of a digest are kept. They never change; but nothing is kept for ever that may not be used.
const DIGEST_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Where the shared cache is, and how it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedCacheSettings {
    /// The servers; none: no cache is shared.
    pub url: Option<ServerUrl>,
    /// The user's name.
    pub username_file: Option<PathBuf>,
    pub password_file: Option<PathBuf>,
    /// Certificate authorities that are trusted instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// A secret of all replicas, which proves what they wrote.
    pub key_file: Option<PathBuf>,
    /// How long an operation may take.
    pub timeout: Duration,
    /// What every key begins with.
    pub prefix: String,
}

impl Default for SharedCacheSettings {
    fn default() -> Self {
        Self {
            url: None,
            username_file: None,
            password_file: None,
            ca_file: None,
            key_file: None,
            timeout: Duration::from_millis(50),
            prefix: "tolerarch:".to_owned(),
        }
    }
}

/// The shared cache. Clones are the same.
#[derive(Clone)]
pub struct SharedCache {
    inner: Arc<Inner>,
    /// For nodes of which platforms the answers are verified: others mean something else.
    verified: PlatformSet,
}

struct Inner {
    settings: SharedCacheSettings,
    metrics: SharedCacheMetrics,
    state: Reported,
    /// Nothing while the circuit is open.
    link: ArcSwapOption<Link>,
    /// The circuit has opened.
    broken: Notify,
    writes: mpsc::Sender<Write>,
}

/// A connection that works, as far as is known.
struct Link {
    server: Server,
    keys: Keys,
}

/// What is to be written.
struct Write {
    key: Key,
    /// Nothing deletes the key.
    entry: Option<(Entry, Duration)>,
}

impl SharedCache {
    /// The cache with these settings, connected if that takes a moment only, and what keeps it so; `None` if there are no
    /// servers.
    pub async fn begin(
        settings: SharedCacheSettings,
        metrics: SharedCacheMetrics,
    ) -> Option<(Self, SharedCacheKeeper)> {
        let url = settings.url.clone()?;
        if settings.key_file.is_none() {
            tracing::warn!(
                "cache.shared has no keyFile: anyone who can write to its server can open pools to images that do not run there"
            );
        }
        let (writes, queue) = mpsc::channel(WRITES);
        let state = Reported::default();
        state.set(State::Degraded(NOT_CONNECTED));
        let link = ArcSwapOption::empty();
        let inner = Arc::new(Inner { settings, metrics, state, link, broken: Notify::new(), writes });
        let own = Self { inner, verified: PlatformSet::EMPTY };
        let mut keeper = SharedCacheKeeper::new(own.clone(), url, queue);
        keeper.begin().await;
        Some((own, keeper))
    }

    /// The same for answers that are verified for nodes of these platforms.
    #[must_use]
    pub(crate) fn verifying(self, verified: PlatformSet) -> Self {
        Self { verified, ..self }
    }

    /// Whether it is worth asking.
    pub(crate) fn is_connected(&self) -> bool {
        self.inner.link.load().is_some()
    }

    /// What replicas know of an image by those of the candidates whose credential is at hand.
    pub(crate) async fn find(
        &self,
        image: &ImageRef,
        candidates: &[CredentialCandidate],
    ) -> Vec<(CredentialId, Entry)> {
        let Some(link) = self.link(Operation::Get) else { return Vec::new() };
        let own = candidates.iter().filter_map(|candidate| {
            let key = link.keys.of(image, candidate.held_credential()?, self.verified)?;
            Some((candidate.id(), key))
        });
        let asked = own.take(CANDIDATES).map(async |(id, key)| Some((id, self.get(&link, &key).await?)));
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// What replicas know of a digest in the image's repository.
    pub(crate) async fn find_digest(
        &self,
        image: &ImageRef,
        credential: Option<&Credential>,
        digest: Digest,
    ) -> Option<Support> {
        let link = self.link(Operation::Get)?;
        let key = link.keys.of_digest(image, credential, digest, self.verified)?;
        let entry = self.get(&link, &key).await?;
        (entry.digest == digest).then_some(entry.support)
    }

    /// Shares what a registry said, for this long where it said it of a tag.
    pub(crate) fn learn(
        &self,
        image: &ImageRef,
        credential: Option<&Credential>,
        found: Found,
        life: Duration,
    ) {
        let Found { digest, support, .. } = found;
        let entry = Entry { digest, support, age: Duration::ZERO };
        let named = image.digest().map(Digest::of_text);
        self.write(|keys| {
            let key = keys.of_digest(image, credential, digest, self.verified)?;
            Some(Write { key, entry: Some((entry, DIGEST_LIFE)) })
        });
        if named != Some(digest) {
            let life = if named.is_some() { DIGEST_LIFE } else { life };
            self.write(|keys| {
                Some(Write { key: keys.of(image, credential, self.verified)?, entry: Some((entry, life)) })
            });
        }
    }

    /// Shares that a registry has said of a tag once more.
    pub(crate) fn confirm(
        &self,
        image: &ImageRef,
        credential: Option<&Credential>,
        digest: Digest,
        support: Support,
        life: Duration,
    ) {
        let entry = Entry { digest, support, age: Duration::ZERO };
        self.write(|keys| {
            Some(Write { key: keys.of(image, credential, self.verified)?, entry: Some((entry, life)) })
        });
    }

    /// A registry has refused the image: what was shared of it no longer holds.
    pub(crate) fn forget(&self, image: &ImageRef, credential: Option<&Credential>) {
        if image.digest().is_none() {
            self.write(|keys| Some(Write { key: keys.of(image, credential, self.verified)?, entry: None }));
        }
    }

    async fn get(&self, link: &Arc<Link>, key: &Key) -> Option<Entry> {
        let value = match self.limited(Operation::Get, link.server.get(key.as_str())).await {
            Ok(value) => value,
            Err(error) => {
                let result = self.failed(Operation::Get, &error);
                if result != OperationResult::Invalid {
                    self.open_circuit(link);
                }
                return None;
            }
        };
        let entry = Entry::decode(&value, &link.keys, key, now());
        let result = match entry {
            Some(_) => OperationResult::Hit,
            None if value.is_empty() => OperationResult::Miss,
            None => OperationResult::Invalid,
        };
        self.inner.metrics.count(Operation::Get, result);
        entry
    }

    /// Queues a write, or drops it.
    fn write(&self, write: impl FnOnce(&Keys) -> Option<Write>) {
        let operation =
            |write: &Write| if write.entry.is_some() { Operation::Set } else { Operation::Delete };
        let Some(link) = self.link(Operation::Set) else { return };
        let Some(write) = write(&link.keys) else { return };
        if let Err(error) = self.inner.writes.try_send(write) {
            self.inner.metrics.count(operation(&error.into_inner()), OperationResult::Dropped);
        }
    }

    /// The connection, if the circuit is closed.
    fn link(&self, operation: Operation) -> Option<Arc<Link>> {
        let link = self.inner.link.load_full();
        if link.is_none() {
            self.inner.metrics.count(operation, OperationResult::Skipped);
        }
        link
    }

    /// Does one operation within its time.
    async fn limited<T>(
        &self,
        operation: Operation,
        work: impl Future<Output = Result<T, ServerError>>,
    ) -> Result<T, ServerError> {
        let begun = Instant::now();
        let done = timeout(self.inner.settings.timeout, work).await.unwrap_or(Err(ServerError::Timeout));
        self.inner.metrics.took(operation, begun.elapsed().as_secs_f64());
        done
    }

    /// Counts a failure.
    fn failed(&self, operation: Operation, error: &ServerError) -> OperationResult {
        let result = match error {
            ServerError::Timeout => OperationResult::Timeout,
            error if error.is_wrong_type() => OperationResult::Invalid,
            _ => OperationResult::Error,
        };
        self.inner.metrics.count(operation, result);
        tracing::debug!(%error, "no answer of the shared cache");
        result
    }

    /// No one asks this connection any more, until the keeper has found that it works.
    fn open_circuit(&self, link: &Arc<Link>) {
        let before = self.inner.link.compare_and_swap(link, None);
        if before.as_ref().is_some_and(|before| Arc::ptr_eq(before, link)) {
            self.inner.state.set(State::Degraded(NOT_CONNECTED));
            self.inner.broken.notify_one();
        }
    }
}

const NOT_CONNECTED: &str = "no server answers; every replica asks the registries itself";

/// The time since the Unix epoch.
fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
