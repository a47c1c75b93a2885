//! The accept loop: TLS, HTTP/1.1, and what a client may cost.
//!
//! Every wait has an end: handshake, head of a request, idle connection. hyper's own header timeout is not used, as it
//! runs on idle connections too, which API servers keep for 90 s; a watch over bytes tells stalled from idle ones.

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
/// Bytes of the head of a request, and of what hyper reads ahead of the body's reader. API servers send less than
/// 1 KiB. Every connection may use that much without being charged to the budget of bodies.
pub(crate) const HEAD_BYTES: usize = 8 << 10;
/// Interval at which a connection is checked for what is overdue.
const WATCH: Duration = Duration::from_secs(5);
/// Time for open requests after the drain, after which they are cut off.
const FINISH_TIME: Duration = Duration::from_secs(10);
/// Pause after an accept that failed for want of resources.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

pub struct Listener {
    /// Socket, which is bound already, so that its port is known.
    pub tcp: TcpListener,
    /// TLS settings and the metrics of handshakes; `None` for plain HTTP.
    pub tls: Option<(Arc<ServerConfig>, TlsMetrics)>,
    pub router: Router,
    /// Limits of connections. One beyond them takes another's slot, or is closed at once: waiting would delay a Pod.
    pub limits: Limits,
    /// Maximum time of a connection until its first request.
    pub first: Duration,
    /// Maximum time of a connection between two requests.
    pub idle: Duration,
}

/// Stage of the process on the way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Serving,
    /// The process is about to end: it still accepts and answers, and asks clients to connect elsewhere.
    Draining,
    /// The process ends: no new connections, open requests are answered.
    Stopping,
}

impl Listener {
    /// Starts to serve, until the phase is [`Phase::Stopping`] and open requests are answered.
    ///
    /// Spawns here, not at the caller: what a review runs through is compiled where it is spawned, and this crate is
    /// optimized for speed.
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
        let mut spare = spare();
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
        connections.close();
        if timeout(FINISH_TIME, connections.wait()).await.is_err() {
            tracing::warn!(open = connections.len(), "connections are cut off");
        }
    }
}

/// Opens a file descriptor that is given up when there are no others.
fn spare() -> Option<File> {
    File::open("/dev/null").ok()
}

/// Goes on after a failed accept. If resources are short, closes the connection that waits for them, and pauses.
async fn recover(error: std::io::Error, tcp: &TcpListener, spare: &mut Option<File>) {
    // Only the connection that was about to be accepted has failed (accept(2), "Error handling").
    if matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    ) {
        return;
    }
    tracing::error!(%error, "cannot accept connections");
    // Without a file descriptor for it, the client would wait; with the spare one it learns at once.
    drop(spare.take());
    let _ = timeout(ACCEPT_PAUSE, tcp.accept()).await;
    *spare = self::spare();
}

async fn accept(stream: TcpStream, tls: Option<(TlsAcceptor, TlsMetrics)>, connection: Connection) {
    // A delay of small answers is the only loss if this fails.
    let _ = stream.set_nodelay(true);
    let Some((acceptor, metrics)) = &tls else {
        return connection.serve(stream).await;
    };
    let shaken = tokio::select! {
        shaken = timeout(HANDSHAKE_TIME, acceptor.accept(stream)) => shaken,
        _ = connection.slot.activity.left() => return,
    };
    match shaken {
        Ok(Ok(stream)) => {
            metrics.handshakes.inc();
            connection.serve(stream).await;
        }
        Ok(Err(_)) | Err(_) => metrics.handshake_errors.inc(),
    }
}

/// Answers a request. A client is asked to connect elsewhere once this process is about to end.
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
    activity.at_rest();
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
        let mut leaving = false;
        loop {
            let at_once = tokio::select! {
                // What goes wrong on a connection is the client's business; it concerns no review.
                _ = &mut connection => return,
                _ = &mut stopping, if !leaving => false,
                at_once = activity.left() => at_once,
                () = sleep(WATCH) => match activity.overdue(first, idle) {
                    // A client that was asked to leave and is still there does not take what it asked for.
                    Some(at_once) => at_once || leaving,
                    None => continue,
                },
            };
            if at_once {
                return;
            }
            // A request that has arrived in the meantime is answered.
            leaving = true;
            connection.as_mut().graceful_shutdown();
        }
    }
}
