//! What a connection is waiting for, and since when: by this stalled ones are told from those at rest.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

/// How long the head of a request may take from its first byte, and how long a client may leave an answer untaken.
const CLIENT_TIME: Duration = Duration::from_secs(10);

/// The activity of one connection.
pub(super) struct Activity {
    began: Instant,
    /// The phase, [`SERVED`], and above these since when the phase lasts: milliseconds since the connection began.
    phase: AtomicU64,
    /// When the client began not to take what is written, in milliseconds since the connection began; 0 if it takes it.
    /// Further requests do not end that.
    untaken: AtomicU64,
    /// Whether the connection has to go, and whether at once.
    leave: Notify,
    cut_off: AtomicBool,
}

/// Bits below the time.
const BITS: u32 = 3;
/// A request has been answered.
const SERVED: u64 = 4;
const PHASES: u64 = 3;
/// No byte of the next request has arrived yet.
const REST: u64 = 0;
/// A part of a head has arrived.
const HEAD: u64 = 1;
/// The head has arrived, and not all of the body; since the head began. The body's reader enforces its pace.
const BODY: u64 = 2;
/// A request is being answered.
const ANSWERING: u64 = 3;

impl Activity {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            phase: AtomicU64::new(REST),
            untaken: AtomicU64::new(0),
            leave: Notify::new(),
            cut_off: AtomicBool::new(false),
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX >> BITS)
    }

    /// The phase, whether a request has been answered, and since when the phase lasts.
    fn phase(&self) -> (u64, bool, u64) {
        let phase = self.phase.load(Ordering::Relaxed);
        (phase & PHASES, phase & SERVED != 0, phase >> BITS)
    }

    /// Enters a phase that begins now.
    fn enter(&self, phase: u64) {
        self.phase.store(self.now() << BITS | phase, Ordering::Relaxed);
    }

    /// Enters a phase of the same request, whose time goes on: looking at the clock costs more than all else here.
    fn go_on(&self, phase: u64) {
        let before = self.phase.load(Ordering::Relaxed) & !PHASES;
        self.phase.store(before | phase, Ordering::Relaxed);
    }

    fn bytes_arrived(&self) {
        if let (REST, served, _) = self.phase() {
            self.enter(if served { SERVED | HEAD } else { HEAD });
        }
    }

    pub(super) fn head_complete(&self) {
        self.go_on(BODY);
    }

    pub(super) fn body_complete(&self) {
        if let (BODY, ..) = self.phase() {
            self.go_on(ANSWERING);
        }
    }

    pub(super) fn at_rest(&self) {
        self.enter(SERVED | REST);
    }

    /// Whether it has answered a request, and since when it has been waiting for its client; `None` while it answers.
    pub(super) fn waiting(&self) -> Option<(bool, Instant)> {
        let (phase, served, since) = self.phase();
        (phase != ANSWERING).then(|| (served, self.began + Duration::from_millis(since)))
    }

    /// The connection has to go, as soon as it is not answering.
    pub(super) fn leave(&self) {
        self.leave.notify_one();
    }

    /// The connection has to go, whatever it does.
    pub(super) fn cut_off(&self) {
        self.cut_off.store(true, Ordering::Relaxed);
        self.leave();
    }

    /// Ends when the connection has to go, and says whether at once.
    pub(super) async fn left(&self) -> bool {
        self.leave.notified().await;
        self.cut_off.load(Ordering::Relaxed) || self.waiting().is_some()
    }

    /// Passes on the outcome of a write, and remembers since when it has been waiting for the client.
    fn written<T>(&self, outcome: Poll<T>) -> Poll<T> {
        let is_untaken = self.untaken.load(Ordering::Relaxed) != 0;
        if outcome.is_pending() != is_untaken {
            self.untaken.store(if is_untaken { 0 } else { self.now().max(1) }, Ordering::Relaxed);
        }
        outcome
    }

    /// Whether the connection has to go, and whether at once, as its client does not go on. `first` is how long the first
    /// request may be waited for, `idle` how long each further one.
    pub(super) fn overdue(&self, first: Duration, idle: Duration) -> Option<bool> {
        let (phase, served, since) = self.phase();
        let lasts = |since| Duration::from_millis(self.now().saturating_sub(since));
        let untaken = self.untaken.load(Ordering::Relaxed);
        if untaken != 0 && lasts(untaken) > CLIENT_TIME || phase == HEAD && lasts(since) > CLIENT_TIME {
            return Some(true);
        }
        let rest = if served { idle } else { first };
        (phase == REST && lasts(since) > rest).then_some(false)
    }
}

/// A stream that tells when bytes arrive.
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
