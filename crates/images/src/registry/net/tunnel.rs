//! What a proxy answers where it opens no tunnel: the library that asks for it tells no more than that.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tolerarch_support::sync::Mutex;

/// Bytes of an answer that are looked at: a status line begins with its status.
const BEGIN: usize = 16;

/// First bytes that a proxy has sent.
#[derive(Clone, Default)]
pub(super) struct Answer(Arc<Mutex<Vec<u8>>>);

/// Stream that keeps the first bytes that it reads.
pub(super) struct Observed<T> {
    pub(super) io: T,
    answer: Answer,
}

impl Answer {
    pub(super) fn observe<T>(&self, io: T) -> Observed<T> {
        Observed { io, answer: self.clone() }
    }

    /// Returns what the answer means: `answers 407: …`. `authorized` is set if credentials were sent, and `variable` has
    /// the proxy.
    pub(super) fn explain(&self, host: &str, variable: &str, authorized: bool) -> String {
        let begin = self.0.lock().clone();
        let Some(status) = status(&begin) else {
            return match *begin {
                // An alert or a handshake of TLS.
                [0x15 | 0x16, 0x03, ..] => format!("speaks TLS; write https:// for it in {variable}"),
                [] => format!(
                    "closes the connection without an answer; if it speaks TLS, write https:// for it in {variable}"
                ),
                _ => format!("answers with something else than HTTP; see its host and port in {variable}"),
            };
        };
        explain_status(status, host, variable, authorized)
    }
}

/// Returns what a proxy's refusal of a request for this host means.
pub(super) fn explain_status(status: u16, host: &str, variable: &str, authorized: bool) -> String {
    let advice = match status {
        407 if authorized => format!("it refuses the user or the password of {variable}"),
        407 => format!(
            "it wants credentials; write user and password before an @ into the URL of {variable}, in the cluster from a Secret"
        ),
        401 => format!(
            "it may be no proxy, but a server that wants credentials; see host and port in {variable}"
        ),
        403 => format!(
            "its rules do not let {host} through; have it allowed there, or exempt it with NO_PROXY if it can be reached without"
        ),
        429 => "it throttles".to_owned(),
        502..=504 => format!(
            "it does not reach {host} itself; see its DNS and its way out, or exempt the host with NO_PROXY if it can be reached without"
        ),
        400 | 404 | 405 | 501 => {
            format!("it opens no tunnels (CONNECT), so it may be no proxy; see host and port in {variable}")
        }
        _ => format!("it opens no tunnel to {host}"),
    };
    format!("answers {status}: {advice}")
}

/// Returns the status of a line such as `HTTP/1.1 407 Proxy Authentication Required`.
fn status(begin: &[u8]) -> Option<u16> {
    let rest = begin.strip_prefix(b"HTTP/1.")?;
    let digits = rest.get(2..5).filter(|_| rest.get(1) == Some(&b' '))?;
    std::str::from_utf8(digits).ok()?.parse().ok()
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
