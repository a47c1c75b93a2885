//! The accept loop: TLS, HTTP/1.1, and what a client may cost.
//!
//! Every wait has an end: the handshake, the head of a request, an idle connection. hyper's own header timeout is not
//! used, as it runs on idle connections too, and the API server keeps those for 90 s; a watch over what arrives tells a
//! stalled request from a connection at rest.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use axum::Router;
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Duration, Instant, MissedTickBehavior, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;
use tower_service::Service;

use crate::tls::TlsMetrics;

/// How long a TLS handshake may take.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// How long the head of a request may take, from its first byte.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// How long a client may leave an answer untaken.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Bytes of the head of a request, and of what hyper reads ahead.
const HEAD_BYTES: usize = 64 << 10;
/// How often a connection is looked at for that.
const WATCH: Duration = Duration::from_secs(5);
/// Open requests are waited for so long after the drain, then cut off.
const FINISH_TIME: Duration = Duration::from_secs(10);
/// A pause after an accept that failed for want of resources.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What the accept loop needs.
pub struct Listener {
    /// Bound already, so that the port is known.
    pub tcp: TcpListener,
    /// The TLS settings; without them it speaks plain HTTP.
    pub tls: Option<Arc<ServerConfig>>,
    /// What answers.
    pub router: Router,
    /// Connections at a time; more are closed at once, as waiting would cost a Pod its time.
    pub max_connections: usize,
    /// How long a connection may rest between two requests.
    pub idle: Duration,
    /// Counts failed handshakes.
    pub metrics: TlsMetrics,
}

/// How far the process is from its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It serves.
    Serving,
    /// It is about to end: it still accepts and answers, and asks clients to connect elsewhere.
    Draining,
    /// It ends: no new connections, open requests are answered.
    Stopping,
}

impl Listener {
    /// Serves until the phase is [`Phase::Stopping`] and open requests are answered.
    pub async fn run(self, mut phase: watch::Receiver<Phase>) {
        let Self { tcp, tls, router, max_connections, idle, metrics } = self;
        let acceptor = tls.map(TlsAcceptor::from);
        let mut spare = spare();
        let permits = Arc::new(Semaphore::new(max_connections));
        let connections = TaskTracker::new();
        let saturated = AtomicBool::new(false);
        let seen = phase.clone();
        let mut stopping = pin!(phase.wait_for(|phase| *phase == Phase::Stopping));
        loop {
            let accepted = tokio::select! {
                biased;
                _ = &mut stopping => break,
                accepted = tcp.accept() => accepted,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    if !is_of_one_connection(&error) {
                        tracing::error!(%error, "cannot accept connections");
                        // Without a file descriptor for it, the client would wait; with the spare one it learns at once.
                        drop(spare.take());
                        let _ = timeout(ACCEPT_PAUSE, tcp.accept()).await;
                        spare = self::spare();
                    }
                    continue;
                }
            };
            let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
                if !saturated.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        max_connections,
                        "server.maxConnections reached: new connections are closed"
                    );
                }
                continue;
            };
            saturated.store(false, Ordering::Relaxed);
            let talk = Talk { router: router.clone(), phase: seen.clone(), idle };
            connections.spawn(serve(stream, acceptor.clone(), talk, metrics.clone(), permit));
        }
        drop(tcp);
        connections.close();
        if timeout(FINISH_TIME, connections.wait()).await.is_err() {
            tracing::warn!(open = connections.len(), "connections are cut off");
        }
    }
}

/// A file descriptor to be given up when there are no others.
fn spare() -> Option<std::fs::File> {
    std::fs::File::open("/dev/null").ok()
}

/// Whether only the one connection failed that was about to be accepted (accept(2), "Error handling").
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// One connection, from the handshake to its end.
async fn serve(
    stream: TcpStream,
    acceptor: Option<TlsAcceptor>,
    talk: Talk,
    metrics: TlsMetrics,
    _permit: OwnedSemaphorePermit,
) {
    // A delay of small answers is the only loss if this fails.
    let _ = stream.set_nodelay(true);
    let Some(acceptor) = acceptor else {
        return talk.on(stream).await;
    };
    match timeout(HANDSHAKE_TIME, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => talk.on(stream).await,
        Ok(Err(_)) | Err(_) => metrics.handshake_failed(),
    }
}

