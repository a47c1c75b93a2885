//! The pull secrets that Pods name, in their own namespaces. Only the first Pod waits; later ones get cached secrets.

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
use tolerarch_support::recently::Recently;
use tolerarch_support::single_flight::{Flight, SingleFlight};
use tolerarch_support::sync::Mutex;

/// Maximum bytes of docker's format in one Secret, which is a tenant's. Real ones have a few hundred.
const DATA: usize = 128 << 10;
/// Maximum number of registries in a Secret.
pub(super) const ENTRIES: usize = 64;
/// Maximum bytes of a registry's name.
pub(super) const KEY: usize = 512;
/// Maximum bytes of a user, a password or a token.
pub(super) const WORD: usize = 16 << 10;
/// Maximum bytes of a host with wildcards: comparing takes up to 63 times as many steps.
pub(super) const GLOB: usize = 128;
/// Maximum number of entries of all secrets of one Pod: each is matched against each of the Pod's images.
const ENTRIES_OF_POD: usize = 256;
/// Maximum number of entries with wildcards of one Pod; real Pods have one or two for each cloud.
const GLOBS_OF_POD: usize = 16;

/// Maximum bytes of all cached secrets, and about how many secrets these are.
const CACHED: u64 = 16 << 20;
const ITEMS: usize = 10_000;
/// Maximum number of secrets being read, and waiting to be read; one namespace gets 6 and 64 of them (`concurrency`).
const READS: Capacity = Capacity {
    all: 16,
    per_host: 16,
    waiting: 256,
};
/// Time for which a secret is fresh, and a failure to read one.
const FOUND: Duration = Duration::from_secs(60);
const NOTHING: Duration = Duration::from_secs(15);
/// Time for which a secret is used while it cannot be read again.
const STALE: Duration = Duration::from_secs(600);
/// Maximum time that a Pod waits for a secret that is not cached, and that a person's command does.
const WAIT: Duration = Duration::from_millis(500);
const WAIT_LONG: Duration = Duration::from_secs(3);
const MALFORMED: &str = "an auth is not base64(user:password)";
const TOO_MANY: &str =
    "the pull secrets of the Pod have more than 256 entries, or more than 16 with wildcards";
/// Time for which a reason is not logged again above debug.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Maximum number of reasons to remember: more than there are.
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

