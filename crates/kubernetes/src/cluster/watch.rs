//! Follows the objects of one kind, whatever happens to the API server meanwhile: by a list, and a watch from where that
//! ends. Types of ours hold just what is needed of them.
//!
//! The API server is trusted here, unlike where a review is answered; but those who write the objects are not. So pages and
//! events are bounded, and each object is read by itself: one that cannot be read is counted and named, and costs nothing else.

mod known;
mod lines;
mod pauses;
mod unread;

use std::borrow::Cow;
use std::convert::Infallible;
use std::panic::resume_unwind;
use std::sync::Arc;

use futures_util::stream::{self, BoxStream, StreamExt};
use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::ObjectMeta;
use kube::config::Config;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Duration, Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

pub use self::known::Known;
use self::lines::Lines;
use self::pauses::{FIRST_PAUSE, Pauses};
pub use self::unread::UnreadMetrics;
use super::api::{Api, JSON, success, with_query};
use super::list::{Bounds, OBJECT, Pages};
use super::object::identity;
use super::{Caller, ClusterError, ConnectError, ObjectName};
use tolerarch_support::environment::Environment;
use tolerarch_support::recently::Recently;
use tolerarch_support::sync::Mutex;

/// Seconds after which the API server ends a watch, which is then resumed. What it does not end is given up 5 s after its last
/// event, so this is how long a connection may be dead unnoticed.
const WATCH_TIME: &str = "120";
const WATCH_IDLE: Duration = Duration::from_secs(125);
/// How long a watch that cannot be begun is tried again before all is listed anew. What is missed meanwhile is told once it
/// begins; an API server that is away for longer is a failure.
const RESUMING: Duration = Duration::from_secs(30);
/// How long a connection may be silent; longer than a watch lasts.
const READ_TIME: Duration = Duration::from_secs(150);
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// How long a page may take, while other lists wait for it.
const PAGE_TIME: Duration = Duration::from_secs(60);
/// Pages of 2 MiB are read at little more than their size. Usual objects have some kilobytes.
const PAGES: Bounds = Bounds { first: 50, most: 500, bytes: 2 << 20, object: OBJECT };
/// For how long, and of how many objects, it is known that they were named in the log.
const NAMED: (Duration, usize) = (Duration::from_secs(3600), 1024);
/// Bytes of a watch's line beside its object: what happened to it.
const AROUND: usize = 1024;

/// A kind of objects, as far as something is read of them.
pub trait Followed: DeserializeOwned + Send + 'static {
    /// Where those of all namespaces are listed.
    const LIST: &'static str;

    fn metadata(&self) -> &ObjectMeta;
}

/// A client that follows objects. Clones are the same.
#[derive(Clone)]
pub struct Watcher {
    api: Api,
    first_pause: Duration,
    bounds: Bounds,
    /// Lists are read one after another, so that no more than one page is in memory.
    page: Arc<Semaphore>,
    /// Objects that were named in the log, as they cannot be read.
    named: Arc<Mutex<Recently>>,
    unread: Option<UnreadMetrics>,
}

/// What happens to the objects that are followed.
#[derive(Debug)]
pub enum Change<K> {
    /// They are listed from the beginning. What is known counts until [`Change::Complete`].
    Begins,
    Listed(K),
    /// There are no others than those that were listed, or unread, since [`Change::Begins`].
    Complete,
    Applied(K),
    /// There is this one, and it cannot be read: no more is known than what identifies it.
    Unread(ObjectMeta),
    Deleted(ObjectMeta),
    /// They cannot be read now; [`ClusterError::NotFound`] if the cluster has no such kind. What is known may be out of
    /// date. It is tried again after a pause, and begins with [`Change::Begins`].
    Failed(ClusterError),
}

impl Watcher {
    /// With the rights of this caller.
    pub fn of(caller: Caller, environment: &Environment) -> Result<Self, ConnectError> {
        Self::new(caller.config(environment)?, FIRST_PAUSE)
    }

