//! What commands that ask a cluster have in common: flags, as kubectl has them, and how lists are read.

use std::path::PathBuf;

use clap::Args;
use serde_json::Value;

use tolerarch_kubernetes::cluster::{ConnectError, UserClient, is_name};
use tolerarch_support::environment::Environment;

/// Which cluster, and what of it.
#[derive(Debug, Args)]
pub(super) struct Access {
    /// The kubeconfig [default: as kubectl]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Only what concerns this namespace [default: all; for why that of the context]
    #[arg(short, long, value_name = "NAME", value_parser = name)]
    pub(super) namespace: Option<String>,
    /// All namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(super) all_namespaces: bool,
}

impl Access {
    pub(super) fn is_named(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some()
    }

    pub(super) fn connect(&self, environment: &Environment) -> Result<UserClient, ConnectError> {
        UserClient::connect(self.kubeconfig.as_deref(), self.context.as_deref(), environment)
    }
}

/// The items of a list in an object; none where it is missing.
pub(super) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// A name becomes a part of paths.
fn name(text: &str) -> Result<String, &'static str> {
    if is_name(text) { Ok(text.to_owned()) } else { Err("not a valid name of a Kubernetes object") }
}
