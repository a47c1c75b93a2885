//! A real Prometheus scrapes the program. The shipped alerts on the program's metrics fire and clear, and each panel of the
//! dashboard shows something. `promtool test rules` tests the alerts on metrics of API servers, with made-up series.

use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use serde_json::{Value, json};
use testregistry::{Fault, Leaf, Pki, Registry, Reply};
use tokio::time::interval;

use super::program::Program;
use crate::support::https::NAME;
use crate::support::prometheus::{Prometheus, dashboard, filled};
use crate::support::redis::Redis;
use crate::support::review::{opted_out, pod};
use crate::support::{soon, until};

/// Metrics of the dashboard that have no series here: those of API servers, of the controller and of the certificate issuer,
/// and one that only some registries cause.
const ABSENT_METRICS: [&str; 4] = [
    "apiserver_",
    "tolerarch_cluster_",
    "tolerarch_managed_",
    "tolerarch_registry_ratelimit_remaining",
];

/// Time between two tries, which is also the time between two evaluations of the rules.
const ROUND: Duration = Duration::from_millis(200);

/// A program, the Prometheus that scrapes it, and its registry.
struct ScrapedProgram {
    registry: Registry,
    program: Program,
    prometheus: Prometheus,
    /// Number of images so far, for names that are not used yet.
    images: std::cell::Cell<usize>,
}

impl ScrapedProgram {
    /// Returns `None` if there is no Prometheus.
    async fn start(settings: Value) -> Option<Self> {
        let registry = Registry::start().await;
        let program = Program::start(&registry, settings).await;
        let scrape = json!([{"job_name": "tolerarch", "static_configs": [{"targets": [program.admin.address()]}]}]);
        let prometheus = Prometheus::start(scrape).await?;
        let scraped = Self {
            registry,
            program,
            prometheus,
            images: 0.into(),
        };
        scraped.until_found("tolerarch_build_info").await;
        Some(scraped)
    }

    async fn until_found(&self, query: &str) {
        until(query, async || {
            !self.prometheus.query(query).await.is_empty()
        })
        .await;
    }

    /// Pushes an image to a new repository, and returns its reference.
    fn image(&self, fault: Option<&Fault>) -> String {
        let number = self.images.replace(self.images.get() + 1);
        let repo = self.registry.repo(&format!("team/app-{number}"));
        repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
        repo.fault(fault.cloned());
        repo.reference("v1")
    }

    /// Reviews a Pod with this number of new images.
    async fn review(&self, images: usize, fault: Option<&Fault>) {
        let images: Vec<String> = (0..images).map(|_| self.image(fault)).collect();
        self.program
            .review(&pod(&images.iter().map(String::as_str).collect::<Vec<_>>()))
            .await;
    }

    /// Repeats `action` until the alert fires.
    async fn fires(&self, alert: &str, action: impl AsyncFn()) {
        self.repeat_until(&format!("{alert} fires"), action, async || {
            self.prometheus.fires(alert).await
        })
        .await;
    }

    /// Repeats `action` until the alert no longer fires.
    async fn clears(&self, alert: &str, action: impl AsyncFn()) {
        self.repeat_until(&format!("{alert} clears"), action, async || {
            !self.prometheus.fires(alert).await
        })
        .await;
    }

    /// Repeats `action` until `is_done` returns true. Prometheus may miss what happens only once.
    async fn repeat_until(
        &self,
        what: &str,
        action: impl AsyncFn(),
        is_done: impl AsyncFn() -> bool,
    ) {
        let mut rounds = interval(ROUND);
        let rounds = async {
            loop {
                rounds.tick().await;
                action().await;
                if is_done().await {
                    return;
                }
            }
        };
        soon(what, rounds).await;
    }
}

async fn nothing() {}

#[tokio::test]
async fn dashboard_shows_the_scraped_metrics() {
    let Some(scraped) = ScrapedProgram::start(json!({})).await else {
        return;
    };
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    let queries = targets.map(|target| target["expr"].as_str().unwrap());
    let queries =
        queries.filter(|query| !ABSENT_METRICS.iter().any(|metric| query.contains(metric)));
    let queries: Vec<String> = queries.map(filled).collect();
    assert!(queries.len() > 20, "{queries:?}");
    for query in queries {
        let shows = async || !scraped.prometheus.query(&query).await.is_empty();
        scraped
            .repeat_until(&query, async || scraped.review(1, None).await, shows)
            .await;
    }
}

