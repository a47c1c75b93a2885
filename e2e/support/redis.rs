//! Debian's `redis-server` on a free port, with its files in a temporary directory.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A running server. Dropping it kills the process.
pub(crate) struct Redis {
    process: Child,
    pub(crate) port: u16,
    arguments: Vec<String>,
    directory: TempDir,
}

impl Redis {
    /// Starts a server with additional arguments. Prints a message and returns `None` if there is no `redis-server`.
    pub(crate) async fn start(arguments: &[&str]) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let port = || {
            testregistry::reserve(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
                .unwrap()
                .port()
        };
        let mut arguments: Vec<String> = arguments
            .iter()
            .map(|argument| (*argument).to_owned())
            .collect();
        // The default is the port plus 10,000, which may be in use or not exist.
        arguments.extend(["--cluster-port".to_owned(), port().to_string()]);
        let port = port();
        match spawn(&arguments, port, directory.path()).await {
            Ok(process) => Some(Self {
                process,
                port,
                arguments,
                directory,
            }),
            Err(error) => {
                #[expect(clippy::disallowed_methods, reason = "only in tests")]
                let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
                assert!(!ci, "redis-server: {error}");
                // Written without a macro, because the test harness captures the output of macros.
                let text = format!("SKIPPED: redis-server cannot be run here: {error}\n");
                std::io::stderr().write_all(text.as_bytes()).unwrap();
                None
            }
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Runs `redis-cli`, and returns its output.
    pub(crate) fn cli(&self, arguments: &[&str]) -> String {
        String::from_utf8_lossy(&self.raw(arguments))
            .trim()
            .to_owned()
    }

    fn raw(&self, arguments: &[&str]) -> Vec<u8> {
        let mut cli = std::process::Command::new("redis-cli");
        cli.args(["-p", &self.port.to_string(), "--raw"])
            .args(arguments)
            .output()
            .unwrap()
            .stdout
    }

    /// Returns all keys.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.cli(&["--scan"]).lines().map(str::to_owned).collect()
    }

    /// Returns all keys and values.
    pub(crate) fn content(&self) -> Vec<u8> {
        let keys = self.keys();
        let values = keys
            .iter()
            .flat_map(|key| [key.as_bytes().to_vec(), self.raw(&["GET", key])]);
        values.flatten().collect()
    }

    /// Sends a signal, named without SIG.
    pub(crate) fn signal(&self, name: &str) {
        let process = self.process.id().expect("a process that runs").to_string();
        let sent = std::process::Command::new("sh")
            .args(["-c", r#"kill -s "$0" "$1""#, name, &process])
            .status();
        assert!(sent.unwrap().success());
    }

    pub(crate) async fn kill(&mut self) {
        self.process.kill().await.unwrap();
    }

    /// Starts an empty server at the same port.
    pub(crate) async fn restart(&mut self) {
        self.process = spawn(&self.arguments, self.port, self.directory.path())
            .await
            .unwrap();
    }
}

/// Starts the process, and waits until it accepts connections.
async fn spawn(arguments: &[String], port: u16, directory: &Path) -> std::io::Result<Child> {
    let mut command = Command::new("redis-server");
    command
        .args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
        ])
        .arg(directory);
    command.args(arguments);
    let mut process = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut output = String::new();
    while let Some(line) = lines.next_line().await? {
        if line.contains("Ready to accept connections") {
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok(process);
        }
        output += &(line + "\n");
    }
    panic!("redis-server ended:\n{output}")
}
