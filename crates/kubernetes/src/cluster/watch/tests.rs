use futures_util::FutureExt;
use kube::config::Config;
use serde_json::{Value, json};

use super::pauses::{CALM, LONGEST_PAUSE};
use super::*;
use crate::cluster::testing::Lists;
use crate::cluster::{Node, NodePool};
use tolerarch_support::metrics::Metrics;
use tolerarch_support::testing::StoppedClock;

impl Watcher {
    /// Sets smaller bounds of pages and objects.
    pub(in crate::cluster) fn bounded(self, bytes: usize, object: usize) -> Self {
        Self {
            bounds: Bounds {
                bytes,
                object,
                ..self.bounds
            },
            ..self
        }
    }
}

/// Maximum bytes of an object in these tests.
const LARGE: usize = 64 << 10;

fn node(name: &str, architecture: &str) -> Value {
    let labels = json!({"kubernetes.io/arch": architecture});
    let managed = json!([{"manager": "kubelet", "fieldsV1": {}}]);
    json!({"metadata": {"name": name, "uid": "u", "labels": labels, "annotations": {"a": "b"}, "managedFields": managed}})
}

fn pool(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

/// A watch, and the objects that it has delivered.
struct TestWatch<K> {
    changes: stream::BoxStream<'static, Change<K>>,
    objects: ObjectStore<String>,
}

impl<K: super::WatchedKind> TestWatch<K> {
    fn of(api: &Lists, selection: Option<&str>) -> Self {
        Self {
            changes: api.watcher().follow(selection),
            objects: ObjectStore::default(),
        }
    }

    async fn next(&mut self) -> Change<K> {
        self.changes.next().await.unwrap()
    }

    /// Waits until the objects are exactly these.
    async fn until(&mut self, names: &[&str]) {
        while !self.objects.is_complete() || self.objects.objects().values().ne(names) {
            let change = self.next().await;
            self.objects.take(change, |object| object.key());
        }
    }

    /// Waits for a failure.
    async fn failure(&mut self) -> ClusterError {
        loop {
            match self.next().await {
                Change::Failed(error) => return error,
                change => self.objects.take(change, |object| object.key()),
            };
        }
    }
}

#[tokio::test]
async fn list_of_many_pages_is_followed() {
    let api = Lists::start().await;
    for name in ["a", "b", "c", "d", "e"] {
        api.put(Node::PATH, node(name, "amd64"));
    }
    let mut nodes = TestWatch::<Node>::of(&api, None);
    nodes.until(&["a", "b", "c", "d", "e"]).await;
    api.put(Node::PATH, node("f", "arm64"));
    nodes.until(&["a", "b", "c", "d", "e", "f"]).await;
    api.delete(Node::PATH, "a");
    nodes.until(&["b", "c", "d", "e", "f"]).await;
    let queries = api.queries();
    let lists = queries.iter().filter(|query| query.contains("limit="));
    assert_eq!(lists.count(), 3, "{queries:?}");
    // A list from the API server's cache would ignore the limit, and many API servers refuse streaming lists.
    for refused in ["resourceVersion=0", "sendInitialEvents"] {
        assert!(
            !queries.iter().any(|query| query.contains(refused)),
            "{queries:?}"
        );
    }
}

#[tokio::test]
async fn unused_fields_are_dropped() {
    let api = Lists::start().await;
    api.put(Node::PATH, node("a", "amd64"));
    let mut nodes = api.watcher().follow::<Node>(None);
    let node = loop {
        if let Change::Listed(node) = nodes.next().await.unwrap() {
            break node;
        }
    };
    assert_eq!((node.name(), node.architecture.as_str()), ("a", "amd64"));
    let labels = [("kubernetes.io/arch".to_owned(), "amd64".to_owned())].into();
    assert_eq!(
        node.metadata,
        Metadata {
            name: "a".into(),
            uid: "u".into(),
            labels,
            // An annotation is not known to be harmless. Nothing else of the annotations is kept.
            may_direct_the_node: true,
            resource_version: node.metadata.resource_version.clone(),
            ..Metadata::default()
        }
    );
}

/// Of an object with invalid labels, or beyond the bound, only the identity is read.
#[tokio::test]
async fn unreadable_object_does_not_affect_others() {
    let api = Lists::start().await;
    let metrics = Metrics::new([]).unwrap();
    api.give_whole_pages();
    let invalid = |name: &str| json!({"metadata": {"name": name, "uid": name, "labels": 7}});
    let huge = |name: &str| json!({"metadata": {"name": name, "uid": name}, "spec": {"x": "x".repeat(2 * LARGE)}});
    for object in [
        node("a", "amd64"),
        invalid("b"),
        huge("c"),
        node("d", "amd64"),
    ] {
        api.put(Node::PATH, object);
    }
    let unread = unread_objects(&metrics).unwrap();
    let watcher = Watcher {
        unread,
        ..api.watcher().bounded(LARGE, LARGE)
    };
    let mut nodes = watcher.follow::<Node>(None);
    let mut next = async |count: usize| {
        let mut changes = Vec::new();
        while changes.len() < count {
            changes.push(match nodes.next().await.unwrap() {
                Change::Listed(node) => format!("listed {}", node.name()),
                Change::Applied(node) => format!("applied {}", node.name()),
                Change::Unread(meta) => format!("unread {}", meta.uid),
                Change::Deleted(meta) => format!("deleted {}", meta.name),
                Change::Begins | Change::Complete => continue,
                Change::Failed(error) => panic!("{error}"),
            });
        }
        changes
    };
    assert_eq!(
        next(4).await,
        ["listed a", "unread b", "unread c", "listed d"]
    );
    for object in [
        invalid("a"),
        huge("d"),
        node("b", "arm64"),
        node("e", "arm64"),
    ] {
        api.put(Node::PATH, object);
    }
    api.delete(Node::PATH, "a");
    assert_eq!(
        next(5).await,
        [
            "unread a",
            "unread d",
            "applied b",
            "applied e",
            "deleted a"
        ]
    );
    let lists = api
        .queries()
        .iter()
        .filter(|query| query.contains("limit"))
        .count();
    assert!(lists < 12, "{lists}");
    let text = metrics.render().unwrap();
    assert!(
        text.contains("tolerarch_cluster_unread_objects_total{resource=\"nodes\"} 4"),
        "{text}"
    );
}

#[tokio::test]
async fn selector_is_in_every_request() {
    let api = Lists::start().await;
    let mut nodes = TestWatch::<Node>::of(&api, Some("spec.unschedulable=false"));
    nodes.until(&[]).await;
    api.cut();
    api.put(Node::PATH, node("a", "amd64"));
    nodes.until(&["a"]).await;
    for query in api.queries() {
        assert!(
            query.contains("fieldSelector=spec.unschedulable%3Dfalse"),
            "{query}"
        );
    }
}

#[tokio::test]
async fn ended_watch_is_resumed() {
    let api = Lists::start().await;
    api.put(Node::PATH, node("a", "amd64"));
    let mut nodes = TestWatch::<Node>::of(&api, None);
    nodes.until(&["a"]).await;
    api.cut();
    api.put(Node::PATH, node("b", "amd64"));
    nodes.until(&["a", "b"]).await;
    let lists = api
        .queries()
        .iter()
        .filter(|query| query.contains("limit"))
        .count();
    assert_eq!(lists, 1, "a watch that ends is resumed");
}

/// A task that follows two kinds may stop polling one of them for a while.
#[tokio::test]
async fn unpolled_list_does_not_block_others() {
    let api = Lists::start().await;
    api.put(Node::PATH, node("a", "amd64"));
    api.put(NodePool::PATH, pool("default"));
    let watcher = api.watcher();
    let mut nodes = watcher.follow::<Node>(None);
    assert!(matches!(nodes.next().await, Some(Change::Begins)));
    while api.queries().is_empty() {
        assert!(
            nodes.next().now_or_never().is_none(),
            "its page is being read"
        );
        tokio::task::yield_now().await;
    }
    let mut pools = watcher.follow::<NodePool>(None);
    while !matches!(pools.next().await, Some(Change::Complete)) {}
}

/// At most one page is in memory, however many lists there are.
#[tokio::test]
async fn pages_are_read_one_at_a_time() {
    let api = Lists::start().await;
    api.put(Node::PATH, node("a", "amd64"));
    let watcher = api.watcher();
    let turn = Arc::clone(&watcher.page).acquire_owned().await.unwrap();
    let mut nodes = watcher.follow::<Node>(None);
    assert!(matches!(nodes.next().await, Some(Change::Begins)));
    assert!(nodes.next().now_or_never().is_none());
    // A watcher with separate turns. In the time of its list, the other one could have sent a request.
    let mut pools = api.watcher().follow::<NodePool>(None);
    while !matches!(pools.next().await, Some(Change::Complete)) {}
    assert!(
        !api.queries()
            .iter()
            .any(|query| query.starts_with(Node::PATH)),
        "{:?}",
        api.queries()
    );
    drop(turn);
    while !matches!(nodes.next().await, Some(Change::Complete)) {}
}

/// An overloaded API server does not get another request for the whole list.
#[tokio::test]
async fn refused_watch_is_retried_before_a_new_list() {
    let api = Lists::start().await;
    api.put(Node::PATH, node("a", "amd64"));
    let mut nodes = TestWatch::<Node>::of(&api, None);
    nodes.until(&["a"]).await;
    for status in [429, 500, 503] {
        api.refuse(Node::PATH, Some(status));
        let before = api.queries().len();
        let recovery = async {
            while api.queries().len() < before + 3 {
                tokio::task::yield_now().await;
            }
            api.put(Node::PATH, node("b", &status.to_string()));
            api.refuse(Node::PATH, None);
        };
        let ((), ()) = tokio::join!(recovery, async {
            while !matches!(nodes.next().await, Change::Applied(node) if node.architecture == status.to_string())
            {
            }
        });
    }
    let lists = api
        .queries()
        .iter()
        .filter(|query| query.contains("limit"))
        .count();
    assert_eq!(lists, 1);
    // The watch is retried for a limited time only.
    api.refuse(Node::PATH, Some(503));
    tokio::time::pause();
    assert_eq!(nodes.failure().await, ClusterError::Status);
}

#[tokio::test]
async fn unanswered_watch_is_retried_before_a_new_list() {
    let api = Lists::start().await;
    api.put(Node::PATH, node("a", "amd64"));
    let mut nodes = TestWatch::<Node>::of(&api, None);
    nodes.until(&["a"]).await;
    let requests = async |count: usize| {
        while api.queries().len() < count {
            tokio::task::yield_now().await;
        }
    };
    requests(2).await;
    api.refuse(Node::PATH, Some(0));
    requests(3).await;
    let clock = StoppedClock::stop();
    tokio::time::advance(PAGE_TIME).await;
    api.refuse(Node::PATH, None);
    api.put(Node::PATH, node("b", "amd64"));
    drop(clock);
    nodes.until(&["a", "b"]).await;
    let lists = api
        .queries()
        .iter()
        .filter(|query| query.contains("limit"))
        .count();
    assert_eq!(lists, 1);
}

/// Objects that were deleted in the meantime are removed, although there is no event.
#[tokio::test]
async fn list_is_repeated_if_the_watch_cannot_resume() {
    let api = Lists::start().await;
    for name in ["a", "b", "c"] {
        api.put(Node::PATH, node(name, "amd64"));
    }
    let mut nodes = TestWatch::<Node>::of(&api, None);
    nodes.until(&["a", "b", "c"]).await;
    api.refuse(Node::PATH, Some(403));
    assert_eq!(nodes.failure().await, ClusterError::Forbidden);
    api.delete(Node::PATH, "b");
    api.compact();
    assert!(
        nodes.objects.objects().values().eq(&["a", "b", "c"]),
        "the known objects stay in the meantime"
    );
    api.refuse(Node::PATH, None);
    nodes.until(&["a", "c"]).await;

    // The same without a failure: the API server refuses to resume the watch.
    api.delete(Node::PATH, "a");
    api.compact();
    api.cut();
    nodes.until(&["c"]).await;
}

#[tokio::test]
async fn kind_installed_later_is_followed() {
    let api = Lists::start().await;
    api.refuse(NodePool::PATH, Some(404));
    let mut pools = TestWatch::<NodePool>::of(&api, None);
    assert_eq!(pools.failure().await, ClusterError::NotFound);
    api.refuse(NodePool::PATH, None);
    api.put(NodePool::PATH, pool("default"));
    pools.until(&["default"]).await;
}

#[tokio::test]
async fn lost_right_is_reported_until_it_is_back() {
    let api = Lists::start().await;
    api.put(Node::PATH, node("a", "amd64"));
    let mut nodes = TestWatch::<Node>::of(&api, None);
    nodes.until(&["a"]).await;
    for (status, error) in [
        (403, ClusterError::Forbidden),
        (401, ClusterError::Unauthorized),
    ] {
        api.refuse(Node::PATH, Some(status));
        assert_eq!(nodes.failure().await, error);
        assert!(nodes.objects.objects().values().eq(&["a"]));
    }
    api.refuse(Node::PATH, None);
    api.put(Node::PATH, node("b", "amd64"));
    nodes.until(&["a", "b"]).await;
}

#[tokio::test]
async fn missing_api_server_is_reported() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let unread = unread_objects(&Metrics::new([]).unwrap()).unwrap();
    let config = Config::new(url.parse().unwrap());
    let watcher = Watcher::new(config, Duration::from_millis(1), unread).unwrap();
    let mut nodes = watcher.follow::<Node>(None);
    for _ in 0..3 {
        assert!(matches!(nodes.next().await, Some(Change::Begins)));
        assert!(matches!(
            nodes.next().await,
            Some(Change::Failed(ClusterError::Unreachable))
        ));
    }
}

