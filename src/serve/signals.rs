//! Signals that end the process.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use super::error::ServeError;

/// Runs a service. SIGTERM or SIGINT notifies it, so that it can end in order; a second signal ends it at once.
pub(super) async fn until_signalled(
    service: impl AsyncFnOnce(OwnedNotified) -> Result<(), ServeError>,
) -> Result<(), ServeError> {
    let listen = |kind| signal(kind).map_err(ServeError::Signals);
    let mut terminate = listen(SignalKind::terminate())?;
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut next = async || {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let shutdown = Arc::new(Notify::new());
    let service = service(Arc::clone(&shutdown).notified_owned());
    let second_signal = async {
        next().await;
        shutdown.notify_one();
        next().await;
    };
    tokio::select! {
        result = service => result?,
        () = second_signal => {
            tracing::warn!("a second signal: ended at once, open requests are cut off");
            return Ok(());
        }
    }
    tracing::info!("ended");
    Ok(())
}
