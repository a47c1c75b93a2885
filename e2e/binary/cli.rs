//! The commands that people run, as they run them: files in, tables out, and the statuses that scripts go by.

mod check;
pub(super) mod cluster;
mod configured;
mod doctor;
mod doctor_pre;
mod inspect;
mod migration;
mod readme;
mod report;
mod report_money;
mod report_newer;
mod report_page;
mod report_steps;
mod streams;
mod why;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;
use testregistry::Registry;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::support::soon;

const BOTH: [&str; 2] = ["linux/amd64", "linux/arm64"];

/// A registry, a directory with a configuration for it, and the program.
struct Desk {
    registry: Registry,
    directory: TempDir,
}

/// What a command left behind.
struct Ran {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Desk {
    async fn new(settings: Value) -> Self {
        let desk = Self {
            registry: Registry::start().await,
            directory: tempfile::tempdir().unwrap(),
        };
        desk.configure(&settings);
        desk
    }

    /// Writes these settings over a configuration for tests.
    fn configure(&self, settings: &Value) {
        let ca = self.write("ca.crt", self.registry.pki().ca_pem());
        let mut config = json!({
            "registries": {"hosts": {self.registry.address(): {"caFile": ca}}},
            "network": {"allow": ["127.0.0.0/8"]},
            // Not ended because the machine is busy.
            "lookup": {"timeout": "60s"},
        });
        json_patch::merge(&mut config, settings);
        self.write("config.yaml", config.to_string());
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// An index with these platforms.
    fn image(&self, name: &str, platforms: &[&str]) -> String {
        let repo = self.registry.repo(name);
        repo.index(Some("v1"), platforms.iter().copied());
        repo.reference("v1")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tolerarch"));
        command
            .args(["--config", "config.yaml"])
            .args(arguments)
            .current_dir(self.path());
        // Some machines have no certificate authorities, and a warning for it.
        command
            .env("SSL_CERT_FILE", self.path().join("ca.crt"))
            .env_remove("RUST_BACKTRACE");
        command.env("HOME", self.path()).env_remove("DOCKER_CONFIG");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// Runs a command with this on standard input.
    async fn run_with(&self, arguments: &[&str], stdin: impl AsRef<[u8]>) -> Ran {
        let mut child = self.command(arguments).spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        let write = async {
            // Fails where the command reads no input.
            let _ = pipe.write_all(stdin.as_ref()).await;
            drop(pipe);
        };
        let output = soon("the end of the command", async {
            tokio::join!(write, child.wait_with_output()).1
        });
        let output = output.await.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let stdout = text(output.stdout);
        let stderr = text(output.stderr);
        assert!(
            !stderr.contains("panic") && !stderr.contains("RUST_BACKTRACE"),
            "{stderr}"
        );
        Ran {
            status: output.status.code(),
            stdout,
            stderr,
        }
    }

    async fn run(&self, arguments: &[&str]) -> Ran {
        self.run_with(arguments, "").await
    }

    /// What `check -o json` says of this text.
    async fn check(&self, text: impl AsRef<[u8]>) -> (Option<i32>, Value) {
        let ran = self
            .run_with(&["check", "-f", "-", "-o", "json"], text)
            .await;
        let json = serde_json::from_str(&ran.stdout);
        (
            ran.status,
            json.unwrap_or_else(|_| panic!("no JSON: {}{}", ran.stdout, ran.stderr)),
        )
    }
}
