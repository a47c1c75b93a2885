//! The pull secrets that Pods name, in the Pods' namespaces. Only the first Pod waits; later ones get cached secrets.

use std::collections::HashSet;
use std::sync::Arc;

use base64::Engine;
use futures_util::future::join_all;
use serde::Deserialize;
use tokio::time::{Duration, Instant, timeout};
use zeroize::Zeroizing;

use super::candidate::CredentialCandidate;
use super::credential::{Credential, Sensitive};
use super::docker::{BASE64, DockerConfig, Read};
use super::pattern::{self, DockerKeyring, ImagePattern};
use crate::ttl_cache::{Timed, TtlCache};
use tolerarch_core::image::ImageRef;
use tolerarch_kubernetes::cluster::{self, Caller, Cluster, ClusterError, ConnectError};
use tolerarch_support::concurrency::{Capacity, ConcurrencyLimit, Tenant};
use tolerarch_support::recent_work::RecentWork;
use tolerarch_support::single_flight::{Flight, SingleFlight};
use tolerarch_support::sync::Mutex;

/// Maximum bytes of docker's format in one Secret, which is a tenant's. Real Secrets have a few hundred.
const DATA: usize = 128 << 10;
/// Maximum number of registries in a Secret.
pub(super) const ENTRIES: usize = 64;
/// Maximum bytes of a registry's name.
pub(super) const KEY: usize = 512;
/// Maximum bytes of a user, a password or a token.
pub(super) const WORD: usize = 16 << 10;
/// Maximum bytes of a host with wildcards: matching takes up to 63 steps for each.
pub(super) const GLOB: usize = 128;
/// Maximum number of entries in all secrets of one Pod: each is matched against each of the Pod's images.
const ENTRIES_OF_POD: usize = 256;
/// Maximum number of entries with wildcards in all secrets of one Pod; real Pods have one or two for each cloud.
const GLOBS_OF_POD: usize = 16;

/// Maximum bytes of all cached secrets.
const CACHED: u64 = 16 << 20;
/// About the number of secrets that `CACHED` bytes hold.
const ITEMS: usize = 10_000;
/// Maximum number of secrets that are being read, and that wait to be read. One namespace gets 6 and 64
/// (`concurrency`).
const READS: Capacity = Capacity {
    all: 16,
    per_host: 16,
    waiting: 256,
};
/// Time for which a secret with credentials is fresh.
const FRESH: Duration = Duration::from_secs(60);
/// Time for which a failure, or a secret without a credential, is cached.
const FAILURE_LIFE: Duration = Duration::from_secs(15);
/// Time for which a secret is used while it cannot be read again.
const STALE: Duration = Duration::from_secs(600);
/// Maximum time that a Pod waits for a secret that is not cached.
const WAIT: Duration = Duration::from_millis(500);
/// Maximum time that a person's command waits for such a secret.
const WAIT_LONG: Duration = Duration::from_secs(3);
const MALFORMED: &str = "an auth is not base64(user:password)";
const TOO_MANY: &str =
    "the pull secrets of the Pod have more than 256 entries, or more than 16 with wildcards";
/// Time for which a reason is not logged again above debug.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of reasons to remember. There are fewer.
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
    logged: Mutex<RecentWork>,
}

/// Content of a secret; it may have no entries.
#[derive(Clone)]
struct CachedSecret {
    keyring: SharedKeyring,
    /// Reason why the secret gives no credential at all.
    fault: Option<SecretFault>,
    /// Time from which to read the secret again.
    due: Instant,
    /// Time from which the secret is not used, even if it cannot be read again.
    end: Instant,
}

