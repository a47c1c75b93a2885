//! As whom the Kubernetes API is asked, and where it is.

use kube::config::Config;

use super::error::ConnectError;
use super::kubeconfig;
use tolerarch_support::environment::Environment;

/// On whose behalf the Kubernetes API is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// As the service account that is mounted into its Pod, else as `KUBECONFIG` says. Without either it does not start.
    Service,
    /// The person who runs a command, as the kubeconfig says, else as the service account. Goes on without either.
    Person,
}

impl Caller {
    /// Where the API server is, and as whom to ask it.
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
