//! A real Prometheus scrapes the program: the shipped alerts on its own metrics fire and clear, and the dashboard shows
//! something. `promtool test rules` tries the alerts about API servers, with made-up series.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use testregistry::{Fault, Registry, Reply};

use super::program::Program;
use crate::support::https::NAME;
use crate::support::prometheus::{Prometheus, dashboard, filled};
use crate::support::redis::Redis;
use crate::support::review::pod;
use crate::support::until;

/// What of the dashboard is not tried: API servers' metrics, the controller's, and one that only some registries give.
const ELSEWHERE: [&str; 3] = ["apiserver_", "tolerarch_cluster_", "tolerarch_registry_ratelimit_remaining"];

/// A program that is scraped.
struct Setup {
    registry: Registry,
    program: Program,
    prometheus: Prometheus,
    /// How many images were named so far.
    images: std::cell::Cell<usize>,
}

impl Setup {
    /// `None` where there is no Prometheus.
    async fn start(settings: Value) -> Option<Self> {
        let registry = Registry::start().await;
        let program = Program::start(&registry, settings).await;
        let scrape =
            json!([{"job_name": "tolerarch", "static_configs": [{"targets": [program.admin.address()]}]}]);
        let prometheus = Prometheus::start("200ms", scrape).await?;
        let setup = Self { registry, program, prometheus, images: 0.into() };
        setup.until_found("tolerarch_build_info").await;
        Some(setup)
    }

    async fn until_found(&self, query: &str) {
        until(query, async || !self.prometheus.query(query).await.is_empty()).await;
    }

    /// Reviews a Pod with so many new images, each of another repository.
    async fn review(&self, images: usize, fault: Option<&Fault>) {
        let first = self.images.replace(self.images.get() + images);
        let images = (first..first + images).map(|number| {
            let repo = self.registry.repo(&format!("team/app-{number}"));
            repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
            repo.fault(fault.cloned());
            repo.reference("v1")
        });
        let images: Vec<String> = images.collect();
        self.program.review(&pod(&images.iter().map(String::as_str).collect::<Vec<_>>())).await;
    }

    /// Waits until the alert fires, doing this again and again.
    async fn fires(&self, alert: &str, doing: impl AsyncFn()) {
        until(&format!("{alert} fires"), async || {
            doing().await;
            self.prometheus.fires(alert).await
        })
        .await;
    }

    /// Waits until the alert fires no more, doing this again and again.
    async fn clears(&self, alert: &str, doing: impl AsyncFn()) {
        until(&format!("{alert} clears"), async || {
            doing().await;
            !self.prometheus.fires(alert).await
        })
        .await;
    }
}

async fn nothing() {}

#[tokio::test]
async fn the_dashboard_shows_what_was_scraped() {
    let Some(setup) = Setup::start(json!({})).await else { return };
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries = targets.map(|target| target["expr"].as_str().unwrap());
    let queries = queries.filter(|query| !ELSEWHERE.iter().any(|metric| query.contains(metric)));
    let queries: Vec<String> = queries.map(filled).collect();
    assert!(queries.len() > 20, "{queries:?}");
    for query in queries {
        until(&query, async || {
            setup.review(1, None).await;
            !setup.prometheus.query(&query).await.is_empty()
        })
        .await;
    }
}

#[tokio::test]
async fn an_alert_fires_while_a_configuration_is_refused() {
    let Some(setup) = Setup::start(json!({})).await else { return };
    assert!(!setup.prometheus.fires("TolerarchReloadRefused").await);
    setup.program.configure(json!({"mode": "nonsense"}));
    setup.fires("TolerarchReloadRefused", nothing).await;
    setup.program.configure(json!({}));
    setup.clears("TolerarchReloadRefused", nothing).await;
}

#[tokio::test]
async fn an_alert_fires_while_the_shared_cache_is_away() {
    let Some(mut redis) = Redis::start(&[]).await else { return };
    let Some(setup) = Setup::start(json!({"cache": {"shared": {"url": redis.url()}}})).await else { return };
    assert!(!setup.prometheus.fires("TolerarchDegraded").await);
    redis.kill().await;
    setup.fires("TolerarchDegraded", async || setup.review(1, None).await).await;
    redis.restart().await;
    setup.clears("TolerarchDegraded", nothing).await;
}

#[tokio::test]
async fn alerts_fire_for_certificates_near_their_end_and_for_wrong_ones() {
    let Some(setup) = Setup::start(json!({"tls": {"serverName": NAME}})).await else { return };
    let (mount, pki) = (&setup.program.mount, &setup.program.pki);
    let tomorrow = SystemTime::now() + Duration::from_secs(24 * 3600);
    for (alert, bad) in [
        ("TolerarchCertificateExpiresSoon", pki.leaf_until(&[NAME], tomorrow)),
        ("TolerarchCertificateInvalid", pki.leaf(&["other.tolerarch.svc"])),
    ] {
        assert!(!setup.prometheus.fires(alert).await);
        mount.swap(&bad);
        setup.fires(alert, nothing).await;
        mount.swap(&pki.leaf(&[NAME]));
        setup.clears(alert, nothing).await;
    }
}

#[tokio::test]
async fn alerts_fire_while_a_registry_fails() {
    let Some(setup) = Setup::start(json!({})).await else { return };
    let fault = Fault::status(503);
    // Prometheus sees a count rise only from what it has seen before.
    setup.review(1, Some(&fault)).await;
    setup.until_found(r#"tolerarch_registry_requests_total{code="5xx"}"#).await;
    // All at once, before the circuit opens.
    setup.review(20, Some(&fault)).await;
    setup.fires("TolerarchRegistryUnreachable", nothing).await;
    setup.fires("TolerarchCircuitOpen", async || setup.review(1, Some(&fault)).await).await;
    for alert in ["TolerarchRegistryUnreachable", "TolerarchCircuitOpen"] {
        setup.clears(alert, async || setup.review(1, None).await).await;
    }
}

#[tokio::test]
async fn alerts_fire_while_a_registry_throttles_or_takes_too_long() {
    let settings = json!({"lookup": {"budget": "100ms"}, "cache": {"negative": {"throttled": "100ms"}}});
    let Some(setup) = Setup::start(settings).await else { return };
    let reply = Reply::error(429, "TOOMANYREQUESTS").header("retry-after", "1");
    for (alert, fault) in
        [("TolerarchRegistryThrottles", Fault::reply(reply)), ("TolerarchBudgetExceeded", Fault::hang())]
    {
        assert!(!setup.prometheus.fires(alert).await);
        setup.fires(alert, async || setup.review(1, Some(&fault)).await).await;
        setup.clears(alert, async || setup.review(1, None).await).await;
    }
}
