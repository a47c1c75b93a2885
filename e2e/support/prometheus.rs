//! Debian's `prometheus` with the shipped rules, whose times are shortened: instead of minutes, they wait and look back for
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

/// The time window of rules and of the dashboard's queries.
pub(crate) const WINDOW: &str = "5s";

/// A running Prometheus. Dropping it kills the process.
pub(crate) struct Prometheus {
    _process: Child,
    address: SocketAddr,
    _directory: TempDir,
}

impl Prometheus {
    /// Starts Prometheus with these scrape configurations. It scrapes every second, so that targets on a busy machine can
    /// answer. Prints a message and returns `None` if there is no `prometheus`.
    pub(crate) async fn start(scrape: Value) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let rules = fs::read_to_string(chart().join("rules/tolerarch.yaml")).unwrap();
        fs::write(file("rules.yaml"), shortened(&rules)).unwrap();
        let config = json!({
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "200ms"},
            "rule_files": [file("rules.yaml")],
            "scrape_configs": scrape,
        });
        fs::write(file("prometheus.yaml"), config.to_string()).unwrap();
        let address = testregistry::reserve(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let mut process = match spawn(directory.path(), address) {
            Ok(process) => process,
            Err(error) => {
                skip(&error);
                return None;
            }
        };
        soon("prometheus is ready", async {
            let mut ticks = interval(Duration::from_millis(20));
            while get(address, "/-/ready").await.is_none() {
                let status = process.try_wait().unwrap();
                let log = || fs::read_to_string(file("log")).unwrap();
                assert!(status.is_none(), "{}", log());
                ticks.tick().await;
            }
        })
        .await;
        Some(Self {
            _process: process,
            address,
            _directory: directory,
        })
    }

    /// Returns the series of a query now.
    pub(crate) async fn query(&self, query: &str) -> Vec<Value> {
        self.series(query, &format!("/api/v1/query?query={}", encoded(query)))
            .await
    }

    /// Whether an alert fires.
    pub(crate) async fn fires(&self, alert: &str) -> bool {
        let query = format!("ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}");
        !self.query(&query).await.is_empty()
    }

    /// Returns the result of a query, which is a part of `path`.
    pub(crate) async fn series(&self, query: &str, path: &str) -> Vec<Value> {
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

fn spawn(directory: &Path, address: SocketAddr) -> std::io::Result<Child> {
    let config = directory.join("prometheus.yaml");
    let data = directory.join("data");
    Command::new("prometheus")
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", data.display()))
        .arg(format!("--web.listen-address={address}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(fs::File::create(directory.join("log"))?)
        .kill_on_drop(true)
        .spawn()
}

/// Prints that a test is skipped. In CI it fails instead.
fn skip(error: &std::io::Error) {
    #[allow(clippy::disallowed_methods, reason = "only in tests")]
    let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!ci, "prometheus: {error}");
    // Written without a macro, because the test harness captures the output of macros.
    let text = format!("SKIPPED: prometheus cannot be run here: {error}\n");
    std::io::stderr().write_all(text.as_bytes()).unwrap();
}

/// Returns the body of an answer with status 200.
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
    let status_line = head.lines().next()?;
    status_line.contains(" 200 ").then(|| body.to_owned())
}

/// Returns the dashboard of the chart.
pub(crate) fn dashboard() -> Value {
    let text = fs::read_to_string(chart().join("dashboards/tolerarch.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Returns a query of the dashboard with Grafana's variables replaced.
pub(crate) fn filled(query: &str) -> String {
    let query = query
        .replace("$__rate_interval", WINDOW)
        .replace("$__range", "2m");
    query.replace("$job", "tolerarch")
}

/// Returns rules that fire at once, and that look back no longer than [`WINDOW`].
fn shortened(rules: &str) -> String {
    let mut text = String::new();
    for line in rules.lines() {
        match line.split_once("for: ") {
            Some((indent, _)) if indent.trim().is_empty() => text += &format!("{indent}for: 0s"),
            _ => text += &with_short_windows(line),
        }
        text.push('\n');
    }
    text
}

/// Replaces windows of minutes or hours, such as `[5m]`, by [`WINDOW`].
fn with_short_windows(line: &str) -> String {
    let mut parts = line.split('[');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(']') {
            Some((window, rest)) if is_long_window(window) => text += &format!("[{WINDOW}]{rest}"),
            _ => text += &format!("[{part}"),
        }
    }
    text
}

fn is_long_window(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_digit()) && text.ends_with(['m', 'h'])
}

fn chart() -> PathBuf {
    // The test belongs to the package, or to the member of the workspace two directories below it.
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let chart = [package.to_owned(), package.join("../..")]
        .map(|root| root.join("manifests/helm/tolerarch"));
    chart
        .into_iter()
        .find(|chart| chart.exists())
        .expect("the chart")
}

/// Returns a query encoded as a part of a path.
pub(crate) fn encoded(query: &str) -> String {
    query.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
