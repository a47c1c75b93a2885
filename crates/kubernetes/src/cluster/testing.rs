//! Kubernetes APIs in this process, for tests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails at once")]

mod fake_api;
mod lists;
mod objects;
mod secrets;

pub use fake_api::{Asked, FakeApi, Reply};
pub use lists::Lists;
pub use objects::Objects;
pub use secrets::ApiServer;
