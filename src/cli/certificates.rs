//! `tolerarch certificates`: flags over the configuration, and a runtime that runs it.

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Args;

use super::{Shared, flag, serve};
use crate::serve::run_certificates;

#[derive(Debug, Args)]
pub(super) struct Certificates {
    /// Where metrics and probes are answered [default: [::]:8080]
    #[arg(long, value_name = "ADDRESS:PORT")]
    admin_listen: Option<SocketAddr>,
}

impl Certificates {
    pub(super) fn run(self, shared: &Shared) -> ExitCode {
        serve::run(shared, [flag("--admin-listen", "admin.listen", self.admin_listen)], run_certificates)
    }
}
