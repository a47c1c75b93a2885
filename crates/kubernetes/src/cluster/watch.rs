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
use std::marker::PhantomData;
use std::sync::Arc;

use futures_util::stream::{self, Stream, StreamExt};
use http::header::ACCEPT;
use http::{Request, StatusCode};
use kube::api::ObjectMeta;
use kube::client::Body;
use kube::config::Config;
use kube::{Client, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio::time::{Duration, Instant, sleep, timeout};

pub use self::known::Known;
use self::lines::{Line, Lines};
use self::pauses::{FIRST_PAUSE, Pauses};
use self::unread::Unread;
pub use self::unread::UnreadMetrics;
use super::list::{Answer, Bounds, OBJECT, Page, PageError, Pages, Unreadable, object};
use super::object::identity;
use super::{Caller, ClusterError, ConnectError};
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
    /// There are no others than those that were listed, or unread, since [`Change::Begins`].
    Complete,
    /// This one was created or changed.
    Applied(K),
    /// There is this one, and it cannot be read: no more is known than what identifies it.
    Unread(ObjectMeta),
    /// This one is gone.
    Deleted(ObjectMeta),
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
        Ok(Self {
            client,
            first_pause,
            bounds: PAGES,
            page: Arc::new(Semaphore::new(1)),
            unread: Unread::new(),
        })
    }

    /// With smaller pages and objects.
    #[cfg(any(test, feature = "testing"))]
    pub fn bounded(self, bytes: usize, object: usize) -> Self {
        Self { bounds: Bounds { bytes, object, ..self.bounds }, ..self }
    }

    /// Counts the objects that cannot be read.
    #[must_use]
    pub fn counting(self, unread: &UnreadMetrics) -> Self {
        Self { unread: self.unread.counting(unread), ..self }
    }

    /// Follows the objects of a kind, in all namespaces, until the stream is dropped. It never ends by itself.
    pub fn follow<K>(&self, selection: Selection) -> impl Stream<Item = Change<K>> + Send + Unpin + use<K>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Send + 'static,
    {
        let Selection { labels, fields } = selection;
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(fields.iter().map(|fields| ("fieldSelector", fields)));
        query.extend_pairs(labels.iter().map(|labels| ("labelSelector", labels)));
        let path = format!("{}?{}", K::url_path(&(), None), query.finish());
        let watch = Watch {
            watcher: self.clone(),
            path: path.trim_end_matches('?').to_owned(),
            place: Place::Outside,
            pauses: Pauses::new(self.first_pause),
            pause: Duration::ZERO,
            failing_since: None,
            kind: PhantomData,
        };
        let next = async |mut watch: Watch<K>| Some((watch.next().await, watch));
        stream::unfold(watch, next).boxed()
    }
}

struct Watch<K> {
    watcher: Watcher,
    /// Of the list, with its selectors.
    path: String,
    place: Place<K>,
    pauses: Pauses,
    /// How long to wait before the next look.
    pause: Duration,
    /// Since when no watch could be begun.
    failing_since: Option<Instant>,
    kind: PhantomData<fn() -> K>,
}

/// How far it is.
enum Place<K> {
    /// Nothing has been read, or that does not count any more.
    Outside,
    Listing {
        /// None while a page is read.
        pages: Option<Pages>,
        /// Of the page that was read last.
        changes: VecDeque<Change<K>>,
        /// Where the next page begins.
        next: Option<String>,
        /// Of the list, once all of it has been read.
        version: Option<String>,
    },
    Watching {
        version: String,
        /// None where a watch is to be begun.
        lines: Option<Lines>,
    },
}

/// Why it begins anew.
enum End {
    /// What it would resume is no longer known.
    Gone,
    Failed(ClusterError),
}

impl<K> Watch<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + 'static,
{
    async fn next(&mut self) -> Change<K> {
        loop {
            sleep(std::mem::take(&mut self.pause)).await;
            match self.step().await {
                Ok(Some(change)) => return change,
                Ok(None) => {}
                Err(end) => {
                    self.pause = self.pauses.next();
                    if self.may_resume(&end) {
                        continue;
                    }
                    self.place = Place::Outside;
                    if let End::Failed(error) = end {
                        return Change::Failed(error);
                    }
                }
            }
        }
    }

