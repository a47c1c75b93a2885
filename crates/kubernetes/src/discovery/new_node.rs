//! Nodes of an architecture that may come: from NodePools, like nodes that are there, or with the taints of a pool.

use std::collections::BTreeMap;
use std::fmt;

use super::inventory::Inventory;
use super::taints::{is_passing, is_tolerated, is_wish};
use crate::cluster::{Node, NodePool, Taint};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::pod::{NodeLabels, Toleration};
use tolerarch_core::policy::Pool;

/// Beginnings of the keys of labels that tell nodes, or the groups in which they are made, from each other.
const IDENTITY: [&str; 16] = [
    "kubernetes.io/hostname",
    "topology.",
    "failure-domain.beta.kubernetes.io/",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "karpenter.sh/",
    "karpenter.k8s.aws/",
    "eks.amazonaws.com/nodegroup",
    "eks.amazonaws.com/sourceLaunchTemplate",
    "k8s.io/cloud-provider-aws",
    "cloud.google.com/gke-nodepool",
    "cloud.google.com/machine-family",
    "kubernetes.azure.com/agentpool",
    "karpenter.azure.com/",
    "agentpool",
    "alpha.eksctl.io/",
];
const CONTROL_PLANE: [&str; 2] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
];

/// A node that may come, with what is known of it.
#[derive(Clone, Debug, PartialEq)]
pub struct NewNode<'a> {
    pub origin: Origin<'a>,
    pub labels: NodeLabels,
    /// Taints that last, and keep Pods away.
    pub taints: Vec<Taint>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Origin<'a> {
    NodePool(&'a NodePool),
    /// A node that is there already, and which the new one is like.
    Node(&'a Node),
    /// The configuration of a pool, without a node or a NodePool.
    Pool(&'a Pool),
}

impl<'a> NewNode<'a> {
    /// Returns the nodes of this architecture that may come, one for each NodePool and each set of taints. Without any
    /// there is one for each of the pools with its platform.
    pub fn all(
        architecture: &str,
        platform: PlatformSet,
        inventory: &'a Inventory,
        nodes: &'a [Node],
        pools: impl IntoIterator<Item = &'a Pool>,
    ) -> Vec<Self> {
        let base = labels_of_workers(nodes, architecture);
        let mut new = Vec::new();
        for node_pool in &inventory.node_pools {
            if inventory.platforms_of(node_pool).contains(platform) {
                new.push(Self::of_node_pool(node_pool, &base));
            }
        }
        new.extend(like(nodes, architecture, inventory));
        if new.is_empty() {
            for pool in pools {
                if pool.platforms.contains(platform) {
                    new.push(Self::of_pool(pool, &base));
                }
            }
        }
        new
    }

    fn of_node_pool(node_pool: &'a NodePool, base: &NodeLabels) -> Self {
        let mut labels = base.clone();
        for requirement in &node_pool.requirements {
            let values = requirement.values.as_deref().unwrap_or_default();
            if is_of_platform(&requirement.key) {
                continue;
            }
            match (requirement.operator.as_str(), values) {
                ("In", [only]) => labels.set(&requirement.key, only),
                _ => labels.forget(&requirement.key),
            }
        }
        for (key, value) in &node_pool.template_labels {
            if !is_of_platform(key) {
                labels.set(key, value);
            }
        }
        Self {
            origin: Origin::NodePool(node_pool),
            labels,
            taints: lasting(&node_pool.taints),
        }
    }

    fn of_pool(pool: &'a Pool, base: &NodeLabels) -> Self {
        let mut taints = Vec::new();
        for toleration in &pool.tolerations {
            if toleration.key.is_empty() {
                continue;
            }
            let effect = match toleration.effect.as_str() {
                "" => "NoSchedule",
                effect => effect,
            };
            taints.push(Taint {
                key: toleration.key.as_str().to_owned(),
                value: toleration.value.as_str().to_owned(),
                effect: effect.to_owned(),
            });
        }
        let mut labels = base.clone();
        for (key, value) in &pool.select {
            labels.set(key, value);
        }
        Self {
            origin: Origin::Pool(pool),
            labels,
            taints: lasting(&taints),
        }
    }

    /// Returns the first taint that keeps Pods with these tolerations away.
    pub fn closed_by(&self, tolerations: &[Toleration<'_>]) -> Option<&Taint> {
        // The value is not known where a pool tolerates any.
        let may_be_tolerated = |taint: &Taint| {
            let is_any = taint.value.is_empty() && matches!(self.origin, Origin::Pool(_));
            let has_key = |own: &Toleration<'_>| own.key.as_str() == taint.key;
            is_tolerated(taint, tolerations) || is_any && tolerations.iter().any(has_key)
        };
        self.taints.iter().find(|taint| !may_be_tolerated(taint))
    }

    /// Returns whether the pool opens the node, as far as the node's labels are known.
    pub fn is_opened_by(&self, pool: &Pool) -> bool {
        let is_of_pool = if pool.select.is_empty() {
            !self.taints.is_empty()
        } else {
            self.labels.may_have(&pool.select)
        };
        is_of_pool && self.closed_by(&pool.tolerations).is_none()
    }
}

/// Writes which nodes are meant: `nodes of NodePool arm`.
impl fmt::Display for NewNode<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.origin {
            Origin::NodePool(node_pool) => write!(f, "nodes of NodePool {}", node_pool.name()),
            Origin::Node(node) => write!(f, "nodes like {}", node.name()),
            Origin::Pool(pool) => write!(f, "nodes of the pool {}", pool.name),
        }
    }
}

/// Returns whether a label is of the architecture or the operating system, which are those of the new node.
fn is_of_platform(key: &str) -> bool {
    matches!(
        key,
        "kubernetes.io/arch"
            | "kubernetes.io/os"
            | "beta.kubernetes.io/arch"
            | "beta.kubernetes.io/os"
    )
}

fn lasting(taints: &[Taint]) -> Vec<Taint> {
    let mut taints = taints.to_vec();
    taints.retain(|taint| !is_passing(taint) && !is_wish(taint));
    taints
}

/// Returns the labels of a worker of this architecture, as far as the workers of the cluster agree.
fn labels_of_workers(nodes: &[Node], architecture: &str) -> NodeLabels {
    let is_worker = |node: &&Node| {
        !CONTROL_PLANE
            .iter()
            .any(|key| node.metadata.labels.contains_key(*key))
    };
    let linux: Vec<&Node> = nodes.iter().filter(|node| is_linux(node)).collect();
    let workers: Vec<&Node> = linux.iter().copied().filter(is_worker).collect();
    if workers.is_empty() {
        let without_role = |node: &&Node| {
            let mut labels = node.metadata.labels.clone();
            labels.retain(|key, _| !CONTROL_PLANE.contains(&key.as_str()));
            labels
        };
        let all: Vec<BTreeMap<String, String>> = linux.iter().map(without_role).collect();
        shared(all.iter(), architecture)
    } else {
        shared(
            workers.iter().map(|node| &node.metadata.labels),
            architecture,
        )
    }
}

fn shared<'n>(
    nodes: impl Iterator<Item = &'n BTreeMap<String, String>> + Clone,
    architecture: &str,
) -> NodeLabels {
    let mut labels = NodeLabels::shared(nodes.clone());
    for key in nodes.flat_map(BTreeMap::keys) {
        if IDENTITY.iter().any(|prefix| key.starts_with(prefix)) {
            labels.forget(key);
        }
    }
    for key in ["kubernetes.io/os", "beta.kubernetes.io/os"] {
        labels.set(key, "linux");
    }
    labels.set_architecture(architecture);
    labels
}

fn is_linux(node: &Node) -> bool {
    node.os.is_empty() || node.os == "linux"
}

/// Returns a new node for each set of taints of the nodes with this architecture that no NodePool makes.
fn like<'a>(nodes: &'a [Node], architecture: &str, inventory: &Inventory) -> Vec<NewNode<'a>> {
    let mut groups = BTreeMap::<Vec<Taint>, Vec<&Node>>::new();
    for node in nodes {
        let of_node_pool = node.metadata.labels.get("karpenter.sh/nodepool");
        let is_made = |name: &String| inventory.node_pools.iter().any(|pool| pool.name() == name);
        if node.architecture != architecture || !is_linux(node) || of_node_pool.is_some_and(is_made)
        {
            continue;
        }
        let mut taints = lasting(&node.taints);
        taints.sort_unstable();
        groups.entry(taints).or_default().push(node);
    }
    let mut new = Vec::new();
    for (taints, nodes) in groups {
        let Some(first) = nodes.first() else {
            continue;
        };
        let labels = nodes.iter().map(|node| &node.metadata.labels);
        new.push(NewNode {
            origin: Origin::Node(first),
            labels: shared(labels, architecture),
            taints,
        });
    }
    new
}
