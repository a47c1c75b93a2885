//! Replicas of tolerarch, with sums over their metrics.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use testregistry::Pki;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio_rustls::TlsConnector;

use super::registry::Registry;
use crate::support::connection::Connection;
use crate::support::server::Server;
use crate::support::{NAME, Result};

/// Replicas with the same configuration.
pub(crate) struct Replicas {
    servers: Vec<Server>,
    tls: TlsConnector,
    _dir: TempDir,
}

impl Replicas {
    /// Starts this number of replicas, with `settings` merged into the configuration of the bench.
    pub(crate) async fn start(count: usize, registry: &Registry, settings: Value) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let pki = Pki::new();
        pki.leaf(&[NAME]).write(dir.path())?;
        let mut config = json!({
            "server": {
                "listen": "127.0.0.1:0",
                "certFile": dir.path().join("tls.crt"),
                "keyFile": dir.path().join("tls.key"),
            },
            "admin": {"listen": "127.0.0.1:0"},
            "registries": {"hosts": {registry.address(): {"plainHttp": true}}},
            "network": {"allow": ["127.0.0.0/8"]},
        });
        json_patch::merge(&mut config, &settings);
        let file = dir.path().join("config.yaml");
        // JSON is YAML.
        std::fs::write(&file, config.to_string())?;
        let mut servers = Vec::new();
        for number in 0..count {
            servers.push(start(number, &file, dir.path()).await?);
        }
        Ok(Self {
            servers,
            tls: TlsConnector::from(Arc::new(pki.client_config())),
            _dir: dir,
        })
    }

    /// Opens a connection to one of the replicas.
    pub(crate) async fn connect(&self, replica: usize) -> Result<Connection> {
        Connection::open(self.servers[replica].address("listen")?, &self.tls).await
    }

    /// Returns the memory of the largest replica, in MiB.
    pub(crate) fn resident(&self) -> Result<f64> {
        let sizes = self
            .servers
            .iter()
            .map(Server::resident)
            .collect::<Result<Vec<f64>>>()?;
        Ok(sizes.into_iter().fold(0.0, f64::max))
    }

    /// Returns the CPU seconds of all replicas so far.
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        self.servers.iter().map(Server::cpu_seconds).sum()
    }

    /// Returns the sum of a metric over all replicas, and over all series whose labels contain `label`.
    pub(crate) async fn sum(&self, name: &str, label: &str) -> Result<u64> {
        let mut sum = 0;
        for server in &self.servers {
            let text = metrics(server).await?;
            let lines = text
                .lines()
                .filter(|line| line.starts_with(name) && line.contains(label));
            let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
            sum += values.sum::<u64>();
        }
        Ok(sum)
    }
}

async fn start(number: usize, config: &Path, dir: &Path) -> Result<Server> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tolerarch"));
    command.arg("serve").arg("--config").arg(config);
    Server::start(&format!("replica-{number}"), command, dir).await
}

async fn metrics(server: &Server) -> Result<String> {
    let mut stream = TcpStream::connect(server.address("admin")?).await?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    Ok(text)
}

/// Returns the reason in an answer.
pub(crate) fn reason(answer: &[u8]) -> Result<&str> {
    let text = std::str::from_utf8(answer)?;
    let reason = text
        .split_once("\"reason\":\"")
        .and_then(|(_, after)| after.split('"').next());
    reason.ok_or_else(|| format!("an answer without a reason: {text}").into())
}
