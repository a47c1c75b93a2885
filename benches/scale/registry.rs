//! A registry that has every image, and counts requests. It generates each answer, as millions of images are looked up.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::json;
use testregistry::{OCI_INDEX, OCI_MANIFEST, sha256};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Duration, sleep};

/// A running registry, which serves until the process ends.
#[derive(Clone)]
pub(crate) struct Registry(Arc<State>);

struct State {
    address: SocketAddr,
    /// Time of each answer.
    latency: Duration,
    fails: AtomicBool,
    heads: AtomicU64,
    gets: AtomicU64,
}

impl Registry {
    /// Starts a registry whose answers take this time.
    pub(crate) async fn start(latency: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let state = State {
            address: listener.local_addr()?,
            latency,
            fails: AtomicBool::new(false),
            heads: AtomicU64::new(0),
            gets: AtomicU64::new(0),
        };
        let registry = Self(Arc::new(state));
        let accepting = registry.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let serving = accepting.clone();
                // A client may close its connection, so errors are ignored.
                tokio::spawn(async move { serving.serve(connection).await });
            }
        });
        Ok(registry)
    }

    /// Returns its address as image references have it.
    pub(crate) fn address(&self) -> String {
        self.0.address.to_string()
    }

    /// Begins or ends an outage, in which every answer is 503.
    pub(crate) fn fail(&self, fails: bool) {
        self.0.fails.store(fails, Ordering::Relaxed);
    }

    /// Returns the numbers of HEAD and GET requests so far. Docker Hub counts only GET requests against its limit.
    pub(crate) fn request_counts(&self) -> (u64, u64) {
        (
            self.0.heads.load(Ordering::Relaxed),
            self.0.gets.load(Ordering::Relaxed),
        )
    }

    async fn serve(&self, connection: TcpStream) -> io::Result<()> {
        connection.set_nodelay(true)?;
        let mut stream = BufReader::new(connection);
        let mut line = String::new();
        loop {
            line.clear();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            let mut words = line.split(' ');
            let method = words.next().unwrap_or_default();
            let path = words.next().unwrap_or_default();
            let is_head = method == "HEAD";
            let answer = self.answer(is_head, path);
            loop {
                line.clear();
                if stream.read_line(&mut line).await? <= 2 {
                    break;
                }
            }
            if !self.0.latency.is_zero() {
                sleep(self.0.latency).await;
            }
            stream.write_all(answer.as_bytes()).await?;
        }
    }

    fn answer(&self, is_head: bool, path: &str) -> String {
        let counted = if is_head { &self.0.heads } else { &self.0.gets };
        counted.fetch_add(1, Ordering::Relaxed);
        if self.0.fails.load(Ordering::Relaxed) {
            return "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_owned();
        }
        let entry = |architecture: &str| {
            let platform = json!({"architecture": architecture, "os": "linux"});
            let digest = sha256(architecture.as_bytes());
            json!({"mediaType": OCI_MANIFEST, "digest": digest, "size": 2, "platform": platform})
        };
        // The path gives each image another digest.
        let annotations = json!({"org.opencontainers.image.ref.name": path});
        let manifests = [entry("amd64"), entry("arm64")];
        let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests, "annotations": annotations})
            .to_string();
        let body = if is_head { "" } else { &*index };
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {OCI_INDEX}\r\nDocker-Content-Digest: {}\r\nContent-Length: {}\r\n\r\n{body}",
            sha256(index.as_bytes()),
            index.len(),
        )
    }
}
