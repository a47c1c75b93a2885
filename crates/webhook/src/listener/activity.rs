//! State of a connection, and the time since it has been in it: this distinguishes stalled connections from idle ones.

use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::{Duration, Instant};
use tokio_io_timeout::TimeoutWriter;
use tokio_util::io::InspectReader;

use tolerarch_support::sync::Mutex;

/// Maximum time of the head of a request from its first byte, and of a client that does not take an answer.
const CLIENT_TIME: Duration = Duration::from_secs(10);

pub(super) struct Activity {
    state: Mutex<State>,
    leave: Notify,
}

struct State {
    stage: Stage,
    /// Start of the stage, or of the head of the same request.
    since: Instant,
    served: bool,
    cut_off: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No byte of the next request has arrived yet.
    Resting,
    /// A part of a head has arrived.
    Head,
    /// The head has arrived, and not all of the body. The body's reader enforces its pace.
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
            stage: Stage::Resting,
            since: Instant::now(),
            served: false,
            cut_off: false,
        };
        Arc::new(Self {
            state: Mutex::new(state),
            leave: Notify::new(),
        })
    }

    fn bytes_arrived(&self) {
        let mut state = self.state.lock();
        if state.stage == Stage::Resting {
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

    pub(super) fn at_rest(&self) {
        let mut state = self.state.lock();
        state.enter(Stage::Resting);
        state.served = true;
    }

    /// Returns whether a request has been answered, and since when the client is waited for; `None` while answering.
    pub(super) fn waiting(&self) -> Option<(bool, Instant)> {
        let state = self.state.lock();
        (state.stage != Stage::Answering).then_some((state.served, state.since))
    }

    /// Asks the connection to close as soon as it is not answering, or `at_once`.
    pub(super) fn leave(&self, at_once: bool) {
        self.state.lock().cut_off = at_once;
        self.leave.notify_one();
    }

    /// Waits until the connection has to close, and returns whether at once.
    pub(super) async fn left(&self) -> bool {
        self.leave.notified().await;
        let state = self.state.lock();
        state.cut_off || state.stage != Stage::Answering
    }

    /// Returns `Some` if the connection has to close because its client does not go on, true if at once. `first` is the
    /// maximum time until the first request, `idle` until each further one.
    pub(super) fn overdue(&self, first: Duration, idle: Duration) -> Option<bool> {
        let state = self.state.lock();
        if state.stage == Stage::Head && state.since.elapsed() > CLIENT_TIME {
            return Some(true);
        }
        let rest = if state.served { idle } else { first };
        (state.stage == Stage::Resting && state.since.elapsed() > rest).then_some(false)
    }
}

/// Returns a stream that records arriving bytes in the activity, and fails if the client does not take what is written.
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

/// Returns the body of a request, which its reader drops as soon as all of it has arrived.
pub(super) fn arriving<B: Body>(
    body: B,
    activity: Arc<Activity>,
) -> impl Body<Data = B::Data, Error = B::Error> {
    let arriving = scopeguard::guard(activity, |activity| activity.body_complete());
    // Unlike `map_frame` it passes on the announced length.
    body.inspect_frame(move |_| {
        let _ = &arriving;
    })
}

#[cfg(test)]
mod tests;
