//! The pull secrets that Pods name, in their own namespaces. Only the first Pod waits; later ones get what is cached.

use std::sync::Arc;

use base64::Engine;
use futures_util::FutureExt;
use futures_util::future::join_all;
use serde::Deserialize;
use tokio::time::{Duration, Instant, timeout};
use zeroize::Zeroizing;

use super::credential::{Credential, IdentifiedCredential, Sensitive};
use super::docker::{BASE64, DockerConfig, Read};
use super::docker_keyring::DockerKeyring;
use super::limits::{self, DATA, ENTRIES, GLOB, KEY, WORD};
use super::pattern::ImagePattern;
use super::ttl_cache::TtlCache;
use tolerarch_kubernetes::cluster::{self, Cluster, ClusterError};
use tolerarch_support::concurrency::{Capacity, ConcurrencyLimit, Tenant};
use tolerarch_support::recently::Recently;
use tolerarch_support::single_flight::SingleFlight;
use tolerarch_support::sync::Mutex;

/// About how many secrets are cached; the bound is their size.
const ITEMS: usize = 10_000;
/// How long a secret is fresh, and how long a failed reading is.
const FOUND: Duration = Duration::from_secs(60);
const NOTHING: Duration = Duration::from_secs(15);
/// How long a secret is used while it cannot be read again.
const STALE: Duration = Duration::from_secs(600);
/// How long a Pod waits for a secret that is not cached, and how long a person's command does.
pub(super) const WAIT: Duration = Duration::from_millis(500);
pub(super) const WAIT_LONG: Duration = Duration::from_secs(3);
/// How long a reason is not logged again above debug.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// More than there are reasons.
const REASONS: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Name {
    namespace: Arc<str>,
    name: Arc<str>,
}

pub(super) struct PullSecrets {
    cluster: Cluster,
    wait: Duration,
    cached: Arc<TtlCache<Name, CachedSecret>>,
    reads: SingleFlight<Name, Option<CachedSecret>>,
    limit: ConcurrencyLimit,
    logged: Mutex<Recently>,
}

/// The content of a secret, which may be empty.
#[derive(Clone)]
struct CachedSecret {
    keyring: PullSecret,
    read: Instant,
    /// When reading it was last tried, and for how long that suffices.
    asked: Instant,
    enough: Duration,
}

/// What is in one pull secret of a Pod.
pub(super) type PullSecret = Arc<DockerKeyring<IdentifiedCredential>>;

#[derive(Deserialize)]
pub(super) struct Object {
    r#type: Option<String>,
    data: Option<Data>,
}

/// Only the keys that can hold registry credentials.
#[derive(Deserialize)]
struct Data {
    #[serde(rename = ".dockerconfigjson")]
    config: Option<Sensitive>,
    #[serde(rename = ".dockercfg")]
    cfg: Option<Sensitive>,
}

impl PullSecrets {
    /// `wait` is how long a caller waits for a secret that is not cached.
    pub(super) fn new(cluster: Cluster, wait: Duration) -> Arc<Self> {
        let cached = TtlCache::weighed(ITEMS, limits::CACHED, weight);
        let (all, waiting) = (limits::READS, limits::READS_WAITING);
        let limit = ConcurrencyLimit::new(Capacity { all, per_host: all, waiting });
        let logged = Mutex::new(Recently::new(LOG_INTERVAL, REASONS));
        Arc::new(Self { cluster, wait, cached, reads: SingleFlight::default(), limit, logged })
    }

