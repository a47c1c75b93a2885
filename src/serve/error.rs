//! Why the webhook does not start, or ends.

use std::io;
use std::net::SocketAddr;

use super::snapshot::SnapshotError;
use tolerarch_kubernetes::cluster::ConnectError;
use tolerarch_webhook::tls::CertificateError;

/// Why the webhook does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("{key}: cannot listen on {address}")]
    Listen {
        key: &'static str,
        address: SocketAddr,
        #[source]
        cause: io::Error,
    },
    #[error(
        "the serving certificate cannot be used (server.certFile, server.keyFile; --tls-cert, --tls-key)"
    )]
    Certificate(#[from] CertificateError),
    /// Registries cannot be asked as the configuration says.
    #[error(transparent)]
    Access(#[from] SnapshotError),
    /// The Kubernetes API cannot be talked to, which managed certificates take.
    #[error("tls.mode managed needs the Kubernetes API")]
    Cluster(#[from] ConnectError),
    /// Certificates come from elsewhere.
    #[error("tls.mode is not managed: there are no certificates to issue")]
    NotManaged,
    /// The Kubernetes API cannot be talked to, which the controller takes.
    #[error("the controller needs the Kubernetes API")]
    Controller(#[source] ConnectError),
    /// The Kubernetes API cannot be talked to, which discovery takes.
    #[error("discover needs the Kubernetes API")]
    Discover(#[source] ConnectError),
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
    #[error("the metrics cannot be set up")]
    Metrics(#[from] prometheus::Error),
    /// The supervisor of background tasks ended.
    #[error("internal error: background tasks are not supervised any more")]
    Supervisor,
    /// An accept loop ended.
    #[error("{0}: internal error: connections are not accepted any more")]
    Accept(&'static str),
    #[error("signals cannot be received")]
    Signals(#[source] io::Error),
}
