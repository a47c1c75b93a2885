//! A webhook that a scenario programs: one beside tolerarch, or a broken one in its place.

use std::future::Future;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use testregistry::Pki;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// What the webhook does with a review.
pub enum Reaction {
    /// Answers with this JSON patch.
    Patch(Value),
    /// Answers with status 200 and these bytes.
    Bytes(Vec<u8>),
    /// Answers with this status.
    Status(u16),
    /// Never answers.
    Hang,
    /// Closes the connection.
    Close,
}

/// A webhook. It serves until it is dropped.
pub struct Stub {
    /// The URL of the webhook.
    pub url: String,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Stub {
    /// Starts a webhook with a certificate of `pki`. `react` is called with the `object` of each request.
    pub async fn start(
        pki: &Pki,
        react: impl Fn(&Value) -> Reaction + Send + Sync + 'static,
    ) -> Self {
        let react = Arc::new(react);
        Self::serving(pki, move |stream| {
            let react = react.clone();
            async move { serve(stream, &*react).await }
        })
        .await
    }

    /// Starts a webhook that answers every review with this patch at once, without decoding it, and keeps its connections:
    /// the cheapest webhook for an API server.
    pub async fn at_once(pki: &Pki, patch: &Value) -> Self {
        let body =
            String::from_utf8(answer(&json!({"request": {"uid": UID}}), patch)).expect("JSON");
        let (before, after) = body.split_once(UID).expect("the uid");
        let around = Arc::new((before.to_owned(), after.to_owned()));
        Self::serving(pki, move |stream| serve_at_once(stream, around.clone())).await
    }

    /// Returns how many connections it has accepted.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    async fn serving<F>(pki: &Pki, serve: impl Fn(Stream) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("https://{}/mutate", listener.local_addr().unwrap());
        let tls = TlsAcceptor::from(Arc::new(pki.leaf(&["127.0.0.1"]).server_config()));
        let connections = Arc::<AtomicUsize>::default();
        let accepted = connections.clone();
        let serve = Arc::new(serve);
        let task = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                accepted.fetch_add(1, Ordering::Relaxed);
                let tls = tls.clone();
                let serve = serve.clone();
                tokio::spawn(async move {
                    connection.set_nodelay(true)?;
                    // The error is ignored: the API server may close the connection.
                    serve(BufReader::new(tls.accept(connection).await?)).await
                });
            }
        });
        Self {
            url,
            connections,
            task,
        }
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Stream = BufReader<TlsStream<TcpStream>>;

/// Placeholder for the uid of a review.
const UID: &str = "UID";

/// Reads the body of the next request.
async fn request(stream: &mut Stream) -> io::Result<Vec<u8>> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or_default();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(body)
}

async fn serve(
    mut stream: Stream,
    react: &(dyn Fn(&Value) -> Reaction + Send + Sync),
) -> io::Result<()> {
    let review: Value = serde_json::from_slice(&request(&mut stream).await?)?;
    let (status, body) = match react(&review["request"]["object"]) {
        Reaction::Patch(patch) => (200, answer(&review, &patch)),
        Reaction::Bytes(bytes) => (200, bytes),
        Reaction::Status(status) => (status, Vec::new()),
        Reaction::Hang => std::future::pending().await,
        Reaction::Close => return Ok(()),
    };
    let head = format!(
        "HTTP/1.1 {status} Stub\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&body).await?;
    stream.shutdown().await
}

async fn serve_at_once(mut stream: Stream, around: Arc<(String, String)>) -> io::Result<()> {
    let (before, after) = &*around;
    loop {
        let review = request(&mut stream).await?;
        let uid = uid_of(&review).ok_or(io::ErrorKind::InvalidData)?;
        let length = before.len() + uid.len() + after.len();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{before}{uid}{after}"
        );
        stream.write_all(answer.as_bytes()).await?;
        stream.flush().await?;
    }
}

/// Returns the uid of a request: the first one in the review.
fn uid_of(review: &[u8]) -> Option<&str> {
    let review = std::str::from_utf8(review).ok()?;
    let (_, from_uid) = review.split_once("\"uid\":\"")?;
    let (uid, _) = from_uid.split_once('"')?;
    Some(uid)
}

fn answer(review: &Value, patch: &Value) -> Vec<u8> {
    let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
    let operations = patch.as_array().map_or(0, Vec::len);
    if operations > 0 {
        response["patchType"] = "JSONPatch".into();
        response["patch"] = base64(patch.to_string().as_bytes());
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
        .to_string()
        .into_bytes()
}

/// Encodes bytes as Kubernetes does in JSON.
fn base64(bytes: &[u8]) -> Value {
    serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec())).expect("bytes are JSON")
}