/// HTTP on one connection.
struct Talk {
    router: Router,
    phase: watch::Receiver<Phase>,
    idle: Duration,
}

impl Talk {
    async fn on<S>(self, stream: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Self { router, mut phase, idle } = self;
        let activity = Activity::new();
        let io = TokioIo::new(Watched { stream, activity: activity.clone() });
        let draining = phase.clone();
        let service = service_fn(|request| {
            activity.head_complete();
            let answer = router.clone().call(request);
            let (draining, activity) = (draining.clone(), activity.clone());
            async move {
                let mut answer = answer.await;
                if let Ok(answer) = &mut answer
                    && *draining.borrow() != Phase::Serving
                {
                    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                activity.at_rest();
                answer
            }
        });
        let mut connection = pin!(
            http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(None)
                .max_buf_size(HEAD_BYTES)
                .serve_connection(io, service)
        );
        let mut watching = tokio::time::interval(WATCH);
        watching.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopping = pin!(phase.wait_for(|phase| *phase == Phase::Stopping));
        let (mut stopped, mut asked_to_leave) = (false, false);
        loop {
            tokio::select! {
                // What goes wrong on a connection is the client's business; it concerns no review.
                _ = &mut connection => return,
                _ = &mut stopping, if !stopped => {
                    stopped = true;
                    connection.as_mut().graceful_shutdown();
                }
                _ = watching.tick() => match activity.overdue(idle) {
                    Some(Overdue::Client) => return,
                    // It was asked to leave and is still there: it does not take what it asked for.
                    Some(Overdue::Idle) if asked_to_leave => return,
                    Some(Overdue::Idle) => {
                        asked_to_leave = true;
                        connection.as_mut().graceful_shutdown();
                    }
                    None => {}
                },
            }
        }
    }
}

/// What a connection is waiting for, and since when: in milliseconds since the connection began, shifted by one bit,
/// which says whether a head has begun to arrive. `BUSY` while a request is being answered.
#[derive(Clone)]
struct Activity {
    began: Instant,
    state: Arc<AtomicU64>,
    /// When the client began not to take what is written, in milliseconds since the connection began; 0 if it takes it.
    stalled: Arc<AtomicU64>,
}

enum Overdue {
    /// The client does not go on sending its request, or does not take its answer.
    Client,
    /// The connection has been at rest for long.
    Idle,
}

const BUSY: u64 = u64::MAX;

impl Activity {
    fn new() -> Self {
        Self { began: Instant::now(), state: Arc::default(), stalled: Arc::default() }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX >> 2) << 1
    }

    fn bytes_arrived(&self) {
        let state = self.state.load(Ordering::Relaxed);
        if state & 1 == 0 {
            self.state.store(self.now() | 1, Ordering::Relaxed);
        }
    }

    fn head_complete(&self) {
        self.state.store(BUSY, Ordering::Relaxed);
    }

    fn at_rest(&self) {
        self.state.store(self.now(), Ordering::Relaxed);
    }

    /// Passes on the outcome of a write, and remembers since when it has been waiting for the client.
    fn written<T>(&self, outcome: Poll<T>) -> Poll<T> {
        let stalled = self.stalled.load(Ordering::Relaxed) != 0;
        if outcome.is_pending() != stalled {
            self.stalled.store(if stalled { 0 } else { (self.now() >> 1).max(1) }, Ordering::Relaxed);
        }
        outcome
    }

    fn overdue(&self, idle: Duration) -> Option<Overdue> {
        let since = |then: u64| Duration::from_millis((self.now() >> 1).saturating_sub(then));
        let stalled = self.stalled.load(Ordering::Relaxed);
        if stalled != 0 && since(stalled) > ANSWER_TIME {
            return Some(Overdue::Client);
        }
        let state = self.state.load(Ordering::Relaxed);
        if state == BUSY {
            return None;
        }
        let waited = since(state >> 1);
        match state & 1 {
            1 if waited > HEAD_TIME => Some(Overdue::Client),
            0 if waited > idle => Some(Overdue::Idle),
            _ => None,
        }
    }
}

/// A stream that tells when bytes arrive.
struct Watched<S> {
    stream: S,
    activity: Activity,
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.activity.bytes_arrived();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, data);
        self.activity.written(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = Pin::new(&mut self.stream).poll_flush(cx);
        self.activity.written(written)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, data);
        self.activity.written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