    /// Whether the watch is tried again where it ended, as client-go does: a new list costs an API server that is short of
    /// time more than anything else.
    fn may_resume(&mut self, end: &End) -> bool {
        let Place::Watching { lines: None, .. } = self.place else { return false };
        let End::Failed(ClusterError::Unreachable | ClusterError::Status) = end else { return false };
        self.failing_since.get_or_insert_with(Instant::now).elapsed() < RESUMING
    }

    async fn step(&mut self) -> Result<Option<Change<K>>, End> {
        let Self { watcher, path, place, pause, failing_since, .. } = self;
        match place {
            Place::Outside => {
                *failing_since = None;
                let pages = Pages::new(watcher.client.clone(), path.clone(), watcher.bounds);
                let (pages, changes) = (Some(pages), VecDeque::new());
                *place = Place::Listing { pages, changes, next: None, version: None };
                Ok(Some(Change::Begins))
            }
            Place::Listing { pages, changes, next, version } => {
                if let Some(change) = changes.pop_front() {
                    return Ok(Some(change));
                }
                if let Some(version) = version.take() {
                    *place = Place::Watching { version, lines: None };
                    return Ok(Some(Change::Complete));
                }
                let pages = pages.take().ok_or(End::Failed(ClusterError::Malformed))?;
                // A task of its own, which ends its turn although this stream may not be polled meanwhile.
                let read = tokio::spawn(in_turn(watcher.clone(), pages, next.take()));
                let (pages, read) = read.await.map_err(|_| End::Failed(ClusterError::Malformed))?;
                let (page, now) = read?;
                let PageEnd { next, resource_version } = page;
                let is_last = next.is_none();
                let version = is_last.then_some(resource_version);
                if version.as_ref().is_some_and(String::is_empty) {
                    return Err(End::Failed(ClusterError::Malformed));
                }
                *place = Place::Listing { pages: Some(pages), changes: now, next, version };
                Ok(None)
            }
            Place::Watching { version, lines: None } => {
                let lines = begin(watcher, path, version).await?;
                *failing_since = None;
                *place = Place::Watching { version: std::mem::take(version), lines: Some(lines) };
                Ok(None)
            }
            Place::Watching { version, lines: Some(lines) } => {
                if let Some(line) = timeout(WATCH_IDLE, lines.next()).await.unwrap_or(None) {
                    return event(watcher, &line, version);
                }
                // It is resumed, and not at once: perhaps it ends again.
                *pause = watcher.first_pause;
                *place = Place::Watching { version: std::mem::take(version), lines: None };
                Ok(None)
            }
        }
    }
}

/// What follows a page.
struct PageEnd {
    next: Option<String>,
    resource_version: String,
}

/// Reads a page when no other one is read, and its objects, until which it takes memory.
async fn in_turn<K: Resource<DynamicType = ()> + DeserializeOwned>(
    watcher: Watcher,
    mut pages: Pages,
    token: Option<String>,
) -> (Pages, Result<(PageEnd, VecDeque<Change<K>>), End>) {
    let _turn = watcher.page.acquire().await;
    let page = match timeout(PAGE_TIME, pages.get(token.as_deref())).await {
        Ok(Ok(Answer::Page(page))) => page,
        Ok(Ok(Answer::Refused(status, _))) => return (pages, Err(refused(status))),
        Ok(Err(error)) => return (pages, Err(End::Failed(cause(&error)))),
        Err(_) => return (pages, Err(End::Failed(ClusterError::Timeout))),
    };
    let changes = read(&watcher, &page);
    let Page { next, resource_version, .. } = *page;
    (pages, Ok((PageEnd { next, resource_version }, changes)))
}

