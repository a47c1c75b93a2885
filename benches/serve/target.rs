//! A process that answers reviews, what it is driven with, and what was seen of it.

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

/// A process that answers reviews, and what was seen of it.
pub(crate) struct Target {
    pub(crate) name: &'static str,
    server: Server,
    connections: Vec<Connection>,
    request: Arc<[u8]>,
    /// The answer to the review, which each further one has to equal.
    pub(crate) answer: Vec<u8>,
    /// Reviews for each CPU-second, by round.
    pub(crate) rates: Vec<f64>,
    pub(crate) latencies: Vec<Duration>,
    /// How often its threads went to sleep while all these reviews were answered.
    pub(crate) sleeps: u64,
}

impl Target {
    /// Starts a process that tells on its standard output where it listens, connects to it, and takes its first answer.
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

    /// Sends reviews on all connections for some time, each connection one after the other; gives their latencies.
    pub(crate) async fn drive(&mut self, time: Duration) -> Result<Vec<Duration>> {
        let end = Instant::now() + time;
        let request = &self.request;
        let answer = &self.answer;
        let all = self
            .connections
            .iter_mut()
            .map(|connection| reviews(connection, request, end, answer));
        tokio::select! {
            biased;
            latencies = try_join_all(all) => Ok(latencies?.concat()),
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

    /// The memory that the process has now, in MiB.
    pub(super) fn resident(&self) -> Result<f64> {
        self.server.resident()
    }
}

/// Sends reviews on one connection until the end, each after the answer to the one before; gives their latencies.
async fn reviews(
    connection: &mut Connection,
    request: &[u8],
    end: Instant,
    answer: &[u8],
) -> Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    let mut now = Instant::now();
    while now < end {
        let own = connection.review(request).await?;
        if own != answer {
            return Err(format!("another answer: {}", String::from_utf8_lossy(own)).into());
        }
        let begun = std::mem::replace(&mut now, Instant::now());
        latencies.push(now - begun);
    }
    Ok(latencies)
}

/// The body of the first answer, after a look at what is in it.
async fn first_answer(connection: &mut Connection, request: &[u8]) -> Result<Vec<u8>> {
    let body = connection.review(request).await?.to_vec();
    let answer: Value = serde_json::from_slice(&body)?;
    if answer["response"]["allowed"] == true && answer["response"]["patch"].is_string() {
        return Ok(body);
    }
    Err(format!("an answer without a patch: {answer}").into())
}

async fn stay_awake() -> Infallible {
    loop {
        yield_now().await;
    }
}
