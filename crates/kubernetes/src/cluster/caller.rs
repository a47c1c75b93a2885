//! Identities for requests to the Kubernetes API, and where its server is.

use kube::config::Config;

use super::error::ConnectError;
use super::kubeconfig;
use tolerarch_support::environment::Environment;

/// Identity for requests to the Kubernetes API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The mounted service account, else `KUBECONFIG`. A service does not start without either.
    Service,
    /// The person who runs a command: the kubeconfig, else the service account. The command continues without either.
    Person,
}

impl Caller {
    /// Returns the API server's address and the credentials.
    pub(super) fn config(self, environment: &Environment) -> Result<Config, ConnectError> {
        let of_kubeconfig = || Ok(kubeconfig::load(None, None, environment)?.0);
        match self {
            Self::Service => match Config::incluster() {
                Err(_) if environment.get("KUBECONFIG").is_some() => of_kubeconfig(),
                config => config.map_err(ConnectError::ServiceAccount),
            },
            Self::Person => of_kubeconfig(),
        }
    }
}
