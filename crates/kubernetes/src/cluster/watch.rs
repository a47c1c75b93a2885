//! Follows the objects of one kind, by a list and a watch from the version of the list, through failures of the API
//! server.
//!
//! The API server is trusted here, but the authors of objects are not. Pages and events are bounded, and objects are
//! read one by one: an unreadable object is counted and logged, and does not affect others.

mod lines;
mod object_store;
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

use self::lines::Lines;
pub use self::object_store::ObjectStore;
use self::pauses::{FIRST_PAUSE, Pauses};
use super::access::Access;
use super::api::{Api, JSON, with_query};
use super::list::{Bounds, OBJECT, Page, Pages, identity};
use super::metadata::Metadata;
use super::{Caller, ClusterError, ConnectError, Namespace, Node, NodePool, ObjectName, StoredPod};
use tolerarch_support::environment::Environment;
use tolerarch_support::metrics::Metrics;
use tolerarch_support::recent_work::RecentWork;
use tolerarch_support::sync::Mutex;

/// Seconds after which the API server ends a watch, which is then resumed.
const WATCH_TIME: &str = "120";
/// Time without an event after which a watch is closed: the API server should have ended it, so its connection is dead.
const WATCH_IDLE: Duration = Duration::from_secs(125);
/// Time in which a broken watch is resumed, which delivers the events in between. After this time, all objects are
/// listed again, and the failure is reported.
const RESUMING: Duration = Duration::from_secs(30);
/// Timeout of a page and of the beginning of a watch. Other lists wait for a page.
const PAGE_TIME: Duration = Duration::from_secs(60);
/// Time within which a page is requested again if the API server requests a pause. After that the request has failed.
const PATIENCE: Duration = Duration::from_secs(8);
/// Bounds of a page. A page takes little more memory than its size; most objects have a few kilobytes.
const PAGES: Bounds = Bounds {
    first: 50,
    max: 500,
    bytes: 2 << 20,
    object: OBJECT,
};
/// Time before an unreadable object is logged again.
const LOG_INTERVAL: Duration = Duration::from_secs(3600);
/// Maximum number of unreadable objects that are remembered for this.
const LOGGED_OBJECTS: usize = 1024;
/// Maximum bytes in a line of a watch beside the object: the type of the event.
const AROUND: usize = 1024;

/// A kind of objects that can be followed.
pub trait WatchedKind: DeserializeOwned + Send + 'static {
    /// Path of the list in all namespaces.
    const LIST: &'static str;

    /// Returns the key of the object among those of its kind.
    fn key(&self) -> String;
}

/// Implements [`WatchedKind`] for kinds, with the path of each list.
macro_rules! follow {
    ($($kind:ident: $path:literal),*) => {$(
        impl $kind {
            pub const PATH: &'static str = $path;
        }

        impl WatchedKind for $kind {
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
    /// Limits reading to one page at a time over all lists, to bound memory.
    page: Arc<Semaphore>,
    /// Unreadable objects that were logged recently.
    logged: Arc<Mutex<RecentWork>>,
    unread: IntCounterVec,
}

#[derive(Debug)]
pub enum Change<K> {
    /// A list begins. Earlier objects stay valid until [`Change::Complete`].
    Begins,
    Listed(K),
    /// The list is complete: no objects exist but those listed or unread since [`Change::Begins`].
    Complete,
    Applied(K),
    /// An object exists but cannot be read: only its identity is known.
    Unread(Metadata),
    Deleted(Metadata),
    /// The objects cannot be read at present; [`ClusterError::NotFound`] if the cluster has no such kind. Earlier
    /// objects may be out of date. After a pause another list begins with [`Change::Begins`].
    Failed(ClusterError),
}

impl Watcher {
    /// Makes a watcher with the credentials of this process. Unreadable objects are counted in `unread`.
    pub fn of_service(
        environment: &Environment,
        unread: &IntCounterVec,
    ) -> Result<Self, ConnectError> {
        let access = Caller::Service.access(environment)?;
        Self::new(access, FIRST_PAUSE, unread.clone())
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
            logged: Arc::new(Mutex::new(RecentWork::new(LOG_INTERVAL, LOGGED_OBJECTS))),
            unread,
        })
    }

    /// Follows the objects of a kind, optionally by a field selector, until the stream is dropped.
    pub fn follow<K: WatchedKind>(&self, fields: Option<&str>) -> BoxStream<'static, Change<K>> {
        self.follow_at(K::LIST, fields)
    }

    /// Follows one object by namespace and name. This requires only the right to list and watch this object.
    pub fn follow_one<K: WatchedKind>(
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

    fn follow_at<K: WatchedKind>(
        &self,
        list: &str,
        fields: Option<&str>,
    ) -> BoxStream<'static, Change<K>> {
        let path = match fields {
            Some(fields) => with_query(list, [("fieldSelector", fields)]),
            None => list.to_owned(),
        };
        // At most one change is buffered, as each object may be large.
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
            // The task ends only by a panic, which is propagated to the follower.
            let Err(error) = task.await;
            match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                Err(_) => None,
            }
        })
        .boxed()
    }

    /// Counts an unreadable object, and logs it at most once an hour.
    fn unread<K: WatchedKind>(&self, (meta, error): (Metadata, ClusterError)) -> Change<K> {
        let resource = K::LIST.rsplit('/').next().unwrap_or_default();
        self.unread.with_label_values(&[resource]).inc();
        let name = meta.key();
        let id = format!("{resource} {name} {}", meta.uid);
        if self.logged.lock().insert(&id) {
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

impl<K: WatchedKind> Watch<K> {
    async fn run(mut self) -> Infallible {
        loop {
            let Err(error) = self.list_and_watch().await;
            let pause = self.watcher.pauses.next();
            // An expired version is no failure: another list begins.
            if error != ClusterError::Expired {
                self.send(Change::Failed(error)).await;
            }
            sleep(pause).await;
        }
    }

    async fn send(&self, change: Change<K>) {
        // When the receiver is dropped, so is this task.
        let _ = self.changes.send(change).await;
    }

    /// Lists all objects, and watches them from the version of the list until another list is necessary.
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
                // The JSON of a page takes memory until its objects have been read.
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
                    // The pause protects the API server if watches end at once.
                    sleep(self.watcher.pauses.first).await;
                }
                // The watch is resumed at the last version, as in client-go: a list would burden an overloaded API
                // server.
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

    /// Reads an event, and sets `version` to that of its object.
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
        // The API server writes the type first, so the object's JSON can be borrowed.
        let event: WatchEvent<&RawValue> =
            serde_json::from_slice(&line).map_err(|_| ClusterError::Malformed)?;
        if !meta.resource_version.is_empty() {
            version.clone_from(&meta.resource_version);
        }
        let change = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                match serde_json::from_str(object.get()) {
                    Ok(object) => Change::Applied(object),
                    Err(_) => self.watcher.unread((meta, ClusterError::Malformed)),
                }
            }
            WatchEvent::Deleted(_) => Change::Deleted(meta),
            WatchEvent::Bookmark(_) => return Ok(None),
            WatchEvent::Error(status) => return Err(ClusterError::of_status(status.code)),
        };
        Ok(Some(change))
    }
}

#[cfg(test)]
mod tests;
