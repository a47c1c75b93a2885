//! What goes wrong with an answer, when a test wants it to.
//!
//! A fault is a value: what happens, to which requests, and how often. It gets the answer that would have been right,
//! after authentication, and decides what the client sees of it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, Response};

use crate::record::{Kind, Request};
use crate::reply::{Flow, Reply};

/// What goes wrong, for which requests, and how often. Clones share how often they have struck.
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
    /// Never answers while the client stays connected.
    pub fn hang() -> Self {
        Self::new(Act::Hang)
    }

    /// Sends the headers and half of the body, then nothing. HEAD has no body and is answered.
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

    /// Ends the connection without an answer.
    pub fn close() -> Self {
        Self::new(Act::Close)
    }

    /// Ends the connection after the body, where Content-Length says that there is more. On HEAD only Content-Length
    /// is wrong.
    pub fn truncate() -> Self {
        Self::new(Act::Truncate)
    }

    /// Answers with this status and a registry's error body.
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

    /// Answers 200 with this body.
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

    /// Answers like this.
    pub fn reply(reply: Reply) -> Self {
        Self::new(Act::Reply(reply))
    }

    /// Sends a body of this many bytes in chunks, with the headers of the right answer but no Content-Length. See
    /// [`Repo::bytes_sent`](crate::Repo::bytes_sent) for how many of them were taken.
    pub fn huge(bytes: u64) -> Self {
        Self::new(Act::Huge(bytes))
    }

    /// Decides for each request; `None` lets it pass.
    pub fn custom(choose: impl Fn(&Request) -> Option<Fault> + Send + Sync + 'static) -> Self {
        Self::new(Act::Custom(Arc::new(choose)))
    }

    /// Strikes manifests only.
    pub fn only_manifests(self) -> Self {
        Self {
            kind: Some(Kind::Manifest),
            ..self
        }
    }

    /// Strikes blobs only.
    pub fn only_blobs(self) -> Self {
        Self {
            kind: Some(Kind::Blob),
            ..self
        }
    }

    /// Strikes lists of tags only.
    pub fn only_tags(self) -> Self {
        Self {
            kind: Some(Kind::Tags),
            ..self
        }
    }

    /// Strikes HEAD only.
    pub fn only_head(self) -> Self {
        Self {
            method: Some(Method::HEAD),
            ..self
        }
    }

    /// Strikes GET only.
    pub fn only_get(self) -> Self {
        Self {
            method: Some(Method::GET),
            ..self
        }
    }

    /// Strikes the first `times` requests that it would strike, and no more.
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

    /// Itself, or what it chooses, if it strikes this request.
    fn strike(&self, request: &Request) -> Option<Self> {
        let meant = self.kind.is_none_or(|kind| kind == request.kind)
            && self
                .method
                .as_ref()
                .is_none_or(|method| *method == request.method);
        let chosen = match &self.act {
            _ if !meant => return None,
            Act::Custom(choose) => choose(request)?.strike(request)?,
            _ => self.clone(),
        };
        let decrease = |left: usize| left.checked_sub(1);
        let left = self.times.as_ref();
        left.is_none_or(|left| {
            left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, decrease)
                .is_ok()
        })
        .then_some(chosen)
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

/// The place of a fault on its way to the wire: what it may touch besides the answer.
pub(crate) struct Wire<'a> {
    /// Makes the end of the connection a reset.
    pub(crate) reset: &'a AtomicBool,
    pub(crate) bytes_sent: Arc<AtomicU64>,
}

impl Wire<'_> {
    /// The answer as the fault leaves it. An error ends the connection without one.
    pub(crate) async fn send(
        self,
        request: &Request,
        reply: Reply,
        fault: Option<Fault>,
    ) -> io::Result<Response<Flow>> {
        let body = reply.body.clone();
        let act = fault
            .and_then(|fault| fault.strike(request))
            .map(|fault| fault.act);
        let (reply, flow) = match act {
            // A custom fault has become another one, or none, by now.
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
                let claimed = (body.len() + 100).to_string();
                (reply.header("Content-Length", &claimed), Flow::short(body))
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
        // HEAD has the headers of all that, and no body.
        Ok(reply.send(if request.method == Method::HEAD {
            Flow::empty()
        } else {
            flow
        }))
    }
}
