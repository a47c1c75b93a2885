//! A minimal client: one connection per request, no redirects, unchanged errors.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{HeaderMap, Response};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value;
use testregistry::{Pki, Registry};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

pub(crate) type Request = hyper::Request<Full<Bytes>>;

/// An answer with its whole body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .get(name)
            .map(|value| value.to_str().expect("a header in ASCII"))
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a body in JSON")
    }
}

pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Request {
    let mut request = hyper::Request::builder()
        .method(method)
        .uri(path)
        .header("Host", "registry.test");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request
        .body(Full::from(body.to_owned()))
        .expect("a request")
}

/// Opens a connection on which requests can be sent.
pub(crate) async fn connect(registry: &Registry) -> SendRequest<Full<Bytes>> {
    let tcp = dial(registry).await;
    if registry.url().starts_with("http://") {
        return spawn(tcp).await;
    }
    spawn(tls(tcp, &registry.pki(), "localhost").await.expect("TLS")).await
}

pub(crate) async fn dial(registry: &Registry) -> TcpStream {
    TcpStream::connect(registry.socket_addr())
        .await
        .expect("connect")
}

pub(crate) async fn tls(
    tcp: TcpStream,
    pki: &Pki,
    name: &str,
) -> io::Result<impl AsyncRead + AsyncWrite + Unpin + use<>> {
    let name = ServerName::try_from(name.to_owned()).expect("a server name");
    TlsConnector::from(Arc::new(pki.client_config()))
        .connect(name, tcp)
        .await
}

async fn spawn(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> SendRequest<Full<Bytes>> {
    let (sender, connection) = handshake(TokioIo::new(io)).await.expect("HTTP/1.1");
    tokio::spawn(connection);
    sender
}

/// Sends a request on a new connection. Returns the head of the answer.
pub(crate) async fn head_of(
    registry: &Registry,
    request: Request,
) -> hyper::Result<Response<Incoming>> {
    connect(registry).await.send_request(request).await
}

pub(crate) async fn send(registry: &Registry, request: Request) -> hyper::Result<Answer> {
    let (head, body) = head_of(registry, request).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    Ok(Answer {
        status: head.status.as_u16(),
        headers: head.headers,
        body,
    })
}

pub(crate) async fn get(registry: &Registry, path: &str) -> Answer {
    get_with(registry, path, &[]).await
}

pub(crate) async fn get_with(registry: &Registry, path: &str, headers: &[(&str, &str)]) -> Answer {
    send(registry, request("GET", path, headers, ""))
        .await
        .expect("an answer")
}

/// Returns the system's error of a failed connection, if there is one.
pub(crate) fn io_error(error: &hyper::Error) -> Option<io::ErrorKind> {
    std::error::Error::source(error)?
        .downcast_ref()
        .map(io::Error::kind)
}
