//! The flags of commands that ask a cluster, as kubectl has them.

use std::path::PathBuf;

use clap::Args;

use tolerarch_kubernetes::cluster::{ConnectError, UserClient, is_name};
use tolerarch_support::environment::Environment;

/// Which cluster.
#[derive(Debug, Args)]
pub(super) struct Connection {
    /// The kubeconfig [default: as kubectl]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

/// Which cluster, and what of it.
#[derive(Debug, Args)]
pub(super) struct Access {
    #[command(flatten)]
    connection: Connection,
    /// Only what concerns this namespace [default: all; for why that of the context]
    #[arg(short, long, value_name = "NAME", value_parser = name)]
    pub(super) namespace: Option<String>,
    /// All namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(super) all_namespaces: bool,
}

impl Connection {
    pub(super) async fn connect(&self, environment: &Environment) -> Result<UserClient, ConnectError> {
        UserClient::connect(self.kubeconfig.as_deref(), self.context.as_deref(), environment).await
    }
}

impl Access {
    pub(super) async fn connect(&self, environment: &Environment) -> Result<UserClient, ConnectError> {
        self.connection.connect(environment).await
    }
}

/// A name becomes a part of paths.
fn name(text: &str) -> Result<String, &'static str> {
    if is_name(text) { Ok(text.to_owned()) } else { Err("not a valid name of a Kubernetes object") }
}