    pub(crate) fn new(config: Config, first_pause: Duration) -> Result<Self, ConnectError> {
        let api = Api::new(config, CONNECT_TIME, Some(READ_TIME))?;
        let page = Arc::new(Semaphore::new(1));
        let named = Arc::new(Mutex::new(Recently::new(NAMED.0, NAMED.1)));
        Ok(Self { api, first_pause, bounds: PAGES, page, named, unread: None })
    }

    #[must_use]
    pub fn counting(self, unread: &UnreadMetrics) -> Self {
        Self { unread: Some(unread.clone()), ..self }
    }

    /// Follows the objects of a kind, or those that this field selector selects, until the stream is dropped.
    pub fn follow<K: Followed>(&self, fields: Option<&str>) -> BoxStream<'static, Change<K>> {
        self.follow_at(K::LIST, fields)
    }

    /// Follows the one object of this namespace and name, which takes the right to list and watch this one only.
    pub fn follow_one<K: Followed>(
        &self,
        namespace: &str,
        name: &ObjectName,
    ) -> BoxStream<'static, Change<K>> {
        let (group, resource) = K::LIST.rsplit_once('/').unwrap_or_default();
        let fields = format!("metadata.name={}", name.as_str());
        self.follow_at(&format!("{group}/namespaces/{namespace}/{resource}"), Some(&fields))
    }

    fn follow_at<K: Followed>(&self, list: &str, fields: Option<&str>) -> BoxStream<'static, Change<K>> {
        let selected = |fields| with_query(list, [("fieldSelector", fields)]);
        let path = fields.map_or_else(|| list.to_owned(), selected);
        // So that it gets hardly further than what was looked at: each object may be large.
        let (changes, receiver) = mpsc::channel(1);
        let watch = Watch { watcher: self.clone(), path, changes, pauses: Pauses::new(self.first_pause) };
        let task = AbortOnDropHandle::new(tokio::spawn(watch.run()));
        let next = async |(mut receiver, task): (mpsc::Receiver<_>, AbortOnDropHandle<Infallible>)| {
            match receiver.recv().await {
                Some(change) => Some((change, (receiver, task))),
                // The task ends only by a panic, which is passed on to the follower.
                None => {
                    let Err(error) = task.await;
                    error.try_into_panic().ok().and_then(|panic| resume_unwind(panic))
                }
            }
        };
        stream::unfold((receiver, task), next).boxed()
    }

    /// Counts an object that cannot be read, and names it in the log, once.
    fn unread<K: Followed>(&self, meta: ObjectMeta, error: ClusterError) -> Change<K> {
        let resource = K::LIST.rsplit('/').next().unwrap_or_default();
        if let Some(UnreadMetrics(counted)) = &self.unread {
            counted.with_label_values(&[resource]).inc();
        }
        let name = name(&meta);
        let id = format!("{resource} {name} {}", meta.uid.as_deref().unwrap_or_default());
        if self.named.lock().insert(&id) {
            tracing::warn!(resource, name, %error, "an object of the cluster cannot be read, and is left out");
        }
        Change::Unread(meta)
    }
}

struct Watch<K> {
    watcher: Watcher,
    /// Of the list, with its selectors.
    path: String,
    changes: mpsc::Sender<Change<K>>,
    pauses: Pauses,
}

impl<K: Followed> Watch<K> {
    async fn run(mut self) -> Infallible {
        loop {
            let Err(error) = self.list_and_watch().await;
            let pause = self.pauses.next();
            // What has expired is not wrong: it begins anew.
            if error != ClusterError::Expired {
                self.send(Change::Failed(error)).await;
            }
            sleep(pause).await;
        }
    }

    async fn send(&self, change: Change<K>) {
        // This task ends when the receiver does.
        let _ = self.changes.send(change).await;
    }

    /// Lists all objects and follows them from there, until it has to begin anew.
    async fn list_and_watch(&mut self) -> Result<Infallible, ClusterError> {
        self.send(Change::Begins).await;
        let mut pages = Pages::new(self.watcher.api.clone(), self.path.clone(), self.watcher.bounds);
        let mut next = None;
        let version = loop {
            let (changes, token, version) = self.page(&mut pages, next.as_deref()).await?;
            next = token;
            if next.is_none() && version.is_empty() {
                return Err(ClusterError::Malformed);
            }
            for change in changes {
                self.send(change).await;
            }
            if next.is_none() {
                break version;
            }
        };
        self.send(Change::Complete).await;
        self.watch(version).await
    }

