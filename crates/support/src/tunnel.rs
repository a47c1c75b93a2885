//! The answer of a proxy that opens no tunnel. The library that requests the tunnel returns only that it failed.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::sync::Mutex;

/// Number of bytes of an answer that are recorded. They are enough for the status in a status line.
const RECORDED: usize = 16;

/// The first bytes that a proxy has sent.
#[derive(Clone, Default)]
pub struct Answer(Arc<Mutex<Vec<u8>>>);

/// A stream that records the first bytes that are read from it.
pub struct Observed<T> {
    pub io: T,
    answer: Answer,
}

/// The form of a proxy's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The status of an HTTP response.
    Status(u16),
    /// An alert or a handshake of TLS.
    Tls,
    /// The proxy has closed the connection without an answer.
    Nothing,
    /// Any other protocol.
    Other,
}

impl Answer {
    pub fn observe<T>(&self, io: T) -> Observed<T> {
        Observed {
            io,
            answer: self.clone(),
        }
    }

    pub fn form(&self) -> Form {
        let recorded = self.0.lock();
        if let Some(status) = status(&recorded) {
            return Form::Status(status);
        }
        match recorded.as_slice() {
            [0x15 | 0x16, 0x03, ..] => Form::Tls,
            [] => Form::Nothing,
            _ => Form::Other,
        }
    }
}

/// Returns the status in a line such as `HTTP/1.1 407 Proxy Authentication Required`.
fn status(line: &[u8]) -> Option<u16> {
    let rest = line.strip_prefix(b"HTTP/1.")?;
    if rest.get(1) != Some(&b' ') {
        return None;
    }
    let digits = std::str::from_utf8(rest.get(2..5)?).ok()?;
    digits.parse().ok()
}

impl<T: AsyncRead + Unpin> AsyncRead for Observed<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buffer))?;
        let read = &buffer.filled()[before..];
        let mut recorded = self.answer.0.lock();
        let missing = RECORDED.saturating_sub(recorded.len());
        recorded.extend(read.iter().take(missing));
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Observed<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_parsed_only_from_a_status_line() {
        for (line, expected) in [
            ("HTTP/1.1 407 Proxy", Some(407)),
            ("HTTP/1.0 200", Some(200)),
            ("HTTP/1.1 20", None),
            ("HTTP/1.14071", None),
            ("HTTP/2 407", None),
            ("SSH-2.0-x", None),
            ("", None),
        ] {
            assert_eq!(status(line.as_bytes()), expected, "{line}");
        }
    }
}