#[tokio::test(start_paused = true)]
async fn pauses_grow_and_start_over_when_calm() {
    let mut pauses = Pauses::new(FIRST_PAUSE);
    let mut last = Duration::ZERO;
    for _ in 0..20 {
        last = pauses.next();
        assert!(last >= FIRST_PAUSE && last <= LONGEST_PAUSE.mul_f64(1.5));
        tokio::time::advance(last).await;
    }
    assert!(last >= LONGEST_PAUSE);
    tokio::time::advance(CALM).await;
    assert!(pauses.next() < 2 * FIRST_PAUSE);
}

#[test]
fn changes_of_known_objects_are_detected() {
    let object = |name: &str, weight: u32| NodePool {
        metadata: Metadata {
            name: name.into(),
            ..Metadata::default()
        },
        weight,
        ..NodePool::default()
    };
    let mut objects = ObjectStore::default();
    let mut take = |change| objects.take(change, |pool: NodePool| pool.weight);
    assert!(!take(Change::Begins) && !take(Change::Listed(object("a", 1))));
    assert!(take(Change::Complete), "the first reading");
    assert!(!take(Change::Applied(object("a", 1))));
    assert!(take(Change::Applied(object("a", 2))));
    // An incomplete list has no effect.
    assert!(!take(Change::Begins) && !take(Change::Listed(object("b", 1))));
    assert!(!take(Change::Failed(ClusterError::Forbidden)));
    assert!(!take(Change::Begins) && !take(Change::Listed(object("a", 2))));
    assert!(!take(Change::Complete));
    // An unreadable object keeps its last value.
    assert!(!take(Change::Unread(object("a", 2).metadata)));
    assert!(!take(Change::Begins) && !take(Change::Unread(object("a", 2).metadata)));
    assert!(!take(Change::Complete));
    assert!(take(Change::Deleted(object("a", 2).metadata)));
    assert!(!take(Change::Deleted(object("a", 2).metadata)));

    let mut missing = ObjectStore::<u32>::default();
    let mut take = |change| missing.take(change, |pool: NodePool| pool.weight);
    assert!(
        take(Change::Failed(ClusterError::NotFound)),
        "the state is complete: there are no objects"
    );
    assert!(!take(Change::Failed(ClusterError::NotFound)));
    assert!(missing.is_complete());
}

