//! Nodes of an architecture that may be added: from NodePools, like existing nodes, or with the taints of a pool.

use std::collections::BTreeMap;
use std::fmt;

use super::inventory::Inventory;
use super::labels::NODE_POOL;
use super::taints::{is_preference, is_tolerated, is_transient};
use crate::cluster::{Node, NodePool, Taint};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::pod::{NodeLabels, Toleration};
use tolerarch_core::policy::Pool;

/// Prefixes of keys of labels that distinguish nodes or node groups.
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

/// A node that may be added, with its known properties.
#[derive(Clone, Debug, PartialEq)]
pub struct NewNode<'a> {
    pub origin: Origin<'a>,
    pub labels: NodeLabels,
    /// Lasting taints that keep Pods away.
    pub taints: Vec<Taint>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Origin<'a> {
    NodePool(&'a NodePool),
    /// An existing node that the new node resembles.
    Node(&'a Node),
    /// The configuration of a pool, without a node or a NodePool.
    Pool(&'a Pool),
}

impl<'a> NewNode<'a> {
    /// Returns the nodes of this architecture that may be added: one for each NodePool, and one for each set of taints
    /// of existing nodes. Without any of these, returns one for each pool with this platform.
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
        new.extend(like_existing(nodes, architecture, inventory));
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
        let mut taints = self.taints.iter();
        taints.find(|taint| !self.may_be_tolerated(taint, tolerations))
    }

    fn may_be_tolerated(&self, taint: &Taint, tolerations: &[Toleration<'_>]) -> bool {
        if is_tolerated(taint, tolerations) {
            return true;
        }
        // A pool that tolerates any value does not show the value of the taint.
        let is_any_value = taint.value.is_empty() && matches!(self.origin, Origin::Pool(_));
        let has_key = |toleration: &Toleration<'_>| toleration.key.as_str() == taint.key;
        is_any_value && tolerations.iter().any(has_key)
    }

    /// Returns whether the node belongs to the pool and the pool tolerates its taints, by the labels that are known.
    pub fn is_opened_by(&self, pool: &Pool) -> bool {
        let is_of_pool = if pool.select.is_empty() {
            !self.taints.is_empty()
        } else {
            self.labels.may_have(&pool.select)
        };
        is_of_pool && self.closed_by(&pool.tolerations).is_none()
    }
}

/// Writes the origin of the nodes: `nodes of NodePool arm`.
impl fmt::Display for NewNode<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.origin {
            Origin::NodePool(node_pool) => write!(f, "nodes of NodePool {}", node_pool.name()),
            Origin::Node(node) => write!(f, "nodes like {}", node.name()),
            Origin::Pool(pool) => write!(f, "nodes of the pool {}", pool.name),
        }
    }
}

/// Returns whether a label holds the architecture or the operating system: the new node's are given.
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
    taints.retain(|taint| !is_transient(taint) && !is_preference(taint));
    taints
}

/// Returns the labels of a worker of this architecture that the workers of the cluster share. Without workers, returns
/// those that the other nodes share, except their role.
fn labels_of_workers(nodes: &[Node], architecture: &str) -> NodeLabels {
    let mut of_workers = Vec::new();
    let mut of_control_plane = Vec::new();
    for node in nodes.iter().filter(|node| is_linux(node)) {
        let labels = &node.metadata.labels;
        if CONTROL_PLANE.iter().any(|key| labels.contains_key(*key)) {
            let mut labels = labels.clone();
            labels.retain(|key, _| !CONTROL_PLANE.contains(&key.as_str()));
            of_control_plane.push(labels);
        } else {
            of_workers.push(labels);
        }
    }
    if of_workers.is_empty() {
        shared_labels(of_control_plane.iter(), architecture)
    } else {
        shared_labels(of_workers.into_iter(), architecture)
    }
}

fn shared_labels<'n>(
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

/// Returns a new node for each set of taints of the existing nodes that have this architecture and no NodePool.
fn like_existing<'a>(
    nodes: &'a [Node],
    architecture: &str,
    inventory: &Inventory,
) -> Vec<NewNode<'a>> {
    let mut groups = BTreeMap::<Vec<Taint>, Vec<&Node>>::new();
    for node in nodes {
        if node.architecture != architecture || !is_linux(node) {
            continue;
        }
        if let Some(name) = node.metadata.labels.get(NODE_POOL)
            && inventory.node_pools.iter().any(|pool| pool.name() == name)
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
            labels: shared_labels(labels, architecture),
            taints,
        });
    }
    new
}
