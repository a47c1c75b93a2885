//! Fake Kubernetes APIs in this process, for tests.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "a test fails at once, and an API is one table"
)]

mod fake_api;
mod lists;
mod objects;
mod secrets;

use kube::Client;
use tokio::time::Duration;

use super::api::Api;
use super::{Cluster, StoredPod};
use tolerarch_support::sync::Mutex;

pub use fake_api::{ApiRequest, FakeApi, Reply};
pub use lists::Lists;
pub use objects::Objects;
pub use secrets::ApiServer;

impl Cluster {
    /// Makes a cluster with this client, which needs no server.
    pub fn of_client(client: Client, time: Duration) -> Self {
        Self {
            api: Api::of_client(client, time),
            unanswered: Mutex::default(),
        }
    }
}

impl StoredPod {
    /// Reads a Pod from this JSON.
    pub fn of_value(value: &serde_json::Value) -> Result<Self, serde_json::Error> {
        serde_json::from_str(&value.to_string())
    }
}
