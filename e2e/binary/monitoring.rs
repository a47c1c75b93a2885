//! A real Prometheus scrapes the program: the shipped alerts on its own metrics fire and clear, and the dashboard shows
//! something. `promtool test rules` tries the alerts about API servers, with made-up series.

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

/// What of the dashboard is not tried: metrics of API servers, of the controller and of what issues certificates, and one that only
/// some registries give.
const ELSEWHERE: [&str; 4] = [
    "apiserver_",
    "tolerarch_cluster_",
    "tolerarch_managed_",
    "tolerarch_registry_ratelimit_remaining",
];

/// As often as rules are evaluated.
const ROUND: Duration = Duration::from_millis(200);

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
        let scrape = json!([{"job_name": "tolerarch", "static_configs": [{"targets": [program.admin.address()]}]}]);
        let prometheus = Prometheus::start(scrape).await?;
        let setup = Self {
            registry,
            program,
            prometheus,
            images: 0.into(),
        };
        setup.until_found("tolerarch_build_info").await;
        Some(setup)
    }

    async fn until_found(&self, query: &str) {
        until(query, async || {
            !self.prometheus.query(query).await.is_empty()
        })
        .await;
    }

    /// A new image in a repository of its own.
    fn image(&self, fault: Option<&Fault>) -> String {
        let number = self.images.replace(self.images.get() + 1);
        let repo = self.registry.repo(&format!("team/app-{number}"));
        repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
        repo.fault(fault.cloned());
        repo.reference("v1")
    }

    /// Reviews a Pod with so many new images.
    async fn review(&self, images: usize, fault: Option<&Fault>) {
        let images: Vec<String> = (0..images).map(|_| self.image(fault)).collect();
        self.program
            .review(&pod(&images.iter().map(String::as_str).collect::<Vec<_>>()))
            .await;
    }

    /// Waits until the alert fires, doing this again and again.
    async fn fires(&self, alert: &str, doing: impl AsyncFn()) {
        self.see(&format!("{alert} fires"), doing, async || {
            self.prometheus.fires(alert).await
        })
        .await;
    }

    /// Waits until the alert fires no more, doing this again and again.
    async fn clears(&self, alert: &str, doing: impl AsyncFn()) {
        self.see(&format!("{alert} clears"), doing, async || {
            !self.prometheus.fires(alert).await
        })
        .await;
    }

    /// Does something until it is seen, which may be after some rounds: what happens once, Prometheus may miss.
    async fn see(&self, what: &str, doing: impl AsyncFn(), seen: impl AsyncFn() -> bool) {
        let mut rounds = interval(ROUND);
        let rounds = async {
            loop {
                rounds.tick().await;
                doing().await;
                if seen().await {
                    return;
                }
            }
        };
        soon(what, rounds).await;
    }
}

async fn nothing() {}

#[tokio::test]
async fn the_dashboard_shows_what_was_scraped() {
    let Some(setup) = Setup::start(json!({})).await else {
        return;
    };
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels
        .filter_map(|panel| panel["targets"].as_array())
        .flatten();
    let queries = targets.map(|target| target["expr"].as_str().unwrap());
    let queries = queries.filter(|query| !ELSEWHERE.iter().any(|metric| query.contains(metric)));
    let queries: Vec<String> = queries.map(filled).collect();
    assert!(queries.len() > 20, "{queries:?}");
    for query in queries {
        let shows = async || !setup.prometheus.query(&query).await.is_empty();
        setup
            .see(&query, async || setup.review(1, None).await, shows)
            .await;
    }
}

#[tokio::test]
async fn an_alert_fires_while_a_configuration_is_refused() {
    let Some(setup) = Setup::start(json!({})).await else {
        return;
    };
    assert!(!setup.prometheus.fires("TolerarchReloadRefused").await);
    setup.program.configure(json!({"mode": "nonsense"}));
    setup.fires("TolerarchReloadRefused", nothing).await;
    setup.program.configure(json!({}));
    setup.clears("TolerarchReloadRefused", nothing).await;
}

#[tokio::test]
async fn an_alert_fires_while_the_shared_cache_is_away() {
    let Some(mut redis) = Redis::start(&[]).await else {
        return;
    };
    let Some(setup) = Setup::start(json!({"cache": {"shared": {"url": redis.url()}}})).await else {
        return;
    };
    assert!(!setup.prometheus.fires("TolerarchDegraded").await);
    redis.kill().await;
    setup
        .fires("TolerarchDegraded", async || setup.review(1, None).await)
        .await;
    redis.restart().await;
    setup.clears("TolerarchDegraded", nothing).await;
}

#[tokio::test]
async fn alerts_fire_for_certificates_near_their_end_and_for_wrong_ones() {
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
    let Some(setup) = Setup::start(json!({"tls": {"serverName": NAME}})).await else {
        return;
    };
    let mount = &setup.program.mount;
    let pki = &setup.program.pki;
    assert!(!setup.prometheus.fires(alert).await);
    mount.swap(&bad(pki));
    setup.fires(alert, nothing).await;
    mount.swap(&pki.leaf(&[NAME]));
    setup.clears(alert, nothing).await;
}

#[tokio::test]
async fn alerts_fire_while_a_registry_fails() {
    let Some(setup) = Setup::start(json!({})).await else {
        return;
    };
    let fault = Fault::status(503);
    // All at once, before the circuit opens; a good answer closes it again.
    let fail = async || {
        setup.review(20, Some(&fault)).await;
        setup.review(1, None).await;
    };
    setup.fires("TolerarchRegistryUnreachable", fail).await;
    setup
        .fires("TolerarchCircuitOpen", async || {
            setup.review(3, Some(&fault)).await;
        })
        .await;
    for alert in ["TolerarchRegistryUnreachable", "TolerarchCircuitOpen"] {
        setup
            .clears(alert, async || setup.review(1, None).await)
            .await;
    }
}

#[tokio::test]
async fn alerts_fire_while_a_registry_throttles_or_takes_too_long() {
    let reply = Reply::error(429, "TOOMANYREQUESTS").header("retry-after", "1");
    tokio::join!(
        an_alert_fires_by_reviews("TolerarchRegistryThrottles", Fault::reply(reply)),
        an_alert_fires_by_reviews("TolerarchBudgetExceeded", Fault::hang()),
    );
}

/// Ten reviews are the least that it goes by.
async fn an_alert_fires_by_reviews(alert: &str, fault: Fault) {
    let Some(setup) = Setup::start(json!({"lookup": {"budget": "300ms"}})).await else {
        return;
    };
    assert!(!setup.prometheus.fires(alert).await);
    let faulty = pod(&[&setup.image(Some(&fault))]);
    let reviews = async || drop(join_all((0..10).map(|_| setup.program.review(&faulty))).await);
    setup.fires(alert, reviews).await;
    setup
        .clears(alert, async || {
            drop(setup.program.review(&opted_out()).await);
        })
        .await;
}
