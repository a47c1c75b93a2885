//! What a connection is waiting for, and since when: by this stalled ones are told from those at rest.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

/// How long the head of a request may take from its first byte, and how long a client may leave an answer untaken.
const CLIENT_TIME: Duration = Duration::from_secs(10);

/// The activity of one connection.
pub(super) struct Activity {
    began: Instant,
    /// The phase with its flags, and above these since when it lasts: milliseconds since the connection began.
    phase: AtomicU64,
    /// Whether the connection has to go, and whether at once.
    leave: Notify,
    cut_off: AtomicBool,
}

/// Bits below the time.
const BITS: u32 = 4;
const PHASES: u64 = 3;
/// No byte of the next request has arrived yet.
const REST: u64 = 0;
/// A part of a head has arrived.
const HEAD: u64 = 1;
/// The head has arrived. How fast the body has to arrive is enforced by its reader.
const ANSWERING: u64 = 2;
/// A flag: a request has been answered.
const SERVED: u64 = 4;
/// A flag: the client does not take what is written, since the time.
const UNTAKEN: u64 = 8;

impl Activity {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            began: Instant::now(),
            phase: AtomicU64::new(REST),
            leave: Notify::new(),
            cut_off: AtomicBool::new(false),
        })
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX >> BITS)
    }

    /// The phase, its flags, and since when they last.
    fn phase(&self) -> (u64, u64, u64) {
        let phase = self.phase.load(Ordering::Relaxed);
        (phase & PHASES, phase & (SERVED | UNTAKEN), phase >> BITS)
    }

    /// Enters a phase that begins now.
    fn enter(&self, phase: u64) {
        self.phase.store(self.now() << BITS | phase, Ordering::Relaxed);
    }

    fn bytes_arrived(&self) {
        if let (REST, flags, _) = self.phase() {
            self.enter(flags & SERVED | HEAD);
        }
    }

    /// The time goes on, as nothing depends on it here: looking at the clock costs more than all else.
    pub(super) fn answering(&self) {
        let before = self.phase.load(Ordering::Relaxed);
        self.phase.store(before & !(PHASES | UNTAKEN) | ANSWERING, Ordering::Relaxed);
    }

    pub(super) fn at_rest(&self) {
        self.enter(SERVED | REST);
    }

    /// Whether it has answered a request, and since when it has been waiting for its client; `None` while it answers.
    pub(super) fn waiting(&self) -> Option<(bool, Instant)> {
        let (phase, flags, since) = self.phase();
        let since = self.began + Duration::from_millis(since);
        (phase != ANSWERING).then_some((flags & SERVED != 0, since))
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

    /// Passes on the outcome of a write, and remembers since when it has been waiting for the client: but for a client that
    /// sends a head, whose time is short already.
    fn written<T>(&self, outcome: Poll<T>) -> Poll<T> {
        let (phase, flags, _) = self.phase();
        if phase != HEAD && outcome.is_pending() != (flags & UNTAKEN != 0) {
            self.enter(phase | flags ^ UNTAKEN);
        }
        outcome
    }

    /// Whether the connection has to go, and whether at once, as its client does not go on. `first` is how long the first
    /// request may be waited for, `idle` how long each further one.
    pub(super) fn overdue(&self, first: Duration, idle: Duration) -> Option<bool> {
        let (phase, flags, since) = self.phase();
        let lasts = Duration::from_millis(self.now().saturating_sub(since));
        let rest = if flags & SERVED != 0 { idle } else { first };
        if (phase == HEAD || flags & UNTAKEN != 0) && lasts > CLIENT_TIME {
            return Some(true);
        }
        (phase == REST && lasts > rest).then_some(false)
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

#[cfg(test)]
mod tests;
