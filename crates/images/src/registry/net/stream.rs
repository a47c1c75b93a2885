//! A connection as HTTP uses it. Limits the bytes of each answer, and records whether the connection is reused.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;

use crate::meter::Meter;

/// TCP, or TLS over TCP, or both through a proxy.
pub(super) type Wire = Box<dyn ReadWrite>;

pub(super) trait ReadWrite: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ReadWrite for T {}

pub(crate) struct Stream {
    pub(super) io: Wire,
    /// True if a proxy reads the requests.
    pub(super) to_proxy: bool,
    /// Permit to keep the connection for another request.
    pub(super) idle_permit: Option<OwnedSemaphorePermit>,
    pub(super) meter: Meter,
    /// True if bytes were read since the last write, so the next write begins another request.
    pub(super) has_answered: bool,
    pub(super) reuse: Reuse,
}

/// State of a connection that was idle or spare before its latest request. Clones share the state.
#[derive(Clone, Default)]
pub(super) struct Reuse(Arc<ReuseState>);

#[derive(Default)]
struct ReuseState {
    /// True if the latest request is not the first one, or the connection was spare.
    is_reused: AtomicBool,
    /// True if no byte has arrived since that request.
    is_unanswered: AtomicBool,
}

impl Reuse {
    fn begin(&self) {
        self.0.is_reused.store(true, Ordering::Relaxed);
        self.0.is_unanswered.store(true, Ordering::Relaxed);
    }

    fn answered(&self) {
        self.0.is_unanswered.store(false, Ordering::Relaxed);
    }

    pub(super) fn is_reused(&self) -> bool {
        self.0.is_reused.load(Ordering::Relaxed)
    }

    pub(super) fn is_unanswered(&self) -> bool {
        self.0.is_unanswered.load(Ordering::Relaxed)
    }
}

impl Stream {
    /// Prepares a spare connection for its first request. Returns `None` if the server has closed it or has already
    /// sent something.
    pub(super) fn into_used(mut self) -> Option<Self> {
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        let mut context = Context::from_waker(Waker::noop());
        let read = Pin::new(&mut self.io).poll_read(&mut context, &mut buffer);
        if read.is_ready() {
            return None;
        }
        self.reuse.begin();
        Some(self)
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        let connected = Connected::new()
            .proxy(self.to_proxy)
            .extra(self.reuse.clone());
        if self.idle_permit.is_none() {
            connected.poison();
        }
        connected
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match ready!(Pin::new(&mut self.io).poll_read(cx, buffer)) {
            // TLS that ends without `close_notify` counts as the end, as in Go (`crypto/tls`, `readRecordOrCCS`). HTTP
            // detects a truncated body by its length; a body without a length has a digest or is JSON.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            read => read?,
        }
        if buffer.filled().len() > before {
            self.has_answered = true;
            self.reuse.answered();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        if std::mem::take(&mut self.has_answered) {
            self.meter.reset();
            self.reuse.begin();
        }
        Pin::new(&mut self.io).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
