//! The spare connection of a lookup whose answer is probably an index. The manifests that are then requested at once take
//! a connection each (HTTP/1.1), and a new one takes two round trips. So beside the connection for the index a second one
//! is opened, once the host, or its proxy, has taken the first: it is ready when the index is there. What the pool keeps
//! is used first.
//!
//! It is opened by the same code as any other connection, and to the same host as the first: never to a token server or
//! the target of a redirect. A spare connection that is slow or closed fails no request. It ends with its lookup.

use std::collections::HashSet;
use std::sync::Arc;

use http::Uri;
use tokio::task_local;
use tokio_util::task::AbortOnDropHandle;

use super::stream::Stream;
use tolerarch_support::sync::Mutex;

task_local! {
    /// Spare connection of the lookup of this task; `None` for requests that must not use it.
    static SPARE: Option<Phase>;
}

#[derive(Clone)]
enum Phase {
    /// The answer may be an index: the spare connection is opened beside the one of this request.
    BeforeIndex(Spare),
    /// The spare connection is used if it is there.
    AfterIndex(Spare),
}

/// Spare connection of one lookup. Clones share it.
#[derive(Clone)]
pub(crate) struct Spare(Arc<Mutex<State>>);

enum State {
    Unopened,
    Opened(Opened),
    /// Used, or not wanted.
    Spent,
}

/// A connection that is being opened, or open. Dropping it ends it.
pub(super) struct Opened {
    place: Place,
    task: AbortOnDropHandle<Option<Stream>>,
}

/// Hosts that have a spare connection, be it of any lookup: one each, so that a burst opens no more than it needs.
#[derive(Clone, Default)]
pub(super) struct SpareHosts(Arc<Mutex<HashSet<Uri>>>);

/// The place of a host's spare connection, until it is dropped.
struct Place {
    uri: Uri,
    hosts: SpareHosts,
}

impl SpareHosts {
    fn enter(&self, uri: &Uri) -> Option<Place> {
        if !self.0.lock().insert(uri.clone()) {
            return None;
        }
        Some(Place {
            uri: uri.clone(),
            hosts: self.clone(),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.hosts.0.lock().remove(&self.uri);
    }
}

impl Spare {
    pub(crate) fn new(is_wanted: bool) -> Self {
        let state = if is_wanted {
            State::Unopened
        } else {
            State::Spent
        };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Sends the request for what may be an index.
    pub(crate) async fn before_index<T>(&self, request: impl Future<Output = T>) -> T {
        let phase = Phase::BeforeIndex(self.clone());
        SPARE.scope(Some(phase), request).await
    }

    /// Sends the requests for what an index points to.
    pub(crate) async fn after_index<T>(&self, requests: impl Future<Output = T>) -> T {
        let phase = Phase::AfterIndex(self.clone());
        SPARE.scope(Some(phase), requests).await
    }

    /// Opens the connection with `open`, unless this lookup has used one, or the host has one.
    pub(super) fn begin(
        &self,
        uri: &Uri,
        hosts: &SpareHosts,
        open: impl FnOnce() -> AbortOnDropHandle<Option<Stream>>,
    ) {
        let mut state = self.0.lock();
        if matches!(*state, State::Spent) {
            return;
        }
        if let Some(place) = hosts.enter(uri) {
            let task = open();
            *state = State::Opened(Opened { place, task });
        }
    }

    /// Takes the connection if it goes to this host.
    pub(super) fn take(&self, uri: &Uri) -> Option<Opened> {
        let mut state = self.0.lock();
        match std::mem::replace(&mut *state, State::Spent) {
            State::Opened(opened) if opened.place.uri == *uri => Some(opened),
            other => {
                *state = other;
                None
            }
        }
    }
}

impl Opened {
    /// Waits until the connection is open; `None` if it failed, or the server has ended it.
    pub(super) async fn stream(&mut self) -> Option<Stream> {
        let opened = (&mut self.task).await.ok()?;
        opened?.into_used()
    }
}

/// Sends a request to a host that gets no spare connection.
pub(super) async fn without<T>(request: impl Future<Output = T>) -> T {
    SPARE.scope(None, request).await
}

/// Returns the spare connection that a request of this task may take.
pub(super) fn to_take() -> Option<Spare> {
    match SPARE.try_with(Clone::clone).ok()?? {
        Phase::BeforeIndex(spare) | Phase::AfterIndex(spare) => Some(spare),
    }
}

/// Returns the spare connection to open beside that of a request of this task.
pub(super) fn to_open() -> Option<Spare> {
    match SPARE.try_with(Clone::clone).ok()?? {
        Phase::BeforeIndex(spare) => Some(spare),
        Phase::AfterIndex(_) => None,
    }
}
