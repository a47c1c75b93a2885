//! The spare connection of a lookup whose answer is probably an index. The manifests of the index are then requested at
//! once, each on its own connection (HTTP/1.1), and opening one takes two round trips. So once the host, or its proxy,
//! has accepted the connection for the index, a second one is opened, which is ready when the index has arrived. Idle
//! connections of the pool are used before it.
//!
//! The same code opens it as any other connection, and to the same host as the first: never to a token server or the
//! target of a redirect. If the spare connection is slow or closed, no request fails. It is closed when its lookup
//! ends.

use std::collections::HashSet;
use std::sync::Arc;

use http::Uri;
use tokio::task_local;
use tokio_util::task::AbortOnDropHandle;

use super::stream::Stream;
use tolerarch_support::sync::Mutex;

task_local! {
    /// Spare connection of this task's lookup; `None` for requests that must not use it.
    static SPARE: Option<Phase>;
}

#[derive(Clone)]
enum Phase {
    /// The answer may be an index, so the spare connection is opened in parallel to that of this request.
    BeforeIndex(Spare),
    /// The spare connection is used if there is one.
    AfterIndex(Spare),
}

/// Spare connection of one lookup. Clones share the connection.
#[derive(Clone)]
pub(crate) struct Spare(Arc<Mutex<State>>);

enum State {
    Unopened,
    Opened(Opened),
    /// Used, or not wanted.
    Spent,
}

/// A connection that is open or being opened. Dropping it closes the connection.
pub(super) struct Opened {
    slot: Slot,
    task: AbortOnDropHandle<Option<Stream>>,
}

/// Hosts that have a spare connection. A host has at most one, for all lookups together, so that a burst of lookups
/// does not open more than it needs.
#[derive(Clone, Default)]
pub(super) struct SpareHosts(Arc<Mutex<HashSet<Uri>>>);

/// Reserves a host's only spare connection until it is dropped.
struct Slot {
    uri: Uri,
    hosts: SpareHosts,
}

impl SpareHosts {
    fn reserve(&self, uri: &Uri) -> Option<Slot> {
        if !self.0.lock().insert(uri.clone()) {
            return None;
        }
        Some(Slot {
            uri: uri.clone(),
            hosts: self.clone(),
        })
    }
}

impl Drop for Slot {
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

    /// Opens the connection with `open`, unless this lookup has already used one or the host already has one.
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
        if let Some(slot) = hosts.reserve(uri) {
            let task = open();
            *state = State::Opened(Opened { slot, task });
        }
    }

    /// Takes the connection if it goes to this host.
    pub(super) fn take(&self, uri: &Uri) -> Option<Opened> {
        let mut state = self.0.lock();
        match std::mem::replace(&mut *state, State::Spent) {
            State::Opened(opened) if opened.slot.uri == *uri => Some(opened),
            other => {
                *state = other;
                None
            }
        }
    }
}

impl Opened {
    /// Waits until the connection is open. Returns `None` if it could not be opened, or the server has closed it.
    pub(super) async fn stream(&mut self) -> Option<Stream> {
        let opened = (&mut self.task).await.ok()?;
        opened?.into_used()
    }
}

/// Sends a request to a host that must not get a spare connection.
pub(super) async fn without<T>(request: impl Future<Output = T>) -> T {
    SPARE.scope(None, request).await
}

/// Returns the spare connection that a request of this task may take.
pub(super) fn to_take() -> Option<Spare> {
    match SPARE.try_with(Clone::clone).ok()?? {
        Phase::BeforeIndex(spare) | Phase::AfterIndex(spare) => Some(spare),
    }
}

/// Returns the spare connection to open in parallel to that of a request of this task.
pub(super) fn to_open() -> Option<Spare> {
    match SPARE.try_with(Clone::clone).ok()?? {
        Phase::BeforeIndex(spare) => Some(spare),
        Phase::AfterIndex(_) => None,
    }
}
