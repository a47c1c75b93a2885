//! The pull secrets that Pods name, read through the Kubernetes API: by name, in the Pod's own namespace. Only the first
//! Pod waits for one; later ones get what is remembered, while it is read again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use futures_util::FutureExt;
use futures_util::future::join_all;
use serde::Deserialize;
use tokio::time::{Duration, Instant, timeout};
use zeroize::Zeroizing;

use super::credential::{Credential, Kept, Sensitive};
use super::docker::{self, BASE64, DockerConfig, Read, Size};
use super::limits::{self, DATA, ENTRIES, KEY, WORD};
use super::memory::Memory;
use super::pattern::ImagePattern;
use super::ring::Ring;
use super::turns::Turns;
use crate::cluster::{self, Cluster, ClusterError};

/// About how many are remembered; what bounds them is their size.
const ITEMS: usize = 10_000;
/// How long after a secret was read it is not read again, and how long after nothing was to be had.
const FOUND: Duration = Duration::from_secs(60);
const NOTHING: Duration = Duration::from_secs(15);
/// How long what a secret said counts, while it cannot be read again.
const STALE: Duration = Duration::from_secs(600);
/// How long a Pod waits for a secret that nobody has read yet, and a person's command, or a lookup whose
/// credential a registry has refused.
pub(super) const WAIT: Duration = Duration::from_millis(500);
pub(super) const WAIT_LONG: Duration = Duration::from_secs(3);
/// How old it is at least when it is read again because a registry refuses what was in it.
const AGAIN: Duration = Duration::from_secs(5);
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
    wait: Duration,
    remembered: Arc<Memory<Name, Content>>,
    turns: Turns,
    told: Mutex<HashMap<&'static str, Instant>>,
}

/// What a secret said, which may be nothing.
#[derive(Clone)]
struct Content {
    ring: Arc<Ring<Kept>>,
    /// When it said so.
    read: Instant,
    /// When it was asked for the last time, and how long that is enough.
    asked: Instant,
    enough: Duration,
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
    config: Option<Sensitive>,
    #[serde(rename = ".dockercfg")]
    cfg: Option<Sensitive>,
}

impl PullSecrets {
    /// `wait` is how long a secret that nobody has read yet is waited for.
    pub(super) fn new(cluster: Cluster, wait: Duration) -> Arc<Self> {
        let remembered = Memory::weighed(ITEMS, limits::REMEMBERED, weight);
        Arc::new(Self { cluster, wait, remembered, turns: Turns::new(), told: Mutex::default() })
    }