/// Reason why a secret gives no credential. Quotes nothing of the secret.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub(super) enum SecretFault {
    #[error("the API server: {0}")]
    Cluster(#[from] ClusterError),
    #[error("{0}")]
    Content(&'static str),
    #[error("not read in time: the Pod is decided without it, and the next Pod may find it")]
    Late,
}

type SharedKeyring = Arc<DockerKeyring<CredentialCandidate>>;

/// Pull secret that a Pod names: its credentials, or the reason why it gives none.
#[derive(Clone)]
pub(super) struct PullSecret {
    name: Arc<str>,
    pub(super) keyring: SharedKeyring,
    fault: Option<SecretFault>,
}

impl PullSecret {
    /// Returns why the secret gives no credential for an image; `None` if it gives one. Quotes nothing of the secret.
    pub(super) fn unused(&self, image: &ImageRef) -> Option<String> {
        let name = &self.name;
        if let Some(fault) = self.fault {
            return Some(format!("pull secret {name:?} gives no credential: {fault}"));
        }
        let candidates = pattern::lookup(std::iter::once(&*self.keyring), image.name());
        if !candidates.is_empty() {
            return None;
        }
        let host = image.host();
        Some(format!("pull secret {name:?} has no entry for {host}"))
    }
}

#[derive(Deserialize)]
pub(super) struct Object {
    r#type: Option<String>,
    data: Option<Data>,
}

/// The keys of a Secret that can hold registry credentials.
#[derive(Default, Deserialize)]
struct Data {
    #[serde(rename = ".dockerconfigjson")]
    config: Option<Sensitive>,
    #[serde(rename = ".dockercfg")]
    cfg: Option<Sensitive>,
}

impl PullSecrets {
    /// Makes a reader of pull secrets for this caller; `None` for a command that cannot reach the cluster.
    pub(super) fn of(
        caller: Caller,
        cluster: Result<Cluster, ConnectError>,
    ) -> Result<Option<Arc<Self>>, ConnectError> {
        match (caller, cluster) {
            (Caller::Service, cluster) => Ok(Some(Self::new(cluster?, WAIT))),
            // Commands admit no Pod, and a wrong verdict would be worse than a late one.
            (Caller::Person, Ok(cluster)) => Ok(Some(Self::new(cluster, WAIT_LONG))),
            (Caller::Person, Err(error)) => {
                tracing::warn!(%error, "credentials.pullSecrets: pull secrets are not read; images that need them are looked up without");
                Ok(None)
            }
        }
    }

    /// Makes a reader whose callers wait at most `wait` for a secret that is not cached.
    pub(super) fn new(cluster: Cluster, wait: Duration) -> Arc<Self> {
        Arc::new(Self {
            cluster,
            wait,
            cached: TtlCache::new(ITEMS, CACHED, weight),
            reads: SingleFlight::default(),
            limit: ConcurrencyLimit::new(READS),
            logged: Mutex::new(RecentWork::new(LOG_INTERVAL, REASONS)),
        })
    }

    /// Returns the secrets of these names without duplicates. A secret that exceeds the Pod's limits on entries gives
    /// no credential.
    pub(super) async fn read<'n>(
        self: &Arc<Self>,
        namespace: &str,
        names: impl Iterator<Item = &'n str>,
    ) -> Vec<PullSecret> {
        let namespace: Arc<str> = namespace.into();
        let mut distinct = HashSet::new();
        // A text that is not a valid name of a Secret may be anything, so it is neither cached nor logged.
        let names = names.filter(|name| cluster::is_name(name) && distinct.insert(*name));
        let secrets = names.map(|name| {
            self.pull_secret(Name {
                namespace: Arc::clone(&namespace),
                name: name.into(),
            })
        });
        let mut secrets = join_all(secrets).await;
        limit_entries(&mut secrets);
        secrets
    }

    async fn pull_secret(self: &Arc<Self>, name: Name) -> PullSecret {
        match self.find(&name).await {
            Some(CachedSecret { keyring, fault, .. }) => PullSecret {
                name: name.name,
                keyring,
                fault,
            },
            None => PullSecret {
                name: name.name,
                keyring: SharedKeyring::default(),
                fault: Some(SecretFault::Late),
            },
        }
    }

    /// Returns a secret; `None` if it is not cached and cannot be read in time.
    async fn find(self: &Arc<Self>, name: &Name) -> Option<CachedSecret> {
        if let Some(cached) = self.cached.get(name) {
            if cached.due <= Instant::now() {
                // The read continues in its own task.
                drop(self.fetch(name));
            }
            return Some(cached);
        }
        let Ok(read) = timeout(self.wait, self.fetch(name)).await else {
            self.log(SecretFault::Late, name);
            return None;
        };
        read.ok()?
    }

    /// Reads a secret with a permit of its namespace, once for all Pods there: no other namespace can name the secret.
    fn fetch(self: &Arc<Self>, name: &Name) -> Flight<Option<CachedSecret>> {
        let reader = Arc::clone(self);
        let name = name.clone();
        self.reads.run(name.clone(), || async move {
            let tenant = Tenant::Namespace(Arc::clone(&name.namespace));
            // A full queue says nothing about the secret, so that failure is not cached.
            let permit = reader.limit.queue(&tenant, "")?.await;
            let object = reader
                .cluster
                .secret::<Object>(&name.namespace, &name.name)
                .await;
            drop(permit);
            Some(reader.cache(name, object))
        })
    }

    fn cache(&self, name: Name, object: Result<Object, ClusterError>) -> CachedSecret {
        let now = Instant::now();
        let content = match object {
            Ok(object) => content(object),
            Err(error) => Err(error.into()),
        };
        let secret = match content {
            Ok(read) => self.secret_with_content(read, &name, now),
            Err(fault) => self.secret_without_content(fault, &name, now),
        };
        let life = secret.end.saturating_duration_since(now);
        self.cached.put(name, secret.clone(), life);
        secret
    }

    fn secret_with_content(&self, read: Read, name: &Name, now: Instant) -> CachedSecret {
        let mut fault = None;
        if read.malformed > 0 {
            fault = Some(SecretFault::Content(MALFORMED));
        } else if read.entries == 0 {
            fault = Some(SecretFault::Content("it has no entry for any registry"));
        } else if read.keyring.is_empty() {
            fault = Some(SecretFault::Content(
                "its entries have no credential, or no valid registry",
            ));
        }
        if let Some(fault) = fault {
            self.log(fault, name);
        }
        let mut end = now + FAILURE_LIFE;
        if !read.keyring.is_empty() {
            end = now + STALE;
            fault = None;
        }
        CachedSecret {
            keyring: read.keyring.into(),
            fault,
            due: now + FRESH,
            end,
        }
    }

    /// Returns a secret without entries. After a temporary failure, which says nothing about the secret, returns the
    /// cached one if that has entries.
    fn secret_without_content(
        &self,
        fault: SecretFault,
        name: &Name,
        now: Instant,
    ) -> CachedSecret {
        use ClusterError::{Resting, Status, Timeout, Unreachable};
        self.log(fault, name);
        let due = now + FAILURE_LIFE;
        let is_temporary = matches!(
            fault,
            SecretFault::Cluster(Timeout | Unreachable | Resting | Status)
        );
        if is_temporary
            && let Some(cached) = self.cached.get(name)
            && !cached.keyring.is_empty()
        {
            return CachedSecret { due, ..cached };
        }
        // A resting client decides itself when to query the API server again, so nothing is cached here.
        let is_resting = matches!(fault, SecretFault::Cluster(Resting));
        let end = if is_resting { now } else { due };
        CachedSecret {
            keyring: Arc::default(),
            fault: Some(fault),
            due,
            end,
        }
    }

    /// Logs at intervals why a secret gives no credential. A missing secret is the tenant's mistake, and is logged at
    /// debug only.
    fn log(&self, fault: SecretFault, name: &Name) {
        let Name { namespace, name } = name;
        let is_missing = matches!(fault, SecretFault::Cluster(ClusterError::NotFound));
        let reason = fault.to_string();
        if !is_missing && self.logged.lock().insert(&reason) {
            tracing::warn!(%namespace, %name, reason, "a pull secret gives no credential (more of this kind at level debug)");
        } else {
            tracing::debug!(%namespace, %name, reason, "a pull secret gives no credential");
        }
    }
}