    /// Reads a page when no other one is read, and its objects, until which it takes memory. Also says how to go on, and the
    /// version of the list.
    async fn page(
        &self,
        pages: &mut Pages,
        token: Option<&str>,
    ) -> Result<(Vec<Change<K>>, Option<String>, String), ClusterError> {
        let Watcher { api, page: turn, .. } = &self.watcher;
        let _turn = turn.acquire().await;
        let page = api.within(PAGE_TIME, pages.get(token)).await?;
        let changes = page.objects().map(|read| match read {
            Ok(object) => Change::Listed(object),
            Err(unread) => self.watcher.unread(unread.0, unread.1),
        });
        Ok((changes.collect(), page.next, page.resource_version))
    }

    /// Watches from this version on.
    async fn watch(&mut self, mut version: String) -> Result<Infallible, ClusterError> {
        let mut failing_since = None;
        loop {
            match self.begin(&version).await {
                Ok(mut lines) => {
                    failing_since = None;
                    while let Some(line) = timeout(WATCH_IDLE, lines.next()).await.unwrap_or(None) {
                        if let Some(change) = self.event(line, &mut version)? {
                            self.send(change).await;
                        }
                    }
                    // It is resumed, and not at once: perhaps it ends again.
                    sleep(self.watcher.first_pause).await;
                }
                // Tried again where it ended, as client-go does: a new list costs an API server that is short of time more
                // than anything else.
                Err(ClusterError::Unreachable | ClusterError::Status)
                    if failing_since.get_or_insert_with(Instant::now).elapsed() < RESUMING =>
                {
                    sleep(self.pauses.next()).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn begin(&self, version: &str) -> Result<Lines, ClusterError> {
        let Watcher { api, bounds, .. } = &self.watcher;
        let watch = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", WATCH_TIME),
            ("resourceVersion", version),
        ];
        let answer = api.send(Method::GET, &with_query(&self.path, watch), JSON, None).await?;
        Ok(Lines::of(success(answer).await?.into_body(), bounds.object + AROUND))
    }

    /// What an event says, of which nothing else stays; the version is that of the last one.
    fn event(
        &self,
        (line, is_whole): (Vec<u8>, bool),
        version: &mut String,
    ) -> Result<Option<Change<K>>, ClusterError> {
        #[derive(Deserialize)]
        struct Event<'a> {
            #[serde(borrow)]
            r#type: Cow<'a, str>,
            #[serde(borrow)]
            object: &'a RawValue,
        }
        let malformed = |_| ClusterError::Malformed;
        let meta = identity(&line, &["object", "metadata"]);
        if !is_whole {
            // Perhaps the object is gone; the next list tells.
            return Ok(Some(self.watcher.unread(meta, ClusterError::TooLarge)));
        }
        let Event { r#type, object } = serde_json::from_slice(&line).map_err(malformed)?;
        if let Some(now) = meta.resource_version.as_ref().filter(|now| !now.is_empty()) {
            now.clone_into(version);
        }
        Ok(match &*r#type {
            "ADDED" | "MODIFIED" => Some(match serde_json::from_str(object.get()) {
                Ok(object) => Change::Applied(object),
                Err(_) => self.watcher.unread(meta, ClusterError::Malformed),
            }),
            "DELETED" => Some(Change::Deleted(meta)),
            "ERROR" => {
                let Status { code, .. } = serde_json::from_str(object.get()).map_err(malformed)?;
                let code = code.and_then(|code| code.try_into().ok()).unwrap_or_default();
                return Err(ClusterError::of_status(code));
            }
            _ => None,
        })
    }
}

/// The name by which an object is known among those of its kind.
fn name(meta: &ObjectMeta) -> String {
    let name = meta.name.as_deref().unwrap_or_default();
    match &meta.namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests;
