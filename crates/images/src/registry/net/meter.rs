//! Counts what a connection receives, and breaks it where one response is more than any may be.
//!
//! Limits on bodies do not see what stands around them: informational responses, heads, trailers, chunk extensions and TLS
//! records. A registry could send those without end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::registry::limits;

/// The bytes received since the last request began. Clones count together.
#[derive(Clone, Default)]
pub(super) struct Meter(Arc<AtomicUsize>);

/// The response is larger than any may be.
#[derive(Debug, thiserror::Error)]
#[error("more bytes than a response may have")]
pub(super) struct TooManyBytes;

impl Meter {
    /// A request begins.
    pub(super) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    fn count(&self, received: usize) -> io::Result<()> {
        let all = self.0.fetch_add(received, Ordering::Relaxed) + received;
        if all > limits::RESPONSE { Err(io::Error::other(TooManyBytes)) } else { Ok(()) }
    }
}

impl TooManyBytes {
    /// Whether this is why reading failed.
    pub(super) fn is_cause_of(error: &(dyn std::error::Error + 'static)) -> bool {
        let io = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        io.is_some_and(|cause| cause.is::<Self>())
    }
}

/// A connection whose received bytes are counted.
pub(super) struct Metered<T> {
    pub(super) io: T,
    pub(super) meter: Meter,
}

impl<T: AsyncRead + Unpin> AsyncRead for Metered<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.io).poll_read(cx, buffer) {
            Poll::Ready(Ok(())) => Poll::Ready(self.meter.count(buffer.filled().len() - before)),
            other => other,
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Metered<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
