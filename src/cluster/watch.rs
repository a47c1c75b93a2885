//! Follows the objects of one kind, whatever happens to the API server meanwhile: kube's watches, with types of ours that
//! hold just what is needed.
//!
//! The API server is trusted here, unlike where a review is answered; but those who write the objects are not, so pages are
//! bounded (`pages`).

mod pages;

use std::collections::BTreeMap;
use std::fmt::Debug;

use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use http::StatusCode;
use kube::config::Config;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::time::{Duration, Instant, sleep};

use self::pages::{FIRST, Pages, TooLarge};
use super::{Caller, ClusterError, ConnectError};
use crate::environment::Environment;

/// Seconds after which the API server ends a watch, which is then resumed. What it does not end is given up 5 s later, so
/// this is how long a connection may be dead unnoticed.
const WATCH_TIME: u32 = 120;
/// How long a connection may be silent; longer than a watch lasts.
const READ_TIME: Duration = Duration::from_secs(150);
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// The pause after a failure, doubled with each one until it is the longest; half as much again by chance, so that replicas
/// do not come back all at once.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// After so long without a failure the pauses begin anew. Longer than the longest pause with its chance.
const CALM: Duration = Duration::from_secs(60);

/// A client that follows objects. Clones are the same.
#[derive(Clone)]
pub struct Watcher {
    client: Client,
    first_pause: Duration,
}

/// Which objects of a kind are followed: all by default.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// A label selector, as in `kubectl -l`.
    pub labels: Option<String>,
    /// A field selector.
    pub fields: Option<String>,
}

/// What happens to the objects that are followed.
#[derive(Debug)]
pub enum Change<K> {
    /// They are listed from the beginning. What is known counts until [`Change::Complete`].
    Begins,
    /// There is this one.
    Listed(K),
    /// There are no others than those that were listed since [`Change::Begins`].
    Complete,
    /// This one was created or changed.
    Applied(K),
    /// This one is gone.
    Deleted(K),
    /// They cannot be read now; [`ClusterError::NotFound`] if the cluster has no such kind. What is known may be out of
    /// date. It is tried again after a pause, and begins with [`Change::Begins`].
    Failed(ClusterError),
}

impl Watcher {
    /// With the rights of this caller.
    ///
    /// # Errors
    /// Nothing says where the API server is and as whom to ask it, or that cannot be used.
    pub fn of(caller: Caller, environment: &Environment) -> Result<Self, ConnectError> {
        Self::new(caller.config(environment)?, FIRST_PAUSE)
    }

    /// With another first pause.
    pub(crate) fn new(mut config: Config, first_pause: Duration) -> Result<Self, ConnectError> {
        config.connect_timeout = Some(CONNECT_TIME);
        config.read_timeout = Some(READ_TIME);
        config.write_timeout = Some(READ_TIME);
        // There are pauses of our own.
        config.default_retry = false;
        let client = Client::try_from(config).map_err(ConnectError::Client)?;
        Ok(Self { client, first_pause })
    }

    /// Follows the objects of a kind, in all namespaces, until the stream is dropped. It never ends by itself.
    pub fn follow<K>(&self, selection: Selection) -> impl Stream<Item = Change<K>> + Send + Unpin + use<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let Selection { labels, fields } = selection;
        let config = watcher::Config { label_selector: labels, field_selector: fields, ..Default::default() };
        let watch = Watch {
            // In no namespace.
            api: Api::all(Client::new(Pages::new(self.client.clone()), "")),
            // Others follow as `Pages` has it.
            config: config.page_size(FIRST).timeout(WATCH_TIME),
            events: None,
            pauses: Pauses { first: self.first_pause, next: self.first_pause, failed: None },
            pause: Duration::ZERO,
        };
        let next = async |mut watch: Watch<K>| Some((watch.next().await, watch));
        stream::unfold(watch, next).boxed()
    }
}

struct Watch<K> {
    api: Api<K>,
    config: watcher::Config,
    /// None after a failure.
    events: Option<BoxStream<'static, watcher::Result<Event<K>>>>,
    pauses: Pauses,
    /// How long to wait before the next look.
    pause: Duration,
}

