//! Connections and routes: from a socket to the answer of a repository, a token endpoint or a CDN.
//!
//! hyper cannot send a TCP reset, so each connection shares a flag with its socket.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use http_body_util::{BodyExt, Limited};
use hyper::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::fault::{Fault, Wire};
use crate::record::{Kind, Request};
use crate::reply::{Flow, Reply};
use crate::state::State;

/// The maximum size of a request's body: forms of the token endpoint are small.
const MAX_BODY: usize = 64 * 1024;

/// Serves connections until the future is dropped, which ends all of them.
pub(crate) async fn run(listener: TcpListener, tls: Option<TlsAcceptor>, state: Arc<State>) {
    let mut connections = JoinSet::new();
    loop {
        // An error means that the client has gone, or that the process has no file descriptors left.
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        state.connections.fetch_add(1, Ordering::SeqCst);
        while connections.try_join_next().is_some() {}
        connections.spawn(connection(stream, tls.clone(), state.clone()));
    }
}

/// Serves one connection. Errors are ignored: tests check what the client sees.
async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, state: Arc<State>) {
    stream.set_nodelay(true).expect("TCP_NODELAY");
    let reset = Arc::new(AtomicBool::new(false));
    let socket = Socket {
        stream,
        reset: reset.clone(),
    };
    match tls {
        None => serve(socket, &reset, &state).await,
        Some(tls) => {
            if let Ok(stream) = tls.accept(socket).await {
                serve(stream, &reset, &state).await;
            }
        }
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, reset: &AtomicBool, state: &State) {
    let service = service_fn(|request| answer(request, reset, state));
    _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(
    request: hyper::Request<Incoming>,
    reset: &AtomicBool,
    state: &State,
) -> io::Result<Response<Flow>> {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, MAX_BODY)
        .collect()
        .await
        .map_err(io::Error::other)?
        .to_bytes();
    let is_token = state.serves_tokens_at(parts.uri.path());
    let request = Request::new(parts, body).for_token(is_token);
    state.log.add(request.clone());
    let Answer {
        reply,
        fault,
        bytes_sent,
    } = route(&request, state);
    Wire { reset, bytes_sent }
        .send(&request, reply, fault)
        .await
}

/// The correct answer, and the fault that may change it.
struct Answer {
    reply: Reply,
    fault: Option<Fault>,
    bytes_sent: Arc<AtomicU64>,
}

impl From<Reply> for Answer {
    fn from(reply: Reply) -> Self {
        Self {
            reply,
            fault: None,
            bytes_sent: Arc::default(),
        }
    }
}

fn route(request: &Request, state: &State) -> Answer {
    match request.kind {
        Kind::Manifest | Kind::Blob | Kind::Tags => content(request, state),
        Kind::Token => match state.token_service(request) {
            Some(auth) => Answer {
                fault: auth.current_fault(),
                ..auth.issue(request).into()
            },
            None => Reply::error(404, "NOT_FOUND").into(),
        },
        Kind::Cdn => match state.find_cdn(request.reference.as_deref().unwrap_or_default()) {
            Some(bytes) => Reply::new(200)
                .header("Content-Type", "application/octet-stream")
                .body(bytes)
                .into(),
            None => Reply::error(404, "BLOB_UNKNOWN").into(),
        },
        Kind::Storage => stored(request, state).into(),
        Kind::Ping => Reply::new(200)
            .header("Docker-Distribution-Api-Version", "registry/2.0")
            .json(&serde_json::json!({}))
            .into(),
        Kind::Other => Reply::error(404, "NOT_FOUND").into(),
    }
}

/// Answers as S3 does, which signs a URL for one method.
fn stored(request: &Request, state: &State) -> Reply {
    let digest = request.reference.as_deref().unwrap_or_default();
    match state.find_stored(digest, &request.query) {
        Some((bytes, content_type)) if request.method == "GET" => Reply::new(200)
            .header("Content-Type", &content_type)
            .body(bytes),
        _ => Reply::new(403)
            .header("Content-Type", "application/xml")
            .body("<Error><Code>SignatureDoesNotMatch</Code></Error>"),
    }
}

fn content(request: &Request, state: &State) -> Answer {
    let name = request.repo.as_deref().unwrap_or_default();
    let Some(repo) = state.find_repo(name) else {
        return Reply::error(404, "NAME_UNKNOWN").into();
    };
    match repo.current_auth() {
        Some(auth) if !auth.admits(request, name) => auth.challenge(&state.url, name).into(),
        _ => Answer {
            reply: repo.answer(request),
            fault: repo.current_fault(),
            bytes_sent: repo.sent_counter(),
        },
    }
}

/// A socket that ends with a TCP reset if the flag is set.
struct Socket {
    stream: TcpStream,
    reset: Arc<AtomicBool>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.reset.load(Ordering::SeqCst) {
            self.stream.set_zero_linger().expect("SO_LINGER");
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
