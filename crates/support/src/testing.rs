//! Helpers for tests: a stopped clock, the log of a test, tasks in flight, and log levels without a log.

mod log;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};

pub use log::Log;
use tokio::time::{Duration, pause, resume};
use tracing_subscriber::reload;

use crate::logging::{Level, Levels, targets};
use crate::single_flight::SingleFlight;

impl<K, V> SingleFlight<K, V> {
    pub fn count(&self) -> usize {
        self.0.lock().len()
    }
}

pub fn detached_levels() -> Levels {
    reload::Layer::new(targets(Level::Info)).1
}

/// Time after which a stopped clock moves, so that a test that waits for it fails.
const LONGEST: Duration = Duration::from_secs(120);

/// A clock that stands still even if sockets, files or processes take long, and that only `tokio::time::advance` moves. It
/// continues when this is dropped.
pub struct StoppedClock {
    has_moved: Arc<AtomicBool>,
    _going: Sender<()>,
}

impl StoppedClock {
    /// Stops the clock of this runtime, which has one thread.
    pub fn stop() -> Self {
        pause();
        let has_moved = Arc::<AtomicBool>::default();
        let (_going, gone) = channel::<()>();
        let moved = Arc::clone(&has_moved);
        // While a test waits for sockets, a paused clock moves to the next timer, unless a blocking task runs.
        tokio::task::spawn_blocking(move || {
            let waited = gone.recv_timeout(LONGEST);
            moved.store(waited == Err(RecvTimeoutError::Timeout), Ordering::SeqCst);
        });
        Self { has_moved, _going }
    }
}

impl Drop for StoppedClock {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            resume();
            assert!(
                !self.has_moved.load(Ordering::SeqCst),
                "the test waited for time to pass, but the clock stands still"
            );
        }
    }
}
