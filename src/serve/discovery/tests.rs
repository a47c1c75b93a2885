use std::sync::Arc;

use serde_json::{Value, json};
use testregistry::Registry as Remote;

use super::*;
use crate::config::Config;
use crate::serve::metrics::Families;
use tolerarch_core::pod::Pod;
use tolerarch_core::policy::Policy;
use tolerarch_core::testing::platforms;
use tolerarch_engine::decide::Wait;
use tolerarch_kubernetes::cluster::testing::Lists;
use tolerarch_support::environment::Environment;
use tolerarch_support::metrics::Metrics;

const BOTH: &[&str] = &["linux/amd64", "linux/arm64"];
const EITHER: &[&str] = &["amd64", "arm64"];

/// A webhook that follows a cluster.
struct Webhook {
    api: Lists,
    live: Live,
    metrics: Metrics,
    readiness: Box<dyn Fn() -> State>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Webhook {
    async fn start(api: Lists, config: &str) -> Self {
        let config = Config::parse(config).unwrap();
        let metrics = Metrics::new([]).unwrap();
        let families = Families::register(&metrics, &metrics).unwrap();
        let discover = config.discover;
        let live = Live::begin(config, None, families, Environment::default(), None).unwrap();
        let mut discoverer = Discoverer::new(discover, api.watcher(), live.clone());
        let readiness = Box::new(discoverer.readiness());
        let task = tokio::spawn(async move { discoverer.run().await });
        Self {
            api,
            live,
            metrics,
            readiness,
            task,
        }
    }

    fn policy(&self) -> Policy {
        self.live.current.load_full().policy.clone()
    }

    /// Waits until a policy with this property is in use.
    async fn until(&self, what: &str, is_expected: impl Fn(&Policy) -> bool) {
        let published = async {
            while !is_expected(&self.policy()) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let result = tokio::time::timeout(Duration::from_secs(120), published).await;
        assert!(result.is_ok(), "{what}: {:?}", self.policy());
    }

    async fn until_state(&self, is_expected: impl Fn(State) -> bool) {
        while !is_expected((self.readiness)()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn mismatch(&self, pool: &str) -> Option<String> {
        let series = format!("tolerarch_pool_platforms_mismatch{{pool=\"{pool}\"}} ");
        let text = self.metrics.render().unwrap();
        text.lines()
            .find_map(|line| line.strip_prefix(&series))
            .map(str::to_owned)
    }
}

/// Returns a NodePool of these architectures, whose taint has the NodePool's name as its key.
fn node_pool(name: &str, architectures: &[&str], labels: Value) -> Value {
    let requirement =
        json!({"key": "kubernetes.io/arch", "operator": "In", "values": architectures});
    let taint = json!({"key": name, "value": "true", "effect": "NoSchedule"});
    json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"template": {"spec": {"requirements": [requirement], "taints": [taint]}}},
    })
}

fn node(name: &str, architecture: &str, taint: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/arch": architecture}},
        "spec": {"taints": [{"key": taint, "value": "true", "effect": "NoSchedule"}]},
    })
}

/// Returns a configuration with a pool `own` of amd64, whose nodes have the taint `own`.
fn config(more: &Value) -> String {
    let pool = json!({
        "name": "own", "platforms": ["linux/amd64"], "tolerations": [{"key": "own", "operator": "Exists"}],
    });
    let mut config = json!({"discover": {"nodePools": true, "nodes": true}, "pools": [pool]});
    for (key, value) in more.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    config.to_string()
}

fn pool_platforms(policy: &Policy) -> tolerarch_core::image::PlatformSet {
    policy.pools[0].platforms
}

/// Only labels that select a pool are kept of nodes, so the nodes have to be listed again.
#[tokio::test]
async fn pool_selected_after_a_reload_gets_its_nodes_platforms() {
    let api = Lists::start().await;
    let mut labelled = node("big", "arm64", "other");
    labelled["metadata"]["labels"]["group"] = "multi".into();
    labelled["spec"]["taints"] = json!([]);
    api.put(Node::PATH, labelled);
    let webhook = Webhook::start(api, &config(&json!({}))).await;
    webhook.until_state(|state| state == State::Healthy).await;
    assert_eq!(pool_platforms(&webhook.policy()), platforms(&BOTH[..1]));

    let pool = json!({"name": "own", "platforms": ["linux/amd64"], "select": {"labels": {"group": "multi"}}});
    let selected = Config::parse(&config(&json!({"pools": [pool]}))).unwrap();
    webhook.live.apply(selected).unwrap();
    webhook
        .until("selected", |policy| {
            pool_platforms(policy) == platforms(BOTH)
        })
        .await;
}

