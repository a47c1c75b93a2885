//! Time, in tests that use sockets, files or other processes; tasks in flight, and levels of no log.

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

/// How long a test may wait for time that it does not let pass, before time passes by itself and the test fails.
const LONGEST: Duration = Duration::from_secs(120);

/// A clock that stands still, however long a busy machine takes to answer, but for `tokio::time::advance`. It goes on when
/// this is dropped.
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
        // A paused clock runs to the next timer while sockets are waited for, but not while a blocking task runs.
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
                "waited in vain: the clock stands still"
            );
        }
    }
}
