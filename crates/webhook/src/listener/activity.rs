//! Stage of a connection, and the time since it entered the stage: both distinguish stalled connections from idle ones.

use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::{Duration, Instant};
use tokio_io_timeout::TimeoutWriter;
use tokio_util::io::InspectReader;

use tolerarch_support::sync::Mutex;

/// Maximum time from the first byte of a request's head to its last, and maximum time until a client takes an answer.
const CLIENT_TIME: Duration = Duration::from_secs(10);

pub(super) struct Activity {
    state: Mutex<State>,
    close: Notify,
}

struct State {
    stage: Stage,
    /// Start of the stage; while a request is read or answered, start of its head.
    since: Instant,
    /// True if a request has been answered.
    served: bool,
    /// True if the connection has to close even while it is answering.
    cut_off: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No byte of the next request has arrived.
    Idle,
    /// A part of the head has arrived.
    Head,
    /// The head has arrived, but not all of the body. The body's reader enforces its pace.
    Body,
    Answering,
}

impl State {
    fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        self.since = Instant::now();
    }
}

impl Activity {
    pub(super) fn new() -> Arc<Self> {
        let state = State {
            stage: Stage::Idle,
            since: Instant::now(),
            served: false,
            cut_off: false,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            close: Notify::new(),
        })
    }

    fn bytes_arrived(&self) {
        let mut state = self.state.lock();
        if state.stage == Stage::Idle {
            state.enter(Stage::Head);
        }
    }

    pub(super) fn head_complete(&self) {
        self.state.lock().stage = Stage::Body;
    }

    pub(super) fn body_complete(&self) {
        let mut state = self.state.lock();
        if state.stage == Stage::Body {
            state.stage = Stage::Answering;
        }
    }

    pub(super) fn answer_complete(&self) {
        let mut state = self.state.lock();
        state.enter(Stage::Idle);
        state.served = true;
    }

    /// Returns whether a request has been answered, and the time since which the connection waits for the client;
    /// `None` while a request is being answered.
    pub(super) fn waiting(&self) -> Option<(bool, Instant)> {
        let state = self.state.lock();
        (state.stage != Stage::Answering).then_some((state.served, state.since))
    }

    /// Requests that the connection closes as soon as it is not answering, or `at_once`.
    pub(super) fn request_close(&self, at_once: bool) {
        self.state.lock().cut_off = at_once;
        self.close.notify_one();
    }

    /// Waits until the connection has to close. Returns true if it has to close at once.
    pub(super) async fn close_requested(&self) -> bool {
        self.close.notified().await;
        let state = self.state.lock();
        state.cut_off || state.stage != Stage::Answering
    }

    /// Returns `Some(true)` if the connection has to close at once: the head of a request is not complete within
    /// `CLIENT_TIME` of its first byte, however many bytes have arrived since. Returns `Some(false)` if it has to close
    /// because no request begins. `first`: the maximum time until the first request. `idle`: until each further one.
    pub(super) fn overdue(&self, first: Duration, idle: Duration) -> Option<bool> {
        let state = self.state.lock();
        if state.stage == Stage::Head && state.since.elapsed() > CLIENT_TIME {
            return Some(true);
        }
        let limit = if state.served { idle } else { first };
        let is_overdue = state.stage == Stage::Idle && state.since.elapsed() > limit;
        is_overdue.then_some(false)
    }
}

/// Returns a stream that records arriving bytes in the activity. The stream fails if the client does not take what is
/// written.
pub(super) fn watched<S: AsyncRead + AsyncWrite>(
    stream: S,
    activity: Arc<Activity>,
) -> impl AsyncRead + AsyncWrite + Unpin {
    let mut stream = TimeoutWriter::new(stream);
    stream.set_timeout(Some(CLIENT_TIME));
    InspectReader::new(Box::pin(stream), move |bytes: &[u8]| {
        if !bytes.is_empty() {
            activity.bytes_arrived();
        }
    })
}

/// Returns the body of a request. Its drop marks the body as complete: the reader drops it once all of it has arrived.
pub(super) fn arriving<B: Body>(
    body: B,
    activity: Arc<Activity>,
) -> impl Body<Data = B::Data, Error = B::Error> {
    let complete_on_drop = scopeguard::guard(activity, |activity| activity.body_complete());
    // Unlike `map_frame`, `inspect_frame` passes on the announced length.
    body.inspect_frame(move |_| {
        let _ = &complete_on_drop;
    })
}

#[cfg(test)]
mod tests;
