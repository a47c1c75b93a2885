//! A webhook that does what a scenario wants: another one beside tolerarch, or a broken one in its place.

use std::net::Ipv4Addr;
use std::sync::Arc;

use serde_json::{Value, json};
use testregistry::Pki;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// What it does with a review.
pub enum Reaction {
    /// Answers with this JSON patch.
    Patch(Value),
    /// Answers 200 with these bytes.
    Bytes(Vec<u8>),
    /// Answers with this status.
    Status(u16),
    /// Never answers.
    Hang,
    /// Ends the connection.
    Close,
}

/// A webhook that serves until it is dropped.
pub struct Stub {
    /// Where it serves.
    pub url: String,
    task: JoinHandle<()>,
}

impl Stub {
    /// Starts one with a certificate of this authority, which reacts on what `object` of a request is.
    pub async fn start(pki: &Pki, react: impl Fn(&Value) -> Reaction + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("https://{}/mutate", listener.local_addr().unwrap());
        let tls = TlsAcceptor::from(Arc::new(pki.leaf(&["127.0.0.1"]).server_config()));
        let react = Arc::new(react);
        let task = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let (tls, react) = (tls.clone(), react.clone());
                tokio::spawn(async move {
                    // An API server that goes away is no fault of the stub.
                    let _ = serve(tls, connection, &*react).await;
                });
            }
        });
        Self { url, task }
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    tls: TlsAcceptor,
    connection: TcpStream,
    react: &(dyn Fn(&Value) -> Reaction + Send + Sync),
) -> std::io::Result<()> {
    let mut stream = BufReader::new(tls.accept(connection).await?);
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
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
    let review: Value = serde_json::from_slice(&body)?;
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

fn answer(review: &Value, patch: &Value) -> Vec<u8> {
    let mut response = json!({"uid": review["request"]["uid"], "allowed": true});
    if patch.as_array().is_some_and(|operations| !operations.is_empty()) {
        response["patchType"] = "JSONPatch".into();
        response["patch"] = base64(patch.to_string().as_bytes());
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
        .to_string()
        .into_bytes()
}

/// As Kubernetes writes bytes in JSON.
fn base64(bytes: &[u8]) -> Value {
    serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec())).expect("bytes are JSON")
}
