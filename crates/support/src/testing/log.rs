//! The log of a test.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails at once"
)]

use std::io;
use std::sync::{Arc, Mutex};

use tracing::Dispatch;
use tracing::dispatcher::DefaultGuard;
use tracing::subscriber::NoSubscriber;

/// The log of this thread, from now on.
pub struct Log {
    text: Text,
    _logging: DefaultGuard,
    /// Callsites that another test reaches first, on a thread without a subscriber, would be off for all threads as long
    /// as there is one subscriber alone.
    _another: Dispatch,
}

#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    pub fn listen() -> Self {
        let text = Text::default();
        let writer = text.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .finish();
        let _another = Dispatch::new(NoSubscriber::new());
        Self {
            text,
            _logging: tracing::dispatcher::set_default(&Dispatch::new(subscriber)),
            _another,
        }
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.text.0.lock().unwrap().clone()).unwrap()
    }
}
