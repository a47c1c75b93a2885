//! The signals that end the process.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

/// SIGTERM and SIGINT, from when they are listened to.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Runs this, which ends some time after it is notified of the first signal; a second one cuts it off.
    pub(super) async fn until<E>(
        mut self,
        shutdown: &Notify,
        work: impl Future<Output = Result<(), E>>,
    ) -> Result<(), E> {
        let twice = async {
            self.next().await;
            shutdown.notify_one();
            self.next().await;
        };
        tokio::select! {
            done = work => done?,
            () = twice => {
                tracing::warn!("a second signal: ended at once, open requests are cut off");
                return Ok(());
            }
        }
        tracing::info!("ended");
        Ok(())
    }
}
