//! Counts the bytes that a connection receives, and breaks the connection when there are more than responses may have.
//! Limits on bodies do not cover informational responses, heads, trailers, chunk extensions and TLS records. A registry
//! could send those without end; and the library that reads the shared cache's answers has no limit.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Number of bytes that may still be received. Clones share the number.
#[derive(Clone)]
pub(crate) struct Meter {
    left: Arc<AtomicUsize>,
    most: usize,
    for_each: usize,
}

#[derive(Debug, thiserror::Error)]
#[error("more bytes than a response may have")]
pub(crate) struct TooManyBytes;

impl Meter {
    /// Makes a meter for `most` bytes, plus `for_each` for each byte sent, but never more than `most` at a time.
    pub(crate) fn new(most: usize, for_each: usize) -> Self {
        Self {
            left: Arc::new(most.into()),
            most,
            for_each,
        }
    }

    pub(crate) fn reset(&self) {
        self.left.store(self.most, Ordering::Relaxed);
    }

    fn update(&self, next: impl Fn(usize) -> usize) -> usize {
        let some_next = |left| Some(next(left));
        let (Ok(before) | Err(before)) =
            self.left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, some_next);
        before
    }
}

impl TooManyBytes {
    pub(crate) fn is_cause_of(error: &(dyn std::error::Error + 'static)) -> bool {
        let io = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        io.is_some_and(|cause| cause.is::<Self>())
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
        let allowed = self.meter.update(|left| left.saturating_sub(received));
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
        let Meter { most, for_each, .. } = self.meter;
        self.meter.update(|left| most.min(left + for_each * sent));
        Poll::Ready(Ok(sent))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
