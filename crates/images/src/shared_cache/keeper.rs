//! Keeps the shared cache connected, and writes what waits. Lookups never wait for either.

use std::io;
use std::sync::Arc;

use futures_util::future::join_all;
use redis::{ErrorKind, RedisError, RedisResult};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::{Duration, Instant, sleep, timeout};

use super::metrics::OperationResult;
use super::server::{self, Server};
use super::{Link, NOT_CONNECTED, ServerUrl, SharedCache, Write, within};
use tolerarch_support::health::{Reported, State};

/// How long connecting may take in all.
const CONNECT: Duration = Duration::from_secs(3);
/// How long the start of the program waits for the first connection.
const FIRST: Duration = Duration::from_secs(1);
/// The pause before a server is tried again, doubled each time until it is the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Where a connection that has lasted this long breaks, the next try is made at once.
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
    connected: Option<Instant>,
    /// What was logged last, so that each cause is logged once.
    logged: Option<String>,
}

impl SharedCacheKeeper {
    pub(super) fn new(cache: SharedCache, url: ServerUrl, queue: mpsc::Receiver<Write>) -> Self {
        Self { cache, url, queue, pause: Duration::ZERO, connected: None, logged: None }
    }

    /// How the cache fares. It never keeps reviews from being answered.
    pub fn state(&self) -> Reported {
        self.cache.inner.state.clone()
    }

    /// Connects, so that the first Pods find what replicas share; not for long.
    pub(super) async fn begin(&mut self) {
        if let Ok(Ok(())) = timeout(FIRST, self.connect()).await {
            self.works("the shared cache is in use again");
        }
    }

    pub async fn run(&mut self) {
        let mut links = self.cache.inner.link.subscribe();
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let Some(link) = links.borrow_and_update().clone() else {
                self.cache.inner.state.set(State::Degraded(NOT_CONNECTED));
                if self.connected.take().is_some_and(|connected| connected.elapsed() > STEADY) {
                    self.pause = Duration::ZERO;
                }
                self.rest().await;
                match self.connect().await {
                    Ok(()) => self.works("the shared cache is in use again"),
                    Err(error) => self.fails(NOT_CONNECTED, &error),
                }
                continue;
            };
            tokio::select! {
                biased;
                // The circuit has opened.
                _ = links.changed() => {}
                _ = self.queue.recv_many(&mut batch, BATCH) => self.write(&link, batch.drain(..)).await,
            }
        }
    }

    /// Waits before the next try, each time longer, and drops what waits to be written.
    async fn rest(&mut self) {
        sleep(self.pause.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
        self.pause = (2 * self.pause).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        while let Ok(write) = self.queue.try_recv() {
            self.cache.inner.metrics.count(write.operation(), OperationResult::Skipped);
        }
    }

    /// Has lookups use a new connection, if it answers what they ask.
    async fn connect(&mut self) -> RedisResult<()> {
        let (settings, url) = (self.cache.inner.settings.clone(), self.url.clone());
        let connected = within(CONNECT, async {
            let probe = format!("{}probe", settings.prefix);
            let read = spawn_blocking(move || server::read(&settings, &url).map(|read| (read, url)));
            let ((dialer, keys), url) = read.await.map_err(io::Error::other)??;
            let server = Server::connect(&url, &dialer).await?;
            server.get(&probe).await?;
            Ok(Link { server, keys })
        });
        let link = connected.await?;
        self.connected = Some(Instant::now());
        self.cache.inner.link.send_replace(Some(link.into()));
        Ok(())
    }

    async fn write(&mut self, link: &Arc<Link>, batch: impl Iterator<Item = Write>) {
        let cache = &self.cache;
        let written = batch.map(async |write| {
            let Write { key, entry } = &write;
            let operation = write.operation();
            let done = match entry {
                Some((entry, life)) => cache.limited(operation, link.server.set(key, entry, *life)).await,
                None => cache.limited(operation, link.server.delete(key)).await,
            };
            done.inspect(|()| cache.inner.metrics.count(operation, OperationResult::Ok))
        });
        match join_all(written).await.into_iter().find_map(Result::err) {
            None if self.logged.is_some() => {
                self.pause = Duration::ZERO;
                self.works("the shared cache takes writes again");
            }
            None => {}
            Some(error) if is_refusal(&error) => {
                self.fails(REFUSES_WRITES, &error);
                self.rest().await;
                // Where the server has become a replica, its name may lead to another one by now. This one goes on answering
                // lookups until then.
                if self.connect().await.is_ok() {
                    self.fails(REFUSES_WRITES, &error);
                }
            }
            Some(error) => {
                self.fails(NOT_CONNECTED, &error);
                self.cache.open_circuit(link);
            }
        }
    }

    fn works(&mut self, what: &str) {
        self.cache.inner.state.set(State::Healthy);
        if self.logged.take().is_some() {
            tracing::info!("{what}");
        }
    }

    /// Shows why it is not used as it should be, and logs that once.
    fn fails(&mut self, why: &'static str, error: &RedisError) {
        self.cache.inner.state.set(State::Degraded(why));
        let error = error.to_string();
        if self.logged.as_ref() != Some(&error) {
            tracing::warn!(
                error,
                "the shared cache is not used as it should be; registries are asked instead"
            );
            self.logged = Some(error);
        }
    }
}

/// Whether the server answered, and would answer other commands.
fn is_refusal(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension) && !error.is_cluster_error()
}
