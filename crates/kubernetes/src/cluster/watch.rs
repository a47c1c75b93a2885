//! Follows the objects of one kind through failures of the API server: by a list, and a watch from its version.
//!
//! The API server is trusted here, unlike in a review, but the authors of the objects are not. Pages and events are
//! bounded, and each object is read by itself: an unreadable one is counted and logged, and affects no other.

mod known;
mod lines;
mod pauses;

use std::convert::Infallible;
use std::panic::resume_unwind;
use std::sync::Arc;

use futures_util::stream::{self, BoxStream, StreamExt};
use kube::api::WatchEvent;
use prometheus::IntCounterVec;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Duration, Instant, sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

pub use self::known::Known;
use self::lines::Lines;
use self::pauses::{FIRST_PAUSE, Pauses};
use super::access::Access;
use super::api::{Api, JSON, with_query};
use super::list::{Bounds, OBJECT, Page, Pages, identity};
use super::metadata::Metadata;
use super::{Caller, ClusterError, ConnectError, Namespace, Node, NodePool, ObjectName, StoredPod};
use tolerarch_support::environment::Environment;
use tolerarch_support::metrics::Metrics;
use tolerarch_support::recently::Recently;
use tolerarch_support::sync::Mutex;

/// Seconds after which the API server ends a watch, which is then resumed. A watch that it does not end is given up 5 s
/// later without an event, so that a dead connection is noticed within this time.
const WATCH_TIME: &str = "120";
const WATCH_IDLE: Duration = Duration::from_secs(125);
/// Time for which resuming a watch is retried before all objects are listed again. A resumed watch delivers the events
/// in between; an API server that is away for longer is reported as a failure.
const RESUMING: Duration = Duration::from_secs(30);
/// Timeout of a page, for which other lists wait, and of the beginning of a watch.
const PAGE_TIME: Duration = Duration::from_secs(60);
/// Time within which a page is requested again if the API server says that it answers later. The pauses follow.
const PATIENCE: Duration = Duration::from_secs(8);
/// Pages of 2 MiB take little more memory than their size. Most objects have some kilobytes.
const PAGES: Bounds = Bounds {
    first: 50,
    most: 500,
    bytes: 2 << 20,
    object: OBJECT,
};
/// Log limit for unreadable objects: time before one is logged again, and number of objects that are remembered.
const NAMED: (Duration, usize) = (Duration::from_secs(3600), 1024);
/// Bytes in a line of a watch beside the object: the type of the event.
const AROUND: usize = 1024;

/// A kind of objects, of which some fields are read.
pub trait Followed: DeserializeOwned + Send + 'static {
    /// Path of the list in all namespaces.
    const LIST: &'static str;

    /// Returns the key of the object among those of its kind.
    fn key(&self) -> String;
}

/// Makes these kinds followed, each by the path of its list.
macro_rules! follow {
    ($($kind:ident: $path:literal),*) => {$(
        impl $kind {
            pub const PATH: &'static str = $path;
        }

        impl Followed for $kind {
            const LIST: &'static str = $path;

            fn key(&self) -> String {
                self.metadata.key()
            }
        }
    )*};
}
follow!(
    Namespace: "/api/v1/namespaces",
    Node: "/api/v1/nodes",
    NodePool: "/apis/karpenter.sh/v1/nodepools",
    StoredPod: "/api/v1/pods"
);

/// Registers the counter of unreadable objects.
pub fn unread_objects(metrics: &Metrics) -> Result<IntCounterVec, prometheus::Error> {
    let unread: IntCounterVec = metrics.add(
        "tolerarch_cluster_unread_objects_total",
        "Objects of the cluster that could not be read and were left out, at each list and watch.",
        &["resource"],
    )?;
    for resource in ["namespaces", "nodepools", "nodes", "pods"] {
        let _ = unread.with_label_values(&[resource]);
    }
    Ok(unread)
}

/// A client that follows objects. Clones share state.
#[derive(Clone)]
pub struct Watcher {
    api: Api,
    pauses: Pauses,
    bounds: Bounds,
    /// Limits reading to one page at a time, over all lists, to bound memory.
    page: Arc<Semaphore>,
    /// Unreadable objects that were logged.
    named: Arc<Mutex<Recently>>,
    unread: IntCounterVec,
}

#[derive(Debug)]
pub enum Change<K> {
    /// A list begins. Known objects stay valid until [`Change::Complete`].
    Begins,
    Listed(K),
    /// The list is complete: other objects than those listed, or unread, since [`Change::Begins`] do not exist.
    Complete,
    Applied(K),
    /// An object exists, but cannot be read: only its identity is known.
    Unread(Metadata),
    Deleted(Metadata),
    /// The objects cannot be read now; [`ClusterError::NotFound`] if the cluster has no such kind. Known objects may be
    /// out of date. After a pause another list begins with [`Change::Begins`].
    Failed(ClusterError),
}

impl Watcher {
    /// Makes a watcher with the rights of this process, which counts objects that cannot be read in `unread`.
    pub fn of_service(
        environment: &Environment,
        unread: &IntCounterVec,
    ) -> Result<Self, ConnectError> {
        Self::new(
            Caller::Service.access(environment)?,
            FIRST_PAUSE,
            unread.clone(),
        )
    }

    pub(crate) fn new(
        access: impl Into<Access>,
        first_pause: Duration,
        unread: IntCounterVec,
    ) -> Result<Self, ConnectError> {
        Ok(Self {
            api: Api::new(access.into(), PAGE_TIME, PATIENCE)?,
            pauses: Pauses::new(first_pause),
            bounds: PAGES,
            page: Arc::new(Semaphore::new(1)),
            named: Arc::new(Mutex::new(Recently::new(NAMED.0, NAMED.1))),
            unread,
        })
    }

