//! A running `tolerarch serve`, `tolerarch controller` or `tolerarch certificates`.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use testregistry::Pki;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::process::{Process, free_port};

/// A running tolerarch. A restart keeps its ports and its directory. Dropping it kills the process.
pub struct Tolerarch {
    /// The URL of the webhook.
    pub url: String,
    /// The port of the webhook.
    pub port: u16,
    /// The running process.
    pub process: Process,
    program: PathBuf,
    directory: PathBuf,
    admin: u16,
    environment: Vec<(&'static str, String)>,
}

impl Tolerarch {
    /// Starts tolerarch with a configuration for tests, which `settings` override. `pki` issues its certificate, and is
    /// trusted for `registry`. If `name` begins with `controller` or `certificates`, that command is started, else `serve`.
    pub(crate) async fn start(
        program: &Path,
        parent: &Path,
        name: &str,
        pki: &Arc<Pki>,
        registry: &str,
        settings: Value,
        environment: Vec<(&'static str, String)>,
    ) -> Self {
        let directory = parent.join(name);
        fs::create_dir(&directory).unwrap();
        let file = |name: &str| directory.join(name);
        pki.leaf(&["127.0.0.1"]).write(&directory).unwrap();
        fs::write(file("ca.crt"), pki.ca_pem()).unwrap();
        let port = free_port();
        let admin = free_port();
        let mut config = json!({
            "server": {
                "listen": format!("127.0.0.1:{port}"),
                "certFile": file("tls.crt"),
                "keyFile": file("tls.key"),
            },
            "admin": {"listen": format!("127.0.0.1:{admin}")},
            "registries": {"hosts": {registry: {"caFile": file("ca.crt")}}},
            "network": {"allow": ["127.0.0.0/8"]},
            // Long, so that Pods do not stay unchanged because the machine is busy.
            "lookup": {"budget": "20s"},
        });
        merge(&mut config, settings);
        // JSON is YAML.
        fs::write(file("config.yaml"), config.to_string()).unwrap();
        let process = run(program, &directory, admin, &environment).await;
        let url = format!("https://127.0.0.1:{port}/mutate");
        Self {
            url,
            port,
            process,
            program: program.to_owned(),
            directory,
            admin,
            environment,
        }
    }

    /// Starts it again after it has ended.
    pub async fn start_again(&mut self) {
        self.process = run(
            &self.program,
            &self.directory,
            self.admin,
            &self.environment,
        )
        .await;
    }

    /// The address of its metrics.
    pub(crate) fn metrics_address(&self) -> String {
        format!("127.0.0.1:{}", self.admin)
    }

    /// Returns the value of a metric without labels.
    pub async fn metric(&self, name: &str) -> usize {
        self.metric_if_any(name)
            .await
            .unwrap_or_else(|| panic!("no {name}"))
    }

    /// Returns the value of a metric without labels that may not exist yet.
    pub async fn metric_if_any(&self, name: &str) -> Option<usize> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.admin))
            .await
            .unwrap();
        let mut stream = BufReader::new(stream);
        stream
            .write_all(b"GET /metrics HTTP/1.0\r\n\r\n")
            .await
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        Some(value?.trim().parse().expect("a count"))
    }

    /// Returns the file of its configuration.
    pub(crate) fn config(&self) -> PathBuf {
        self.directory.join("config.yaml")
    }

    /// Replaces its certificate's file with something that is no certificate.
    pub fn damage_certificate(&self) {
        fs::write(self.directory.join("tls.crt"), "no certificate").unwrap();
    }

    /// Replaces its certificate with a new one.
    pub fn renew_certificate(&self, pki: &Pki) {
        let new = tempfile::tempdir_in(&self.directory).unwrap();
        pki.leaf(&["127.0.0.1"]).write(new.path()).unwrap();
        for name in ["tls.crt", "tls.key"] {
            fs::rename(new.path().join(name), self.directory.join(name)).unwrap();
        }
    }
}

async fn run(
    program: &Path,
    directory: &Path,
    admin: u16,
    environment: &[(&str, String)],
) -> Process {
    let name = directory
        .file_name()
        .map(|name| name.to_string_lossy())
        .unwrap_or_default();
    let command = if name.starts_with("controller") {
        "controller"
    } else if name.starts_with("certificates") {
        "certificates"
    } else {
        "serve"
    };
    let arguments = [
        command.to_owned(),
        "--config".to_owned(),
        directory.join("config.yaml").display().to_string(),
    ];
    let mut process =
        Process::start_with("tolerarch", program, &arguments, environment, directory).await;
    process.until_listening("tolerarch", admin).await;
    process
}

/// Merges objects recursively, and replaces all other values.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}
