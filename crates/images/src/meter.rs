//! Limits the bytes that a connection receives: more bytes than responses may have break the connection.
//! Limits on bodies do not cover informational responses, heads, trailers, chunk extensions and TLS records. A registry
//! could send those without end. The library that reads the shared cache's answers has no limit at all.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Number of bytes that may still be received. Clones share the number.
#[derive(Clone)]
pub(crate) struct Meter {
    remaining: Arc<AtomicUsize>,
    /// Maximum of `remaining`.
    maximum: usize,
    /// Number by which each byte sent raises `remaining`.
    per_sent_byte: usize,
}

#[derive(Debug, thiserror::Error)]
#[error("more bytes than a response may have")]
pub(crate) struct TooManyBytes;

impl Meter {
    /// Makes a meter for `maximum` bytes, and `per_sent_byte` more for each byte sent; never for more than `maximum`.
    pub(crate) fn new(maximum: usize, per_sent_byte: usize) -> Self {
        Self {
            remaining: Arc::new(maximum.into()),
            maximum,
            per_sent_byte,
        }
    }

    pub(crate) fn reset(&self) {
        self.remaining.store(self.maximum, Ordering::Relaxed);
    }

    /// Applies `change` to the number of remaining bytes, and returns the number before.
    fn update(&self, change: impl Fn(usize) -> usize) -> usize {
        let relaxed = Ordering::Relaxed;
        let updated = self
            .remaining
            .fetch_update(relaxed, relaxed, |remaining| Some(change(remaining)));
        match updated {
            Ok(before) | Err(before) => before,
        }
    }
}

impl TooManyBytes {
    pub(crate) fn is_cause_of(error: &(dyn std::error::Error + 'static)) -> bool {
        let Some(io_error) = error.downcast_ref::<io::Error>() else {
            return false;
        };
        io_error.get_ref().is_some_and(|cause| cause.is::<Self>())
    }
}

pub(crate) struct Metered<T> {
    pub(crate) io: T,
    pub(crate) meter: Meter,
}

impl<T: AsyncRead + Unpin> AsyncRead for Metered<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        let received = buffer.filled().len() - before;
        let allowed = self
            .meter
            .update(|remaining| remaining.saturating_sub(received));
        if allowed < received {
            return Poll::Ready(Err(io::Error::other(TooManyBytes)));
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Metered<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let sent = ready!(Pin::new(&mut self.io).poll_write(cx, data))?;
        let maximum = self.meter.maximum;
        let raise = self.meter.per_sent_byte * sent;
        self.meter
            .update(|remaining| maximum.min(remaining + raise));
        Poll::Ready(Ok(sent))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