#[tokio::test]
async fn pool_gets_the_platforms_of_its_nodes() {
    let api = Lists::start().await;
    api.put(NodePool::PATH, node_pool("own", &["amd64"], json!({})));
    let webhook = Webhook::start(api, &config(&json!({}))).await;
    webhook.until_state(|state| state == State::Healthy).await;
    assert_eq!(
        (pool_platforms(&webhook.policy()), webhook.mismatch("own")),
        (platforms(&BOTH[..1]), Some("0".into()))
    );

    webhook.api.put(
        NodePool::PATH,
        node_pool("own", &["amd64", "arm64"], json!({})),
    );
    webhook
        .until("widened", |policy| {
            pool_platforms(policy) == platforms(BOTH)
        })
        .await;
    assert_eq!(webhook.mismatch("own"), Some("1".into()));
    webhook.api.put(Node::PATH, node("big", "s390x", "own"));
    let all = platforms(&["linux/amd64", "linux/arm64", "linux/s390x"]);
    webhook
        .until("a node", |policy| pool_platforms(policy) == all)
        .await;

    // If the cluster can no longer be read, its last state counts, also after a reload.
    for list in [NodePool::PATH, Node::PATH] {
        webhook.api.refuse(list, Some(403));
    }
    webhook
        .until_state(|state| state == State::Degraded(STALE))
        .await;
    assert_eq!(pool_platforms(&webhook.policy()), all);
    let observing = Config::parse(&config(&json!({"mode": "observe"}))).unwrap();
    webhook.live.apply(observing).unwrap();
    assert_eq!(
        (pool_platforms(&webhook.policy()), webhook.policy().mode),
        (all, tolerarch_core::policy::Mode::Observe)
    );

    webhook.api.delete(Node::PATH, "big");
    for list in [NodePool::PATH, Node::PATH] {
        webhook.api.refuse(list, None);
    }
    webhook
        .until("the node is gone", |policy| {
            pool_platforms(policy) == platforms(BOTH)
        })
        .await;
    assert_eq!(
        webhook.policy().mode,
        tolerarch_core::policy::Mode::Observe,
        "the mode of the current configuration"
    );
    webhook.until_state(|state| state == State::Healthy).await;
}

#[tokio::test]
async fn labelled_node_pool_is_a_pool_while_it_exists() {
    let profiles = json!({"all": {"mode": "enforce"}, "one": {"pools": ["own"]}, "named": {"pools": ["found"]}});
    let webhook = Webhook::start(
        Lists::start().await,
        &config(&json!({"profiles": profiles})),
    )
    .await;
    webhook.until_state(|state| state == State::Healthy).await;
    webhook
        .api
        .put(NodePool::PATH, node_pool("spot", EITHER, json!({})));
    webhook.api.put(
        NodePool::PATH,
        node_pool("spot", &["arm64"], json!({"tolerarch.io/pool": "found"})),
    );
    webhook
        .until("found", |policy| policy.pools.len() == 2)
        .await;
    let discovered = &webhook.policy().pools[1];
    assert_eq!(
        (discovered.name.as_str(), discovered.platforms),
        ("found", platforms(&["linux/arm64"]))
    );
    assert_eq!(discovered.tolerations[0].key.as_str(), "spot");
    assert_eq!(webhook.mismatch("found"), Some("0".into()));
    let names = |profile: &str| -> Vec<String> {
        let snapshot = webhook.live.current.load_full();
        snapshot.profiles[profile]
            .pools
            .iter()
            .map(|pool| pool.name.clone())
            .collect()
    };
    assert_eq!(names("all"), ["own", "found"]);
    assert_eq!(
        names("one"),
        ["own"],
        "a profile that names its pools gets no others"
    );
    assert_eq!(names("named"), ["found"]);

    webhook.api.delete(NodePool::PATH, "spot");
    webhook
        .until("gone", |policy| policy.pools.len() == 1)
        .await;
    assert_eq!(webhook.mismatch("found"), None);
}

