//! A real Prometheus scrapes tolerarch and the API server. `e2e/binary/monitoring.rs` tests the alerts that need no API
//! server.

mod picture;

use std::path::Path;
use std::time::{Duration, SystemTime};

use scenarios::{Cluster, Namespace, Tolerarch, deployment, pod, until};
use serde_json::{Value, json};
use testregistry::{Fault, Registry};
use tokio::time::interval;

use self::picture::{Line, Panel, svg};
use crate::prometheus::{Prometheus, dashboard, encoded, filled};

/// The time span of a picture for documentation.
const PICTURE_SPAN: Duration = Duration::from_secs(180);

pub(crate) async fn alerts_fire_while_tolerarch_is_not_called(cluster: &Cluster) {
    let local = cluster.local();
    let mut tolerarch = local.tolerarch(json!({})).await;
    let called = cluster.namespace_with("alerts", &tolerarch.url).await;
    cluster.until_called(&called).await;
    let not_called = cluster.namespace_opted_out("alerts-not-called").await;
    let Some(prometheus) = Prometheus::start(local.scrape_configs(&[&tolerarch])).await else {
        return;
    };
    let web = pod(&[&cluster.images.tag("multi")]);
    // Creates so many Pods at a time in a namespace, until an alert fires or fires no longer.
    let until_alert = async |alert: &str, fires: bool, namespace: &Namespace, pods: usize| {
        until(&format!("{alert} fires: {fires}"), async || {
            for _ in 0..pods {
                namespace.dry_run(&web).await.unwrap();
            }
            (prometheus.fires(alert).await == fires).then_some(())
        })
        .await;
    };
    assert!(!prometheus.fires("TolerarchFailsOpen").await);
    tolerarch.process.kill().await;
    until_alert("TolerarchFailsOpen", true, &called, 1).await;
    tolerarch.start_again().await;
    until_alert("TolerarchFailsOpen", false, &called, 1).await;

    until_alert("TolerarchNotCalled", true, &not_called, 10).await;
    until_alert("TolerarchNotCalled", false, &called, 1).await;
}

/// If `E2E_DASHBOARD` names a file, writes a picture of some minutes there.
pub(crate) async fn every_panel_of_the_dashboard_shows_something(cluster: &Cluster) {
    let local = cluster.local();
    let registry = Registry::builder().pki(local.pki.clone()).start().await;
    let address = registry.address();
    let mut tolerarch = local.tolerarch_for(&address, json!({})).await;
    let namespace = cluster.namespace_with("panels", &tolerarch.url).await;
    cluster.until_called_without_effect(&namespace).await;
    let settings = json!({"controller": {
        "census": "1s", "repair": false,
        "webhookConfigurations": [cluster.configuration_of(&namespace)],
    }});
    let controller = local
        .controller_as(local.kubeconfig(), &address, settings)
        .await;
    // It manages a configuration that does not exist, so that it changes no other.
    let managed = json!({"tls": {"mode": "managed", "webhookConfigurations": ["nothing"]}});
    let issuer = local.issuer_as(local.kubeconfig(), managed).await;
    let jobs = local.scrape_configs(&[&tolerarch, &controller, &issuer]);
    let Some(prometheus) = Prometheus::start(jobs).await else {
        return;
    };
    for (turn, app) in ["web", "build", "old"].into_iter().enumerate() {
        let mut pod = pod(&[&image(&registry, turn + 5)]);
        pod["spec"]["containers"][0]["resources"] =
            json!({"requests": {"cpu": "500m", "memory": "256Mi"}});
        namespace.apply(&deployment(app, 4, &pod)).await;
    }

    let creations = async {
        let mut times = interval(Duration::from_millis(50));
        for turn in 0.. {
            times.tick().await;
            namespace
                .dry_run(&pod(&[&image(&registry, turn)]))
                .await
                .unwrap();
        }
    };
    let panels = async {
        fail_open(&prometheus, &mut tolerarch, &namespace).await;
        let dashboard = dashboard();
        for query in panels_of(&dashboard).flat_map(queries_of) {
            until(&query.text, async || {
                (!prometheus.query(&query.text).await.is_empty()).then_some(())
            })
            .await;
        }
        let file = std::env::var_os("E2E_DASHBOARD");
        let mut span = Duration::from_secs(10);
        if file.is_some() {
            cause_incidents(&registry, &prometheus, &mut tolerarch, &namespace).await;
            span = PICTURE_SPAN;
        }
        let picture = picture(&prometheus, &dashboard, span).await;
        assert!(picture.matches("<polyline").count() > 30, "{picture}");
        if let Some(file) = file {
            std::fs::write(Path::new(&file), picture).unwrap();
        }
    };
    tokio::select! {
        () = creations => {}
        () = panels => {}
    }
}