/// The objects of a page.
fn read<K: Resource<DynamicType = ()> + DeserializeOwned>(
    watcher: &Watcher,
    page: &Page,
) -> VecDeque<Change<K>> {
    let unread = |meta: ObjectMeta, error| {
        watcher.unread.tell(&K::plural(&()), &meta, error);
        Change::Unread(meta)
    };
    let objects = page.objects().map(|read| match read {
        Ok(object) => Change::Listed(object),
        Err(Unreadable(meta)) => unread(*meta, ClusterError::Malformed),
    });
    let mut changes: VecDeque<Change<K>> = objects.collect();
    changes.extend(page.too_large.clone().map(|meta| unread(*meta, ClusterError::TooLarge)));
    changes
}

/// Begins to watch from this version on.
async fn begin(watcher: &Watcher, path: &str, version: &str) -> Result<Lines, End> {
    let separator = if path.contains('?') { '&' } else { '?' };
    let path = format!(
        "{path}{separator}watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_TIME}&resourceVersion={version}"
    );
    let request = Request::get(path).header(ACCEPT, "application/json").body(Body::empty());
    let request = request.map_err(|_| End::Failed(ClusterError::Malformed))?;
    let answer = watcher.client.send(request).await.map_err(|error| End::Failed(cause_of(&error)))?;
    match answer.status() {
        StatusCode::OK => Ok(Lines::of(answer.into_body(), watcher.bounds.object + AROUND)),
        status => Err(refused(status)),
    }
}

/// What an event says; the version is that of the last one.
fn event<K>(watcher: &Watcher, line: &Line, version: &mut String) -> Result<Option<Change<K>>, End>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
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
    let unread = |meta: ObjectMeta, error| {
        watcher.unread.tell(&K::plural(&()), &meta, error);
        Change::Unread(meta)
    };
    let malformed = |_| End::Failed(ClusterError::Malformed);
    let json = match line {
        Line::Whole(json) => json,
        // Perhaps the object is gone; the next list tells.
        Line::Begin(begin) => {
            let meta = identity(begin, &["object", "metadata"]);
            return Ok(Some(unread(meta, ClusterError::TooLarge)));
        }
    };
    let Event { r#type, object: json } = serde_json::from_slice(json).map_err(malformed)?;
    let json = json.get().as_bytes();
    let (change, now) = match &*r#type {
        "ADDED" | "MODIFIED" => match object::<K>(json) {
            Ok(object) => {
                let version = object.meta().resource_version.clone();
                (Some(Change::Applied(object)), version)
            }
            Err(Unreadable(meta)) => {
                let version = meta.resource_version.clone();
                (Some(unread(*meta, ClusterError::Malformed)), version)
            }
        },
        "DELETED" => {
            let meta = identity(json, &["metadata"]);
            let version = meta.resource_version.clone();
            (Some(Change::Deleted(meta)), version)
        }
        "BOOKMARK" => (None, identity(json, &["metadata"]).resource_version),
        "ERROR" => {
            let Status { code } = serde_json::from_slice(json).map_err(malformed)?;
            return Err(refused(StatusCode::from_u16(code).unwrap_or_default()));
        }
        _ => (None, None),
    };
    if let Some(now) = now.filter(|now| !now.is_empty()) {
        *version = now;
    }
    Ok(change)
}

fn refused(status: StatusCode) -> End {
    End::Failed(match status {
        StatusCode::GONE => return End::Gone,
        StatusCode::UNAUTHORIZED => ClusterError::Unauthorized,
        StatusCode::FORBIDDEN => ClusterError::Forbidden,
        StatusCode::NOT_FOUND => ClusterError::NotFound,
        _ => ClusterError::Status,
    })
}

fn cause(error: &PageError) -> ClusterError {
    match error {
        PageError::Client(error) => cause_of(error),
        PageError::Broken => ClusterError::Unreachable,
        PageError::TooLarge => ClusterError::TooLarge,
        PageError::Path | PageError::Malformed(_) => ClusterError::Malformed,
    }
}

fn cause_of(error: &kube::Error) -> ClusterError {
    match error {
        kube::Error::Auth(_) => ClusterError::Unauthorized,
        _ => ClusterError::Unreachable,
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
