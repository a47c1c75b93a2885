//! A real Prometheus scrapes tolerarch and the API server. `e2e/binary/monitoring.rs` has the alerts that need no API
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

/// How long a picture for people is watched.
const STORY: Duration = Duration::from_secs(180);

pub(crate) async fn alerts_fire_while_tolerarch_is_not_called(cluster: &Cluster) {
    let local = cluster.local();
    let mut tolerarch = local.tolerarch(json!({})).await;
    let called = cluster.namespace_with("alerts", &tolerarch.url).await;
    cluster.until_called(&called).await;
    let elsewhere = cluster.namespace_opted_out("alerts-elsewhere").await;
    let Some(prometheus) = Prometheus::start(local.scrape_configs(&[&tolerarch])).await else {
        return;
    };
    let web = pod(&[&cluster.images.tag("multi")]);
    // While Pods are created there, some at a time.
    let until_it = async |alert: &str, fires: bool, (namespace, some): (&Namespace, usize)| {
        until(&format!("{alert} fires: {fires}"), async || {
            for _ in 0..some {
                namespace.dry_run(&web).await.unwrap();
            }
            (prometheus.fires(alert).await == fires).then_some(())
        })
        .await;
    };
    assert!(!prometheus.fires("TolerarchFailsOpen").await);
    tolerarch.process.kill().await;
    until_it("TolerarchFailsOpen", true, (&called, 1)).await;
    tolerarch.start_again().await;
    until_it("TolerarchFailsOpen", false, (&called, 1)).await;

    until_it("TolerarchNotCalled", true, (&elsewhere, 10)).await;
    until_it("TolerarchNotCalled", false, (&called, 1)).await;
}

/// With a file in `E2E_DASHBOARD` some minutes of a cluster go there as a picture.
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
    // Of a configuration that is not there: those of others stay as they are.
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
        for (_, query, _) in panels_of(&dashboard).flat_map(queries_of) {
            until(&query, async || {
                (!prometheus.query(&query).await.is_empty()).then_some(())
            })
            .await;
        }
        let file = std::env::var_os("E2E_DASHBOARD");
        if file.is_some() {
            go_through_a_story(&registry, &prometheus, &mut tolerarch, &namespace).await;
        }
        let span = if file.is_some() {
            STORY
        } else {
            Duration::from_secs(10)
        };
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

/// Pods use some images again and again, and now and then one that is new, or for one architecture.
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

/// The API server counts by a metric only what was there before, so it takes more than one failure.
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

/// What happens in a cluster: a registry fails for a while, and a replica is gone for a moment.
async fn go_through_a_story(
    registry: &Registry,
    prometheus: &Prometheus,
    tolerarch: &mut Tolerarch,
    namespace: &Namespace,
) {
    let mut parts = interval(STORY / 6);
    parts.tick().await;
    for part in 0..6 {
        let fails = part == 2;
        registry
            .repo("team/build")
            .fault(fails.then(|| Fault::status(503)));
        registry
            .repo("team/web")
            .fault(fails.then(|| Fault::status(503)));
        if part == 4 {
            fail_open(prometheus, tolerarch, namespace).await;
        }
        parts.tick().await;
    }
}

fn panels_of(dashboard: &Value) -> impl Iterator<Item = &Value> {
    dashboard["panels"].as_array().expect("panels").iter()
}

/// The queries of a panel, as Grafana fills them in, what their lines are called, and the panel.
fn queries_of(panel: &Value) -> impl Iterator<Item = (&Value, String, &str)> {
    let targets = panel["targets"].as_array().into_iter().flatten();
    targets.map(move |target| {
        let text = |key: &str| target[key].as_str().unwrap_or_default();
        (panel, filled(text("expr")), text("legendFormat"))
    })
}

/// The dashboard over this last time.
async fn picture(prometheus: &Prometheus, dashboard: &Value, span: Duration) -> String {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let from = now - span.as_secs();
    let to = now;
    let mut panels = Vec::new();
    for panel in panels_of(dashboard) {
        let mut lines = Vec::new();
        for (_, query, legend) in queries_of(panel) {
            let query = encoded(&query);
            let path = format!("/api/v1/query_range?query={query}&start={from}&end={to}&step=2");
            let series = prometheus.ask(&query, &path).await;
            lines.extend(series.iter().map(|series| Line::of(series, legend)));
        }
        panels.push(Panel::of(panel, lines));
    }
    svg(&panels, from, to)
}
