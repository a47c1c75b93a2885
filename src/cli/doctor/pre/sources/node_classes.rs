//! Node classes of Karpenter, each read once.

use std::collections::{BTreeMap, BTreeSet};

use super::super::arrival::Arrival;
use super::makers::makers;
use crate::cli::doctor::findings::{Findings, some_of};
use tolerarch_kubernetes::cluster::{
    KindName, NodeClass, NodeClassRef, NodePool, RequestError, ServedKinds, UserClient, is_name,
};
use tolerarch_kubernetes::discovery::{ClusterPool, Obstacle, Origin, without_instance};

const CHECK: &str = "node-classes";
const EC2_NODE_CLASS: &str = "EC2NodeClass";

/// Node classes by their references. Classes that could not be read are left out.
pub(super) struct NodeClasses<'a> {
    lookups: BTreeMap<&'a NodeClassRef, Lookup>,
    /// Classes whose faults have been reported.
    reported: BTreeSet<&'a NodeClassRef>,
}

enum Lookup {
    Class(NodeClass),
    Missing,
}

impl<'a> NodeClasses<'a> {
    /// Reads the classes of NodePools that may create nodes of the platform. These are the NodePools of these pools,
    /// and the NodePools whose nodes have no taint.
    pub(super) async fn read(
        arrival: &Arrival<'a>,
        pools: &[&ClusterPool<'a>],
        findings: &mut Findings,
    ) -> Self {
        let mut wanted = BTreeSet::new();
        for pool in pools {
            for node_pool in makers(arrival, pool) {
                wanted.insert(&node_pool.node_class);
            }
        }
        for node in &arrival.nodes {
            if let Origin::NodePool(node_pool) = node.origin
                && node.taints.is_empty()
            {
                wanted.insert(&node_pool.node_class);
            }
        }
        wanted.retain(|class_ref| !class_ref.kind.is_empty());
        let mut classes = Self {
            lookups: BTreeMap::new(),
            reported: BTreeSet::new(),
        };
        if wanted.is_empty() {
            return classes;
        }
        let kinds = ServedKinds::read(arrival.client).await;
        let Some(kinds) = findings.read_or_not_tried(CHECK, "the kinds of node classes", kinds)
        else {
            return classes;
        };
        for class_ref in wanted {
            match read_class(arrival.client, &kinds, class_ref).await {
                Ok(lookup) => {
                    classes.lookups.insert(class_ref, lookup);
                }
                Err(why) => {
                    findings.not_tried(CHECK, format!("{}: {why}", display_name(class_ref)));
                }
            }
        }
        classes
    }

    /// Returns whether the class of a NodePool is missing, is not ready, or has no machine images for the architecture.
    pub(super) fn has_fault(&self, node_pool: &NodePool, architecture: &str) -> bool {
        match self.lookups.get(&node_pool.node_class) {
            Some(Lookup::Class(class)) => {
                class.fault.is_some() || lacks_images(class, architecture)
            }
            Some(Lookup::Missing) => true,
            None => false,
        }
    }

    /// Returns whether a NodePool cannot create a node of the architecture until the NodePool's specification or class
    /// is changed.
    pub(super) fn cannot_create_node(&self, node_pool: &NodePool, architecture: &str) -> bool {
        let class_lacks_images = match self.lookups.get(&node_pool.node_class) {
            Some(Lookup::Class(class)) => lacks_images(class, architecture),
            Some(Lookup::Missing) | None => false,
        };
        let obstacle = Obstacle::of(node_pool);
        class_lacks_images
            || without_instance(node_pool, architecture).is_some()
            || matches!(obstacle, Some(Obstacle::Deleted | Obstacle::Contradiction))
    }

    /// Reports the fault of a NodePool's class, once for each class. Returns whether the class has a fault.
    pub(super) fn report_fault(
        &mut self,
        node_pool: &'a NodePool,
        arrival: &Arrival<'_>,
        findings: &mut Findings,
    ) -> bool {
        let class_ref = &node_pool.node_class;
        let architecture = arrival.architecture;
        let Some(lookup) = self.lookups.get(class_ref) else {
            return false;
        };
        let class_name = display_name(class_ref);
        let kind = class_ref.kind.to_ascii_lowercase();
        let name = &class_ref.name;
        let node_pool_name = node_pool.name();
        let (message, fix) = match lookup {
            Lookup::Missing => (
                format!("NodePool {node_pool_name} names {class_name}, which does not exist"),
                format!(
                    "create {class_name}, or correct nodeClassRef in NodePool {node_pool_name}"
                ),
            ),
            Lookup::Class(NodeClass {
                fault: Some(fault), ..
            }) => (
                format!("{class_name} of NodePool {node_pool_name} is not ready: {fault}"),
                format!("see its conditions: kubectl describe {kind} {name}"),
            ),
            Lookup::Class(class) if lacks_images(class, architecture) => {
                let architectures = class.architectures.iter().flatten();
                let others = some_of(architectures.map(String::as_str));
                let platform = arrival.platform;
                let message = format!(
                    "{class_name} has machine images only for {others}: NodePool {node_pool_name} creates no {platform} node"
                );
                (message, images_fix(class_ref, architecture))
            }
            Lookup::Class(_) => return false,
        };
        if self.reported.insert(class_ref) {
            findings.failed(CHECK, message, fix);
        }
        true
    }

    /// Reports each class that has no fault.
    pub(super) fn report_usable_classes(&self, arrival: &Arrival<'_>, findings: &mut Findings) {
        let architecture = arrival.architecture;
        for (class_ref, lookup) in &self.lookups {
            let Lookup::Class(class) = lookup else {
                continue;
            };
            if class.fault.is_some() || lacks_images(class, architecture) {
                continue;
            }
            let class_name = display_name(class_ref);
            let message = match &class.architectures {
                Some(_) => format!("{class_name} has machine images for {architecture}"),
                None => format!("{class_name} reports no fault"),
            };
            findings.ok(CHECK, message);
        }
    }
}

/// Reads a class, or returns why it cannot be read.
async fn read_class(
    client: &UserClient,
    kinds: &ServedKinds,
    class_ref: &NodeClassRef,
) -> Result<Lookup, String> {
    let NodeClassRef { group, kind, name } = class_ref;
    let Ok(kind_name) = format!("{kind}.{group}").parse::<KindName>() else {
        return Ok(Lookup::Missing);
    };
    let served = match kinds.find(&kind_name) {
        Ok(served) => served,
        Err(missing) if missing.may_be_unavailable() => return Err(missing.to_string()),
        Err(_) => return Ok(Lookup::Missing),
    };
    if served.is_namespaced || !is_name(name) {
        return Ok(Lookup::Missing);
    }
    match client.get(&served.path("", name)).await {
        Ok(class) => Ok(Lookup::Class(class)),
        Err(error) if error.is_missing() => Ok(Lookup::Missing),
        Err(error @ RequestError::Malformed(_)) => Err(error.to_string()),
        Err(error) => Err(format!("it cannot be read: {error}")),
    }
}

fn lacks_images(class: &NodeClass, architecture: &str) -> bool {
    match &class.architectures {
        Some(architectures) => !architectures.contains(architecture),
        None => false,
    }
}

fn display_name(class_ref: &NodeClassRef) -> String {
    format!("{} {}", class_ref.kind, class_ref.name)
}

fn images_fix(class_ref: &NodeClassRef, architecture: &str) -> String {
    let NodeClassRef { kind, name, .. } = class_ref;
    if kind == EC2_NODE_CLASS {
        format!(
            "in amiSelectorTerms of {kind} {name}, select an alias that has both architectures, such as al2023@v20260801, or add an AMI for {architecture}"
        )
    } else {
        format!("make {kind} {name} select machine images for {architecture} as well")
    }
}
