//! Debian's `prometheus` with the shipped rules, which are made hasty: what waits or looks back for minutes does so for
//! seconds.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::interval;

use super::soon;

/// How far the rules, and the queries of the dashboard, look back here.
pub(crate) const WINDOW: &str = "5s";

/// A running one. It is killed when it is dropped.
pub(crate) struct Prometheus {
    _process: Child,
    address: SocketAddr,
    _directory: TempDir,
}

impl Prometheus {
    /// One that scrapes this, every second, which a busy machine may take to answer; `None`, and a word about it, where
    /// there is none.
    pub(crate) async fn start(scrape: Value) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        fs::write(
            file("rules.yaml"),
            hasty(&fs::read_to_string(chart().join("rules/tolerarch.yaml")).unwrap()),
        )
        .unwrap();
        let config = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "200ms"},
            "rule_files": [file("rules.yaml")],
            "scrape_configs": scrape,
        });
        fs::write(file("prometheus.yaml"), config.to_string()).unwrap();
        let address = testregistry::reserve(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let spawned = Command::new("prometheus")
            .arg(format!(
                "--config.file={}",
                file("prometheus.yaml").display()
            ))
            .arg(format!("--storage.tsdb.path={}", file("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(file("log")).unwrap())
            .kill_on_drop(true)
            .spawn();
        let mut process = match spawned {
            Ok(process) => process,
            Err(error) => {
                #[allow(clippy::disallowed_methods, reason = "only in tests")]
                let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
                assert!(!ci, "prometheus: {error}");
                // Not by a macro, whose output the test harness keeps to itself.
                let text = format!("SKIPPED: prometheus cannot be run here: {error}\n");
                std::io::stderr().write_all(text.as_bytes()).unwrap();
                return None;
            }
        };
        soon("prometheus is ready", async {
            let mut times = interval(Duration::from_millis(20));
            while get(address, "/-/ready").await.is_none() {
                let ended = process.try_wait().unwrap();
                assert!(
                    ended.is_none(),
                    "{}",
                    fs::read_to_string(file("log")).unwrap()
                );
                times.tick().await;
            }
        })
        .await;
        Some(Self {
            _process: process,
            address,
            _directory: directory,
        })
    }

    /// The series that a query finds now.
    pub(crate) async fn query(&self, query: &str) -> Vec<Value> {
        self.ask(query, &format!("/api/v1/query?query={}", encoded(query)))
            .await
    }

    /// Whether an alert fires.
    pub(crate) async fn fires(&self, alert: &str) -> bool {
        !self
            .query(&format!(
                "ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}"
            ))
            .await
            .is_empty()
    }

    /// The result of a query, by the path that asks for it.
    pub(crate) async fn ask(&self, query: &str, path: &str) -> Vec<Value> {
        let answer = soon("an answer of prometheus", get(self.address, path))
            .await
            .unwrap_or_else(|| panic!("{query}"));
        let mut answer: Value = serde_json::from_str(&answer).unwrap();
        match answer["data"]["result"].take() {
            Value::Array(series) => series,
            other => panic!("{query}: {other}"),
        }
    }
}

/// The body of an answer with status 200.
async fn get(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    // HTTP/1.0: the answer ends with the connection.
    stream
        .write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())
        .await
        .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.lines()
        .next()?
        .contains(" 200 ")
        .then(|| body.to_owned())
}

/// The dashboard that the chart brings.
pub(crate) fn dashboard() -> Value {
    let text = fs::read_to_string(chart().join("dashboards/tolerarch.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A query of the dashboard as Grafana fills it in.
pub(crate) fn filled(query: &str) -> String {
    let query = query
        .replace("$__rate_interval", WINDOW)
        .replace("$__range", "2m");
    query.replace("$job", "tolerarch")
}

/// Rules that need not wait: what is true fires at once, and nothing looks back for longer than [`WINDOW`].
fn hasty(rules: &str) -> String {
    let mut hasty = String::new();
    for line in rules.lines() {
        match line.split_once("for: ") {
            Some((indent, _)) if indent.trim().is_empty() => hasty += &format!("{indent}for: 0s"),
            _ => {
                let mut parts = line.split('[');
                hasty += parts.next().unwrap_or_default();
                for part in parts {
                    let is_window =
                        |text: &str| text.starts_with(|first: char| first.is_ascii_digit());
                    match part.split_once(']') {
                        Some((window, rest))
                            if is_window(window) && window.ends_with(['m', 'h']) =>
                        {
                            hasty += &format!("[{WINDOW}]{rest}");
                        }
                        _ => hasty += &format!("[{part}"),
                    }
                }
            }
        }
        hasty.push('\n');
    }
    hasty
}

fn chart() -> PathBuf {
    // Of a test of the package, or of the member of the workspace two directories below it.
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let chart = [package.to_owned(), package.join("../..")]
        .map(|root| root.join("manifests/helm/tolerarch"));
    chart
        .into_iter()
        .find(|chart| chart.exists())
        .expect("the chart")
}

/// A query as a part of a path.
pub(crate) fn encoded(query: &str) -> String {
    query.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
