//! Reasons why a service does not start, ends, or refuses a changed configuration.

use std::io;
use std::net::SocketAddr;

use tolerarch_images::registry::{ProxyError, TrustError};
use tolerarch_kubernetes::cluster::ConnectError;
use tolerarch_webhook::tls::CertificateError;

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
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    #[error("credentials.pullSecrets: {0}")]
    Credentials(ConnectError),
    #[error("{0} needs the Kubernetes API")]
    Cluster(&'static str, #[source] ConnectError),
    #[error("tls.mode is not managed: there are no certificates to issue")]
    NotManaged,
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
    #[error("the metrics cannot be set up")]
    Metrics(#[from] prometheus::Error),
    #[error("internal error: background tasks are no longer supervised")]
    Supervisor,
    #[error("{0}: internal error: connections are no longer accepted")]
    Accept(&'static str),
    #[error("signals cannot be received")]
    Signals(#[source] io::Error),
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;

    #[test]
    fn pull_secret_error_names_its_cause_once() {
        let missing = kube::config::Config::incluster_env().unwrap_err();
        let error = ServeError::Credentials(ConnectError::ServiceAccount(missing));
        assert!(
            error
                .to_string()
                .starts_with("credentials.pullSecrets: no service account"),
            "{error}"
        );
        assert!(error.source().is_none());
    }
}