#[tokio::test]
async fn placement_follows_the_cluster() {
    let placement = json!({"require": "affinity", "platforms": "discovered"});
    let more = json!({"placement": placement, "profiles": {"p": {}, "q": {"placement": {"platforms": ["linux/amd64"]}}}});
    let api = Lists::start().await;
    api.put(Node::PATH, node("a", "s390x", "x"));
    api.refuse(NodePool::PATH, Some(503));
    let webhook = Webhook::start(api, &config(&more)).await;
    // Until the NodePools are read, the default platforms count. Those of the pool count without any node.
    let all = platforms(&["linux/amd64", "linux/arm64", "linux/s390x"]);
    webhook
        .until("nodes only", |policy| policy.placement.platforms == all)
        .await;
    webhook.api.refuse(NodePool::PATH, None);
    let discovered = platforms(&["linux/amd64", "linux/s390x"]);
    webhook
        .until("both", |policy| policy.placement.platforms == discovered)
        .await;
    let snapshot = webhook.live.current.load_full();
    assert_eq!(snapshot.profiles["p"].placement.platforms, discovered);
    assert_eq!(
        snapshot.profiles["q"].placement.platforms,
        platforms(&["linux/amd64"])
    );
    webhook.api.delete(Node::PATH, "a");
    webhook
        .until("none at all", |policy| {
            policy.placement.platforms == platforms(BOTH)
        })
        .await;
}

/// The cluster-autoscaler may create nodes in a group without nodes, whose platforms only the pool names.
#[tokio::test]
async fn platforms_of_pools_count_without_nodes() {
    let remote = Remote::builder().plain_http().start().await;
    let repo = remote.repo("app");
    repo.index(Some("amd64"), BOTH[..1].iter().copied());
    let pod = json!({"spec": {"containers": [{"image": repo.reference("amd64")}]}});
    let hosts = json!({remote.address(): {"plainHttp": true}});
    let own_pool = json!({"name": "own", "platforms": BOTH, "tolerations": [{"key": "own", "operator": "Exists"}]});
    let more = json!({
        "registries": {"hosts": hosts},
        "network": {"allow": ["127.0.0.0/8"]},
        "pools": [own_pool],
        "placement": {"require": "affinity", "platforms": "discovered"},
        "profiles": {"closed": {"pools": []}},
    });
    for architectures in [EITHER, &["amd64"], &[]] {
        let api = Lists::start().await;
        for architecture in architectures {
            api.put(Node::PATH, node(architecture, architecture, "own"));
        }
        let webhook = Webhook::start(api, &config(&more)).await;
        webhook.until_state(|state| state == State::Healthy).await;
        assert_eq!(
            pool_platforms(&webhook.policy()),
            platforms(BOTH),
            "{architectures:?}"
        );
        let snapshot = webhook.live.current.load_full();
        for policy in [&snapshot.policy, &snapshot.profiles["closed"]] {
            assert_eq!(
                policy.placement.platforms,
                platforms(BOTH),
                "{architectures:?}"
            );
        }
        let pod = Pod::of_value(&pod).unwrap();
        let deadline = Wait::Until {
            deadline: Instant::now() + Duration::from_secs(120),
            review: None,
        };
        let decision = snapshot.decide(&snapshot.policy, "", &pod, deadline).await;
        let affinity = &decision.edits.spec["affinity"];
        let required = r#"{"key":"kubernetes.io/arch","operator":"In","values":["amd64"]}"#;
        assert!(affinity.contains(required), "{architectures:?}: {affinity}");
    }
}

