//! The pull secrets that Pods name, read through the Kubernetes API: by name, in the Pod's own namespace, and remembered
//! for a short time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use futures_util::future::join_all;
use serde::Deserialize;
use tokio::time::{Duration, Instant};
use zeroize::Zeroizing;

use super::docker::{self, BASE64, DockerConfig, Read};
use super::pattern::ImagePattern;
use super::ring::Ring;
use super::secret::{Kept, Secret};
use crate::cluster::{self, Cluster, ClusterError};

/// Secrets that are remembered.
const CAPACITY: usize = 10_000;
/// How long what a secret says counts, and how long it counts that nothing was to be had.
const FOUND: Duration = Duration::from_secs(60);
const NOTHING: Duration = Duration::from_secs(15);
/// How old it is at least when it is read again because a registry refuses what was in it.
const AGAIN: Duration = Duration::from_secs(5);
/// Pull secrets of one Pod that are read.
const PER_POD: usize = 16;
/// How long a reason is not told again.
const TOLD: Duration = Duration::from_secs(60);

/// Which secret, within its namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Name {
    namespace: Arc<str>,
    name: Arc<str>,
}

/// All pull secrets of the cluster.
pub(super) struct PullSecrets {
    cluster: Cluster,
    remembered: Arc<super::memory::Memory<Name, Content>>,
    told: Mutex<HashMap<&'static str, Instant>>,
}

/// What a secret said, which may be nothing.
#[derive(Clone)]
struct Content {
    ring: Arc<Ring<Kept>>,
    read: Instant,
}

/// One pull secret of a Pod, and what is in it.
#[derive(Clone)]
pub(super) struct PullSecret {
    secrets: Arc<PullSecrets>,
    name: Name,
    pub(super) ring: Arc<Ring<Kept>>,
}

#[derive(Deserialize)]
struct Object {
    r#type: Option<String>,
    data: Option<Data>,
}

/// Of all data only what can be meant.
#[derive(Deserialize)]
struct Data {
    #[serde(rename = ".dockerconfigjson")]
    config: Option<Secret>,
    #[serde(rename = ".dockercfg")]
    cfg: Option<Secret>,
}

impl PullSecrets {
    pub(super) fn new(cluster: Cluster) -> Arc<Self> {
        Arc::new(Self { cluster, remembered: super::memory::Memory::new(CAPACITY), told: Mutex::default() })
    }

    /// The secrets of these names, each once; those that have nothing are left out.
    pub(super) async fn read<'n>(
        self: &Arc<Self>,
        namespace: &str,
        names: impl Iterator<Item = &'n str>,
    ) -> Vec<PullSecret> {
        let namespace: Arc<str> = namespace.into();
        let mut wanted: Vec<Name> = Vec::new();
        // What can be no Secret is not remembered, nor logged: it may be anything.
        for name in names.filter(|name| cluster::is_name(name)) {
            let name = Name { namespace: Arc::clone(&namespace), name: name.into() };
            if wanted.len() < PER_POD && !wanted.contains(&name) {
                wanted.push(name);
            }
        }
        let read = wanted.into_iter().map(|name| async move {
            let content = match self.remembered.get(&name) {
                Some(content) => content,
                None => self.fetch(&name).await?,
            };
            Some(PullSecret { secrets: Arc::clone(self), name, ring: content.ring })
        });
        join_all(read).await.into_iter().flatten().filter(|own| own.ring.values().next().is_some()).collect()
    }

    async fn fetch(self: &Arc<Self>, name: &Name) -> Option<Content> {
        let (own, wanted) = (Arc::clone(self), name.clone());
        let work = async move {
            let found = own.cluster.secret::<Object>(&wanted.namespace, &wanted.name).await;
            let (ring, life) = match found.map_err(Fault::from).and_then(content) {
                Ok(read) => {
                    if read.malformed > 0 {
                        own.tell("an auth is not base64(user:password)", &wanted);
                    }
                    (read.ring, FOUND)
                }
                Err(fault) => {
                    own.tell(fault.0, &wanted);
                    (Ring::default(), NOTHING)
                }
            };
            let content = Content { ring: ring.into(), read: Instant::now() };
            own.remembered.put(wanted, content.clone(), life);
            content
        };
        self.remembered.join(name, work).await
    }

    /// Says once in a while why a secret gives nothing. What a tenant names in vain is the tenant's affair.
    fn tell(&self, reason: &'static str, name: &Name) {
        let now = Instant::now();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = told.get(reason).is_none_or(|last| now.duration_since(*last) >= TOLD);
        let Name { namespace, name } = name;
        if is_due && reason != NOT_FOUND {
            told.insert(reason, now);
            tracing::warn!(%namespace, %name, reason, "a pull secret gives no credential (more of this kind at level debug)");
        } else {
            tracing::debug!(%namespace, %name, reason, "a pull secret gives no credential");
        }
    }
}

impl PullSecret {
    /// What it says under a key by now: read once more, unless that was a moment ago.
    pub(super) async fn again(&self, key: &ImagePattern) -> Vec<Kept> {
        let remembered = self.secrets.remembered.get(&self.name);
        let content = match remembered.filter(|content| content.read.elapsed() < AGAIN) {
            Some(content) => Some(content),
            None => self.secrets.fetch(&self.name).await,
        };
        content.map(|content| content.ring.under(key).cloned().collect()).unwrap_or_default()
    }
}

const NOT_FOUND: &str = "not found";

/// Why a secret gives nothing: one of a few fixed texts.
struct Fault(&'static str);

impl From<ClusterError> for Fault {
    fn from(error: ClusterError) -> Self {
        Self(match error {
            ClusterError::NotFound => NOT_FOUND,
            ClusterError::Forbidden => "no right to get it",
            ClusterError::Unauthorized => "the API server does not accept the service account",
            ClusterError::Timeout => "the API server does not answer in time",
            ClusterError::Unreachable => "the API server cannot be reached",
            ClusterError::Status => "the API server answers with an error",
            ClusterError::TooLarge => "it is too large",
            ClusterError::Malformed => "the API server's answer is no Secret",
            ClusterError::Name => "it is called what no Secret can be called",
        })
    }
}

/// What is in it, where type and key belong together, as kubelet wants it (pkg/credentialprovider/secrets/secrets.go).
fn content(object: Object) -> Result<Read, Fault> {
    let data = object.data.unwrap_or(Data { config: None, cfg: None });
    let decode = |text: Option<Secret>| -> Result<Zeroizing<Vec<u8>>, Fault> {
        let text = text.ok_or(Fault("it lacks the key that belongs to its type"))?;
        BASE64.decode(text.reveal()).map(Zeroizing::new).map_err(|_| Fault("its data is not base64"))
    };
    let read = match object.r#type.as_deref() {
        Some("kubernetes.io/dockerconfigjson") => {
            DockerConfig::parse(&decode(data.config)?).map(DockerConfig::read)
        }
        Some("kubernetes.io/dockercfg") => docker::read_dockercfg(&decode(data.cfg)?),
        _ => return Err(Fault("it is of no type that holds registry credentials")),
    };
    read.map_err(|_| Fault("its data is not JSON of docker's form"))
}

#[cfg(test)]
mod tests;
