//! A snapshot whose registry is a test registry in this process.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails at once"
)]

use serde_json::{Value, json};
use testregistry::Registry as Remote;

use super::*;
use tolerarch_images::registry::testing::registry_metrics;
use tolerarch_images::registry::{AddressGuard, HostSettings, Registry};
use tolerarch_images::resolver::{CacheSettings, LookupSettings, ResolverMetrics};
use tolerarch_support::metrics::Metrics;

pub const BOTH: [&str; 2] = ["linux/amd64", "linux/arm64"];

/// A snapshot with the default pool, and its test registry.
pub struct TestEngine {
    pub remote: Remote,
    pub current: CurrentSnapshot,
    pub metrics: Metrics,
}

impl TestEngine {
    pub async fn new() -> Self {
        Self::with(Credentials::default()).await
    }

    pub async fn with(credentials: Credentials) -> Self {
        Self::with_cache(credentials, CacheSettings::default()).await
    }

    pub async fn with_cache(credentials: Credentials, cache: CacheSettings) -> Self {
        let remote = Remote::builder().plain_http().start().await;
        let metrics = Metrics::new([]).unwrap();
        let current = snapshot_for(&remote, credentials, cache, &metrics);
        Self {
            remote,
            current,
            metrics,
        }
    }

    /// Replaces the policy, and removes credentials and lessons.
    pub fn decide_by(&self, policy: Policy) {
        let before = self.current.load_full();
        self.current.store(Arc::new(Snapshot {
            policy,
            profiles: BTreeMap::new(),
            budget: before.budget,
            credentials: Credentials::default(),
            resolver: before.resolver.clone(),
            lessons: Arc::default(),
        }));
    }

    /// Replaces the lessons.
    pub fn learn(&self, lessons: Lessons) {
        let before = Snapshot::clone(&self.current.load_full());
        self.current.store(Arc::new(Snapshot {
            lessons: Arc::new(lessons),
            ..before
        }));
    }

    /// Adds an image with these platforms to the registry, and returns its reference.
    pub fn image(&self, name: &str, platforms: &[&str]) -> String {
        let repo = self.remote.repo(name);
        repo.index(Some("v1"), platforms.iter().copied());
        repo.reference("v1")
    }

    pub async fn decide(&self, pod: &Value) -> &'static str {
        let snapshot = self.current.load_full();
        let wait = Wait::Until {
            deadline: Instant::now() + snapshot.budget,
            review: None,
        };
        let pod = Pod::of_value(pod).unwrap();
        let decision = snapshot.decide(&snapshot.policy, "shop", &pod, wait).await;
        decision.reason.as_str()
    }

    pub async fn reason(&self, images: &[&str]) -> &'static str {
        self.decide(&pod(images)).await
    }
}

pub fn pod(images: &[&str]) -> Value {
    let containers: Vec<Value> = images.iter().map(|image| json!({"image": image})).collect();
    json!({"metadata": {"generateName": "web-"}, "spec": {"containers": containers}})
}

/// Returns a snapshot with the default pool that looks up images in this registry, with an empty cache.
pub fn snapshot_for(
    remote: &Remote,
    credentials: Credentials,
    cache: CacheSettings,
    metrics: &Metrics,
) -> CurrentSnapshot {
    let guard = AddressGuard {
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        deny: vec![],
    };
    let plain = HostSettings {
        plain_http: true,
        ..HostSettings::default()
    };
    let registry = Registry::new([(remote.address(), plain)], guard, registry_metrics()).unwrap();
    // Long enough that a machine under load does not look like a registry that hangs.
    let budget = Duration::from_secs(60);
    let lookup = LookupSettings {
        budget,
        timeout: 2 * budget,
        ..LookupSettings::default()
    };
    let counts = ResolverMetrics::register(metrics).unwrap();
    let resolver = Resolver::new(registry, lookup, cache, counts, None);
    Arc::new(ArcSwap::from_pointee(Snapshot {
        policy: Policy::default(),
        profiles: BTreeMap::new(),
        budget,
        credentials,
        resolver,
        lessons: Arc::default(),
    }))
}
