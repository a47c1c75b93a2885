use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use super::*;
use crate::testing::{PATIENCE, context, run};
use crate::{ControllerMetrics, ControllerSettings, Elector, NodeTaint};
use tolerarch_engine::decide::testing::TestEngine;
use tolerarch_kubernetes::cluster::testing::Lists;
use tolerarch_kubernetes::cluster::testing::Objects;
use tolerarch_kubernetes::cluster::{Node, ObjectName, OwnedName, Taint};
use tolerarch_support::metrics::Metrics;
use tolerarch_support::testing::Log;

/// A cluster with nodes, and a controller that leads.
struct TestCluster {
    nodes: Lists,
    settings: watch::Sender<ControllerSettings>,
    metrics: Metrics,
    counts: ControllerMetrics,
}

fn arm(value: &str) -> NodeTaint {
    let taint = Taint {
        key: "arch".into(),
        value: value.into(),
        effect: "NoSchedule".into(),
    };
    NodeTaint {
        selector: BTreeMap::from([("kubernetes.io/arch".into(), "arm64".into())]),
        taint,
    }
}

impl TestCluster {
    async fn new(entries: Vec<NodeTaint>) -> Self {
        let settings = ControllerSettings {
            node_taints: entries,
            ..ControllerSettings::default()
        };
        let metrics = Metrics::new([]).unwrap();
        let counts = ControllerMetrics::register(&metrics).unwrap();
        Self {
            nodes: Lists::start().await,
            settings: watch::Sender::new(settings),
            metrics,
            counts,
        }
    }

    fn configure(&self, entries: Vec<NodeTaint>) {
        self.settings
            .send_modify(|settings| settings.node_taints = entries);
    }

