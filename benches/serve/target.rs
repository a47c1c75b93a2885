//! A measured process, with its connections and results.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use futures_util::future::try_join_all;
use serde_json::Value;
use tokio::process::Command;
use tokio::task::yield_now;
use tokio::time::{Duration, Instant};
use tokio_rustls::TlsConnector;

use crate::CONNECTIONS;
use crate::support::connection::Connection;
use crate::support::server::Server;
use crate::support::{Result, request};

/// A process that answers reviews, with the measured values.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    server: Server,
    connections: Vec<Connection>,
    request: Arc<[u8]>,
    /// First answer to the review, which all further answers must equal.
    pub(crate) answer: Vec<u8>,
    /// Reviews for each CPU-second, one value for each round.
    pub(crate) rates: Vec<f64>,
    pub(crate) latencies: Vec<Duration>,
    /// Number of times that its threads went to sleep during all rounds.
    pub(crate) sleeps: u64,
}

impl Target {
    /// Starts a process that writes its address to standard output, connects to it, and stores its first answer.
    pub(crate) async fn start(
        name: &'static str,
        command: Command,
        dir: &Path,
        tls: &TlsConnector,
        review: &str,
    ) -> Result<Self> {
        let server = Server::start(name, command, dir).await?;
        let address = server.address("listen")?;
        let request = request(review);
        let connections = (0..CONNECTIONS).map(|_| Connection::open(address, tls));
        let mut connections = try_join_all(connections).await?;
        let answer = first_answer(&mut connections[0], &request).await?;
        let rates = Vec::new();
        let latencies = Vec::new();
        Ok(Self {
            name,
            server,
            connections,
            request,
            answer,
            rates,
            latencies,
            sleeps: 0,
        })
    }

    /// Sends reviews on all connections for some time, and returns their latencies. A connection sends one review after the
    /// other.
    pub(crate) async fn drive(&mut self, time: Duration) -> Result<Vec<Duration>> {
        let end = Instant::now() + time;
        let request = &self.request;
        let answer = &self.answer;
        let drives = self
            .connections
            .iter_mut()
            .map(|connection| reviews(connection, request, end, answer));
        tokio::select! {
            biased;
            latencies = try_join_all(drives) => Ok(latencies?.concat()),
            never = stay_awake() => match never {},
        }
    }

    pub(crate) async fn measure(&mut self, time: Duration) -> Result<()> {
        let before = self.server.cpu_seconds()?;
        let sleeps = self.server.sleeps()?;
        let latencies = self.drive(time).await?;
        let spent = self.server.cpu_seconds()? - before;
        self.sleeps += self.server.sleeps()?.saturating_sub(sleeps);
        self.rates.push(latencies.len() as f64 / spent);
        self.latencies.extend(latencies);
        Ok(())
    }

    /// Returns the resident memory of the process, in MiB.
    pub(super) fn resident(&self) -> Result<f64> {
        self.server.resident()
    }
}

/// Sends reviews on one connection until `end`, each after the answer to the one before, and returns their latencies.
async fn reviews(
    connection: &mut Connection,
    request: &[u8],
    end: Instant,
    answer: &[u8],
) -> Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    let mut now = Instant::now();
    while now < end {
        let body = connection.review(request).await?;
        if body != answer {
            return Err(format!("another answer: {}", String::from_utf8_lossy(body)).into());
        }
        let sent = std::mem::replace(&mut now, Instant::now());
        latencies.push(now - sent);
    }
    Ok(latencies)
}

/// Returns the body of the first answer, which must allow and patch the Pod.
async fn first_answer(connection: &mut Connection, request: &[u8]) -> Result<Vec<u8>> {
    let body = connection.review(request).await?.to_vec();
    let answer: Value = serde_json::from_slice(&body)?;
    if answer["response"]["allowed"] == true && answer["response"]["patch"].is_string() {
        return Ok(body);
    }
    Err(format!("an answer without a patch: {answer}").into())
}

/// Yields without end, so that the driver never sleeps.
async fn stay_awake() -> Infallible {
    loop {
        yield_now().await;
    }
}