impl<K> Watch<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    async fn next(&mut self) -> Change<K> {
        loop {
            sleep(std::mem::take(&mut self.pause)).await;
            let events =
                self.events.get_or_insert_with(|| watcher(self.api.clone(), self.config.clone()).boxed());
            let error = match events.next().await {
                Some(Ok(Event::Init)) => return Change::Begins,
                Some(Ok(Event::InitApply(object))) => return Change::Listed(object),
                Some(Ok(Event::InitDone)) => return Change::Complete,
                Some(Ok(Event::Apply(object))) => return Change::Applied(object),
                Some(Ok(Event::Delete(object))) => return Change::Deleted(object),
                Some(Err(error)) => cause(&error),
                None => Some(ClusterError::Unreachable),
            };
            // kube resumes a watch after some failures, and does not say when that has succeeded. A new list does.
            self.events = None;
            self.pause = self.pauses.next();
            if let Some(error) = error {
                return Change::Failed(error);
            }
        }
    }
}

/// Why a watch broke off; none if it only has to begin anew, as what it would resume is no longer known.
fn cause(error: &watcher::Error) -> Option<ClusterError> {
    use watcher::Error::{InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed};
    let code = match error {
        WatchError(status) => status.code,
        InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => match error {
            kube::Error::Api(status) => status.code,
            kube::Error::SerdeError(_) => return Some(ClusterError::Malformed),
            kube::Error::Auth(_) => return Some(ClusterError::Unauthorized),
            kube::Error::Service(error) if error.is::<TooLarge>() => return Some(ClusterError::TooLarge),
            _ => return Some(ClusterError::Unreachable),
        },
        NoResourceVersion => return Some(ClusterError::Malformed),
    };
    Some(match StatusCode::from_u16(code) {
        Ok(StatusCode::GONE) => return None,
        Ok(StatusCode::UNAUTHORIZED) => ClusterError::Unauthorized,
        Ok(StatusCode::FORBIDDEN) => ClusterError::Forbidden,
        Ok(StatusCode::NOT_FOUND) => ClusterError::NotFound,
        _ => ClusterError::Status,
    })
}

/// The pauses after failures.
struct Pauses {
    first: Duration,
    next: Duration,
    /// When it failed last.
    failed: Option<Instant>,
}

impl Pauses {
    fn next(&mut self) -> Duration {
        let now = Instant::now();
        if self.failed.replace(now).is_none_or(|before| now.duration_since(before) > CALM) {
            self.next = self.first;
        }
        let pause = self.next;
        self.next = (2 * pause).min(LONGEST_PAUSE);
        pause + pause.mul_f64(fastrand::f64() / 2.0)
    }
}

/// What is known of the objects that are followed, and of each only what is kept.
#[derive(Debug)]
pub struct Known<V> {
    objects: BTreeMap<String, V>,
    /// Those of a list that is not complete yet.
    listed: BTreeMap<String, V>,
    is_complete: bool,
}

impl<V> Default for Known<V> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), listed: BTreeMap::new(), is_complete: false }
    }
}

impl<V: PartialEq> Known<V> {
    /// Takes over what has happened; `keep` says what is kept of an object. Returns whether something is known now that was
    /// not known before.
    pub fn take<K: Resource>(&mut self, change: Change<K>, keep: impl FnOnce(K) -> V) -> bool {
        match change {
            Change::Begins => {
                self.listed.clear();
                false
            }
            Change::Listed(object) => {
                self.listed.insert(name(&object), keep(object));
                false
            }
            Change::Complete => {
                let before = std::mem::replace(&mut self.objects, std::mem::take(&mut self.listed));
                let first = !std::mem::replace(&mut self.is_complete, true);
                first || before != self.objects
            }
            Change::Applied(object) => {
                let (name, value) = (name(&object), keep(object));
                if self.objects.get(&name) == Some(&value) {
                    return false;
                }
                self.objects.insert(name, value);
                true
            }
            Change::Deleted(object) => self.objects.remove(&name(&object)).is_some(),
            // There are none of a kind that the cluster does not have. Those that were known are not given up by that.
            Change::Failed(ClusterError::NotFound) => !std::mem::replace(&mut self.is_complete, true),
            Change::Failed(_) => false,
        }
    }

    /// Whether all objects have been read once.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// What is kept of each object, by namespace and name.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.objects.values()
    }
}

/// The name by which an object is known among those of its kind.
fn name<K: Resource>(object: &K) -> String {
    let meta = object.meta();
    let name = meta.name.as_deref().unwrap_or_default();
    match &meta.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

#[cfg(test)]
pub(crate) mod tests;
