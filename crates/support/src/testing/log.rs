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

/// The log of this thread, from the call of [`Log::listen`] on.
pub struct Log {
    text: Text,
    _logging: DefaultGuard,
    /// A second subscriber. With only one, a callsite that another test reaches first, on a thread without a subscriber,
    /// would be off for all threads.
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
