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
struct World {
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

impl World {
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

    /// As `kubectl describe` shows them.
    fn taints(&self, name: &str) -> String {
        let node: Node = serde_json::from_value(self.nodes.get(Node::PATH, name)).unwrap();
        let taints: Vec<String> = node.taints.iter().map(Taint::to_string).collect();
        taints.join(" ")
    }

    fn counted(&self, result: &str) -> u64 {
        let line = format!("tolerarch_controller_node_taints_total{{result=\"{result}\"}} ");
        let text = self.metrics.render().unwrap();
        text.lines()
            .find_map(|own| own.strip_prefix(&line))
            .unwrap()
            .parse()
            .unwrap()
    }

    /// Runs the controller until this is so.
    async fn until(&self, mut what: impl FnMut() -> bool) {
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
            while !what() {
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
async fn nodes_are_tainted_as_they_register_and_as_the_configuration_changes() {
    let world = World::new(vec![arm("arm64")]).await;
    world.node(
        "old",
        "arm64",
        json!([{"key": "team", "value": "a", "effect": "NoSchedule"}]),
    );
    world.node("other", "amd64", json!([]));
    world
        .until(|| world.taints("old") == "team=a:NoSchedule arch=arm64:NoSchedule")
        .await;
    let mut step = 0;
    world
        .until(|| match step {
            0 => {
                world.node("new", "arm64", Value::Null);
                step = 1;
                false
            }
            1 => {
                let is_tainted = world.taints("new") == "arch=arm64:NoSchedule";
                if is_tainted {
                    world.configure(vec![arm("yes")]);
                    step = 2;
                }
                false
            }
            _ => world.taints("new") == "arch=yes:NoSchedule",
        })
        .await;
    assert_eq!(world.taints("other"), "");
    // The entry is deleted; also by the time another replica leads, which never saw it.
    world.configure(Vec::new());
    world
        .until(|| world.taints("new").is_empty() && world.taints("old") == "team=a:NoSchedule")
        .await;
    let annotations = &world.nodes.get(Node::PATH, "new")["metadata"]["annotations"];
    assert_eq!(annotations["tolerarch.io/node-taints"], Value::Null);
}

#[tokio::test]
async fn another_controller_is_not_fought_in_a_hot_loop() {
    let world = World::new(vec![arm("arm64")]).await;
    world.node("contested", "arm64", json!([]));
    let mut taken = 0;
    world
        .until(|| {
            if !world.taints("contested").is_empty() {
                taken += 1;
                world.node("contested", "arm64", json!([]));
            }
            // Another node gets its own in the meantime.
            if taken == 2 {
                world.node("quiet", "arm64", json!([]));
            }
            taken >= 4
                && world.taints("quiet") == "arch=arm64:NoSchedule"
                // Counted when the API server's answer has arrived.
                && world.counted("contested") == 1
        })
        .await;
    // 1 s, 2 s and 4 s later: what came too late does not make it more.
    assert!(
        world
            .nodes
            .queries()
            .iter()
            .filter(|query| query.contains("/nodes/contested"))
            .count()
            < 12
    );
}

#[tokio::test]
async fn what_cannot_be_done_is_counted_and_tried_again() {
    let world = World::new(vec![arm("arm64")]).await;
    world.node(
        "taken",
        "arm64",
        json!([{"key": "arch", "value": "mine", "effect": "NoSchedule"}]),
    );
    world.node("refused", "arm64", json!([]));
    world.nodes.refuse("/api/v1/nodes/refused", Some(403));
    world
        .until(|| {
            if world.counted("forbidden") == 1 {
                world.nodes.refuse("/api/v1/nodes/refused", None);
            }
            // Counted when the API server's answer has arrived.
            world.taints("refused") == "arch=arm64:NoSchedule" && world.counted("changed") == 1
        })
        .await;
    assert_eq!(
        (world.taints("taken").as_str(), world.counted("in-the-way")),
        ("arch=mine:NoSchedule", 1)
    );
}

#[tokio::test]
async fn without_entries_nodes_are_listed_once_and_not_at_all_without_the_right() {
    let world = World::new(Vec::new()).await;
    world.node(
        "a",
        "arm64",
        json!([{"key": "arch", "value": "mine", "effect": "NoSchedule"}]),
    );
    let lists = || {
        world
            .nodes
            .queries()
            .iter()
            .filter(|query| query.contains("limit"))
            .count()
    };
    world.nodes.refuse(Node::PATH, Some(403));
    world.until(|| lists() == 1).await;
    world.nodes.refuse(Node::PATH, None);
    world.until(|| lists() == 2).await;
    assert_eq!(world.taints("a"), "arch=mine:NoSchedule");
    assert!(
        !world
            .nodes
            .queries()
            .iter()
            .any(|query| query.contains("/nodes/"))
    );
}

#[tokio::test]
async fn the_log_names_the_taints_in_plain_words() {
    let log = Log::listen();
    let world = World::new(vec![arm("arm64")]).await;
    world.node("new", "arm64", json!([]));
    world.until(|| world.counted("changed") == 1).await;
    world.configure(Vec::new());
    world.until(|| world.counted("changed") == 2).await;
    for taints in ["arch=arm64:NoSchedule", ""] {
        let line = format!("the taints of a node are changed node=\"new\" taints=\"{taints}\"");
        assert!(log.text().contains(&line), "{}", log.text());
    }
}
