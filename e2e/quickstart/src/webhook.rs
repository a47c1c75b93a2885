//! The webhook, started as `tolerarch serve` starts it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use testregistry::{Pki, Registry};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tolerarch::config::Config;
use tolerarch::serve::{ServeError, Server};
use tolerarch_support::environment::Environment;

use crate::{Result, SERVICE_NAME, TAINT};

/// A running webhook.
pub(crate) struct Webhook {
    pub(crate) configuration: String,
    pub(crate) address: SocketAddr,
    /// Address of its metrics and probes.
    pub(crate) admin_address: SocketAddr,
    /// Authority that issued its certificate.
    pub(crate) pki: Pki,
    pub(crate) ca_file: PathBuf,
    stop: oneshot::Sender<()>,
    running: JoinHandle<std::result::Result<(), ServeError>>,
}

impl Webhook {
    /// Writes the certificates to `directory`, then starts a webhook that trusts the registry.
    pub(crate) async fn start(directory: &Path, registry: &Registry) -> Result<Self> {
        let pki = Pki::new();
        pki.leaf(&[SERVICE_NAME]).write(directory)?;
        let ca_file = directory.join("ca.crt");
        std::fs::write(&ca_file, pki.ca_pem())?;
        let registry_ca_file = directory.join("registry-ca.crt");
        std::fs::write(registry_ca_file, registry.pki().ca_pem())?;

        let configuration = configuration(directory, &registry.address());
        let config = Config::parse(&configuration)
            .map_err(|errors| format!("the configuration has errors: {errors:?}"))?;
        let server = Server::bind(config, &Environment::of_process()).await?;
        let address = server.address()?;
        let admin_address = server.admin_address()?;
        let (stop, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Ok(Self {
            configuration,
            address,
            admin_address,
            pki,
            ca_file,
            stop,
            running,
        })
    }

    /// Stops the webhook and returns the error that it ended with, if any.
    pub(crate) async fn stop(self) -> Result<()> {
        // Fails only if the webhook has already ended. The next line then returns why.
        let _ = self.stop.send(());
        self.running.await??;
        Ok(())
    }
}

/// Returns the configuration. Apart from the certificate, every setting concerns this tour and its registry.
fn configuration(directory: &Path, registry: &str) -> String {
    let directory = directory.display();
    format!(
        r#"server:
  listen: "127.0.0.1:0"           # any free port
  certFile: {directory}/tls.crt
  keyFile: {directory}/tls.key
  drain: 1ms
admin: {{listen: "127.0.0.1:0"}}
pools:                            # the default, spelled out
  - name: multi-arch
    platforms: [linux/amd64, linux/arm64]
    tolerations:
      - {{key: {TAINT}, operator: Exists, effect: NoSchedule}}
lookup:
  budget: 3s                      # longest time that a Pod waits
  timeout: 4s                     # longest time of a lookup, which may go on after the Pod was admitted
registries:
  hosts:
    "{registry}":
      caFile: {directory}/registry-ca.crt
network: {{allow: [127.0.0.0/8]}}   # loopback addresses are refused unless they are allowed
"#
    )
}
