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

/// More bytes than are read of an object.
const LARGE: usize = 64 << 10;

fn node(name: &str, architecture: &str) -> Value {
    let labels = json!({"kubernetes.io/arch": architecture});
    let managed = json!([{"manager": "kubelet", "fieldsV1": {}}]);
    json!({"metadata": {"name": name, "uid": "u", "labels": labels, "annotations": {"a": "b"}, "managedFields": managed}})
}

fn pool(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

/// A watch, and the objects known by it.
struct Followed<K> {
    changes: stream::BoxStream<'static, Change<K>>,
    known: Known<String>,
}

impl<K: super::Followed> Followed<K> {
    fn of(api: &Lists, selection: Option<&str>) -> Self {
        Self {
            changes: api.watcher().follow(selection),
            known: Known::default(),
        }
    }

    async fn next(&mut self) -> Change<K> {
        self.changes.next().await.unwrap()
    }

    /// Waits until exactly these objects are known.
    async fn until(&mut self, names: &[&str]) {
        while !self.known.is_complete() || self.known.objects().values().ne(names) {
            let change = self.next().await;
            self.known.take(change, |object| object.key());
        }
    }

    /// Waits for a failure.
    async fn failure(&mut self) -> ClusterError {
        loop {
            match self.next().await {
                Change::Failed(error) => return error,
                change => self.known.take(change, |object| object.key()),
            };
        }
    }
}

#[tokio::test]
async fn follows_what_happens_to_a_list_that_has_many_pages() {
    let api = Lists::start().await;
    for name in ["a", "b", "c", "d", "e"] {
        api.put(Node::PATH, node(name, "amd64"));
    }
    let mut nodes = Followed::<Node>::of(&api, None);
    nodes.until(&["a", "b", "c", "d", "e"]).await;
    api.put(Node::PATH, node("f", "arm64"));
    nodes.until(&["a", "b", "c", "d", "e", "f"]).await;
    api.delete(Node::PATH, "a");
    nodes.until(&["b", "c", "d", "e", "f"]).await;
    let queries = api.queries();
    let lists = queries.iter().filter(|query| query.contains("limit="));
    assert_eq!(lists.count(), 3, "{queries:?}");
    // A list from the cache would ignore the limit, and many API servers refuse streaming lists.
    for refused in ["resourceVersion=0", "sendInitialEvents"] {
        assert!(
            !queries.iter().any(|query| query.contains(refused)),
            "{queries:?}"
        );
    }
}

#[tokio::test]
async fn keeps_only_what_identifies_an_object() {
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
            // By an annotation that is not known to be harmless, of which nothing else is kept.
            may_direct_the_node: true,
            resource_version: node.metadata.resource_version.clone(),
            ..Metadata::default()
        }
    );
}