    /// The secrets of these names, each once; those that have nothing are left out, and of very many entries the last.
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
            if !wanted.contains(&name) {
                wanted.push(name);
            }
        }
        let read = wanted.into_iter().map(|name| async move {
            let content = match self.remembered.get(&name) {
                Some(content) => {
                    if content.is_due() {
                        // The reading goes on by itself.
                        let _ = self.fetch(&name).now_or_never();
                    }
                    content
                }
                None => timeout(self.wait, self.fetch(&name)).await.ok()??,
            };
            Some(PullSecret { secrets: Arc::clone(self), name, ring: content.ring })
        });
        let mut read: Vec<PullSecret> = join_all(read).await.into_iter().flatten().collect();
        let mut room = limits::ENTRIES_OF_POD;
        read.retain(|own| {
            let fits = own.ring.len() <= room;
            room -= own.ring.len().min(room);
            fits && own.ring.len() > 0
        });
        read
    }

    async fn fetch(self: &Arc<Self>, name: &Name) -> Option<Content> {
        let (own, wanted) = (Arc::clone(self), name.clone());
        let work = async move {
            // One who waits in vain is not remembered: it says nothing of the secret.
            let queued = own.turns.queue(&wanted.namespace)?;
            let turn = queued.turn().await?;
            let found = own.cluster.secret::<Object>(&wanted.namespace, &wanted.name).await;
            drop(turn);
            drop(queued);
            Some(own.learn(wanted, found))
        };
        self.remembered.join(name, work).await
    }

    fn learn(&self, name: Name, found: Result<Object, ClusterError>) -> Content {
        let now = Instant::now();
        let silence = found.as_ref().err().copied().filter(|error| is_silence(*error));
        let before = self.remembered.get(&name).filter(|before| !before.is_empty());
        let content = match found.map_err(Fault::from).and_then(content) {
            Ok(read) => {
                if read.malformed > 0 {
                    self.tell("an auth is not base64(user:password)", &name);
                }
                Content::read(read.ring, now)
            }
            Err(fault) => {
                self.tell(fault.0, &name);
                let before = before.filter(|_| silence.is_some());
                let before = before.unwrap_or_else(|| Content::read(Ring::default(), now));
                Content { asked: now, enough: NOTHING, ..before }
            }
        };
        let life = if content.is_empty() { NOTHING } else { STALE.saturating_sub(content.read.elapsed()) };
        // The client tells by itself when it can be asked again.
        if !content.is_empty() || silence != Some(ClusterError::Resting) {
            self.remembered.put(name, content.clone(), life);
        }
        content
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

impl Content {
    fn read(ring: Ring<Kept>, now: Instant) -> Self {
        Self { ring: ring.into(), read: now, asked: now, enough: FOUND }
    }

    fn is_empty(&self) -> bool {
        self.ring.len() == 0
    }

    /// Whether it is to be read again.
    fn is_due(&self) -> bool {
        self.asked.elapsed() >= self.enough
    }
}

impl PullSecret {
    /// What it says under a key by now: read once more, unless that was a moment ago.
    pub(super) async fn again(&self, key: &ImagePattern) -> Vec<Kept> {
        let remembered = self.secrets.remembered.get(&self.name);
        let content = match remembered.filter(|content| content.asked.elapsed() < AGAIN) {
            Some(content) => Some(content),
            None => timeout(WAIT_LONG, self.secrets.fetch(&self.name)).await.ok().flatten(),
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
            ClusterError::Resting => "the API server did not answer a moment ago",
            ClusterError::Status => "the API server answers with an error",
            ClusterError::TooLarge => "it is too large",
            ClusterError::Malformed => "the API server's answer is no Secret",
            ClusterError::Name => "it is called what no Secret can be called",
        })
    }
}

/// Whether this says nothing of the secret, which may be as it was.
fn is_silence(error: ClusterError) -> bool {
    use ClusterError::{Resting, Status, Timeout, Unreachable};
    matches!(error, Timeout | Unreachable | Resting | Status)
}

/// What is in it, where type and key belong together, as kubelet wants it (pkg/credentialprovider/secrets/secrets.go).
fn content(object: Object) -> Result<Read, Fault> {
    let data = object.data.unwrap_or(Data { config: None, cfg: None });
    let decode = |text: Option<Sensitive>| -> Result<Zeroizing<Vec<u8>>, Fault> {
        let text = text.ok_or(Fault("it lacks the key that belongs to its type"))?;
        DATA.check(text.reveal().len() / 4 * 3).map_err(Fault)?;
        BASE64.decode(text.reveal()).map(Zeroizing::new).map_err(|_| Fault("its data is not base64"))
    };
    let read = match object.r#type.as_deref() {
        Some("kubernetes.io/dockerconfigjson") => {
            DockerConfig::parse(&decode(data.config)?).map(DockerConfig::read)
        }
        Some("kubernetes.io/dockercfg") => docker::read_dockercfg(&decode(data.cfg)?),
        _ => return Err(Fault("it is of no type that holds registry credentials")),
    };
    let read = read.map_err(|_| Fault("its data is not JSON of docker's form"))?;
    let Size { entries, key, word } = read.size;
    for (most, given) in [(ENTRIES, entries), (KEY, key), (WORD, word)] {
        most.check(given).map_err(Fault)?;
    }
    Ok(read)
}

/// About the bytes of a secret.
fn weight(name: &Name, content: &Content) -> u64 {
    let entries = content.ring.entries();
    // A credential has two parts, of which the longer one is known.
    let entries = entries.map(|(key, kept)| {
        size_of::<(ImagePattern, Kept, Credential)>() + key.as_str().len() + 2 * kept.credential.longest()
    });
    (size_of::<(Name, Content)>() + name.namespace.len() + name.name.len() + entries.sum::<usize>()) as u64
}

#[cfg(test)]
mod tests;
