//! Follows the objects of one kind, whatever happens to the API server meanwhile: by a list, and a watch from where that
//! ends. Types of ours hold just what is needed of them.
//!
//! The API server is trusted here, unlike where a review is answered; but those who write the objects are not. So pages and
//! events are bounded, and each object is read by itself: one that cannot be read is counted and named, and costs nothing else.

mod known;
mod lines;
mod pauses;
mod unread;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use futures_util::stream::{self, Stream, StreamExt};
use http::{Method, StatusCode};
use kube::Client;
use kube::api::ObjectMeta;
use kube::config::Config;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Duration, Instant, sleep, timeout};

pub use self::known::Known;
use self::lines::{Line, Lines};
use self::pauses::{FIRST_PAUSE, Pauses};
use self::unread::Unread;
pub use self::unread::UnreadMetrics;
use super::list::{Answer, Bounds, OBJECT, PageError, Pages};
use super::object::identity;
use super::{Caller, ClusterError, ConnectError, JSON, ObjectName, request};
use tolerarch_support::environment::Environment;

/// Seconds after which the API server ends a watch, which is then resumed. What it does not end is given up 5 s after its last
/// event, so this is how long a connection may be dead unnoticed.
const WATCH_TIME: u64 = 120;
const WATCH_IDLE: Duration = Duration::from_secs(WATCH_TIME + 5);
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
    client: Client,
    first_pause: Duration,
    bounds: Bounds,
    /// Lists are read one after another, so that no more than one page is in memory.
    page: Arc<Semaphore>,
    unread: Unread,
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
        let client = super::client(config, CONNECT_TIME, Some(READ_TIME))?;
        let page = Arc::new(Semaphore::new(1));
        Ok(Self { client, first_pause, bounds: PAGES, page, unread: Unread::new() })
    }

    #[must_use]
    pub fn counting(self, unread: &UnreadMetrics) -> Self {
        Self { unread: self.unread.counting(unread), ..self }
    }

    /// Follows the objects of a kind, or those that this field selector selects, until the stream is dropped.
    pub fn follow<K: Followed>(
        &self,
        fields: Option<&str>,
    ) -> impl Stream<Item = Change<K>> + Send + Unpin + use<K> {
        self.follow_at(K::LIST, fields)
    }

    /// Follows the one object of this namespace and name, which takes the right to list and watch this one only.
    pub fn follow_one<K: Followed>(
        &self,
        namespace: &str,
        name: &ObjectName,
    ) -> impl Stream<Item = Change<K>> + Send + Unpin + use<K> {
        let (group, resource) = K::LIST.rsplit_once('/').unwrap_or_default();
        let fields = format!("metadata.name={}", name.as_str());
        self.follow_at(&format!("{group}/namespaces/{namespace}/{resource}"), Some(&fields))
    }

    fn follow_at<K: Followed>(
        &self,
        list: &str,
        fields: Option<&str>,
    ) -> impl Stream<Item = Change<K>> + Send + Unpin + use<K> {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(fields.map(|fields| ("fieldSelector", fields)));
        let path = format!("{list}?{}", query.finish()).trim_end_matches('?').to_owned();
        let (changes, receiver) = mpsc::channel(1);
        let watch = Watch { watcher: self.clone(), path, changes, pauses: Pauses::new(self.first_pause) };
        let told =
            stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) });
        // It is polled with the stream, so that it gets no further than what is looked at.
        stream::select(told, stream::once(watch.run()).map(|never| match never {})).boxed()
    }

    /// Tells of an object that cannot be read.
    fn unread<K: Followed>(&self, meta: ObjectMeta, error: ClusterError) -> Change<K> {
        let resource = K::LIST.rsplit('/').next().unwrap_or_default();
        self.unread.tell(resource, &meta, error);
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

/// Why it begins anew.
enum End {
    /// What it would resume is no longer known.
    Gone,
    Failed(ClusterError),
}

impl End {
    fn of(status: StatusCode) -> Self {
        if status == StatusCode::GONE { Self::Gone } else { Self::Failed(ClusterError::of(status)) }
    }
}

impl From<PageError> for End {
    fn from(error: PageError) -> Self {
        Self::Failed((&error).into())
    }
}

impl<K: Followed> Watch<K> {
    async fn run(mut self) -> Infallible {
        loop {
            let end = match self.list().await {
                Ok(version) => {
                    self.tell(Change::Complete).await;
                    self.watch(version).await
                }
                Err(end) => end,
            };
            let pause = self.pauses.next();
            if let End::Failed(error) = end {
                self.tell(Change::Failed(error)).await;
            }
            sleep(pause).await;
        }
    }

    async fn tell(&self, change: Change<K>) {
        // The receiver lives as long as this, in the same stream.
        let _ = self.changes.send(change).await;
    }

    /// Reads all of the list. Returns its version.
    async fn list(&self) -> Result<String, End> {
        self.tell(Change::Begins).await;
        let mut pages = Pages::new(self.watcher.client.clone(), self.path.clone(), self.watcher.bounds);
        let mut next = None;
        loop {
            // A task of its own, which ends its turn although this stream may not be polled meanwhile.
            let read = tokio::spawn(in_turn(self.watcher.clone(), pages, next));
            let page = read.await.map_err(|_| End::Failed(ClusterError::Malformed))??;
            if page.next.is_none() && page.version.is_empty() {
                return Err(End::Failed(ClusterError::Malformed));
            }
            for change in page.changes {
                self.tell(change).await;
            }
            if page.next.is_none() {
                return Ok(page.version);
            }
            (pages, next) = (page.pages, page.next);
        }
    }

    /// Watches from this version on.
    async fn watch(&mut self, mut version: String) -> End {
        let mut failing_since = None;
        loop {
            match self.begin(&version).await {
                Ok(mut lines) => {
                    failing_since = None;
                    while let Some(line) = timeout(WATCH_IDLE, lines.next()).await.unwrap_or(None) {
                        match event(&self.watcher, line, &mut version) {
                            Ok(Some(change)) => self.tell(change).await,
                            Ok(None) => {}
                            Err(end) => return end,
                        }
                    }
                    // It is resumed, and not at once: perhaps it ends again.
                    sleep(self.watcher.first_pause).await;
                }
                // Tried again where it ended, as client-go does: a new list costs an API server that is short of time more
                // than anything else.
                Err(End::Failed(ClusterError::Unreachable | ClusterError::Status))
                    if failing_since.get_or_insert_with(Instant::now).elapsed() < RESUMING =>
                {
                    sleep(self.pauses.next()).await;
                }
                Err(end) => return end,
            }
        }
    }

    async fn begin(&self, version: &str) -> Result<Lines, End> {
        let Self { watcher, path, .. } = self;
        let separator = if path.contains('?') { '&' } else { '?' };
        let path = format!(
            "{path}{separator}watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_TIME}&resourceVersion={version}"
        );
        let request = request(Method::GET, &path, JSON, None).map_err(|_| PageError::Path)?;
        let answer = watcher.client.send(request).await.map_err(PageError::Client)?;
        match answer.status() {
            StatusCode::OK => Ok(Lines::of(answer.into_body(), watcher.bounds.object + AROUND)),
            status => Err(End::of(status)),
        }
    }
}

struct Read<K> {
    pages: Pages,
    changes: VecDeque<Change<K>>,
    next: Option<String>,
    version: String,
}

/// Reads a page when no other one is read, and its objects, until which it takes memory.
async fn in_turn<K: Followed>(
    watcher: Watcher,
    mut pages: Pages,
    token: Option<String>,
) -> Result<Read<K>, End> {
    let _turn = watcher.page.acquire().await;
    let answer = timeout(PAGE_TIME, pages.get(token.as_deref())).await;
    let page = match answer.map_err(|_| End::Failed(ClusterError::Timeout))?? {
        Answer::Page(page) => page,
        Answer::Refused(status, _) => return Err(End::of(status)),
    };
    let objects = page.objects().map(|read| match read {
        Ok(object) => Change::Listed(object),
        Err(meta) => watcher.unread(*meta, ClusterError::Malformed),
    });
    let mut changes: VecDeque<Change<K>> = objects.collect();
    changes.extend(page.too_large.clone().map(|meta| watcher.unread(*meta, ClusterError::TooLarge)));
    Ok(Read { pages, changes, next: page.next, version: page.resource_version })
}

/// What an event says, of which nothing else stays; the version is that of the last one.
fn event<K: Followed>(watcher: &Watcher, line: Line, version: &mut String) -> Result<Option<Change<K>>, End> {
    #[derive(Deserialize)]
    struct Event<'a> {
        #[serde(borrow)]
        r#type: std::borrow::Cow<'a, str>,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    #[derive(Deserialize)]
    struct Status {
        code: u16,
    }
    let malformed = |_| End::Failed(ClusterError::Malformed);
    let json = match line {
        Line::Whole(json) => json,
        // Perhaps the object is gone; the next list tells.
        Line::Begin(begin) => {
            let meta = identity(&begin, &["object", "metadata"]);
            return Ok(Some(watcher.unread(meta, ClusterError::TooLarge)));
        }
    };
    let Event { r#type, object: json } = serde_json::from_slice(&json).map_err(malformed)?;
    let json = json.get();
    let meta = identity(json.as_bytes(), &["metadata"]);
    if let Some(now) = meta.resource_version.as_ref().filter(|now| !now.is_empty()) {
        now.clone_into(version);
    }
    Ok(match &*r#type {
        "ADDED" | "MODIFIED" => Some(match serde_json::from_str(json) {
            Ok(object) => Change::Applied(object),
            Err(_) => watcher.unread(meta, ClusterError::Malformed),
        }),
        "DELETED" => Some(Change::Deleted(meta)),
        "ERROR" => {
            let Status { code } = serde_json::from_str(json).map_err(malformed)?;
            return Err(End::of(StatusCode::from_u16(code).unwrap_or_default()));
        }
        _ => None,
    })
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
