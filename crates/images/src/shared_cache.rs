//! The cache that replicas share: answers of registries in a Valkey or Redis, behind each replica's memory.
//!
//! It is a help, never a need: no Pod waits longer for it than one short timeout, and while it does not answer it is not
//! asked. What comes out of it is untrusted input, and is checked like what a registry sends.

mod entry;
mod keeper;
mod key;
mod metrics;
mod node;
mod server;
mod url;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use futures_util::future::join_all;
use redis::RedisResult;
use tokio::sync::{mpsc, watch};
use tokio::time::{Duration, Instant, timeout};

pub use keeper::SharedCacheKeeper;
pub use metrics::SharedCacheMetrics;
pub use url::{ParseUrlError, ServerUrl};

use crate::credentials::{Credential, CredentialCandidate, CredentialId};
use crate::registry::{Digest, Found, Verified};
use entry::LENGTH;
use key::Keys;
use metrics::{Operation, OperationResult};
use server::Server;
use tolerarch_core::image::{ImageRef, Support};
use tolerarch_support::health::{Reported, State};

/// Writes that wait, of some 150 bytes each; more are dropped.
const WRITES: usize = 4096;
/// Candidates of one image that are looked for; they are asked for at once.
const CANDIDATES: usize = 8;
/// How long the platforms of a digest are kept. They never change; but nothing is kept for ever that may not be used.
const DIGEST_LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedCacheSettings {
    /// The servers; none: no cache is shared.
    pub url: Option<ServerUrl>,
    pub username_file: Option<PathBuf>,
    pub password_file: Option<PathBuf>,
    /// Certificate authorities that are trusted instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// A secret of all replicas, which proves what they wrote.
    pub key_file: Option<PathBuf>,
    /// How long an operation may take.
    pub timeout: Duration,
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
    verified: Verified,
}

struct Inner {
    settings: SharedCacheSettings,
    metrics: SharedCacheMetrics,
    state: Reported,
    /// Nothing while the circuit is open.
    link: watch::Sender<Option<Arc<Link>>>,
    writes: mpsc::Sender<Write>,
}

/// A connection that works, as far as is known.
struct Link {
    server: Server,
    keys: Keys,
}

struct Write {
    key: String,
    /// An entry, and how long it lives. Nothing deletes the key.
    entry: Option<([u8; LENGTH], Duration)>,
}

impl SharedCache {
    /// The cache, connected if that takes a moment only, and what keeps it so; `None` if there are no servers.
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
        let (state, link) = (Reported::default(), watch::Sender::new(None));
        state.set(State::Degraded(NOT_CONNECTED));
        let inner = Arc::new(Inner { settings, metrics, state, link, writes });
        let own = Self { inner, verified: Verified::default() };
        let mut keeper = SharedCacheKeeper::new(own.clone(), url, queue);
        keeper.begin().await;
        Some((own, keeper))
    }

    /// The same for answers that are verified for nodes of these platforms.
    #[must_use]
    pub(crate) fn verifying(self, verified: Verified) -> Self {
        Self { verified, ..self }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.inner.link.borrow().is_some()
    }

    /// What replicas know by those of the candidates whose credential is at hand, and how long ago a registry said so.
    pub(crate) async fn find(
        &self,
        image: &ImageRef,
        candidates: &[CredentialCandidate],
    ) -> Vec<(CredentialId, Found, Duration)> {
        let Some(link) = self.link(Operation::Get) else { return Vec::new() };
        let own = candidates.iter().filter_map(|candidate| {
            let key = link.keys.of(image, named(image), candidate.held_credential()?, self.verified)?;
            Some((candidate.id(), key))
        });
        let asked = own.take(CANDIDATES).map(async |(id, key)| {
            let (found, age) = self.get(&link, &key).await?;
            Some((id, found, age))
        });
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
        let key = link.keys.of(image, Some(digest), credential, self.verified)?;
        let (found, _) = self.get(&link, &key).await?;
        (found.digest == digest).then_some(found.support)
    }

    /// Shares what a registry said, for this long where it said it of a tag.
    pub(crate) fn learn(
        &self,
        image: &ImageRef,
        credential: Option<&Credential>,
        found: Found,
        life: Duration,
    ) {
        let Some(link) = self.link(Operation::Set) else { return };
        let share = |digest: Option<Digest>| {
            let Some(key) = link.keys.of(image, digest, credential, self.verified) else { return };
            let entry = entry::encode(found, &link.keys, &key, now());
            let life = if digest.is_some() { DIGEST_LIFE } else { life };
            self.write(Write { key, entry: Some((entry, life)) });
        };
        share(Some(found.digest));
        if named(image) != Some(found.digest) {
            share(named(image));
        }
    }

    /// A registry has refused the image: what was shared of it no longer holds.
    pub(crate) fn forget(&self, image: &ImageRef, credential: Option<&Credential>) {
        if image.digest().is_none()
            && let Some(link) = self.link(Operation::Delete)
            && let Some(key) = link.keys.of(image, None, credential, self.verified)
        {
            self.write(Write { key, entry: None });
        }
    }

    async fn get(&self, link: &Arc<Link>, key: &str) -> Option<(Found, Duration)> {
        let value = match self.limited(Operation::Get, link.server.get(key)).await {
            Ok(value) => value,
            Err(error) => {
                if OperationResult::of(&error) != OperationResult::Invalid {
                    self.open_circuit(link);
                }
                return None;
            }
        };
        let entry = entry::decode(&value, &link.keys, key, now());
        let result = match entry {
            Some(_) => OperationResult::Hit,
            None if value.is_empty() => OperationResult::Miss,
            None => OperationResult::Invalid,
        };
        self.inner.metrics.count(Operation::Get, result);
        entry
    }

    fn write(&self, write: Write) {
        if let Err(error) = self.inner.writes.try_send(write) {
            self.inner.metrics.count(error.into_inner().operation(), OperationResult::Dropped);
        }
    }

    /// The connection, if the circuit is closed.
    fn link(&self, operation: Operation) -> Option<Arc<Link>> {
        let link = self.inner.link.borrow().clone();
        if link.is_none() {
            self.inner.metrics.count(operation, OperationResult::Skipped);
        }
        link
    }

    /// Does one operation within its time, and counts its failure.
    async fn limited<T>(
        &self,
        operation: Operation,
        work: impl Future<Output = RedisResult<T>>,
    ) -> RedisResult<T> {
        let Inner { settings, metrics, .. } = &*self.inner;
        let begun = Instant::now();
        let done = within(settings.timeout, work).await;
        metrics.took(operation, begun.elapsed().as_secs_f64());
        done.inspect_err(|error| {
            metrics.count(operation, OperationResult::of(error));
            tracing::debug!(%error, "no answer of the shared cache");
        })
    }

    /// No one asks this connection any more; the keeper looks for another one.
    fn open_circuit(&self, link: &Arc<Link>) {
        let is_used = |current: &mut Arc<Link>| Arc::ptr_eq(current, link);
        self.inner.link.send_if_modified(|current| current.take_if(is_used).is_some());
    }
}

impl Write {
    fn operation(&self) -> Operation {
        if self.entry.is_some() { Operation::Set } else { Operation::Delete }
    }
}

/// The digest in the image's name.
fn named(image: &ImageRef) -> Option<Digest> {
    image.digest().map(Digest::of_text)
}

async fn within<T>(time: Duration, work: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, "no answer in time");
    timeout(time, work).await.unwrap_or_else(|_| Err(late().into()))
}

const NOT_CONNECTED: &str = "no server answers; every replica asks the registries itself";

/// The time since the Unix epoch.
fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
