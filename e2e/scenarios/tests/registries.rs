//! While a registry fails, Pods are created unchanged. When it works again, the next Pods get the toleration.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use scenarios::{Cluster, Namespace, PodExt, Tolerarch, pod, until};
use serde_json::{Value, json};
use testregistry::{Builder, Fault, Pki, Registry, Reply};
use tokio::time::Instant;

/// How long a Pod waits for a lookup here.
const BUDGET: Duration = Duration::from_secs(1);
/// How long a lookup may take; no Pod waits for so long.
const LOOKUP: Duration = Duration::from_secs(12);

/// A registry that can be broken, a tolerarch that uses it, and a namespace for which that is called.
struct Setup<'a> {
    cluster: &'a Cluster,
    registry: Option<Registry>,
    address: SocketAddr,
    namespace: Namespace,
    _tolerarch: Tolerarch,
}

impl<'a> Setup<'a> {
    async fn start(cluster: &'a Cluster, name: &str) -> Self {
        let registry = start_registry(Registry::builder().pki(cluster.local().pki.clone())).await;
        let tolerarch = cluster
            .local()
            .tolerarch_for(&registry.address(), settings())
            .await;
        let namespace = cluster.namespace_with(name, &tolerarch.url).await;
        let address = registry.socket_addr();
        Self {
            cluster,
            address,
            registry: Some(registry),
            namespace,
            _tolerarch: tolerarch,
        }
    }

    fn pod(&self, tag: &str) -> Value {
        pod(&[&format!("{}/app:{tag}", self.address)])
    }

    /// Waits until the webhook is called. It has then looked up the first image, but not the second.
    async fn until_called(&self) {
        self.until_tolerated("first").await;
    }

    async fn until_tolerated(&self, tag: &str) {
        let pod = self.pod(tag);
        until("the Pod gets the toleration", async || {
            let created = self.namespace.dry_run(&pod).await.unwrap();
            created.tolerates_pool().then_some(())
        })
        .await;
    }

    /// Stops the registry. Its address stays the same.
    async fn stop_registry(&mut self) {
        self.registry
            .take()
            .expect("a registry that runs")
            .stop()
            .await;
    }

    /// Starts the registry again, with a certificate of this authority.
    async fn start_registry(&mut self, pki: Arc<Pki>) {
        self.registry =
            Some(start_registry(Registry::builder().pki(pki).listen(self.address)).await);
    }

    /// Asserts that a Pod with the second image, whose lookup fails, is created unchanged by an answer of tolerarch.
    /// Returns how long the creation took.
    async fn assert_created_unchanged(&self) -> Duration {
        let failed_before = self.cluster.failed_open_in(&self.namespace).await;
        let start = Instant::now();
        let pod = self.namespace.pod(&self.pod("second")).await;
        let took = start.elapsed();
        assert!(!pod.tolerates_pool() && pod.pools().is_none(), "{pod:?}");
        let failed_after = self.cluster.failed_open_in(&self.namespace).await;
        assert_eq!(failed_after, failed_before, "{took:?}");
        // The first image is in the cache.
        let cached = self.namespace.pod(&self.pod("first")).await;
        assert!(cached.tolerates_pool());
        took
    }
}

fn settings() -> Value {
    let soon = "100ms";
    json!({
        "lookup": {"budget": format!("{}ms", BUDGET.as_millis()), "timeout": format!("{}s", LOOKUP.as_secs())},
        "cache": {"negative": {"notFound": soon, "denied": soon, "throttled": soon, "timeout": soon,
            "unreachable": soon, "badManifest": soon}},
    })
}

/// Starts a registry with the two images.
async fn start_registry(builder: Builder) -> Registry {
    let registry = builder.start().await;
    for tag in ["first", "second"] {
        registry
            .repo("app")
            .index(Some(tag), ["linux/amd64", "linux/arm64"]);
    }
    registry
}

pub(crate) async fn pods_stay_unchanged_while_the_registry_is_down(cluster: &Cluster) {
    let mut setup = Setup::start(cluster, "gone").await;
    setup.until_called().await;
    setup.stop_registry().await;
    setup.assert_created_unchanged().await;
    setup.start_registry(cluster.local().pki.clone()).await;
    setup.until_tolerated("second").await;
}

pub(crate) async fn hanging_registry_costs_at_most_the_budget(cluster: &Cluster) {
    let took = breaks_and_heals(cluster, "hangs", Fault::hang()).await;
    // Without the budget, the Pod would have waited until the lookup ended.
    assert!(took < LOOKUP / 2, "{took:?}");
}

pub(crate) async fn pods_stay_unchanged_while_the_registry_throttles(cluster: &Cluster) {
    let reply = Reply::error(429, "TOOMANYREQUESTS").header("retry-after", "1");
    breaks_and_heals(cluster, "throttles", Fault::reply(reply)).await;
}

pub(crate) async fn pods_stay_unchanged_while_the_registry_fails(cluster: &Cluster) {
    breaks_and_heals(cluster, "fails", Fault::status(500)).await;
}

pub(crate) async fn pods_stay_unchanged_while_the_registry_is_untrusted(cluster: &Cluster) {
    let mut setup = Setup::start(cluster, "wrong-pki").await;
    setup.until_called().await;
    setup.stop_registry().await;
    setup.start_registry(Arc::new(Pki::new())).await;
    setup.assert_created_unchanged().await;
    setup.stop_registry().await;
    setup.start_registry(cluster.local().pki.clone()).await;
    setup.until_tolerated("second").await;
}

/// Breaks the registry for a while. Returns how long the creation of a Pod took meanwhile.
async fn breaks_and_heals(cluster: &Cluster, name: &str, fault: Fault) -> Duration {
    let setup = Setup::start(cluster, name).await;
    setup.until_called().await;
    let repo = setup.registry.as_ref().expect("it runs").repo("app");
    repo.fault(Some(fault));
    let took = setup.assert_created_unchanged().await;
    repo.fault(None);
    setup.until_tolerated("second").await;
    took
}
