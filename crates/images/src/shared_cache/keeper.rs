//! Keeps the shared cache connected, and writes what waits. Lookups never wait for either.

use futures_util::future::join_all;
use redis::{ErrorKind, RedisError, RedisResult};
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant, sleep, timeout};

use super::metrics::OperationResult;
use super::server::{self, Server};
use super::{ServerUrl, SharedCache, SharedCacheSettings, Write, within};
use tolerarch_support::health::{Reported, State};

/// How long connecting may take in all.
const CONNECT: Duration = Duration::from_secs(3);
/// How long the start of the program waits for the first connection.
const FIRST: Duration = Duration::from_secs(1);
/// The pause before a server is tried again, doubled each time until it is the longest.
const SHORTEST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Where the last try is this long ago, the connection has lasted, and the next try is made at once.
const STEADY: Duration = Duration::from_secs(10);
/// Writes that are sent at once.
const BATCH: usize = 64;

const NOT_CONNECTED: State = State::Degraded("no server answers; every replica asks the registries itself");
const REFUSES_WRITES: State =
    State::Degraded("the server takes no writes; replicas share what is there already");

/// The task behind a [`SharedCache`].
pub struct SharedCacheKeeper {
    cache: SharedCache,
    settings: SharedCacheSettings,
    url: ServerUrl,
    queue: mpsc::Receiver<Write>,
    /// How long to wait before the next try.
    pause: Duration,
    tried: Instant,
    /// What was logged last, so that each cause is logged once.
    logged: Option<String>,
}

impl SharedCacheKeeper {
    /// Connects, so that the first Pods find what replicas share; not for long.
    pub(super) async fn begin(
        cache: SharedCache,
        settings: SharedCacheSettings,
        url: ServerUrl,
        queue: mpsc::Receiver<Write>,
    ) -> Self {
        cache.state.set(NOT_CONNECTED);
        let mut own =
            Self { cache, settings, url, queue, pause: Duration::ZERO, tried: Instant::now(), logged: None };
        if let Ok(Ok(())) = timeout(FIRST, own.connect()).await {
            own.works();
        }
        own
    }

    /// The health of the cache. It never keeps reviews from being answered.
    pub fn state(&self) -> Reported {
        self.cache.state.clone()
    }

    pub async fn run(&mut self) {
        let mut servers = self.cache.server.subscribe();
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let Some(server) = servers.borrow_and_update().clone() else {
                self.cache.state.set(NOT_CONNECTED);
                self.rest().await;
                match self.connect().await {
                    Ok(()) => self.works(),
                    Err(error) => self.fails(NOT_CONNECTED, &error),
                }
                continue;
            };
            tokio::select! {
                biased;
                // The circuit has opened.
                _ = servers.changed() => continue,
                _ = self.queue.recv_many(&mut batch, BATCH) => {}
            }
            let written = batch.drain(..).map(async |(operation, command)| {
                self.cache.send::<()>(&server, operation, &command).await?;
                self.cache.metrics.count(operation, OperationResult::Ok);
                Ok(())
            });
            let failed = join_all(written).await.into_iter().find_map(RedisResult::err);
            match failed {
                None => self.works(),
                Some(error) if is_refusal(&error) => {
                    self.fails(REFUSES_WRITES, &error);
                    self.rest().await;
                    // Where the server has become a replica, its name may lead to another one by now. This one goes on answering
                    // lookups until then.
                    let _ = self.connect().await;
                }
                Some(error) => {
                    self.fails(NOT_CONNECTED, &error);
                    self.cache.open_circuit(&server);
                }
            }
        }
    }

    /// Waits before the next try, each time longer, and drops what waits to be written.
    async fn rest(&mut self) {
        if self.tried.elapsed() > STEADY {
            self.pause = Duration::ZERO;
        }
        sleep(self.pause.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
        self.pause = (2 * self.pause).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
        while let Ok((operation, _)) = self.queue.try_recv() {
            self.cache.metrics.count(operation, OperationResult::Skipped);
        }
    }

    /// Has lookups use a new connection, if it answers what they ask.
    async fn connect(&mut self) -> RedisResult<()> {
        self.tried = Instant::now();
        let connected = within(CONNECT, async {
            let server = Server::connect(&self.settings, &self.url).await?;
            let probe = server::get(&format!("{}probe", self.settings.prefix));
            server.send::<Vec<u8>>(&probe).await?;
            Ok(server)
        });
        self.cache.server.send_replace(Some(connected.await?.into()));
        Ok(())
    }

    fn works(&mut self) {
        self.cache.state.set(State::Healthy);
        if self.logged.take().is_some() {
            tracing::info!("the shared cache is in use again");
        }
    }

    /// Shows why it is not used as it should be, and logs that once.
    fn fails(&mut self, state: State, error: &RedisError) {
        self.cache.state.set(state);
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
