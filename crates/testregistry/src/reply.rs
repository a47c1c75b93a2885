//! Answers, and their bodies on the wire.
//!
//! [`Reply`] is the whole answer as a value. [`Flow`] is its body on the wire: its speed, its length, and how it ends. A
//! flow never reports its size to hyper, so Content-Length is exactly the reply's: right, wrong or missing.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::{Interval, MissedTickBehavior, interval};

/// The maximum size of one frame of a body.
const PIECE: usize = 64 * 1024;

/// An answer of the registry: status, headers and body.
#[derive(Clone, Debug)]
pub struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Reply {
    /// Returns an answer with an empty body.
    pub fn new(status: u16) -> Self {
        let status = StatusCode::from_u16(status).expect("an HTTP status");
        Self {
            status,
            headers: HeaderMap::new(),
            body: Bytes::new(),
        }
        .body(Bytes::new())
    }

    /// Returns an error with the body of the distribution specification, like `error(404, "MANIFEST_UNKNOWN")`.
    pub fn error(status: u16, code: &str) -> Self {
        let message = code.to_lowercase().replace('_', " ");
        Self::new(status).json(&json!({ "errors": [{ "code": code, "message": message }] }))
    }

    /// Sets a header, and replaces all others of that name. Content-Length may be wrong.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(header_name(name), header_value(value));
        self
    }

    /// Adds a header, and keeps others of that name.
    pub fn add_header(mut self, name: &str, value: &str) -> Self {
        self.headers.append(header_name(name), header_value(value));
        self
    }

    /// Removes a header. Without Content-Length the body is sent in chunks.
    pub fn without_header(mut self, name: &str) -> Self {
        self.headers.remove(header_name(name));
        self
    }

    /// Sets the body and its Content-Length.
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self.headers.insert(CONTENT_LENGTH, self.body.len().into());
        self
    }

    /// Sets a JSON body and its content type.
    pub fn json(mut self, body: &Value) -> Self {
        self.headers
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.body(body.to_string())
    }

    /// Returns the response with the status and the headers of this answer, and with another body.
    pub(crate) fn send(self, body: Flow) -> Response<Flow> {
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers;
        response
    }
}

pub(crate) fn header_name(name: &str) -> HeaderName {
    HeaderName::from_bytes(name.as_bytes()).expect("a header name")
}

pub(crate) fn header_value(value: &str) -> HeaderValue {
    HeaderValue::from_bytes(value.as_bytes()).expect("a header value")
}

/// A body that is being sent.
pub(crate) struct Flow {
    /// Sent repeatedly until nothing is left to send.
    data: Bytes,
    sent: u64,
    left: u64,
    piece: usize,
    pace: Option<Interval>,
    counter: Option<Arc<AtomicU64>>,
    end: End,
}

enum End {
    Done,
    Hang,
    /// Ends before its Content-Length is reached, which makes hyper close the connection. hyper would also drop unflushed
    /// bytes, so the body ends one poll after the last piece.
    Short {
        yielded: bool,
    },
}

impl Flow {
    pub(crate) fn whole(data: Bytes) -> Self {
        let left = data.len() as u64;
        Self {
            data,
            sent: 0,
            left,
            piece: PIECE,
            pace: None,
            counter: None,
            end: End::Done,
        }
    }

    pub(crate) fn empty() -> Self {
        Self::whole(Bytes::new())
    }

    /// Sends the first half, and nothing after it.
    pub(crate) fn half(data: Bytes) -> Self {
        let half = data.len() / 2;
        Self {
            end: End::Hang,
            ..Self::whole(data.slice(..half))
        }
    }

    pub(crate) fn short(data: Bytes) -> Self {
        Self {
            end: End::Short { yielded: false },
            ..Self::whole(data)
        }
    }

    pub(crate) fn drip(data: Bytes, every: Duration) -> Self {
        let mut pace = interval(every);
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            piece: 1,
            pace: Some(pace),
            ..Self::whole(data)
        }
    }

    pub(crate) fn huge(bytes: u64, counter: Arc<AtomicU64>) -> Self {
        let data = Bytes::from_static(&[b' '; PIECE]);
        Self {
            left: bytes,
            counter: Some(counter),
            ..Self::whole(data)
        }
    }
}

impl Body for Flow {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.left == 0 {
            return match &mut self.end {
                End::Done | End::Short { yielded: true } => Poll::Ready(None),
                End::Hang => Poll::Pending,
                End::Short { yielded } => {
                    *yielded = true;
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
            };
        }
        if let Some(pace) = &mut self.pace {
            ready!(pace.poll_tick(cx));
        }
        let start = (self.sent % self.data.len() as u64) as usize;
        let size = self
            .piece
            .min(self.data.len() - start)
            .min(usize::try_from(self.left).unwrap_or(PIECE));
        self.sent += size as u64;
        self.left -= size as u64;
        if let Some(counter) = &self.counter {
            counter.fetch_add(size as u64, Ordering::Relaxed);
        }
        Poll::Ready(Some(Ok(Frame::data(self.data.slice(start..start + size)))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0 && matches!(self.end, End::Done)
    }
}
