//! The cluster-autoscaler with its provider for tests, which makes nodes from templates, and kwok, which plays their kubelets.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::kwok;
use crate::pods::POOL;
use crate::process::{Process, free_port};
use crate::programs;
use crate::wait::{until, until_ok};

/// The label by which the provider says to which group a node belongs.
pub const NODE_GROUP: &str = "kwok-nodegroup";
/// The label that all nodes of the autoscaler have, and those of the [`Cluster`] have not.
pub const AUTOSCALED: &str = "e2e.tolerarch.io/autoscaled";
/// Where the autoscaler says that it runs, by its defaults.
const NAMESPACE: &str = "kube-system";
/// What `--expander=priority` reads, all the time.
const PRIORITIES: &str = "cluster-autoscaler-priority-expander";
/// Where it says how its groups are.
const STATUS: &str = "cluster-autoscaler-status";
/// What puts the group `multi` before all others.
const MULTI_FIRST: &str = "100:\n  - ^multi$\n10:\n  - .*\n";

/// A group of equal nodes, from none to a maximum.
#[derive(Clone, Debug)]
pub struct NodeGroup {
    /// Its name, which begins the names of its nodes.
    pub name: &'static str,
    /// `kubernetes.io/arch` of its nodes.
    pub architecture: &'static str,
    /// The taints of its nodes.
    pub taints: Value,
    /// Labels of its nodes, beside those of every node.
    pub labels: Value,
    /// How many cores a node has; per core there are 4 GiB of memory.
    pub cores: u32,
    /// How many nodes there are at most.
    pub maximum: u32,
}

impl NodeGroup {
    /// Nodes with four cores and no taint.
    pub fn untainted(name: &'static str, architecture: &'static str) -> Self {
        Self {
            name,
            architecture,
            taints: json!([]),
            labels: json!({}),
            cores: 4,
            maximum: 100,
        }
    }

    /// Nodes with four cores and the taint of the pool.
    pub fn of_the_pool(name: &'static str, architecture: &'static str) -> Self {
        let taint = json!({"key": POOL, "value": "true", "effect": "NoSchedule"});
        Self {
            taints: json!([taint]),
            ..Self::untainted(name, architecture)
        }
    }

    /// What the provider copies.
    fn template(&self) -> Value {
        let room = json!({
            "cpu": self.cores.to_string(),
            "memory": format!("{}Gi", 4 * self.cores),
            "pods": "110",
        });
        let mut labels = self.labels.clone();
        labels[NODE_GROUP] = self.name.into();
        labels[AUTOSCALED] = "true".into();
        labels["kubernetes.io/arch"] = self.architecture.into();
        labels["kubernetes.io/os"] = "linux".into();
        labels["kubernetes.io/hostname"] = self.name.into();
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.name,
                "labels": labels,
                "annotations": {
                    "cluster-autoscaler.kwok.nodegroup/name": self.name,
                    "cluster-autoscaler.kwok.nodegroup/min-count": "0",
                    "cluster-autoscaler.kwok.nodegroup/max-count": self.maximum.to_string(),
                },
            },
            "spec": {"taints": self.taints},
            "status": {
                "capacity": room,
                "allocatable": room,
                // Until its kubelet says otherwise.
                "conditions": [{"type": "Ready", "status": "False", "reason": "E2e", "message": "it boots"}],
            },
        })
    }
}

/// How an autoscaler is started.
#[derive(Clone, Debug)]
pub struct AutoscalerSettings {
    /// The groups that it may scale. It reads them once.
    pub groups: Vec<NodeGroup>,
    /// Arguments beside those that every scenario needs.
    pub arguments: Vec<&'static str>,
    /// The text of the priorities; without one there is no ConfigMap.
    pub priorities: Option<&'static str>,
}

impl Default for AutoscalerSettings {
    /// `plain`, of amd64 nodes without a taint, and `multi`, of arm64 nodes with that of the pool, which comes first by its priority.
    fn default() -> Self {
        Self {
            groups: vec![
                NodeGroup::untainted("plain", "amd64"),
                NodeGroup::of_the_pool("multi", "arm64"),
            ],
            arguments: vec!["--expander=priority"],
            priorities: Some(MULTI_FIRST),
        }
    }
}

/// A running autoscaler. Its nodes stay when it ends.
pub struct ClusterAutoscaler {
    /// What runs.
    pub process: Process,
    /// What plays the kubelets: without it nodes come and are never ready.
    pub kubelets: Process,
    nodes: Api<Node>,
    config_maps: Api<ConfigMap>,
}

impl ClusterAutoscaler {
    /// Whether `E2E_CLUSTER_AUTOSCALER` names it, and `E2E_KUBERNETES` no Kubernetes that is too old for it.
    pub fn is_here() -> bool {
        programs::has_cluster_autoscaler()
    }

    /// Starts it as [`AutoscalerSettings::default`] says, in a cluster where it is alone.
    pub async fn start(cluster: &Cluster) -> Self {
        Self::start_with(cluster, AutoscalerSettings::default()).await
    }

