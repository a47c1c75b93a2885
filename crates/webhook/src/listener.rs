//! The accept loop: TLS, HTTP/1.1, and limits on what a client may cost.
//!
//! Every wait has a timeout: the handshake, the head of a request, an idle connection. hyper's own header timeout is
//! not used: it also runs on idle connections, which API servers keep for 90 s. `activity.rs` watches the bytes instead,
//! and so distinguishes stalled connections from idle ones.

mod activity;
mod slots;

use std::convert::Infallible;
use std::fs::File;
use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
use std::pin::pin;
use std::sync::Arc;

use axum::Router;
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Request};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Duration, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;
use tower_service::Service;

use crate::tls::TlsMetrics;
use activity::{Activity, arriving, watched};
pub use slots::Limits;
use slots::{Slot, Slots};

const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Maximum bytes of the head of a request, and of what hyper reads ahead of the body's reader. API servers send less
/// than 1 KiB. Every connection may use that much memory, which the budget of bodies does not count.
pub(crate) const HEAD_BYTES: usize = 8 << 10;
/// Interval at which a connection is checked for what is overdue.
const WATCH: Duration = Duration::from_secs(5);
/// Time for open requests after the drain. Then they are cut off.
const FINISH_TIME: Duration = Duration::from_secs(10);
/// Pause after an accept that failed because resources are short.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

pub struct Listener {
    /// Socket, already bound, so that its port is known.
    pub tcp: TcpListener,
    /// TLS settings and the metrics of handshakes; `None` for plain HTTP.
    pub tls: Option<(Arc<ServerConfig>, TlsMetrics)>,
    pub router: Router,
    /// Limits on connections. A connection beyond them takes the slot of another, or is closed at once: waiting would
    /// delay a Pod.
    pub limits: Limits,
    /// Maximum time of a connection until its first request.
    pub first: Duration,
    /// Maximum time of a connection between two requests.
    pub idle: Duration,
}

/// Phase of the process before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Serving,
    /// The process is about to end: it still accepts and answers, and has clients connect elsewhere.
    Draining,
    /// The process ends: it accepts no connections, and answers open requests.
    Stopping,
}

impl Listener {
    /// Serves in a task, until the phase is [`Phase::Stopping`] and open requests are answered.
    ///
    /// Spawns the task here, not in the caller: the code of a review is compiled in the crate that spawns its task, and
    /// this crate is optimized for speed.
    pub fn start(self, phase: watch::Receiver<Phase>) -> JoinHandle<()> {
        tokio::spawn(self.run(phase))
    }

    async fn run(self, mut phase: watch::Receiver<Phase>) {
        let Self {
            tcp,
            tls,
            router,
            limits,
            first,
            idle,
        } = self;
        let tls = tls.map(|(config, metrics)| (TlsAcceptor::from(config), metrics));
        let mut spare = spare_descriptor();
        let slots = Slots::new(limits);
        let connections = TaskTracker::new();
        let mut is_full = false;
        let receiver = phase.clone();
        let mut stopping = pin!(phase.wait_for(|phase| *phase == Phase::Stopping));
        loop {
            let accepted = tokio::select! {
                biased;
                _ = &mut stopping => break,
                accepted = tcp.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    recover(error, &tcp, &mut spare).await;
                    continue;
                }
            };
            let Some(slot) = slots.take(peer.ip().to_canonical()) else {
                if !is_full {
                    tracing::warn!(
                        max_connections = limits.connections,
                        "server.maxConnections reached: new connections are closed"
                    );
                }
                is_full = true;
                continue;
            };
            is_full = false;
            let connection = Connection {
                router: router.clone(),
                phase: receiver.clone(),
                slot,
                first,
                idle,
            };
            connections.spawn(accept(stream, tls.clone(), connection));
        }
        drop(tcp);
        finish(connections).await;
    }
}

/// Waits for open connections, for a limited time.
async fn finish(connections: TaskTracker) {
    connections.close();
    if timeout(FINISH_TIME, connections.wait()).await.is_err() {
        tracing::warn!(open = connections.len(), "connections are cut off");
    }
}

/// Opens a file descriptor that is closed when there are no others.
fn spare_descriptor() -> Option<File> {
    File::open("/dev/null").ok()
}

/// Handles a failed accept. If resources are short, closes the connection that waits to be accepted, and pauses.
async fn recover(error: std::io::Error, tcp: &TcpListener, spare: &mut Option<File>) {
    // Only the connection that was about to be accepted failed (accept(2), "Error handling").
    if matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    ) {
        return;
    }
    tracing::error!(%error, "cannot accept connections");
    // Without a file descriptor the client would wait. With the spare one its connection is accepted and closed at
    // once.
    drop(spare.take());
    let _ = timeout(ACCEPT_PAUSE, tcp.accept()).await;
    *spare = spare_descriptor();
}

async fn accept(stream: TcpStream, tls: Option<(TlsAcceptor, TlsMetrics)>, connection: Connection) {
    // If this fails, small answers are delayed.
    let _ = stream.set_nodelay(true);
    let Some((acceptor, metrics)) = &tls else {
        return connection.serve(stream).await;
    };
    let handshake = tokio::select! {
        handshake = timeout(HANDSHAKE_TIME, acceptor.accept(stream)) => handshake,
        _ = connection.slot.activity.close_requested() => return,
    };
    match handshake {
        Ok(Ok(stream)) => {
            metrics.handshakes.inc();
            connection.serve(stream).await;
        }
        Ok(Err(_)) | Err(_) => metrics.handshake_errors.inc(),
    }
}

/// Answers a request. Once this process is about to end, the answer closes the connection, so that the client connects
/// elsewhere.
async fn answer(
    request: Request<Incoming>,
    router: &Router,
    phase: &watch::Receiver<Phase>,
    activity: &Arc<Activity>,
) -> Result<Response, Infallible> {
    activity.head_complete();
    let request = request.map(|body| arriving(body, Arc::clone(activity)));
    let mut answer = router.clone().call(request).await;
    if let Ok(answer) = &mut answer
        && *phase.borrow() != Phase::Serving
    {
        let close = HeaderValue::from_static("close");
        answer.headers_mut().insert(CONNECTION, close);
    }
    activity.answer_complete();
    answer
}

struct Connection {
    router: Router,
    phase: watch::Receiver<Phase>,
    slot: Slot,
    first: Duration,
    idle: Duration,
}

impl Connection {
    async fn serve<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self {
            router,
            mut phase,
            slot,
            first,
            idle,
        } = self;
        let activity = &slot.activity;
        let io = TokioIo::new(watched(stream, Arc::clone(activity)));
        let current = phase.clone();
        let service = service_fn(|request| answer(request, &router, &current, activity));
        let mut connection = pin!(
            http1::Builder::new()
                .header_read_timeout(None)
                .max_buf_size(HEAD_BYTES)
                .serve_connection(io, service)
        );
        let mut stopping = pin!(phase.wait_for(|phase| *phase == Phase::Stopping));
        let mut is_closing = false;
        loop {
            let at_once = tokio::select! {
                // An error of the connection is not logged: it is the client's, and concerns no review.
                _ = &mut connection => return,
                _ = &mut stopping, if !is_closing => false,
                at_once = activity.close_requested() => at_once,
                () = sleep(WATCH) => match activity.overdue(first, idle) {
                    // A connection that is closing and still open has a client that does not take its answer.
                    Some(at_once) => at_once || is_closing,
                    None => continue,
                },
            };
            if at_once {
                return;
            }
            // A request that has arrived in the meantime is still answered.
            is_closing = true;
            connection.as_mut().graceful_shutdown();
        }
    }
}