/// Content of a secret, which may be empty.
#[derive(Clone)]
struct CachedSecret {
    keyring: SharedKeyring,
    /// Reason why the secret gives no credential at all.
    fault: Option<SecretFault>,
    /// Time at which to read the secret again.
    due: Instant,
    /// Time from which the secret is not used, even if reading it again has failed.
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

/// A pull secret that a Pod names, with what it gives, or why it gives nothing.
#[derive(Clone)]
pub(super) struct PullSecret {
    name: Arc<str>,
    pub(super) keyring: SharedKeyring,
    fault: Option<SecretFault>,
}

impl PullSecret {
    /// Says why the secret gives no credential for an image; `None` if it gives one. Quotes nothing of the secret.
    pub(super) fn unused(&self, image: &ImageRef) -> Option<String> {
        let name = &self.name;
        if let Some(fault) = self.fault {
            return Some(format!("pull secret {name:?} gives no credential: {fault}"));
        }
        let found = pattern::lookup(std::iter::once(&*self.keyring), image.name());
        found
            .is_empty()
            .then(|| format!("pull secret {name:?} has no entry for {}", image.host()))
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
    /// Makes a reader of pull secrets for this caller. Commands go on without one.
    pub(super) fn of(
        caller: Caller,
        cluster: Result<Cluster, ConnectError>,
    ) -> Result<Option<Arc<Self>>, ConnectError> {
        match (caller, cluster) {
            (Caller::Service, cluster) => Ok(Some(Self::new(cluster?, WAIT))),
            // Commands admit nothing, and a wrong verdict would be worse than a late one.
            (Caller::Person, Ok(cluster)) => Ok(Some(Self::new(cluster, WAIT_LONG))),
            (Caller::Person, Err(error)) => {
                tracing::warn!(%error, "credentials.pullSecrets: they are not read here, so images that need them are asked for without");
                Ok(None)
            }
        }
    }

    /// Makes a reader whose callers wait at most `wait` for a secret that is not cached.
    pub(super) fn new(cluster: Cluster, wait: Duration) -> Arc<Self> {
        let cached = TtlCache::new(ITEMS, CACHED, weight);
        let limit = ConcurrencyLimit::new(READS);
        let logged = Mutex::new(Recently::new(LOG_INTERVAL, REASONS));
        Arc::new(Self {
            cluster,
            wait,
            cached,
            reads: SingleFlight::default(),
            limit,
            logged,
        })
    }

    /// Returns the secrets of these names without duplicates; those beyond the Pod's bounds on entries give nothing.
    pub(super) async fn read<'n>(
        self: &Arc<Self>,
        namespace: &str,
        names: impl Iterator<Item = &'n str>,
    ) -> Vec<PullSecret> {
        let (namespace, mut seen): (Arc<str>, _) = (namespace.into(), HashSet::new());
        // A text that is no name of a Secret may be anything: neither cached nor logged.
        let wanted = names.filter(|name| cluster::is_name(name) && seen.insert(*name));
        let wanted = wanted.map(|name| Name {
            namespace: Arc::clone(&namespace),
            name: name.into(),
        });
        let read = wanted.map(|name| async move {
            let found = self.find(&name).await;
            let fault = found
                .as_ref()
                .map_or(Some(SecretFault::Late), |found| found.fault);
            let keyring = found.map(|found| found.keyring).unwrap_or_default();
            PullSecret {
                name: name.name,
                keyring,
                fault,
            }
        });
        let mut secrets = join_all(read).await;
        let mut entries = 0;
        let mut globs = 0;
        for secret in &mut secrets {
            let own_globs = secret
                .keyring
                .iter()
                .filter(|(key, _)| key.glob().is_some())
                .count();
            entries += secret.keyring.len();
            globs += own_globs;
            if entries > ENTRIES_OF_POD || own_globs > 0 && globs > GLOBS_OF_POD {
                secret.keyring = SharedKeyring::default();
                secret.fault = secret.fault.or(Some(SecretFault::Content(TOO_MANY)));
            }
        }
        secrets
    }

    /// Returns a secret; `None` if it is not cached and cannot be read in time.
    async fn find(self: &Arc<Self>, name: &Name) -> Option<CachedSecret> {
        let Some(cached) = self.cached.get(name) else {
            let read = timeout(self.wait, self.fetch(name)).await;
            return read
                .inspect_err(|_| self.log(SecretFault::Late, name))
                .ok()?
                .ok()?;
        };
        if cached.due <= Instant::now() {
            // The task goes on without a caller.
            drop(self.fetch(name));
        }
        Some(cached)
    }

    /// Reads a secret in the namespace's turn, once for all of its Pods: no other namespace can name the secret.
    fn fetch(self: &Arc<Self>, name: &Name) -> Flight<Option<CachedSecret>> {
        let (own, wanted) = (Arc::clone(self), name.clone());
        self.reads.run(name.clone(), || async move {
            // A full queue is not cached: it says nothing of the secret.
            let permit = own
                .limit
                .queue(&Tenant::Namespace(Arc::clone(&wanted.namespace)), "")?
                .await;
            let found = own
                .cluster
                .secret::<Object>(&wanted.namespace, &wanted.name)
                .await;
            drop(permit);
            Some(own.learn(wanted, found))
        })
    }

