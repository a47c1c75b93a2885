//! What a proxy answers where it opens no tunnel: the library that asks for it tells no more than that.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::sync::Mutex;

/// Bytes of an answer that are looked at: a status line begins with its status.
const BEGIN: usize = 16;

/// First bytes that a proxy has sent.
#[derive(Clone, Default)]
pub struct Answer(Arc<Mutex<Vec<u8>>>);

/// Stream that keeps the first bytes that it reads.
pub struct Observed<T> {
    pub io: T,
    answer: Answer,
}

/// Form of a proxy's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Status of a response.
    Status(u16),
    /// An alert or a handshake of TLS.
    Tls,
    /// The proxy has closed the connection.
    Nothing,
    /// Something else than HTTP.
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
        let begin = self.0.lock();
        match (status(&begin), begin.as_slice()) {
            (Some(status), _) => Form::Status(status),
            (None, [0x15 | 0x16, 0x03, ..]) => Form::Tls,
            (None, []) => Form::Nothing,
            (None, _) => Form::Other,
        }
    }
}

/// Returns the status of a line such as `HTTP/1.1 407 Proxy Authentication Required`.
fn status(begin: &[u8]) -> Option<u16> {
    let rest = begin.strip_prefix(b"HTTP/1.")?;
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
        let mut begin = self.answer.0.lock();
        let room = BEGIN.saturating_sub(begin.len());
        begin.extend(buffer.filled()[before..].iter().take(room));
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
    fn a_status_is_read_from_its_line_alone() {
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
