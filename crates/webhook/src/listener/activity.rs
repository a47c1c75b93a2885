//! State of a connection, and the time since it has been in it: this distinguishes stalled connections from idle ones.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

use tolerarch_support::sync::Mutex;

/// Maximal time of the head of a request from its first byte, and of a client that does not take an answer.
const CLIENT_TIME: Duration = Duration::from_secs(10);

pub(super) struct Activity {
    state: Mutex<State>,
    leave: Notify,
}

struct State {
    stage: Stage,
    /// Start of the stage, or of the head of the same request.
    since: Instant,
    served: bool,
    /// Time since which the client has not taken what is written. Further requests do not reset it.
    untaken: Option<Instant>,
    cut_off: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No byte of the next request has arrived yet.
    Resting,
    /// A part of a head has arrived.
    Head,
    /// The head has arrived, and not all of the body. The body's reader enforces its pace.
    Body,
    Answering,
}

impl State {
    fn enter(&mut self, stage: Stage) {
        (self.stage, self.since) = (stage, Instant::now());
    }

    fn waiting(&self) -> Option<(bool, Instant)> {
        (self.stage != Stage::Answering).then_some((self.served, self.since))
    }
}

impl Activity {
    pub(super) fn new() -> Arc<Self> {
        let (stage, since) = (Stage::Resting, Instant::now());
        let state = State { stage, since, served: false, untaken: None, cut_off: false };
        Arc::new(Self { state: Mutex::new(state), leave: Notify::new() })
    }

    fn bytes_arrived(&self) {
        let mut state = self.state.lock();
        if state.stage == Stage::Resting {
            state.enter(Stage::Head);
        }
    }

    pub(super) fn head_complete(&self) {
        self.state.lock().stage = Stage::Body;
    }

    pub(super) fn body_complete(&self) {
        let mut state = self.state.lock();
        if state.stage == Stage::Body {
            state.stage = Stage::Answering;
        }
    }

    pub(super) fn at_rest(&self) {
        let mut state = self.state.lock();
        state.enter(Stage::Resting);
        state.served = true;
    }

    /// Returns whether a request has been answered, and since when the client is waited for; `None` while answering.
    pub(super) fn waiting(&self) -> Option<(bool, Instant)> {
        self.state.lock().waiting()
    }

    /// Asks the connection to close as soon as it is not answering, or `at_once`.
    pub(super) fn leave(&self, at_once: bool) {
        self.state.lock().cut_off = at_once;
        self.leave.notify_one();
    }

    /// Waits until the connection has to close, and returns whether at once.
    pub(super) async fn left(&self) -> bool {
        self.leave.notified().await;
        let state = self.state.lock();
        state.cut_off || state.waiting().is_some()
    }

    /// Returns the outcome of a write, and records since when the write has been waiting for the client.
    fn written<T>(&self, outcome: Poll<T>) -> Poll<T> {
        let mut state = self.state.lock();
        if outcome.is_pending() != state.untaken.is_some() {
            state.untaken = outcome.is_pending().then(Instant::now);
        }
        outcome
    }

    /// Returns `Some` if the connection has to close because its client does not go on, true if at once. `first` is the
    /// maximal time until the first request, `idle` until each further one.
    pub(super) fn overdue(&self, first: Duration, idle: Duration) -> Option<bool> {
        let state = self.state.lock();
        let is_stalled = |since: Instant| since.elapsed() > CLIENT_TIME;
        if state.untaken.is_some_and(is_stalled) || state.stage == Stage::Head && is_stalled(state.since) {
            return Some(true);
        }
        let rest = if state.served { idle } else { first };
        (state.stage == Stage::Resting && state.since.elapsed() > rest).then_some(false)
    }
}

/// Stream that records in the [`Activity`] when bytes arrive and when writes wait.
pub(super) struct Watched<S> {
    pub(super) stream: S,
    pub(super) activity: Arc<Activity>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.activity.bytes_arrived();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, data);
        self.activity.written(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = Pin::new(&mut self.stream).poll_flush(cx);
        self.activity.written(written)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, data);
        self.activity.written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// The body of a request, which tells when all of it has arrived.
pub(super) struct Arriving {
    pub(super) body: Incoming,
    pub(super) activity: Arc<Activity>,
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if frame.is_none() || self.body.is_end_stream() {
            self.activity.body_complete();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