/// Removes the entries of each secret with which the Pod exceeds its limits.
fn limit_entries(secrets: &mut [PullSecret]) {
    let mut entries = 0;
    let mut globs = 0;
    for secret in secrets {
        let keys = secret.keyring.iter();
        let globs_of_secret = keys.filter(|(key, _)| key.glob().is_some()).count();
        entries += secret.keyring.len();
        globs += globs_of_secret;
        let has_too_many_globs = globs_of_secret > 0 && globs > GLOBS_OF_POD;
        if entries > ENTRIES_OF_POD || has_too_many_globs {
            secret.keyring = SharedKeyring::default();
            secret.fault = secret.fault.or(Some(SecretFault::Content(TOO_MANY)));
        }
    }
}

/// Returns the content of a Secret. Like kubelet, takes only the key that belongs to the Secret's type
/// (pkg/credentialprovider/secrets/secrets.go).
pub(super) fn content(object: Object) -> Result<Read, SecretFault> {
    use SecretFault::Content;
    let data = object.data.unwrap_or_default();
    let config = match object.r#type.as_deref() {
        Some("kubernetes.io/dockerconfigjson") => DockerConfig::parse(&decode(data.config)?),
        Some("kubernetes.io/dockercfg") => DockerConfig::parse_older(&decode(data.cfg)?),
        _ => return Err(Content("it is of no type that holds registry credentials")),
    };
    let read = config
        .map_err(|_| Content("its data is not JSON of docker's form"))?
        .read(CredentialCandidate::pod);
    if read.entries > ENTRIES {
        return Err(Content("it has more than 64 entries"));
    }
    for (key, candidate) in &read.keyring {
        if key.as_str().len() > KEY {
            return Err(Content(
                "one of its entries has a name of more than 512 bytes",
            ));
        }
        if candidate.longest() > WORD {
            return Err(Content(
                "one of its users, passwords or tokens has more than 16 KiB",
            ));
        }
        if key.glob().is_some_and(|host| host.len() > GLOB) {
            return Err(Content(
                "one of its entries has wildcards in a host of more than 128 bytes",
            ));
        }
    }
    Ok(read)
}

fn decode(text: Option<Sensitive>) -> Result<Zeroizing<Vec<u8>>, SecretFault> {
    use SecretFault::Content;
    let text = text.ok_or(Content("it lacks the key that belongs to its type"))?;
    if text.reveal().len() / 4 * 3 > DATA {
        return Err(Content("its data has more than 128 KiB"));
    }
    BASE64
        .decode(text.reveal())
        .map(Zeroizing::new)
        .map_err(|_| Content("its data is not base64"))
}

/// Estimates the bytes of a cached secret.
fn weight(name: &Name, (content, _): &Timed<CachedSecret>) -> u64 {
    let mut bytes = size_of::<(Name, CachedSecret)>() + name.namespace.len() + name.name.len();
    for (key, candidate) in content.keyring.iter() {
        bytes += size_of::<(ImagePattern, CredentialCandidate, Credential)>();
        // A credential has two parts, neither longer than this.
        bytes += key.as_str().len() + 2 * candidate.longest();
    }
    bytes as u64
}

#[cfg(test)]
mod tests;
