//! A mutex that a panic does not poison.

use std::sync::{MutexGuard, PoisonError};

/// The guarded value is valid after every statement, so a caller that panics must not make later callers panic too.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