#[tokio::test]
async fn alert_fires_while_a_configuration_is_refused() {
    let Some(scraped) = ScrapedProgram::start(json!({})).await else {
        return;
    };
    assert!(!scraped.prometheus.fires("TolerarchReloadRefused").await);
    scraped.program.configure(json!({"mode": "nonsense"}));
    scraped.fires("TolerarchReloadRefused", nothing).await;
    scraped.program.configure(json!({}));
    scraped.clears("TolerarchReloadRefused", nothing).await;
}

#[tokio::test]
async fn alert_fires_while_the_shared_cache_is_down() {
    let Some(mut redis) = Redis::start(&[]).await else {
        return;
    };
    let Some(scraped) =
        ScrapedProgram::start(json!({"cache": {"shared": {"url": redis.url()}}})).await
    else {
        return;
    };
    assert!(!scraped.prometheus.fires("TolerarchDegraded").await);
    redis.kill().await;
    scraped
        .fires("TolerarchDegraded", async || scraped.review(1, None).await)
        .await;
    redis.restart().await;
    scraped.clears("TolerarchDegraded", nothing).await;
}

#[tokio::test]
async fn alerts_fire_for_expiring_and_invalid_certificates() {
    let tomorrow = SystemTime::now() + Duration::from_secs(24 * 3600);
    tokio::join!(
        an_alert_fires_for_a_certificate("TolerarchCertificateExpiresSoon", |pki| {
            pki.leaf_until(&[NAME], tomorrow)
        }),
        an_alert_fires_for_a_certificate("TolerarchCertificateInvalid", |pki| {
            pki.leaf(&["other.tolerarch.svc"])
        }),
    );
}

async fn an_alert_fires_for_a_certificate(alert: &str, bad: impl FnOnce(&Pki) -> Leaf) {
    let Some(scraped) = ScrapedProgram::start(json!({"tls": {"serverName": NAME}})).await else {
        return;
    };
    let mount = &scraped.program.mount;
    let pki = &scraped.program.pki;
    assert!(!scraped.prometheus.fires(alert).await);
    mount.swap(&bad(pki));
    scraped.fires(alert, nothing).await;
    mount.swap(&pki.leaf(&[NAME]));
    scraped.clears(alert, nothing).await;
}

#[tokio::test]
async fn alerts_fire_while_a_registry_fails() {
    let Some(scraped) = ScrapedProgram::start(json!({})).await else {
        return;
    };
    let fault = Fault::status(503);
    // One Pod has all images, so that their lookups start before the circuit opens. A good answer closes it again.
    let fail = async || {
        scraped.review(20, Some(&fault)).await;
        scraped.review(1, None).await;
    };
    scraped.fires("TolerarchRegistryUnreachable", fail).await;
    scraped
        .fires("TolerarchCircuitOpen", async || {
            scraped.review(3, Some(&fault)).await;
        })
        .await;
    for alert in ["TolerarchRegistryUnreachable", "TolerarchCircuitOpen"] {
        scraped
            .clears(alert, async || scraped.review(1, None).await)
            .await;
    }
}

#[tokio::test]
async fn alerts_fire_while_a_registry_throttles_or_hangs() {
    let reply = Reply::error(429, "TOOMANYREQUESTS").header("retry-after", "1");
    tokio::join!(
        an_alert_fires_by_reviews("TolerarchRegistryThrottles", Fault::reply(reply)),
        an_alert_fires_by_reviews("TolerarchBudgetExceeded", Fault::hang()),
    );
}

/// The alerts need at least ten reviews.
async fn an_alert_fires_by_reviews(alert: &str, fault: Fault) {
    let Some(scraped) = ScrapedProgram::start(json!({"lookup": {"budget": "300ms"}})).await else {
        return;
    };
    assert!(!scraped.prometheus.fires(alert).await);
    let faulty = pod(&[&scraped.image(Some(&fault))]);
    let reviews = async || drop(join_all((0..10).map(|_| scraped.program.review(&faulty))).await);
    scraped.fires(alert, reviews).await;
    scraped
        .clears(alert, async || {
            drop(scraped.program.review(&opted_out()).await);
        })
        .await;
}
