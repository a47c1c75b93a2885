//! What decides, in front of a registry in this process.

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

/// What decides with the default pool, in front of a registry in this process.
pub struct Bench {
    pub remote: Remote,
    pub current: Current,
    pub metrics: Metrics,
}

impl Bench {
    pub async fn new() -> Self {
        Self::with(Credentials::default()).await
    }

    pub async fn with(credentials: Credentials) -> Self {
        Self::with_cache(credentials, CacheSettings::default()).await
    }

    pub async fn with_cache(credentials: Credentials, cache: CacheSettings) -> Self {
        let remote = Remote::builder().plain_http().start().await;
        let metrics = Metrics::new([]).unwrap();
        let current = in_front_of(&remote, credentials, cache, &metrics);
        Self {
            remote,
            current,
            metrics,
        }
    }

    /// Decides by another policy from now on.
    pub fn decide_by(&self, policy: Policy) {
        let (budget, resolver) = (
            self.current.load_full().budget,
            self.current.load_full().resolver.clone(),
        );
        self.current.store(Arc::new(Snapshot {
            policy,
            profiles: BTreeMap::new(),
            budget,
            credentials: Credentials::default(),
            resolver,
            lessons: Arc::default(),
        }));
    }

    /// Decides by these lessons from now on.
    pub fn learn(&self, lessons: Lessons) {
        let before = Snapshot::clone(&self.current.load_full());
        self.current.store(Arc::new(Snapshot {
            lessons: Arc::new(lessons),
            ..before
        }));
    }

    /// The reference of an image with these platforms.
    pub fn image(&self, name: &str, platforms: &[&str]) -> String {
        let repo = self.remote.repo(name);
        repo.index(Some("v1"), platforms.iter().copied());
        repo.reference("v1")
    }

    pub async fn decide(&self, pod: &Value) -> &'static str {
        let snapshot = self.current.load_full();
        let until = Wait::Until {
            deadline: Instant::now() + snapshot.budget,
            review: None,
        };
        snapshot
            .decide(
                &snapshot.policy,
                "shop",
                &Pod::of_value(pod).unwrap(),
                until,
            )
            .await
            .reason
            .as_str()
    }

    pub async fn reason(&self, images: &[&str]) -> &'static str {
        self.decide(&pod(images)).await
    }
}

pub fn pod(images: &[&str]) -> Value {
    let containers: Vec<Value> = images.iter().map(|image| json!({"image": image})).collect();
    json!({"metadata": {"generateName": "web-"}, "spec": {"containers": containers}})
}

/// What decides with the default pool, in front of this registry, about which it knows nothing.
pub fn in_front_of(
    remote: &Remote,
    credentials: Credentials,
    cache: CacheSettings,
    metrics: &Metrics,
) -> Current {
    let guard = AddressGuard {
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        deny: vec![],
    };
    let plain = HostSettings {
        plain_http: true,
        ..HostSettings::default()
    };
    let registry = Registry::new([(remote.address(), plain)], guard, registry_metrics()).unwrap();
    // A machine under load is no registry that hangs.
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
