//! A real Prometheus (Debian's `prometheus`) scrapes the program: the shipped alerts fire and clear, and the dashboard
//! shows something. What API servers count is tried by `promtool`, in `e2e/manifests`.

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tempfile::TempDir;
use testregistry::Registry;
use tokio::process::{Child, Command};

use super::program::Program;
use crate::support::https::{Client, NAME};
use crate::support::review::pod;
use crate::support::{soon, until};

/// What of the dashboard is not tried here: API servers' metrics, and one that only some registries give.
const ELSEWHERE: [&str; 2] = ["apiserver_", "tolerarch_registry_ratelimit_remaining"];

/// A running one, which scrapes five times a second. It is killed when it is dropped.
struct Prometheus {
    _process: Child,
    client: Client,
    _directory: TempDir,
}

impl Prometheus {
    /// One for this target; `None`, and a word about it, where there is none.
    async fn start(target: SocketAddr) -> Option<Self> {
        let chart = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/helm/tolerarch");
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let rules = fs::read_to_string(chart.join("rules/tolerarch.yaml")).unwrap();
        // Alerts wait for minutes; tests do not.
        let hasty = rules.lines().map(|line| match line.split_once("for: ") {
            Some((indent, _)) => format!("{indent}for: 0s\n"),
            None => format!("{line}\n"),
        });
        fs::write(file("rules.yaml"), hasty.collect::<String>()).unwrap();
        let config = json!({
            "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"},
            "rule_files": [file("rules.yaml")],
            "scrape_configs": [{"job_name": "tolerarch", "static_configs": [{"targets": [target]}]}],
        });
        fs::write(file("prometheus.yaml"), config.to_string()).unwrap();
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let spawned = Command::new("prometheus")
            .arg(format!("--config.file={}", file("prometheus.yaml").display()))
            .arg(format!("--storage.tsdb.path={}", file("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(file("log")).unwrap())
            .kill_on_drop(true)
            .spawn();
        let process = match spawned {
            Ok(process) => process,
            Err(error) => {
                assert!(
                    tolerarch::config::Environment::of_process().get("CI").is_none_or(|ci| ci != "true"),
                    "prometheus: {error}"
                );
                // Not by a macro, whose output the test harness keeps to itself.
                let text = format!("SKIPPED: prometheus cannot be run here: {error}\n");
                io::stderr().write_all(text.as_bytes()).unwrap();
                return None;
            }
        };
        let client = Client::plain(address);
        until("prometheus listens", async || client.try_connect().await.is_ok()).await;
        until("prometheus is ready", async || client.get("/-/ready").await.status == 200).await;
        Some(Self { _process: process, client, _directory: directory })
    }

    /// How many series a query finds.
    async fn found(&self, query: &str) -> u64 {
        let encoded: String = format!("count({query})").bytes().map(|byte| format!("%{byte:02X}")).collect();
        // The API server's requests, which the client makes otherwise, accept gzip.
        let request = format!("GET /api/v1/query?query={encoded} HTTP/1.1\r\nHost: prometheus\r\n\r\n");
        let answer = soon("an answer", self.client.ask(request.as_bytes())).await;
        let answer: Value = serde_json::from_str(&answer.text()).unwrap();
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"][0]["value"][1].as_str().map_or(0, |count| count.parse().unwrap())
    }

    /// Whether an alert fires.
    async fn fires(&self, alert: &str) -> bool {
        self.found(&format!("ALERTS{{alertname=\"{alert}\",alertstate=\"firing\"}}")).await > 0
    }
}

/// The queries of the dashboard, as Grafana fills them in.
fn queries() -> Vec<String> {
    let dashboard = include_str!("../../manifests/helm/tolerarch/dashboards/tolerarch.json");
    let dashboard: Value = serde_json::from_str(dashboard).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries = targets.map(|target| target["expr"].as_str().unwrap());
    let queries = queries.filter(|query| !ELSEWHERE.iter().any(|metric| query.contains(metric)));
    let fill = |query: &str| {
        query.replace("$__rate_interval", "5s").replace("$__range", "1m").replace("$job", "tolerarch")
    };
    queries.map(fill).collect()
}

#[tokio::test]
async fn the_dashboard_shows_what_was_scraped() {
    let registry = Registry::start().await;
    let repo = registry.repo("team/app");
    repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    let program = Program::start(&registry, json!({})).await;
    let Some(prometheus) = Prometheus::start(program.admin.address()).await else { return };
    let queries = queries();
    assert!(queries.len() > 20, "{queries:?}");
    let pod = pod(&[&repo.reference("v1")]);
    for query in queries {
        until(&query, async || {
            program.review(&pod).await;
            prometheus.found(&query).await > 0
        })
        .await;
    }
}

#[tokio::test]
async fn an_alert_fires_while_a_configuration_is_refused() {
    let registry = Registry::start().await;
    let program = Program::start(&registry, json!({})).await;
    let Some(prometheus) = Prometheus::start(program.admin.address()).await else { return };
    until("it is scraped", async || prometheus.found("tolerarch_build_info").await > 0).await;
    assert!(!prometheus.fires("TolerarchReloadRefused").await);
    program.configure(json!({"mode": "nonsense"}));
    until("it fires", async || prometheus.fires("TolerarchReloadRefused").await).await;
    program.configure(json!({}));
    until("it clears", async || !prometheus.fires("TolerarchReloadRefused").await).await;
}

#[tokio::test]
async fn an_alert_fires_for_a_certificate_near_its_end() {
    let registry = Registry::start().await;
    let program = Program::start(&registry, json!({})).await;
    let Some(prometheus) = Prometheus::start(program.admin.address()).await else { return };
    until("it is scraped", async || prometheus.found("tolerarch_build_info").await > 0).await;
    assert!(!prometheus.fires("TolerarchCertificateExpiresSoon").await);
    let tomorrow = SystemTime::now() + Duration::from_secs(24 * 3600);
    program.mount.swap(&program.pki.leaf_until(&[NAME], tomorrow));
    until("it fires", async || prometheus.fires("TolerarchCertificateExpiresSoon").await).await;
    program.mount.swap(&program.pki.leaf(&[NAME]));
    until("it clears", async || !prometheus.fires("TolerarchCertificateExpiresSoon").await).await;
}
