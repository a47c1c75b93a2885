//! As whom the Kubernetes API is asked, and where it is.

use std::path::PathBuf;

use kube::config::{Config, InClusterError, KubeconfigError};

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

/// The same without a proxy that stands in the environment: that one is for registries, and kube, which is built without
/// proxies, would refuse to start because of it. One that the kubeconfig names stays, to be refused.
pub(super) fn without_proxy_of(environment: &Environment, mut config: Config) -> Config {
    let named = |name| environment.text(name).and_then(|text| text.parse().ok());
    let of_environment = |uri: &http::Uri| {
        ["HTTPS_PROXY", "https_proxy"].into_iter().filter_map(named).any(|named: http::Uri| named == *uri)
    };
    config.proxy_url = config.proxy_url.filter(|uri| !of_environment(uri));
    config
}

/// Why the Kubernetes API cannot be talked to at all. Each text is whole: the causes are in it.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("no service account is mounted here (automountServiceAccountToken): {0}")]
    ServiceAccount(InClusterError),
    /// Which files were looked for, and why there is no service account.
    #[error("no current context in a kubeconfig ({0}), and no service account is mounted here: {1}")]
    NoContext(String, InClusterError),
    #[error("{file} is not a kubeconfig: {1}", file = .0.display())]
    NoKubeconfig(PathBuf, String),
    #[error("the kubeconfig cannot be used: {0}")]
    Unusable(Box<KubeconfigError>),
    #[error("what is to be used for the Kubernetes API is not right: {0}")]
    Client(kube::Error),
}
