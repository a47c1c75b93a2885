//! The cluster-autoscaler with its provider for tests, which creates nodes from templates. kwok plays their kubelets.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::kwok;
use crate::local::Local;
use crate::pods::POOL;
use crate::process::{Process, free_port};
use crate::programs;
use crate::wait::{until, until_ok};

/// The label of a node that names its group.
pub const NODE_GROUP: &str = "kwok-nodegroup";
/// The label of all nodes of the autoscaler. The other nodes of the [`Cluster`] do not have it.
pub const AUTOSCALED: &str = "e2e.tolerarch.io/autoscaled";
/// The namespace of the autoscaler's ConfigMaps.
const NAMESPACE: &str = "kube-system";
/// The ConfigMap that `--expander=priority` reads continuously.
const PRIORITIES: &str = "cluster-autoscaler-priority-expander";
/// The ConfigMap with the state of the groups.
const STATUS: &str = "cluster-autoscaler-status";
/// Priorities that put the group `multi` before all others.
const MULTI_FIRST: &str = "100:\n  - ^multi$\n10:\n  - .*\n";

/// A group of equal nodes.
#[derive(Clone, Debug)]
pub struct NodeGroup {
    /// The name of the group, with which the names of its nodes begin.
    pub name: &'static str,
    /// The label `kubernetes.io/arch` of its nodes.
    pub architecture: &'static str,
    /// The taints of its nodes.
    pub taints: Value,
    /// Additional labels of its nodes.
    pub labels: Value,
    /// How many cores a node has, each with 4 GiB of memory.
    pub cores: u32,
    /// The maximum number of nodes.
    pub maximum: u32,
}

impl NodeGroup {
    /// Returns a group of nodes with four cores and no taint.
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

    /// Returns a group of nodes with four cores and the pool's taint.
    pub fn of_the_pool(name: &'static str, architecture: &'static str) -> Self {
        let taint = json!({"key": POOL, "value": "true", "effect": "NoSchedule"});
        Self {
            taints: json!([taint]),
            ..Self::untainted(name, architecture)
        }
    }

    /// Returns the node that the provider copies.
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
                // kwok makes the node ready later.
                "conditions": [{"type": "Ready", "status": "False", "reason": "E2e", "message": "it boots"}],
            },
        })
    }
}

/// The settings of an autoscaler.
#[derive(Clone, Debug)]
pub struct AutoscalerSettings {
    /// The groups that the autoscaler scales. It reads them once.
    pub groups: Vec<NodeGroup>,
    /// Additional arguments.
    pub arguments: Vec<&'static str>,
    /// The priorities. Without them there is no ConfigMap.
    pub priorities: Option<&'static str>,
}

impl Default for AutoscalerSettings {
    /// Two groups: `multi`, with arm64 nodes and the pool's taint, comes before `plain`, with amd64 nodes and no taint.
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
    /// The autoscaler.
    pub process: Process,
    /// kwok, without which new nodes never become ready.
    pub kubelets: Process,
    nodes: Api<Node>,
    config_maps: Api<ConfigMap>,
}

impl ClusterAutoscaler {
    /// Whether `E2E_CLUSTER_AUTOSCALER` names the autoscaler, and the control plane is the newest one.
    pub fn is_available() -> bool {
        programs::has_cluster_autoscaler()
    }

    /// Starts the autoscaler with [`AutoscalerSettings::default`], in a cluster that no other autoscaler uses.
    pub async fn start(cluster: &Cluster) -> Self {
        Self::start_with(cluster, AutoscalerSettings::default()).await
    }

    /// Starts the autoscaler, in a cluster that no other one uses: it creates nodes for all Pods, and removes its own.
    pub async fn start_with(cluster: &Cluster, settings: AutoscalerSettings) -> Self {
        let local = cluster.local();
        let config_maps = Api::namespaced(cluster.client.clone(), NAMESPACE);
        let templates: Vec<Value> = settings.groups.iter().map(NodeGroup::template).collect();
        let templates = json!({"apiVersion": "v1", "kind": "List", "items": templates}).to_string();
        apply(
            &config_maps,
            "kwok-provider-templates",
            "templates",
            &templates,
        )
        .await;
        let provider = provider().to_string();
        apply(&config_maps, "kwok-provider-config", "config", &provider).await;
        if let Some(priorities) = settings.priorities {
            apply(&config_maps, PRIORITIES, "priorities", priorities).await;
        }
        let kubelets = kwok::start(local.kubeconfig(), local.directory(), free_port(), &[]).await;
        let process = start_process(local, &settings.arguments).await;
        Self {
            process,
            kubelets,
            nodes: Api::all(cluster.client.clone()),
            config_maps,
        }
    }

    /// Replaces the priorities, or removes their ConfigMap.
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

    /// Returns the names of the autoscaler's nodes, with the group of each.
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
        let of_group = ListParams::default().labels(&format!("{NODE_GROUP}={group}"));
        until(&format!("{group} has {count} nodes"), async || {
            let nodes = self.nodes.list(&of_group).await.ok()?;
            (nodes.items.len() == count).then_some(())
        })
        .await;
    }

    /// Waits until the scale-up of a group has this status: `NoActivity`, `InProgress` or `Backoff`.
    pub async fn until_scale_up(&self, group: &str, wanted: &str) {
        until_ok(
            &format!("the scale-up of {group} has the status {wanted}"),
            async || {
                let status = self
                    .config_maps
                    .get(STATUS)
                    .await
                    .map_err(|error| error.to_string())?;
                let mut data = status.data.unwrap_or_default();
                let text = data.remove("status").unwrap_or_default();
                match scale_up_status(&text, group) {
                    Some(word) if word == wanted => Ok(()),
                    _ => Err(text),
                }
            },
        )
        .await;
    }
}

async fn start_process(local: &Local, more_arguments: &[&str]) -> Process {
    let program = programs::cluster_autoscaler().await;
    let port = free_port();
    let kubeconfig = local.kubeconfig().display().to_string();
    let mut arguments = vec![
        "--cloud-provider=kwok".to_owned(),
        format!("--kubeconfig={kubeconfig}"),
        format!("--namespace={NAMESPACE}"),
        format!("--address=127.0.0.1:{port}"),
        "--leader-elect=false".to_owned(),
        "--scan-interval=1s".to_owned(),
        // Logs the choices of the expanders.
        "--v=2".to_owned(),
    ];
    arguments.extend(more_arguments.iter().map(ToString::to_string));
    let environment = [
        ("KUBECONFIG", kubeconfig),
        ("POD_NAMESPACE", NAMESPACE.to_owned()),
        ("KWOK_PROVIDER_MODE", "local".to_owned()),
    ];
    let name = "cluster-autoscaler";
    let directory = local.directory();
    let mut process =
        Process::start_with(name, &program, &arguments, &environment, directory).await;
    process
        .until_listening("the cluster-autoscaler", port)
        .await;
    process
}

/// Defines ProvisioningRequests with any fields. The real definition is in the autoscaler's source, which may be missing:
/// `E2E_CLUSTER_AUTOSCALER` may name a program.
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

/// Returns the first `status` below a group's `scaleUp` in the autoscaler's status.
fn scale_up_status<'a>(status: &'a str, group: &str) -> Option<&'a str> {
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
