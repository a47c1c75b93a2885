//! The flags of commands that ask a cluster, as kubectl has them.

use std::path::PathBuf;

use clap::Args;

use crate::cluster::{ConnectError, UserClient};

#[derive(Debug, Args)]
pub(super) struct Access {
    /// The kubeconfig [default: as kubectl]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Only what concerns this namespace [default: all namespaces]
    #[arg(short, long, value_name = "NAME")]
    pub(super) namespace: Option<String>,
}

impl Access {
    pub(super) async fn connect(&self) -> Result<UserClient, ConnectError> {
        UserClient::connect(self.kubeconfig.as_deref(), self.context.as_deref()).await
    }
}
