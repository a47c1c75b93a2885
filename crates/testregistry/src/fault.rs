//! Faults of answers, for tests.
//!
//! A fault is a value: what happens, to which requests, and how often. It receives the correct answer, after
//! authentication, and decides what the client receives.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, Response};

use crate::record::{Kind, Request};
use crate::reply::{Flow, Reply};

/// What happens, to which requests, and how often. Clones share the count.
#[derive(Clone)]
pub struct Fault {
    act: Act,
    kind: Option<Kind>,
    method: Option<Method>,
    times: Option<Arc<AtomicUsize>>,
}

type Choice = dyn Fn(&Request) -> Option<Fault> + Send + Sync;

#[derive(Clone)]
enum Act {
    Hang,
    HangBody,
    Drip(Duration),
    Reset,
    Close,
    Truncate,
    Reply(Reply),
    Huge(u64),
    Custom(Arc<Choice>),
}

impl Fault {
    /// Does not answer while the client stays connected.
    pub fn hang() -> Self {
        Self::new(Act::Hang)
    }

    /// Sends the headers and half of the body, and then nothing. HEAD is answered, as it has no body.
    pub fn hang_body() -> Self {
        Self::new(Act::HangBody)
    }

    /// Sends one byte of the body in each period, the first one at once.
    pub fn drip(period: Duration) -> Self {
        Self::new(Act::Drip(period))
    }

    /// Ends the connection with a TCP reset.
    pub fn reset() -> Self {
        Self::new(Act::Reset)
    }

    /// Closes the connection without an answer.
    pub fn close() -> Self {
        Self::new(Act::Close)
    }

    /// Closes the connection after the body, although Content-Length is larger. For HEAD only Content-Length is wrong.
    pub fn truncate() -> Self {
        Self::new(Act::Truncate)
    }

    /// Answers with this status and the error body of a registry.
    pub fn status(status: u16) -> Self {
        let code = match status {
            401 => "UNAUTHORIZED",
            403 => "DENIED",
            404 => "MANIFEST_UNKNOWN",
            429 => "TOOMANYREQUESTS",
            _ => "UNKNOWN",
        };
        Self::reply(Reply::error(status, code))
    }

    /// Answers with status 200 and this body.
    pub fn body(body: impl Into<Bytes>, content_type: &str) -> Self {
        Self::reply(
            Reply::new(200)
                .header("Content-Type", content_type)
                .body(body),
        )
    }

    /// Redirects to `location`, which may be relative or invalid.
    pub fn redirect(status: u16, location: &str) -> Self {
        Self::reply(Reply::new(status).header("Location", location))
    }

    /// Answers with this reply.
    pub fn reply(reply: Reply) -> Self {
        Self::new(Act::Reply(reply))
    }

    /// Sends a body of this many bytes in chunks, with the headers of the correct answer but without Content-Length.
    /// [`Repo::bytes_sent`](crate::Repo::bytes_sent) counts the bytes that were sent.
    pub fn huge(bytes: u64) -> Self {
        Self::new(Act::Huge(bytes))
    }

    /// Chooses a fault for each request. `None` means no fault.
    pub fn custom(choose: impl Fn(&Request) -> Option<Fault> + Send + Sync + 'static) -> Self {
        Self::new(Act::Custom(Arc::new(choose)))
    }

    /// Limits the fault to manifests.
    pub fn only_manifests(self) -> Self {
        Self {
            kind: Some(Kind::Manifest),
            ..self
        }
    }

    /// Limits the fault to blobs.
    pub fn only_blobs(self) -> Self {
        Self {
            kind: Some(Kind::Blob),
            ..self
        }
    }

    /// Limits the fault to lists of tags.
    pub fn only_tags(self) -> Self {
        Self {
            kind: Some(Kind::Tags),
            ..self
        }
    }

    /// Limits the fault to HEAD.
    pub fn only_head(self) -> Self {
        Self {
            method: Some(Method::HEAD),
            ..self
        }
    }

    /// Limits the fault to GET.
    pub fn only_get(self) -> Self {
        Self {
            method: Some(Method::GET),
            ..self
        }
    }

    /// Limits the fault to the first `times` matching requests.
    pub fn first(self, times: usize) -> Self {
        Self {
            times: Some(Arc::new(AtomicUsize::new(times))),
            ..self
        }
    }

    fn new(act: Act) -> Self {
        Self {
            act,
            kind: None,
            method: None,
            times: None,
        }
    }

    /// Returns the fault, or the one that a custom fault chooses, if it applies to a request. Counts the request then.
    fn apply_to(&self, request: &Request) -> Option<Self> {
        if let Some(kind) = self.kind
            && kind != request.kind
        {
            return None;
        }
        if let Some(method) = &self.method
            && *method != request.method
        {
            return None;
        }
        let chosen = match &self.act {
            Act::Custom(choose) => choose(request)?.apply_to(request)?,
            _ => self.clone(),
        };
        if let Some(times) = &self.times {
            let decrease = |left: usize| left.checked_sub(1);
            times
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, decrease)
                .ok()?;
        }
        Some(chosen)
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let act = match &self.act {
            Act::Hang => "Hang",
            Act::HangBody => "HangBody",
            Act::Drip(_) => "Drip",
            Act::Reset => "Reset",
            Act::Close => "Close",
            Act::Truncate => "Truncate",
            Act::Reply(_) => "Reply",
            Act::Huge(_) => "Huge",
            Act::Custom(_) => "Custom",
        };
        write!(f, "Fault::{act}")
    }
}

/// What a fault may change beside the answer.
pub(crate) struct Wire<'a> {
    /// If set, the connection ends with a reset.
    pub(crate) reset: &'a AtomicBool,
    pub(crate) bytes_sent: Arc<AtomicU64>,
}

impl Wire<'_> {
    /// Returns the answer after the fault. An error closes the connection without an answer.
    pub(crate) async fn send(
        self,
        request: &Request,
        reply: Reply,
        fault: Option<Fault>,
    ) -> io::Result<Response<Flow>> {
        let body = reply.body.clone();
        let act = fault
            .and_then(|fault| fault.apply_to(request))
            .map(|fault| fault.act);
        let (reply, flow) = match act {
            // A custom fault has been replaced by the one that it chose.
            None | Some(Act::Custom(_)) => (reply, Flow::whole(body)),
            Some(Act::Hang) => std::future::pending().await,
            Some(Act::HangBody) => (reply, Flow::half(body)),
            Some(Act::Drip(period)) => (reply, Flow::drip(body, period)),
            Some(Act::Reset) => {
                self.reset.store(true, Ordering::SeqCst);
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            Some(Act::Close) => return Err(io::ErrorKind::ConnectionAborted.into()),
            Some(Act::Truncate) => {
                let wrong_length = (body.len() + 100).to_string();
                (
                    reply.header("Content-Length", &wrong_length),
                    Flow::short(body),
                )
            }
            Some(Act::Huge(bytes)) => (
                reply.without_header("Content-Length"),
                Flow::huge(bytes, self.bytes_sent),
            ),
            Some(Act::Reply(other)) => {
                let body = other.body.clone();
                (other, Flow::whole(body))
            }
        };
        if request.method == Method::HEAD {
            Ok(reply.send(Flow::empty()))
        } else {
            Ok(reply.send(flow))
        }
    }
}
