use serde_json::{Value, json};
use testregistry::{Fault, Kind, Registry as Remote};

use super::*;
use crate::decide::testing::in_front_of;
use tolerarch_images::credentials::Credentials;
use tolerarch_images::resolver::CacheSettings;
use tolerarch_kubernetes::cluster::testing::Lists;
use tolerarch_support::metrics::Metrics;

/// A cluster with running Pods, and a registry.
struct World {
    api: Lists,
    remote: Remote,
    state: Reported,
}

impl World {
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

    fn current(&self) -> Current {
        let metrics = Metrics::new([]).unwrap();
        in_front_of(
            &self.remote,
            Credentials::default(),
            CacheSettings::default(),
            &metrics,
        )
    }

    async fn warm(&self, current: &Current) {
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

    fn asked(&self) -> usize {
        self.remote.count(|request| request.kind == Kind::Manifest)
    }

    fn is_known(&self, current: &Current, name: &str) -> bool {
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
async fn images_of_running_pods_are_known_before_the_next_pod() {
    let world = World::new().await;
    world.images(&["a", "b", "c"]);
    for replica in 0..150 {
        world.pod(&format!("one-{replica}"), &["a", "b"]);
    }
    world.pod("other", &["c", "missing"]);
    let current = world.current();
    world.warm(&current).await;
    for name in ["a", "b", "c"] {
        assert!(world.is_known(&current, name), "{name}");
    }
    assert!(!world.is_known(&current, "missing"));
    assert_eq!(world.asked(), 4, "each image once");
    world.warm(&current).await;
    assert_eq!(world.asked(), 4, "and what is known not at all");
}

#[tokio::test]
async fn a_registry_that_limits_requests_is_left_out() {
    let world = World::new().await;
    let names: Vec<String> = (0..50).map(|name| format!("app-{name}")).collect();
    for name in &names {
        world.images(&[name]);
        world.remote.repo(name).fault(Some(Fault::status(429)));
        world.pod(name, &[name]);
    }
    world.warm(&world.current()).await;
    assert!(world.asked() <= LOOKUPS, "{} requests", world.asked());
    assert_eq!(world.state.get(), State::Healthy);
}

#[tokio::test]
async fn most_of_a_rate_limit_is_left_to_pods() {
    for (left, expected) in [("75;w=21600", 50..=50), ("74;w=21600", 1..=LOOKUPS)] {
        let world = World::new().await;
        let names: Vec<String> = (0..50).map(|name| format!("app-{name}")).collect();
        for name in &names {
            world.images(&[name]);
            let repo = world.remote.repo(name);
            repo.header("ratelimit-limit", Some("100;w=21600"));
            repo.header("ratelimit-remaining", Some(left));
            world.pod(name, &[name]);
        }
        world.warm(&world.current()).await;
        assert!(
            expected.contains(&world.asked()),
            "{left}: {} requests",
            world.asked()
        );
    }
}

#[tokio::test]
async fn without_the_right_to_list_pods_it_gives_up() {
    let world = World::new().await;
    world.images(&["a"]);
    world.pod("one", &["a"]);
    world.api.refuse(StoredPod::PATH, Some(403));
    world.warm(&world.current()).await;
    assert_eq!(world.asked(), 0);
    assert_eq!(world.state.get(), State::Degraded(NOT_LISTED));
}

#[tokio::test]
async fn a_list_that_fails_is_tried_again() {
    let world = World::new().await;
    world.images(&["a"]);
    world.pod("one", &["a"]);
    world.api.refuse(StoredPod::PATH, Some(500));
    let current = world.current();
    let heal = async {
        while world.state.get() == State::Healthy {
            tokio::task::yield_now().await;
        }
        world.api.refuse(StoredPod::PATH, None);
    };
    tokio::join!(world.warm(&current), heal);
    assert!(world.is_known(&current, "a"));
    assert_eq!(world.state.get(), State::Healthy);
}

/// The images of a cluster are not the operator's choice.
#[tokio::test]
async fn what_is_kept_is_bounded() {
    let mut found = Found::default();
    for pod in 0..IMAGES / 50 + 1 {
        let containers: Vec<Value> = (0..50)
            .map(|at| json!({"name": "c", "image": format!("{}-{pod}-{at}", "x".repeat(200))}))
            .collect();
        let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"containers": containers}});
        found.add(&StoredPod::of_value(&pod).unwrap(), false);
    }
    assert!(found.seen.len() <= IMAGES && found.bytes <= BYTES);
    assert!(found.seen.len() > IMAGES / 2);
}