    /// Follows the objects of a kind, or those of a field selector, until the stream is dropped.
    pub fn follow<K: Followed>(&self, fields: Option<&str>) -> BoxStream<'static, Change<K>> {
        self.follow_at(K::LIST, fields)
    }

    /// Follows one object by namespace and name, which only takes the right to list and watch this object.
    pub fn follow_one<K: Followed>(
        &self,
        namespace: &str,
        name: &ObjectName,
    ) -> BoxStream<'static, Change<K>> {
        let (group, resource) = K::LIST.rsplit_once('/').unwrap_or_default();
        let fields = format!("metadata.name={}", name.as_str());
        self.follow_at(
            &format!("{group}/namespaces/{namespace}/{resource}"),
            Some(&fields),
        )
    }

    fn follow_at<K: Followed>(
        &self,
        list: &str,
        fields: Option<&str>,
    ) -> BoxStream<'static, Change<K>> {
        let path = match fields {
            Some(fields) => with_query(list, [("fieldSelector", fields)]),
            None => list.to_owned(),
        };
        // The watch stays at most one change ahead of the follower, as each object may be large.
        let (changes, receiver) = mpsc::channel(1);
        let watch = Watch {
            watcher: self.clone(),
            path,
            changes,
        };
        let task = AbortOnDropHandle::new(tokio::spawn(watch.run()));
        stream::unfold((receiver, task), async |(mut receiver, task)| {
            if let Some(change) = receiver.recv().await {
                return Some((change, (receiver, task)));
            }
            // The task ends only by a panic, which is passed on to the follower.
            let Err(error) = task.await;
            match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                Err(_) => None,
            }
        })
        .boxed()
    }

    /// Counts an unreadable object, and logs it at most once an hour.
    fn unread<K: Followed>(&self, (meta, error): (Metadata, ClusterError)) -> Change<K> {
        let resource = K::LIST.rsplit('/').next().unwrap_or_default();
        self.unread.with_label_values(&[resource]).inc();
        let name = meta.key();
        let id = format!("{resource} {name} {}", meta.uid);
        if self.named.lock().insert(&id) {
            tracing::warn!(resource, name, %error, "an object of the cluster cannot be read, and is left out");
        }
        Change::Unread(meta)
    }
}

struct Watch<K> {
    watcher: Watcher,
    /// Path of the list, with its selectors.
    path: String,
    changes: mpsc::Sender<Change<K>>,
}

impl<K: Followed> Watch<K> {
    async fn run(mut self) -> Infallible {
        loop {
            let Err(error) = self.list_and_watch().await;
            let pause = self.watcher.pauses.next();
            // An expired version is no failure: the list begins again.
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

    /// Lists all objects and watches them from there, until the list has to begin again.
    async fn list_and_watch(&mut self) -> Result<Infallible, ClusterError> {
        self.send(Change::Begins).await;
        let mut pages = Pages::new(
            self.watcher.api.clone(),
            self.path.clone(),
            self.watcher.bounds,
        );
        let version = loop {
            let Page {
                objects,
                resource_version,
                ..
            } = {
                // A page takes memory until its objects have been read.
                let _turn = self.watcher.page.acquire().await;
                pages.get().await?
            };
            if pages.next.is_none() && resource_version.is_empty() {
                return Err(ClusterError::Malformed);
            }
            for object in objects {
                let change = match object {
                    Ok(object) => Change::Listed(object),
                    Err(unread) => self.watcher.unread(*unread),
                };
                self.send(change).await;
            }
            if pages.next.is_none() {
                break resource_version;
            }
        };
        self.send(Change::Complete).await;
        self.watch(version).await
    }

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
                    // The pause protects the API server if the watch ends again at once.
                    sleep(self.watcher.pauses.first).await;
                }
                // Resumed at the last version, as in client-go: a new list costs an overloaded API server most.
                Err(ClusterError::Unreachable | ClusterError::Timeout | ClusterError::Status)
                    if failing_since.get_or_insert_with(Instant::now).elapsed() < RESUMING =>
                {
                    sleep(self.watcher.pauses.next()).await;
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
        let path = with_query(&self.path, watch);
        let answer = api.get(&path, JSON).await?;
        Ok(Lines::of(answer.into_body(), bounds.object + AROUND))
    }

    /// Reads an event, and sets `version` to the object's.
    fn event(
        &self,
        (line, is_whole): (Vec<u8>, bool),
        version: &mut String,
    ) -> Result<Option<Change<K>>, ClusterError> {
        let meta = identity(&line);
        if !is_whole {
            // The event may be a deletion, which only the next list shows.
            return Ok(Some(self.watcher.unread((meta, ClusterError::TooLarge))));
        }
        // The API server writes the type first, and so the object's text can be borrowed.
        let event: WatchEvent<&RawValue> =
            serde_json::from_slice(&line).map_err(|_| ClusterError::Malformed)?;
        if !meta.resource_version.is_empty() {
            version.clone_from(&meta.resource_version);
        }
        Ok(Some(match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                match serde_json::from_str(object.get()) {
                    Ok(object) => Change::Applied(object),
                    Err(_) => self.watcher.unread((meta, ClusterError::Malformed)),
                }
            }
            WatchEvent::Deleted(_) => Change::Deleted(meta),
            WatchEvent::Bookmark(_) => return Ok(None),
            WatchEvent::Error(status) => return Err(ClusterError::of_status(status.code)),
        }))
    }
}

#[cfg(test)]
mod tests;
