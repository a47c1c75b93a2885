use serde_json::{Value, json};
use testregistry::{Fault, Kind, Registry as Remote};

use super::*;
use crate::decide::testing::snapshot_for;
use tolerarch_images::credentials::Credentials;
use tolerarch_images::resolver::CacheSettings;
use tolerarch_kubernetes::cluster::testing::Lists;
use tolerarch_support::metrics::Metrics;

/// A cluster with running Pods, and a registry.
struct TestCluster {
    api: Lists,
    remote: Remote,
    state: Reported,
}

impl TestCluster {
    async fn new() -> Self {
        let remote = Remote::builder().plain_http().start().await;
        Self {
            api: Lists::start().await,
            remote,
            state: Reported::default(),
        }
    }

    fn pod(&self, name: &str, images: &[&str]) {
        let containers: Vec<Value> = images
            .iter()
            .map(|image| json!({"name": "c", "image": format!("{}/{image}:v1", self.remote.address())}))
            .collect();
        self.api.put(
            StoredPod::PATH,
            json!({
                "metadata": {"name": name, "namespace": "team"},
                "spec": {"containers": containers},
                "status": {"phase": "Running"},
            }),
        );
    }

    fn images(&self, names: &[&str]) {
        for name in names {
            self.remote
                .repo(name)
                .index(Some("v1"), ["linux/amd64", "linux/arm64"]);
        }
    }

    fn current(&self) -> CurrentSnapshot {
        let metrics = Metrics::new([]).unwrap();
        snapshot_for(
            &self.remote,
            Credentials::default(),
            CacheSettings::default(),
            &metrics,
        )
    }

    async fn warm(&self, current: &CurrentSnapshot) {
        let settings = WarmSettings {
            from_pods: true,
            per_second: 1000,
        };
        run(
            self.api.watcher(),
            current.clone(),
            settings,
            self.state.clone(),
        )
        .await;
    }

    fn lookups(&self) -> usize {
        self.remote.count(|request| request.kind == Kind::Manifest)
    }

    fn is_known(&self, current: &CurrentSnapshot, name: &str) -> bool {
        let image = format!("{}/{name}:v1", self.remote.address())
            .parse()
            .unwrap();
        let snapshot = current.load_full();
        snapshot.resolver.is_settled(
            &image,
            &snapshot.credentials.shared_keyring().candidates(&image),
        )
    }
}

#[tokio::test]
async fn images_of_running_pods_are_cached() {
    let cluster = TestCluster::new().await;
    cluster.images(&["a", "b", "c"]);
    for replica in 0..150 {
        cluster.pod(&format!("one-{replica}"), &["a", "b"]);
    }
    cluster.pod("other", &["c", "missing"]);
    let current = cluster.current();
    cluster.warm(&current).await;
    for name in ["a", "b", "c"] {
        assert!(cluster.is_known(&current, name), "{name}");
    }
    assert!(!cluster.is_known(&current, "missing"));
    assert_eq!(cluster.lookups(), 4, "each image is looked up once");
    cluster.warm(&current).await;
    assert_eq!(cluster.lookups(), 4, "cached images are not looked up");
}

#[tokio::test]
async fn throttling_registry_is_left_out() {
    let cluster = TestCluster::new().await;
    let names: Vec<String> = (0..50).map(|name| format!("app-{name}")).collect();
    for name in &names {
        cluster.images(&[name]);
        cluster.remote.repo(name).fault(Some(Fault::status(429)));
        cluster.pod(name, &[name]);
    }
    cluster.warm(&cluster.current()).await;
    assert!(
        cluster.lookups() <= LOOKUPS,
        "{} requests",
        cluster.lookups()
    );
    assert_eq!(cluster.state.get(), State::Healthy);
}

#[tokio::test]
async fn registry_is_left_out_below_three_quarters_of_its_limit() {
    for (left, expected) in [("75;w=21600", 50..=50), ("74;w=21600", 1..=LOOKUPS)] {
        let cluster = TestCluster::new().await;
        let names: Vec<String> = (0..50).map(|name| format!("app-{name}")).collect();
        for name in &names {
            cluster.images(&[name]);
            let repo = cluster.remote.repo(name);
            repo.header("ratelimit-limit", Some("100;w=21600"));
            repo.header("ratelimit-remaining", Some(left));
            cluster.pod(name, &[name]);
        }
        cluster.warm(&cluster.current()).await;
        assert!(
            expected.contains(&cluster.lookups()),
            "{left}: {} requests",
            cluster.lookups()
        );
    }
}

#[tokio::test]
async fn missing_right_to_list_pods_ends_the_warm_start() {
    let cluster = TestCluster::new().await;
    cluster.images(&["a"]);
    cluster.pod("one", &["a"]);
    cluster.api.refuse(StoredPod::PATH, Some(403));
    cluster.warm(&cluster.current()).await;
    assert_eq!(cluster.lookups(), 0);
    assert_eq!(cluster.state.get(), State::Degraded(NOT_LISTED));
}

#[tokio::test]
async fn failed_list_is_tried_again() {
    let cluster = TestCluster::new().await;
    cluster.images(&["a"]);
    cluster.pod("one", &["a"]);
    cluster.api.refuse(StoredPod::PATH, Some(500));
    let current = cluster.current();
    let heal = async {
        while cluster.state.get() == State::Healthy {
            tokio::task::yield_now().await;
        }
        cluster.api.refuse(StoredPod::PATH, None);
    };
    tokio::join!(cluster.warm(&current), heal);
    assert!(cluster.is_known(&current, "a"));
    assert_eq!(cluster.state.get(), State::Healthy);
}

/// Whoever creates Pods chooses the images.
#[tokio::test]
async fn number_and_bytes_of_images_are_bounded() {
    let mut running = RunningImages::default();
    for pod in 0..IMAGES / 50 + 1 {
        let containers: Vec<Value> = (0..50)
            .map(|at| json!({"name": "c", "image": format!("{}-{pod}-{at}", "x".repeat(200))}))
            .collect();
        let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": containers}});
        running.add(&StoredPod::of_value(&pod).unwrap(), false);
    }
    assert!(running.images.len() <= IMAGES && running.bytes <= BYTES);
    assert!(running.images.len() > IMAGES / 2);
}
