//! The commands that people run: files and arguments in, tables and JSON out, and the exit statuses that scripts rely on.

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

/// Runs commands of the program in a directory that has a configuration for a test registry.
struct CommandLine {
    registry: Registry,
    directory: TempDir,
}

/// The exit status and the output of a command.
struct CommandOutput {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

impl CommandLine {
    async fn new(settings: Value) -> Self {
        let cli = Self {
            registry: Registry::start().await,
            directory: tempfile::tempdir().unwrap(),
        };
        cli.configure(&settings);
        cli
    }

    /// Writes a configuration for tests, with `settings` merged into it.
    fn configure(&self, settings: &Value) {
        let ca = self.write("ca.crt", self.registry.pki().ca_pem());
        let mut config = json!({
            "registries": {"hosts": {self.registry.address(): {"caFile": ca}}},
            "network": {"allow": ["127.0.0.0/8"]},
            // Long enough that a lookup does not end because the machine is busy.
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

    /// Pushes an index with these platforms, and returns its reference.
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
        // A machine without certificate authorities would add a warning to the output.
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

    /// Runs a command with `stdin` as its standard input.
    async fn run_with(&self, arguments: &[&str], stdin: impl AsRef<[u8]>) -> CommandOutput {
        let mut child = self.command(arguments).spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        let write = async {
            // Fails if the command reads no input.
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
        CommandOutput {
            status: output.status.code(),
            stdout,
            stderr,
        }
    }

    async fn run(&self, arguments: &[&str]) -> CommandOutput {
        self.run_with(arguments, "").await
    }

    /// Returns the exit status and the JSON of `check -o json` for a text on standard input.
    async fn check(&self, text: impl AsRef<[u8]>) -> (Option<i32>, Value) {
        let output = self
            .run_with(&["check", "-f", "-", "-o", "json"], text)
            .await;
        let json = serde_json::from_str(&output.stdout);
        (
            output.status,
            json.unwrap_or_else(|_| panic!("no JSON: {}{}", output.stdout, output.stderr)),
        )
    }
}
