//! Keeps the shared cache connected, and writes what waits. Lookups never wait for either.

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, sleep_until, timeout};

use super::key::Keys;
use super::metrics::{Operation, OperationResult};
use super::server::{Secrets, Server, ServerError};
use super::{Link, NOT_CONNECTED, ServerUrl, SharedCache, Write, now};
use tolerarch_support::health::{Reported, State};

/// How long connecting may take in all, and each of its steps.
const CONNECT: Duration = Duration::from_secs(3);
const CONNECT_STEP: Duration = Duration::from_secs(1);
/// How long the start of the program waits for the first connection.
const FIRST: Duration = Duration::from_secs(1);
/// The pause before a server is tried again, doubled each time until it is the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A connection that has lasted this long is tried again at once when it breaks.
const STEADY: Duration = Duration::from_secs(10);
/// Writes that are sent at once.
const BATCH: usize = 64;

const REFUSES_WRITES: &str = "the server takes no writes; replicas share what is there already";

/// The task behind a [`SharedCache`].
pub struct SharedCacheKeeper {
    cache: SharedCache,
    url: ServerUrl,
    queue: mpsc::Receiver<Write>,
    /// How long to wait before the next try.
    pause: Duration,
    /// What was logged last, so that each cause is logged once.
    logged: Option<String>,
}

/// Why a connection is no longer used for writes.
enum Ended {
    /// The circuit has opened.
    Broken,
    /// The server has become a replica: another one takes the writes.
    Replica,
}

impl SharedCacheKeeper {
    pub(super) fn new(cache: SharedCache, url: ServerUrl, queue: mpsc::Receiver<Write>) -> Self {
        Self { cache, url, queue, pause: Duration::ZERO, logged: None }
    }

    /// How the cache fares. It never keeps reviews from being answered.
    pub fn state(&self) -> Reported {
        self.cache.inner.state.clone()
    }

    /// Connects, so that the first Pods find what replicas share; not for long.
    pub(super) async fn begin(&mut self) {
        if let Ok(Ok(link)) = timeout(FIRST, self.connect()).await {
            self.publish(link.into());
        }
    }

    /// Keeps it connected for ever.
    pub async fn run(&mut self) {
        loop {
            let link = match self.cache.inner.link.load_full() {
                Some(link) => link,
                None => self.connected().await,
            };
            let begun = Instant::now();
            let ended = self.write(&link).await;
            if begun.elapsed() > STEADY {
                self.pause = Duration::ZERO;
            }
            if let Ended::Replica = ended {
                // It goes on answering reads until there is another connection.
                self.rest().await;
                if let Ok(link) = self.connect().await {
                    self.cache.inner.link.store(Some(link.into()));
                }
                continue;
            }
            // One late answer may have been this program's own fault: where the connection works it goes on.
            let alive = timeout(self.cache.inner.settings.timeout, self.probe(&link.server)).await;
            if self.pause.is_zero() && matches!(alive, Ok(Ok(()))) {
                self.pause = SHORTEST_PAUSE;
                self.publish(link);
            }
        }
    }

    /// Tries until there is a connection.
    async fn connected(&mut self) -> Arc<Link> {
        loop {
            self.rest().await;
            match self.connect().await {
                Ok(link) => return self.publish(link.into()),
                Err(error) => self.report(State::Degraded(NOT_CONNECTED), &error),
            }
        }
    }

    /// Waits before the next try, each time longer, and drops what waits to be written.
    async fn rest(&mut self) {
        let end = Instant::now() + self.pause.mul_f64(0.75 + fastrand::f64() / 2.0);
        self.pause = (2 * self.pause).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        loop {
            tokio::select! {
                biased;
                () = sleep_until(end) => return,
                write = self.queue.recv() => match write {
                    Some(write) => self.cache.inner.metrics.count(write.operation(), OperationResult::Skipped),
                    None => return sleep_until(end).await,
                },
            }
        }
    }

    async fn connect(&self) -> Result<Link, ServerError> {
        let settings = &self.cache.inner.settings;
        let connect = async {
            let secrets = Secrets::read(settings).await?;
            let server = Server::connect(&self.url, &secrets, CONNECT_STEP).await?;
            self.probe(&server).await?;
            let keys = Keys::new(&settings.prefix, secrets.key.as_ref().map(|key| key.as_slice()));
            Ok(Link { server, keys })
        };
        timeout(CONNECT, connect).await.unwrap_or(Err(ServerError::Timeout))
    }

    /// Whether it answers what lookups ask.
    async fn probe(&self, server: &Server) -> Result<(), ServerError> {
        server.get(&format!("{}probe", self.cache.inner.settings.prefix)).await.map(drop)
    }

    fn publish(&mut self, link: Arc<Link>) -> Arc<Link> {
        if self.logged.take().is_some() {
            tracing::info!("the shared cache is in use again");
        }
        self.cache.inner.state.set(State::Healthy);
        self.cache.inner.link.store(Some(Arc::clone(&link)));
        link
    }

    /// Shows why it is not used as it should be, and logs that once.
    fn report(&mut self, state: State, error: &ServerError) {
        self.cache.inner.state.set(state);
        let error = error.to_string();
        if self.logged.as_ref() != Some(&error) {
            tracing::warn!(
                error,
                "the shared cache is not used as it should be; registries are asked instead"
            );
            self.logged = Some(error);
        }
    }

    /// Writes what waits until the connection breaks, or becomes one to a replica.
    async fn write(&mut self, link: &Arc<Link>) -> Ended {
        let cache = self.cache.clone();
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            tokio::select! {
                biased;
                () = cache.inner.broken.notified() => match cache.is_connected() {
                    // Of a connection that has been replaced since.
                    true => continue,
                    false => return Ended::Broken,
                },
                received = self.queue.recv_many(&mut batch, BATCH) => if received == 0 {
                    // The cache is gone, with all who would write.
                    cache.inner.broken.notified().await;
                    return Ended::Broken;
                },
            }
            let written = batch.drain(..).map(async |write| {
                let operation = write.operation();
                let done = cache.limited(operation, write.send(link)).await;
                match &done {
                    Ok(()) => cache.inner.metrics.count(operation, OperationResult::Ok),
                    Err(error) => drop(cache.failed(operation, error)),
                }
                done
            });
            let Some(error) = join_all(written).await.into_iter().find_map(Result::err) else {
                if self.logged.take().is_some() {
                    tracing::info!("the shared cache takes writes again");
                    cache.inner.state.set(State::Healthy);
                    self.pause = Duration::ZERO;
                }
                continue;
            };
            if error.is_refusal() {
                self.report(State::Degraded(REFUSES_WRITES), &error);
                if error.is_replica() {
                    return Ended::Replica;
                }
                self.rest().await;
            } else {
                self.report(State::Degraded(NOT_CONNECTED), &error);
                cache.open_circuit(link);
            }
        }
    }
}

impl Write {
    fn operation(&self) -> Operation {
        if self.entry.is_some() { Operation::Set } else { Operation::Delete }
    }

    async fn send(&self, link: &Link) -> Result<(), ServerError> {
        let key = &self.key;
        match &self.entry {
            None => link.server.delete(key.as_str()).await,
            Some((entry, life)) => {
                let value = entry.encode(&link.keys, key, now());
                link.server.set(key.as_str(), &value, *life).await
            }
        }
    }
}