    fn learn(&self, name: Name, found: Result<Object, ClusterError>) -> CachedSecret {
        let now = Instant::now();
        let learned = match found.map_err(SecretFault::from).and_then(content) {
            Ok(Read {
                keyring,
                entries,
                malformed,
            }) => {
                let what = match () {
                    () if malformed > 0 => Some(MALFORMED),
                    () if entries == 0 => Some("it has no entry for any registry"),
                    () if keyring.is_empty() => {
                        Some("its entries have no credential, or no valid registry")
                    }
                    () => None,
                };
                let fault = what.map(SecretFault::Content);
                if let Some(fault) = fault {
                    self.log(fault, &name);
                }
                let end = now + if keyring.is_empty() { NOTHING } else { STALE };
                let fault = fault.filter(|_| keyring.is_empty());
                CachedSecret {
                    keyring: keyring.into(),
                    fault,
                    due: now + FOUND,
                    end,
                }
            }
            Err(fault) => {
                use ClusterError::{Resting, Status, Timeout, Unreachable};
                self.log(fault, &name);
                let due = now + NOTHING;
                // A temporary failure says nothing of the secret, which may be unchanged.
                let is_temporary = matches!(
                    fault,
                    SecretFault::Cluster(Timeout | Unreachable | Resting | Status)
                );
                let before = self
                    .cached
                    .get(&name)
                    .filter(|own| is_temporary && !own.keyring.is_empty());
                // The client itself knows when the API server may be queried again.
                let end = if matches!(fault, SecretFault::Cluster(Resting)) {
                    now
                } else {
                    due
                };
                let nothing = CachedSecret {
                    keyring: Arc::default(),
                    fault: Some(fault),
                    due,
                    end,
                };
                before.map_or(nothing, |before| CachedSecret { due, ..before })
            }
        };
        self.cached.put(
            name,
            learned.clone(),
            learned.end.saturating_duration_since(now),
        );
        learned
    }

    /// Logs at intervals why a secret gives no credential. A missing secret is the tenant's own mistake.
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

/// Returns the content if type and key belong together, as for kubelet (pkg/credentialprovider/secrets/secrets.go).
pub(super) fn content(object: Object) -> Result<Read, SecretFault> {
    use SecretFault::Content;
    let bounded = |given, most, fault| {
        if given <= most {
            Ok(())
        } else {
            Err(Content(fault))
        }
    };
    let decode = |text: Option<Sensitive>| {
        let text = text.ok_or(Content("it lacks the key that belongs to its type"))?;
        bounded(
            text.reveal().len() / 4 * 3,
            DATA,
            "its data has more than 128 KiB",
        )?;
        BASE64
            .decode(text.reveal())
            .map(Zeroizing::new)
            .map_err(|_| Content("its data is not base64"))
    };
    let data = object.data.unwrap_or_default();
    let config = match object.r#type.as_deref() {
        Some("kubernetes.io/dockerconfigjson") => DockerConfig::parse(&decode(data.config)?),
        Some("kubernetes.io/dockercfg") => DockerConfig::parse_older(&decode(data.cfg)?),
        _ => return Err(Content("it is of no type that holds registry credentials")),
    };
    let read = config
        .map_err(|_| Content("its data is not JSON of docker's form"))?
        .read(CredentialCandidate::pod);
    bounded(read.entries, ENTRIES, "it has more than 64 entries")?;
    for (key, candidate) in &read.keyring {
        bounded(
            key.as_str().len(),
            KEY,
            "one of its entries has a name of more than 512 bytes",
        )?;
        bounded(
            candidate.longest(),
            WORD,
            "one of its users, passwords or tokens has more than 16 KiB",
        )?;
        let glob = key.glob().map_or(0, str::len);
        bounded(
            glob,
            GLOB,
            "one of its entries has wildcards in a host of more than 128 bytes",
        )?;
    }
    Ok(read)
}

/// Estimates the bytes of a cached secret.
fn weight(name: &Name, (content, _): &Timed<CachedSecret>) -> u64 {
    let entries = content.keyring.iter();
    // A credential has two parts, of which the longer one is known.
    let entries = entries.map(|(key, candidate)| {
        size_of::<(ImagePattern, CredentialCandidate, Credential)>()
            + key.as_str().len()
            + 2 * candidate.longest()
    });
    (size_of::<(Name, CachedSecret)>()
        + name.namespace.len()
        + name.name.len()
        + entries.sum::<usize>()) as u64
}

#[cfg(test)]
mod tests;
