//! A programmable OCI distribution registry on loopback, for tests, examples and benches.
//!
//! It serves real content with real digests over TLS, records every request, and fails on demand. Nothing sleeps or polls:
//! a test waits for requests with [`Registry::wait_until`].
//!
//! In the order of a request:
//!
//! - [`Registry`] listens. `server` accepts the connection, records the [`Request`] and routes it.
//! - [`Auth`] admits or challenges the request. [`Repo`] has the content.
//! - [`Reply`] is the answer, which a [`Fault`] may change on the wire.
//!
//! [`Pki`] makes the certificates. On an [`Internet`] registries have the names of real ones, and behave as the table in
//! [`personality`] says.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use testregistry::{Auth, Fault, Registry};
//!
//! let registry = Registry::start().await;
//! let repo = registry.repo("team/app");
//! repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
//! repo.require(Auth::bearer().credentials("user", "password"));
//! repo.fault(Some(Fault::status(503).only_manifests().first(1)));
//! println!("look up {} and trust {}", repo.reference("v1"), registry.pki().ca_pem());
//! # }
//! ```

#![allow(
    clippy::too_many_lines,
    clippy::cognitive_complexity,
    reason = "a test tells one story, however long"
)]
#![allow(
    clippy::expect_used,
    reason = "only tests use this crate; a failure names the wrong assumption"
)]

mod auth;
mod fault;
mod internet;
pub mod personality;
mod pki;
mod port;
mod record;
mod registry;
mod reply;
mod repo;
mod server;
mod state;

use std::sync::{Mutex, MutexGuard, PoisonError};

use aws_lc_rs::digest::{Algorithm, SHA256, SHA512, digest};

pub use auth::Auth;
pub use fault::Fault;
pub use internet::Internet;
pub use pki::{Leaf, Pki};
pub use port::reserve;
pub use record::{Kind, Request};
pub use registry::{Builder, Registry};
pub use reply::Reply;
pub use repo::{Entry, Repo};

/// Media type of an OCI image index.
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// Media type of an OCI image manifest.
pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Media type of an OCI image configuration.
pub const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// Media type of a Docker manifest list.
pub const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// Media type of a Docker image manifest, schema 2.
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// Media type of a Docker image configuration.
pub const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";

/// Returns the digest `sha256:…` of some bytes.
pub fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&SHA256, bytes))
}

/// Returns the digest `sha512:…` of some bytes. All content is served under this digest, too.
pub fn sha512(bytes: &[u8]) -> String {
    format!("sha512:{}", hex(&SHA512, bytes))
}

fn hex(algorithm: &'static Algorithm, bytes: &[u8]) -> String {
    digest(algorithm, bytes)
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Locks a mutex, also a poisoned one: the panic of one test must not be hidden by those of others.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