/// Go writes `null` for some empty fields.
#[test]
fn fields_of_nodes_are_read() {
    let read = |value: Value| serde_json::from_value::<Node>(value).unwrap();
    let node = read(json!({
        "metadata": {"name": "n", "labels": {"kubernetes.io/os": "linux"}},
        "spec": {"taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": null}]},
        "status": {
            "nodeInfo": {"architecture": "arm64", "operatingSystem": "windows"},
        },
    }));
    assert_eq!(
        (node.name(), &*node.metadata.labels["kubernetes.io/os"]),
        ("n", "linux")
    );
    assert_eq!(
        (node.architecture.as_str(), node.os.as_str()),
        ("arm64", "linux"),
        "labels count first"
    );
    assert_eq!(
        node.taints,
        [crate::cluster::Taint {
            key: "k".into(),
            effect: "NoSchedule".into(),
            ..Default::default()
        }]
    );
    let bare =
        read(json!({"metadata": {"labels": null}, "spec": {"taints": null}, "status": null}));
    assert_eq!(bare, Node::default());
}

#[test]
fn fields_of_node_pools_are_read() {
    let read = |value: Value| serde_json::from_value::<NodePool>(value).unwrap();
    let pool = read(json!({
        "metadata": {"name": "p", "labels": {"tolerarch.io/pool": "multi-arch"}},
        "spec": {
            "weight": 5,
            "limits": {"cpu": 1000, "memory": "1000Gi", "pods": "many"},
            "template": {
                "metadata": {"labels": {"team": "a"}},
                "spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                    "requirements": [{"key": "kubernetes.io/arch", "operator": "Exists"}],
                    "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
                    "startupTaints": [{"key": "s", "effect": "NoExecute"}],
                },
            },
        },
        "status": {"resources": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "False"}]},
    }));
    assert_eq!(
        (
            pool.name(),
            &*pool.metadata.labels["tolerarch.io/pool"],
            pool.weight
        ),
        ("p", "multi-arch", 5)
    );
    assert_eq!(
        (
            pool.limits["cpu"].units(),
            pool.limits.get("pods"),
            pool.resources["cpu"].units()
        ),
        (1000, None, 4)
    );
    assert_eq!((pool.taints.len(), pool.startup_taints.len()), (1, 1));
    assert_eq!(pool.requirements[0].values, None);
    assert_eq!(pool.is_ready, Some(false));
    assert_eq!(pool.template_labels["team"], "a");
    assert!(!pool.is_static && read(json!({"spec": {"replicas": 0}})).is_static);
    assert_eq!(
        read(json!({"spec": {"limits": null}, "status": {}})),
        NodePool::default()
    );
}

#[tokio::test]
async fn commands_list_the_same_types() {
    let api = Lists::start().await;
    for name in ["a", "b", "c"] {
        api.put(Node::PATH, node(name, "arm64"));
    }
    let nodes: Vec<Node> = api.client().list(Node::PATH).await.unwrap();
    let names: Vec<&str> = nodes.iter().map(Node::name).collect();
    assert_eq!(names, ["a", "b", "c"]);
}