/// An object with labels that are no texts, or with a text beyond the bound, is unread but for its identity.
#[tokio::test]
async fn an_object_that_cannot_be_read_costs_that_object_only() {
    let api = Lists::start().await;
    let metrics = Metrics::new([]).unwrap();
    api.give_whole_pages();
    let odd = |name: &str| json!({"metadata": {"name": name, "uid": name, "labels": 7}});
    let huge = |name: &str| json!({"metadata": {"name": name, "uid": name}, "spec": {"x": "x".repeat(2 * LARGE)}});
    for object in [node("a", "amd64"), odd("b"), huge("c"), node("d", "amd64")] {
        api.put(Node::PATH, object);
    }
    let unread = unread_objects(&metrics).unwrap();
    let watcher = Watcher {
        unread,
        ..api.watcher().bounded(LARGE, LARGE)
    };
    let mut nodes = watcher.follow::<Node>(None);
    let mut next = async |count: usize| {
        let mut seen = Vec::new();
        while seen.len() < count {
            seen.push(match nodes.next().await.unwrap() {
                Change::Listed(node) => format!("listed {}", node.name()),
                Change::Applied(node) => format!("applied {}", node.name()),
                Change::Unread(meta) => format!("unread {}", meta.uid),
                Change::Deleted(meta) => format!("deleted {}", meta.name),
                Change::Begins | Change::Complete => continue,
                Change::Failed(error) => panic!("{error}"),
            });
        }
        seen
    };
    assert_eq!(
        next(4).await,
        ["listed a", "unread b", "unread c", "listed d"]
    );
    for object in [odd("a"), huge("d"), node("b", "arm64"), node("e", "arm64")] {
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
async fn passes_on_a_selector() {
    let api = Lists::start().await;
    let mut nodes = Followed::<Node>::of(&api, Some("spec.unschedulable=false"));
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
async fn goes_on_when_watches_end() {
    let api = Lists::start().await;
    api.put(Node::PATH, node("a", "amd64"));
    let mut nodes = Followed::<Node>::of(&api, None);
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

/// A task that follows two kinds may do something else with the first before it looks at the second.
#[tokio::test]
async fn a_list_that_is_not_looked_at_keeps_no_other_one_waiting() {
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

/// However many lists there are, no more than one page is in memory.
#[tokio::test]
async fn a_page_is_not_asked_for_while_another_one_is_read() {
    let api = Lists::start().await;
    api.put(Node::PATH, node("a", "amd64"));
    let watcher = api.watcher();
    let read = Arc::clone(&watcher.page).acquire_owned().await.unwrap();
    let mut nodes = watcher.follow::<Node>(None);
    assert!(matches!(nodes.next().await, Some(Change::Begins)));
    assert!(nodes.next().now_or_never().is_none());
    // A watcher with separate turns; its list takes as long as a request of the other one would.
    let mut pools = api.watcher().follow::<NodePool>(None);
    while !matches!(pools.next().await, Some(Change::Complete)) {}
    assert!(
        !api.queries()
            .iter()
            .any(|query| query.starts_with(Node::PATH)),
        "{:?}",
        api.queries()
    );
    drop(read);
    while !matches!(nodes.next().await, Some(Change::Complete)) {}
}

/// An API server that is short of time is not asked for the whole list again.
#[tokio::test]
async fn a_watch_that_cannot_be_begun_is_tried_again_before_all_is_listed_anew() {
    let api = Lists::start().await;
    api.put(Node::PATH, node("a", "amd64"));
    let mut nodes = Followed::<Node>::of(&api, None);
    nodes.until(&["a"]).await;
    for status in [429, 500, 503] {
        api.refuse(Node::PATH, Some(status));
        let before = api.queries().len();
        let healed = async {
            while api.queries().len() < before + 3 {
                tokio::task::yield_now().await;
            }
            api.put(Node::PATH, node("b", &status.to_string()));
            api.refuse(Node::PATH, None);
        };
        let ((), ()) = tokio::join!(healed, async {
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
    // The watch is tried again for a limited time only.
    api.refuse(Node::PATH, Some(503));
    tokio::time::pause();
    assert_eq!(nodes.failure().await, ClusterError::Status);
}

#[tokio::test]
async fn a_watch_that_gets_no_answer_is_tried_again_before_all_is_listed_anew() {
    let api = Lists::start().await;
    api.put(Node::PATH, node("a", "amd64"));
    let mut nodes = Followed::<Node>::of(&api, None);
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

/// Objects that were deleted meanwhile are noticed although there is no event.
#[tokio::test]
async fn lists_anew_what_cannot_be_resumed() {
    let api = Lists::start().await;
    for name in ["a", "b", "c"] {
        api.put(Node::PATH, node(name, "amd64"));
    }
    let mut nodes = Followed::<Node>::of(&api, None);
    nodes.until(&["a", "b", "c"]).await;
    api.refuse(Node::PATH, Some(403));
    assert_eq!(nodes.failure().await, ClusterError::Forbidden);
    api.delete(Node::PATH, "b");
    api.compact();
    assert!(
        nodes.known.objects().values().eq(&["a", "b", "c"]),
        "what is known counts meanwhile"
    );
    api.refuse(Node::PATH, None);
    nodes.until(&["a", "c"]).await;

    // The same without a failure: the API server reports the loss when the watch is to be resumed.
    api.delete(Node::PATH, "a");
    api.compact();
    api.cut();
    nodes.until(&["c"]).await;
}

#[tokio::test]
async fn notices_a_kind_that_is_installed_later() {
    let api = Lists::start().await;
    api.refuse(NodePool::PATH, Some(404));
    let mut pools = Followed::<NodePool>::of(&api, None);
    assert_eq!(pools.failure().await, ClusterError::NotFound);
    api.refuse(NodePool::PATH, None);
    api.put(NodePool::PATH, pool("default"));
    pools.until(&["default"]).await;
}

#[tokio::test]
async fn says_that_a_right_is_lost_and_goes_on_when_it_is_back() {
    let api = Lists::start().await;
    api.put(Node::PATH, node("a", "amd64"));
    let mut nodes = Followed::<Node>::of(&api, None);
    nodes.until(&["a"]).await;
    for (status, error) in [
        (403, ClusterError::Forbidden),
        (401, ClusterError::Unauthorized),
    ] {
        api.refuse(Node::PATH, Some(status));
        assert_eq!(nodes.failure().await, error);
        assert!(nodes.known.objects().values().eq(&["a"]));
    }
    api.refuse(Node::PATH, None);
    api.put(Node::PATH, node("b", "amd64"));
    nodes.until(&["a", "b"]).await;
}

#[tokio::test]
async fn waits_for_an_api_server_that_is_not_there_yet() {
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
async fn pauses_grow_and_begin_anew_after_a_while() {
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
fn tells_what_is_new() {
    let object = |name: &str, weight: u32| NodePool {
        metadata: Metadata {
            name: name.into(),
            ..Metadata::default()
        },
        weight,
        ..NodePool::default()
    };
    let mut known = Known::default();
    let mut take = |change| known.take(change, |pool: NodePool| pool.weight);
    assert!(!take(Change::Begins) && !take(Change::Listed(object("a", 1))));
    assert!(take(Change::Complete), "the first reading");
    assert!(!take(Change::Applied(object("a", 1))));
    assert!(take(Change::Applied(object("a", 2))));
    // A list that breaks off leaves no trace.
    assert!(!take(Change::Begins) && !take(Change::Listed(object("b", 1))));
    assert!(!take(Change::Failed(ClusterError::Forbidden)));
    assert!(!take(Change::Begins) && !take(Change::Listed(object("a", 2))));
    assert!(!take(Change::Complete));
    // An object that cannot be read stays as last read.
    assert!(!take(Change::Unread(object("a", 2).metadata)));
    assert!(!take(Change::Begins) && !take(Change::Unread(object("a", 2).metadata)));
    assert!(!take(Change::Complete));
    assert!(take(Change::Deleted(object("a", 2).metadata)));
    assert!(!take(Change::Deleted(object("a", 2).metadata)));

    let mut missing = Known::<u32>::default();
    let mut take = |change| missing.take(change, |pool: NodePool| pool.weight);
    assert!(
        take(Change::Failed(ClusterError::NotFound)),
        "there are none: that is known now"
    );
    assert!(!take(Change::Failed(ClusterError::NotFound)));
    assert!(missing.is_complete());
}

/// Fields that are read, and `null` where Go writes it.
#[test]
fn reads_nodes() {
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
fn reads_node_pools() {
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

/// The commands read the same types, page by page.
#[tokio::test]
async fn commands_list_them_too() {
    let api = Lists::start().await;
    for name in ["a", "b", "c"] {
        api.put(Node::PATH, node(name, "arm64"));
    }
    let nodes: Vec<Node> = api.client().list(Node::PATH).await.unwrap();
    let names: Vec<&str> = nodes.iter().map(Node::name).collect();
    assert_eq!(names, ["a", "b", "c"]);
}