    fn node(&self, name: &str, architecture: &str, taints: Value) {
        let labels = json!({"kubernetes.io/arch": architecture});
        self.nodes.put(
            Node::PATH,
            json!({"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}}),
        );
    }

    /// Returns the taints of a node in the form of `kubectl describe`.
    fn taints(&self, name: &str) -> String {
        let node: Node = serde_json::from_value(self.nodes.get(Node::PATH, name)).unwrap();
        let taints: Vec<String> = node.taints.iter().map(Taint::to_string).collect();
        taints.join(" ")
    }

    fn counted(&self, result: &str) -> u64 {
        let line = format!("tolerarch_controller_node_taints_total{{result=\"{result}\"}} ");
        let text = self.metrics.render().unwrap();
        let count = text.lines().find_map(|text| text.strip_prefix(&line));
        count.unwrap().parse().unwrap()
    }

    /// Runs the controller until this is true.
    async fn until(&self, mut is_reached: impl FnMut() -> bool) {
        let objects = Objects::start().await;
        let lease = OwnedName {
            namespace: "team".into(),
            name: ObjectName::new("controller").unwrap(),
        };
        let mut elector =
            Elector::new(Arc::new(objects.cluster()), lease, "a".into(), &self.counts);
        let context = Context {
            leadership: elector.leadership(),
            cluster: Arc::new(self.nodes.cluster()),
            metrics: self.counts.clone(),
            ..context(
                &TestEngine::new().await,
                &self.nodes,
                &objects,
                &self.settings,
            )
        };
        let reached = async {
            while !is_reached() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            _ = elector.run() => {}
            () = run("node-taints", &context) => {}
            () = reached => {}
            () = sleep(PATIENCE) => panic!("not reached"),
        }
    }
}

#[tokio::test]
async fn taints_follow_registration_and_configuration() {
    let cluster = TestCluster::new(vec![arm("arm64")]).await;
    cluster.node(
        "old",
        "arm64",
        json!([{"key": "team", "value": "a", "effect": "NoSchedule"}]),
    );
    cluster.node("other", "amd64", json!([]));
    cluster
        .until(|| cluster.taints("old") == "team=a:NoSchedule arch=arm64:NoSchedule")
        .await;
    let mut step = 0;
    cluster
        .until(|| match step {
            0 => {
                cluster.node("new", "arm64", Value::Null);
                step = 1;
                false
            }
            1 => {
                let is_tainted = cluster.taints("new") == "arch=arm64:NoSchedule";
                if is_tainted {
                    cluster.configure(vec![arm("yes")]);
                    step = 2;
                }
                false
            }
            _ => cluster.taints("new") == "arch=yes:NoSchedule",
        })
        .await;
    assert_eq!(cluster.taints("other"), "");
    // The entry is deleted before another replica leads, which has never read the entry.
    cluster.configure(Vec::new());
    cluster
        .until(|| cluster.taints("new").is_empty() && cluster.taints("old") == "team=a:NoSchedule")
        .await;
    let annotations = &cluster.nodes.get(Node::PATH, "new")["metadata"]["annotations"];
    assert_eq!(annotations["tolerarch.io/node-taints"], Value::Null);
}

#[tokio::test]
async fn contested_node_is_changed_less_and_less_often() {
    let cluster = TestCluster::new(vec![arm("arm64")]).await;
    cluster.node("contested", "arm64", json!([]));
    let mut taken = 0;
    cluster
        .until(|| {
            if !cluster.taints("contested").is_empty() {
                taken += 1;
                cluster.node("contested", "arm64", json!([]));
            }
            // Another node gets its taint in the meantime.
            if taken == 2 {
                cluster.node("quiet", "arm64", json!([]));
            }
            taken >= 4
                && cluster.taints("quiet") == "arch=arm64:NoSchedule"
                // Counted when the API server's answer has arrived.
                && cluster.counted("contested") == 1
        })
        .await;
    // The pauses are 1 s, 2 s and 4 s; conflicts add few requests.
    assert!(
        cluster
            .nodes
            .queries()
            .iter()
            .filter(|query| query.contains("/nodes/contested"))
            .count()
            < 12
    );
}

#[tokio::test]
async fn refused_change_is_counted_and_retried() {
    let cluster = TestCluster::new(vec![arm("arm64")]).await;
    cluster.node(
        "taken",
        "arm64",
        json!([{"key": "arch", "value": "mine", "effect": "NoSchedule"}]),
    );
    cluster.node("refused", "arm64", json!([]));
    cluster.nodes.refuse("/api/v1/nodes/refused", Some(403));
    cluster
        .until(|| {
            if cluster.counted("forbidden") == 1 {
                cluster.nodes.refuse("/api/v1/nodes/refused", None);
            }
            // Counted when the API server's answer has arrived.
            cluster.taints("refused") == "arch=arm64:NoSchedule" && cluster.counted("changed") == 1
        })
        .await;
    assert_eq!(
        (
            cluster.taints("taken").as_str(),
            cluster.counted("in-the-way")
        ),
        ("arch=mine:NoSchedule", 1)
    );
}

#[tokio::test]
async fn without_entries_nodes_are_listed_at_most_once() {
    let cluster = TestCluster::new(Vec::new()).await;
    cluster.node(
        "a",
        "arm64",
        json!([{"key": "arch", "value": "mine", "effect": "NoSchedule"}]),
    );
    let lists = || {
        cluster
            .nodes
            .queries()
            .iter()
            .filter(|query| query.contains("limit"))
            .count()
    };
    cluster.nodes.refuse(Node::PATH, Some(403));
    cluster.until(|| lists() == 1).await;
    cluster.nodes.refuse(Node::PATH, None);
    cluster.until(|| lists() == 2).await;
    assert_eq!(cluster.taints("a"), "arch=mine:NoSchedule");
    assert!(
        !cluster
            .nodes
            .queries()
            .iter()
            .any(|query| query.contains("/nodes/"))
    );
}

#[tokio::test]
async fn change_of_taints_is_logged() {
    let log = Log::listen();
    let cluster = TestCluster::new(vec![arm("arm64")]).await;
    cluster.node("new", "arm64", json!([]));
    cluster.until(|| cluster.counted("changed") == 1).await;
    cluster.configure(Vec::new());
    cluster.until(|| cluster.counted("changed") == 2).await;
    for taints in ["arch=arm64:NoSchedule", ""] {
        let line = format!("the taints of a node are changed node=\"new\" taints=\"{taints}\"");
        assert!(log.text().contains(&line), "{}", log.text());
    }
}