    /// The secrets of these names, each once; empty ones are left out, and those beyond the bound on entries.
    pub(super) async fn read<'n>(
        self: &Arc<Self>,
        namespace: &str,
        names: impl Iterator<Item = &'n str>,
    ) -> Vec<PullSecret> {
        let namespace: Arc<str> = namespace.into();
        let mut wanted: Vec<Name> = Vec::new();
        // What cannot name a Secret is neither cached nor logged: it may be anything.
        for name in names.filter(|name| cluster::is_name(name)) {
            let name = Name { namespace: Arc::clone(&namespace), name: name.into() };
            if !wanted.contains(&name) {
                wanted.push(name);
            }
        }
        let read = wanted.into_iter().map(|name| async move {
            let content = match self.cached.get(&name) {
                Some(content) => {
                    if content.is_due() {
                        // The task goes on without a caller.
                        let _ = self.fetch(&name).now_or_never();
                    }
                    content
                }
                None => timeout(self.wait, self.fetch(&name)).await.ok()??,
            };
            Some(content.keyring)
        });
        let mut read: Vec<PullSecret> = join_all(read).await.into_iter().flatten().collect();
        let (mut entries, mut globs) = (limits::ENTRIES_OF_POD, limits::GLOBS_OF_POD);
        read.retain(|own| {
            let (of_own, globs_of_own) = (own.len(), own.globs().count());
            let fits = of_own <= entries && globs_of_own <= globs;
            entries -= of_own.min(entries);
            globs -= globs_of_own.min(globs);
            fits && of_own > 0
        });
        read
    }

    /// Reads a secret when it is the namespace's turn, once for all of its Pods: no other namespace can name it.
    async fn fetch(self: &Arc<Self>, name: &Name) -> Option<CachedSecret> {
        let (own, wanted) = (Arc::clone(self), name.clone());
        let work = || async move {
            // A full queue is not cached: it says nothing of the secret.
            let permit = own.limit.queue(&Tenant::Namespace(Arc::clone(&wanted.namespace)), "")?.await;
            let found = own.cluster.secret::<Object>(&wanted.namespace, &wanted.name).await;
            drop(permit);
            Some(own.learn(wanted, found))
        };
        self.reads.run(name.clone(), work).await.ok().flatten()
    }

    fn learn(&self, name: Name, found: Result<Object, ClusterError>) -> CachedSecret {
        use ClusterError::{Resting, Status, Timeout, Unreachable};
        let now = Instant::now();
        // The secret itself may be unchanged.
        let is_unavailable = |error: &ClusterError| matches!(error, Timeout | Unreachable | Resting | Status);
        let unavailable = found.as_ref().err().copied().filter(is_unavailable);
        let before = self.cached.get(&name).filter(|before| !before.is_empty());
        let content = match found.map_err(unusable).and_then(content) {
            Ok(read) => {
                if read.malformed > 0 {
                    self.log("an auth is not base64(user:password)", &name);
                }
                CachedSecret::read(read.keyring, now)
            }
            Err(fault) => {
                self.log(fault, &name);
                let before = before.filter(|_| unavailable.is_some());
                let before = before.unwrap_or_else(|| CachedSecret::read(DockerKeyring::default(), now));
                CachedSecret { asked: now, enough: NOTHING, ..before }
            }
        };
        let life = if content.is_empty() { NOTHING } else { STALE.saturating_sub(content.read.elapsed()) };
        // The client itself knows when the API server may be asked again.
        if !content.is_empty() || unavailable != Some(Resting) {
            self.cached.put(name, content.clone(), life);
        }
        content
    }

    /// Logs now and then why a secret gives no credential. A missing secret is the tenant's own mistake.
    fn log(&self, reason: &'static str, name: &Name) {
        let is_due = || self.logged.lock().insert(reason);
        let Name { namespace, name } = name;
        if reason != NOT_FOUND && is_due() {
            tracing::warn!(%namespace, %name, reason, "a pull secret gives no credential (more of this kind at level debug)");
        } else {
            tracing::debug!(%namespace, %name, reason, "a pull secret gives no credential");
        }
    }
}

impl CachedSecret {
    fn read(keyring: DockerKeyring<IdentifiedCredential>, now: Instant) -> Self {
        Self { keyring: keyring.into(), read: now, asked: now, enough: FOUND }
    }

    fn is_empty(&self) -> bool {
        self.keyring.len() == 0
    }

    fn is_due(&self) -> bool {
        self.asked.elapsed() >= self.enough
    }
}

const NOT_FOUND: &str = "not found";

/// Why a secret gives no credential: one of a few fixed texts.
fn unusable(error: ClusterError) -> &'static str {
    match error {
        ClusterError::NotFound => NOT_FOUND,
        ClusterError::Forbidden => "no right to get it",
        ClusterError::Unauthorized => "the API server does not accept the service account",
        ClusterError::Timeout => "the API server does not answer in time",
        ClusterError::Unreachable => "the API server cannot be reached",
        ClusterError::Resting => "the API server did not answer a moment ago",
        ClusterError::Status | ClusterError::Conflict | ClusterError::Invalid => {
            "the API server answers with an error"
        }
        ClusterError::TooLarge => "it is too large",
        ClusterError::Malformed => "the API server's answer is no Secret",
        ClusterError::Name => "it is called what no Secret can be called",
    }
}

/// The content, if type and key belong together, as kubelet requires (pkg/credentialprovider/secrets/secrets.go).
pub(super) fn content(object: Object) -> Result<Read, &'static str> {
    let data = object.data.unwrap_or(Data { config: None, cfg: None });
    let decode = |text: Option<Sensitive>| -> Result<Zeroizing<Vec<u8>>, &'static str> {
        let text = text.ok_or("it lacks the key that belongs to its type")?;
        DATA.check(text.reveal().len() / 4 * 3)?;
        BASE64.decode(text.reveal()).map(Zeroizing::new).map_err(|_| "its data is not base64")
    };
    let config = match object.r#type.as_deref() {
        Some("kubernetes.io/dockerconfigjson") => DockerConfig::parse(&decode(data.config)?),
        Some("kubernetes.io/dockercfg") => DockerConfig::parse_older(&decode(data.cfg)?),
        _ => return Err("it is of no type that holds registry credentials"),
    };
    let read = config.map_err(|_| "its data is not JSON of docker's form")?.read();
    ENTRIES.check(read.entries)?;
    for (key, held) in read.keyring.entries() {
        KEY.check(key.as_str().len())?;
        WORD.check(held.credential.longest())?;
        GLOB.check(key.glob().map_or(0, str::len))?;
    }
    Ok(read)
}

/// About how many bytes a secret takes.
fn weight(name: &Name, content: &CachedSecret) -> u64 {
    let entries = content.keyring.entries();
    // A credential has two parts, of which the longer one is known.
    let entries = entries.map(|(key, kept)| {
        size_of::<(ImagePattern, IdentifiedCredential, Credential)>()
            + key.as_str().len()
            + 2 * kept.credential.longest()
    });
    (size_of::<(Name, CachedSecret)>() + name.namespace.len() + name.name.len() + entries.sum::<usize>())
        as u64
}

#[cfg(test)]
mod tests;
