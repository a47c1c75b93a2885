//! Task that connects to the shared cache and sends queued writes. Lookups wait for neither.

use std::ops::Range;

use futures_util::future::join_all;
use redis::{ErrorKind, RedisError, RedisResult};
use tokio::sync::{mpsc, watch};
use tokio::time::{Duration, Instant, sleep_until, timeout};

use super::fault::{Failed, Fault, LOST, NOT_CONNECTED};
use super::metrics::SharedCacheMetrics;
use super::server::Server;
use super::settings::{ServerUrl, SharedCacheSettings};
use super::{SharedCache, Write, within};
use crate::registry::VerifiedPlatforms;
use tolerarch_support::health::{Reported, State};

/// Timeout of all steps of connecting together.
const CONNECT: Duration = Duration::from_secs(3);
/// Maximum time that the start of the program waits for the first connection.
const FIRST: Duration = Duration::from_secs(1);
/// Milliseconds between two attempts to connect: random, so that replicas do not reconnect at the same time.
const PAUSE: Range<u64> = 500..5000;
/// Maximum number of queued writes, of about 500 bytes each; further writes are dropped.
const WRITES: usize = 4096;
/// Maximum number of writes that are sent at once.
const BATCH: usize = 64;

pub struct SharedCacheKeeper {
    cache: SharedCache,
    settings: SharedCacheSettings,
    url: ServerUrl,
    queue: mpsc::Receiver<Write>,
    /// Health of the cache; reviews are answered in any state.
    pub state: Reported,
    /// Time of the last attempt to connect.
    last_attempt: Instant,
    /// Cause that was logged last, so that each cause is logged once.
    logged: Option<String>,
}

impl SharedCacheKeeper {
    /// Returns the cache and its keeper; `None` if no server is configured. Waits at most a second for the first
    /// connection, so that the first Pods can use what replicas share.
    pub async fn begin(
        settings: SharedCacheSettings,
        metrics: SharedCacheMetrics,
    ) -> Option<(SharedCache, Self)> {
        let url = settings.url.clone()?;
        if settings.key_file.is_none() {
            tracing::warn!(
                "cache.shared has no keyFile: anyone who can write to its server can open pools to images that do not run there"
            );
        }
        let (writes, queue) = mpsc::channel(WRITES);
        let cache = SharedCache {
            timeout: settings.timeout,
            metrics,
            server: watch::Sender::default(),
            writes,
            verified: VerifiedPlatforms::default(),
            tag_life: Duration::ZERO,
        };
        let mut keeper = Self {
            cache: cache.clone(),
            settings,
            url,
            queue,
            state: Reported::default(),
            last_attempt: Instant::now(),
            logged: None,
        };
        keeper.state.set(State::Degraded(NOT_CONNECTED));
        if let Ok(connected) = timeout(FIRST, keeper.connect()).await {
            keeper.report(Failed::Connect, connected);
        }
        Some((cache, keeper))
    }

    /// Sends queued writes, and reconnects while the circuit is open. Runs until the task is cancelled.
    pub async fn run(&mut self) {
        let mut servers = self.cache.server.subscribe();
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let Some(server) = servers.borrow_and_update().clone() else {
                // A lookup got no answer; the next attempt finds out why. The result of an attempt is not overwritten.
                if self.state.get() == State::Healthy {
                    self.state.set(State::Degraded(LOST));
                }
                self.back_off().await;
                let connected = self.connect().await;
                self.report(Failed::Connect, connected);
                continue;
            };
            tokio::select! {
                biased;
                // The circuit opened.
                _ = servers.changed() => continue,
                _ = self.queue.recv_many(&mut batch, BATCH) => {}
            }
            let writes = batch.drain(..).map(async |(operation, command)| {
                self.cache.send::<()>(&server, operation, &command).await?;
                self.cache.metrics.count(operation, "ok");
                Ok(())
            });
            match join_all(writes).await.into_iter().collect() {
                Err(error) if is_of_command(&error) => {
                    self.report(Failed::Write, Err(error));
                    self.back_off().await;
                    // If the server has become a replica, its name may lead to another server by now. The old
                    // connection answers lookups until the new one exists.
                    let _ = self.connect().await;
                }
                written => {
                    if written.is_err() {
                        self.cache.open_circuit(&server);
                    }
                    self.report(Failed::Lost, written);
                }
            }
        }
    }

    /// Waits until the next attempt is due, and drops queued writes. If the last attempt was long ago, the next one is
    /// due at once.
    async fn back_off(&mut self) {
        let pause = Duration::from_millis(fastrand::u64(PAUSE));
        sleep_until(self.last_attempt + pause).await;
        while let Ok((operation, _)) = self.queue.try_recv() {
            self.cache.metrics.count(operation, "skipped");
        }
    }

    /// Connects, and makes lookups use the new connection.
    async fn connect(&mut self) -> RedisResult<()> {
        self.last_attempt = Instant::now();
        let connecting = Server::connect(&self.settings, &self.url);
        let server = within(CONNECT, connecting).await?;
        self.cache.server.send_replace(Some(server.into()));
        Ok(())
    }

    /// Reports that the cache works, or why it does not, and logs each cause once.
    fn report(&mut self, failed: Failed, result: RedisResult<()>) {
        let cause = match &result {
            Ok(()) => {
                self.state.set(State::Healthy);
                None
            }
            Err(error) => {
                let Fault { state, text } = Fault::of(error, &self.url, failed);
                self.state.set(state);
                Some(text)
            }
        };
        if cause == self.logged {
            return;
        }
        match &cause {
            None => tracing::info!("the shared cache is in use again"),
            Some(error) => tracing::warn!(
                error,
                "the shared cache is not used as it should be; registries are asked instead"
            ),
        }
        self.logged = cause;
    }
}

/// Returns whether the server refused this command alone.
fn is_of_command(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension) && !error.is_cluster_error()
}
