//! Debian's `redis-server` on a port of its own, with nothing on disk but what its directory gets.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

/// A running server. It is killed when it is dropped.
pub(crate) struct Redis {
    process: Child,
    pub(crate) port: u16,
    arguments: Vec<String>,
    directory: TempDir,
}

impl Redis {
    /// A server with these further arguments; `None`, and a word about it, where there is none.
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
        // By default the one 10,000 above, which may not be free, or not be there.
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
                // Not by a macro, whose output the test harness keeps to itself.
                let text = format!("SKIPPED: redis-server cannot be run here: {error}\n");
                std::io::stderr().write_all(text.as_bytes()).unwrap();
                None
            }
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// What `redis-cli` says.
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

    /// Every key.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.cli(&["--scan"]).lines().map(str::to_owned).collect()
    }

    /// All that it has, keys and values.
    pub(crate) fn content(&self) -> Vec<u8> {
        let keys = self.keys();
        let values = keys
            .iter()
            .flat_map(|key| [key.as_bytes().to_vec(), self.raw(&["GET", key])]);
        values.flatten().collect()
    }

    /// Sends a signal, by its name without SIG.
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

    /// Starts it again, empty, where it was.
    pub(crate) async fn restart(&mut self) {
        self.process = spawn(&self.arguments, self.port, self.directory.path())
            .await
            .unwrap();
    }
}

/// Starts it, and waits until it serves.
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
    let mut told = String::new();
    while let Some(line) = lines.next_line().await? {
        if line.contains("Ready to accept connections") {
            tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
            return Ok(process);
        }
        told += &(line + "\n");
    }
    panic!("redis-server ended:\n{told}")
}