/// Until the cluster has been read, its nodes may have the platforms of the pools and the default platforms.
#[tokio::test]
async fn platforms_of_pools_count_before_the_first_reading() {
    let own_pool = json!({"name": "own", "platforms": ["linux/s390x"], "tolerations": [{"key": "own", "operator": "Exists"}]});
    let more = json!({"pools": [own_pool], "placement": {"platforms": "discovered"}, "profiles": {"p": {}}});
    let api = Lists::start().await;
    api.refuse(Node::PATH, Some(503));
    api.refuse(NodePool::PATH, Some(503));
    let webhook = Webhook::start(api, &config(&more)).await;
    let all = platforms(&["linux/amd64", "linux/arm64", "linux/s390x"]);
    let snapshot = webhook.live.current.load_full();
    for policy in [&snapshot.policy, &snapshot.profiles["p"]] {
        assert_eq!(policy.placement.platforms, all);
    }
}

#[tokio::test]
async fn karpenter_may_be_installed_later() {
    let api = Lists::start().await;
    api.refuse(NodePool::PATH, Some(404));
    let webhook = Webhook::start(api, &config(&json!({}))).await;
    webhook.until_state(|state| state == State::Healthy).await;
    webhook.api.refuse(NodePool::PATH, None);
    webhook
        .api
        .put(NodePool::PATH, node_pool("own", EITHER, json!({})));
    webhook
        .until("installed later", |policy| {
            pool_platforms(policy) == platforms(BOTH)
        })
        .await;
}

/// Images that were looked up before are not looked up again.
#[tokio::test]
async fn cached_images_are_kept_when_pools_change() {
    let remote = Remote::builder().plain_http().start().await;
    let repo = remote.repo("app");
    repo.index(Some("v1"), BOTH.iter().copied());
    let pod = json!({"spec": {"containers": [{"image": repo.reference("v1")}]}});
    let hosts = json!({remote.address(): {"plainHttp": true}});
    let more = json!({"registries": {"hosts": hosts}, "network": {"allow": ["127.0.0.0/8"]}});
    let webhook = Webhook::start(Lists::start().await, &config(&more)).await;
    webhook.until_state(|state| state == State::Healthy).await;
    let decide = async || {
        let snapshot = webhook.live.current.load_full();
        let pod = Pod::of_value(&pod).unwrap();
        let deadline = Wait::Until {
            deadline: Instant::now() + Duration::from_secs(120),
            review: None,
        };
        snapshot
            .decide(&snapshot.policy, "", &pod, deadline)
            .await
            .reason
            .as_str()
    };
    assert_eq!(decide().await, "tolerated");
    let requests = remote.requests().len();
    webhook.api.put(Node::PATH, node("big", "s390x", "own"));
    webhook
        .until("a node", |policy| {
            pool_platforms(policy) != platforms(&BOTH[..1])
        })
        .await;
    assert_eq!(decide().await, "platform-missing");
    assert_eq!(remote.requests().len(), requests);
}

#[tokio::test]
async fn many_changes_are_published_together() {
    let webhook = Webhook::start(Lists::start().await, &config(&json!({}))).await;
    webhook.until_state(|state| state == State::Healthy).await;
    let start = Instant::now();
    // Each round changes the policy.
    for round in 0..500 {
        let label = json!({"tolerarch.io/pool": format!("p{round}")});
        webhook
            .api
            .put(NodePool::PATH, node_pool("spot", EITHER, label));
    }
    let mut last = webhook.live.current.load_full();
    let mut snapshots = 0;
    while last.policy.pools.last().unwrap().name != "p499" {
        tokio::task::yield_now().await;
        let now = webhook.live.current.load_full();
        snapshots += u32::from(!Arc::ptr_eq(&last, &now));
        last = now;
    }
    let limit = 2 + start.elapsed().as_millis() / 400;
    assert!(
        u128::from(snapshots) <= limit,
        "{snapshots} in {:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn readiness_waits_briefly_for_the_first_reading() {
    let api = Lists::start().await;
    api.refuse(Node::PATH, Some(403));
    let webhook = Webhook::start(api, &config(&json!({}))).await;
    assert_eq!((webhook.readiness)(), State::Starting(NOT_READ));
    tokio::time::pause();
    tokio::time::advance(FIRST_READING).await;
    tokio::time::resume();
    assert_eq!((webhook.readiness)(), State::Degraded(NOT_READ));
    webhook.api.refuse(Node::PATH, None);
    webhook.until_state(|state| state == State::Healthy).await;
}