/// Returns an image for a turn: mostly one of a few, sometimes a new one, or one for one architecture.
fn image(registry: &Registry, turn: usize) -> String {
    let (repo, tag, platforms) = match turn % 10 {
        5 => (
            "team/web",
            format!("v{turn}"),
            &["linux/amd64", "linux/arm64"][..],
        ),
        6 => (
            "team/build",
            format!("v{turn}"),
            &["linux/amd64", "linux/arm64"][..],
        ),
        7 => ("team/old", "v1".to_owned(), &["linux/amd64"][..]),
        other => (
            "team/web",
            format!("stable-{other}"),
            &["linux/amd64", "linux/arm64"][..],
        ),
    };
    let repo = registry.repo(repo);
    repo.header(
        "ratelimit-remaining",
        Some(&format!("{};w=21600", 5000_usize.saturating_sub(turn / 5))),
    );
    repo.index(Some(&tag), platforms.iter().copied());
    repo.reference(&tag)
}

/// Stops tolerarch until Prometheus sees failed calls. The first failure creates the series, so it takes more than one.
async fn fail_open(prometheus: &Prometheus, tolerarch: &mut Tolerarch, namespace: &Namespace) {
    tolerarch.process.kill().await;
    let name = &namespace.name;
    let query = format!(
        "increase(apiserver_admission_webhook_fail_open_count{{name=\"pods.{name}.tolerarch.io\"}}[5s]) > 0"
    );
    until(&query, async || {
        (!prometheus.query(&query).await.is_empty()).then_some(())
    })
    .await;
    tolerarch.start_again().await;
}

/// Lets a registry fail for a while, and a replica stop for a moment.
async fn cause_incidents(
    registry: &Registry,
    prometheus: &Prometheus,
    tolerarch: &mut Tolerarch,
    namespace: &Namespace,
) {
    let mut steps = interval(PICTURE_SPAN / 6);
    steps.tick().await;
    for step in 0..6 {
        for repo in ["team/build", "team/web"] {
            let fault = (step == 2).then(|| Fault::status(503));
            registry.repo(repo).fault(fault);
        }
        if step == 4 {
            fail_open(prometheus, tolerarch, namespace).await;
        }
        steps.tick().await;
    }
}

fn panels_of(dashboard: &Value) -> impl Iterator<Item = &Value> {
    dashboard["panels"].as_array().expect("panels").iter()
}

/// A query of a panel.
struct Query<'p> {
    /// The query with Grafana's variables replaced.
    text: String,
    /// How its lines are named.
    legend: &'p str,
}

fn queries_of(panel: &Value) -> impl Iterator<Item = Query<'_>> {
    let targets = panel["targets"].as_array().into_iter().flatten();
    targets.map(|target| Query {
        text: filled(target["expr"].as_str().unwrap_or_default()),
        legend: target["legendFormat"].as_str().unwrap_or_default(),
    })
}

/// Draws the dashboard over the last `span`.
async fn picture(prometheus: &Prometheus, dashboard: &Value, span: Duration) -> String {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let to = since_epoch.unwrap().as_secs();
    let from = to - span.as_secs();
    let mut panels = Vec::new();
    for panel in panels_of(dashboard) {
        let mut lines = Vec::new();
        for Query { text, legend } in queries_of(panel) {
            let query = encoded(&text);
            let path = format!("/api/v1/query_range?query={query}&start={from}&end={to}&step=2");
            let series = prometheus.series(&query, &path).await;
            lines.extend(series.iter().map(|series| Line::of(series, legend)));
        }
        panels.push(Panel::of(panel, lines));
    }
    svg(&panels, from, to)
}