    /// Starts it, in a cluster where it is alone: it makes nodes for whatever Pods there are, and removes its own.
    pub async fn start_with(cluster: &Cluster, settings: AutoscalerSettings) -> Self {
        let local = cluster.local();
        let program = programs::cluster_autoscaler().await;
        let config_maps = Api::namespaced(cluster.client.clone(), NAMESPACE);
        let templates: Vec<Value> = settings.groups.iter().map(NodeGroup::template).collect();
        let templates = json!({"apiVersion": "v1", "kind": "List", "items": templates});
        apply(
            &config_maps,
            "kwok-provider-templates",
            "templates",
            &templates.to_string(),
        )
        .await;
        apply(
            &config_maps,
            "kwok-provider-config",
            "config",
            &provider().to_string(),
        )
        .await;
        if let Some(priorities) = settings.priorities {
            apply(&config_maps, PRIORITIES, "priorities", priorities).await;
        }
        let kubelets = kwok::start(local.kubeconfig(), local.directory(), free_port(), &[]).await;

        let port = free_port();
        let kubeconfig = local.kubeconfig().display().to_string();
        let mut arguments = vec![
            "--cloud-provider=kwok".to_owned(),
            format!("--kubeconfig={kubeconfig}"),
            format!("--namespace={NAMESPACE}"),
            format!("--address=127.0.0.1:{port}"),
            "--leader-elect=false".to_owned(),
            "--scan-interval=1s".to_owned(),
            // What it logs of the expanders' choices.
            "--v=2".to_owned(),
        ];
        arguments.extend(
            settings
                .arguments
                .iter()
                .map(|argument| (*argument).to_owned()),
        );
        let environment = [
            ("KUBECONFIG", kubeconfig),
            ("POD_NAMESPACE", NAMESPACE.to_owned()),
            ("KWOK_PROVIDER_MODE", "local".to_owned()),
        ];
        let mut process = Process::start_with(
            "cluster-autoscaler",
            &program,
            &arguments,
            &environment,
            local.directory(),
        )
        .await;
        let listens = async || {
            tokio::net::TcpStream::connect(("127.0.0.1", port))
                .await
                .ok()
                .map(drop)
        };
        process
            .until("the cluster-autoscaler listens", listens)
            .await;
        let nodes = Api::all(cluster.client.clone());
        Self {
            process,
            kubelets,
            nodes,
            config_maps,
        }
    }

    /// Writes the priorities anew, or removes their ConfigMap.
    pub async fn set_priorities(&self, priorities: Option<&str>) {
        match priorities {
            Some(text) => apply(&self.config_maps, PRIORITIES, "priorities", text).await,
            None => {
                self.config_maps
                    .delete(PRIORITIES, &DeleteParams::default())
                    .await
                    .unwrap();
            }
        }
    }

    /// Its nodes, with the name of the group of each.
    pub async fn nodes(&self) -> BTreeMap<String, String> {
        let nodes = self
            .nodes
            .list(&ListParams::default().labels(AUTOSCALED))
            .await
            .unwrap();
        let mut groups = BTreeMap::new();
        for node in nodes.items {
            let labels = node.metadata.labels.unwrap_or_default();
            groups.insert(
                node.metadata.name.expect("a name"),
                labels[NODE_GROUP].clone(),
            );
        }
        groups
    }

    /// Waits until a group has this many nodes.
    pub async fn until_nodes(&self, group: &str, count: usize) {
        let its = ListParams::default().labels(&format!("{NODE_GROUP}={group}"));
        until(&format!("{group} has {count} nodes"), async || {
            let nodes = self.nodes.list(&its).await.ok()?;
            (nodes.items.len() == count).then_some(())
        })
        .await;
    }

    /// Waits until the autoscaler's status calls the growth of a group this: `NoActivity`, `InProgress` or `Backoff`.
    pub async fn until_scale_up(&self, group: &str, wanted: &str) {
        until_ok(
            &format!("the growth of {group} is called {wanted}"),
            async || {
                let status = self
                    .config_maps
                    .get(STATUS)
                    .await
                    .map_err(|error| error.to_string())?;
                let text = status
                    .data
                    .unwrap_or_default()
                    .remove("status")
                    .unwrap_or_default();
                match scale_up(&text, group) {
                    Some(word) if word == wanted => Ok(()),
                    _ => Err(text),
                }
            },
        )
        .await;
    }
}

/// Defines ProvisioningRequests. Their own definition is only in the source, in place of which there may be a program; this one takes any
/// fields.
pub async fn define_provisioning_requests(cluster: &Cluster) {
    let name = "provisioningrequests.autoscaling.x-k8s.io";
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": name,
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/autoscaler/pull/5848"},
        },
        "spec": {
            "group": "autoscaling.x-k8s.io", "scope": "Namespaced",
            "names": {"kind": "ProvisioningRequest", "plural": "provisioningrequests", "singular": "provisioningrequest"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    });
    let local = cluster.local();
    let file = local.directory().join("provisioningrequests.json");
    std::fs::write(&file, definition.to_string()).unwrap();
    let file = file.display().to_string();
    local
        .kubectl(&["apply", "--server-side", "-f", &file])
        .await;
    local.until_established(&[name]).await;
}

/// What the status says of the growth of a group: the first `status` below its `scaleUp`.
fn scale_up<'a>(status: &'a str, group: &str) -> Option<&'a str> {
    let name = format!("  name: {group}");
    let mut lines = status
        .lines()
        .skip_while(|line| *line != name)
        .skip_while(|line| line.trim() != "scaleUp:");
    lines.find_map(|line| line.trim().strip_prefix("status: "))
}

/// The configuration of the provider.
fn provider() -> Value {
    json!({
        "apiVersion": "v1alpha1",
        "readNodesFrom": "configmap",
        "configmap": {"name": "kwok-provider-templates"},
        "nodegroups": {"fromNodeLabelKey": NODE_GROUP},
        "nodes": {"skipTaint": true},
        "kwok": {"install": false},
    })
}

async fn apply(config_maps: &Api<ConfigMap>, name: &str, key: &str, text: &str) {
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {key: text},
    });
    let how = PatchParams::apply("e2e").force();
    config_maps
        .patch(name, &how, &Patch::Apply(&config_map))
        .await
        .unwrap();
}
