//! Node classes of Karpenter, each read once.

use std::collections::{BTreeMap, BTreeSet};

use super::super::arrival::Arrival;
use super::makers::makers;
use crate::cli::doctor::findings::{Findings, some_of};
use tolerarch_kubernetes::cluster::{
    KindName, NodeClass, NodeClassRef, NodePool, RequestError, ServedKinds, UserClient, is_name,
};
use tolerarch_kubernetes::discovery::{KnownPool, Obstacle, Origin, without_instance};

const CHECK: &str = "node-classes";
const EC2: &str = "EC2NodeClass";

/// Node classes by their references, without those that could not be read.
pub(super) struct NodeClasses<'a> {
    all: BTreeMap<&'a NodeClassRef, Lookup>,
    /// Classes whose faults were reported.
    reported: BTreeSet<&'a NodeClassRef>,
}

enum Lookup {
    Class(NodeClass),
    Missing,
}

impl<'a> NodeClasses<'a> {
    /// Reads the classes of NodePools that may create nodes of the platform: the NodePools of these pools, and those
    /// without a taint.
    pub(super) async fn read(
        arrival: &Arrival<'a>,
        pools: &[&KnownPool<'a>],
        findings: &mut Findings,
    ) -> Self {
        let mut wanted = BTreeSet::new();
        for pool in pools {
            wanted.extend(makers(arrival, pool).iter().map(|maker| &maker.node_class));
        }
        for node in &arrival.nodes {
            if let Origin::NodePool(node_pool) = node.origin
                && node.taints.is_empty()
            {
                wanted.insert(&node_pool.node_class);
            }
        }
        wanted.retain(|class| !class.kind.is_empty());
        let mut classes = Self {
            all: BTreeMap::new(),
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
        for class in wanted {
            match read(arrival.client, &kinds, class).await {
                Ok(lookup) => {
                    classes.all.insert(class, lookup);
                }
                Err(why) => findings.not_tried(CHECK, format!("{}: {why}", named(class))),
            }
        }
        classes
    }

    pub(super) fn has_fault(&self, node_pool: &NodePool, architecture: &str) -> bool {
        match self.all.get(&node_pool.node_class) {
            Some(Lookup::Class(class)) => class.fault.is_some() || lacks(class, architecture),
            Some(Lookup::Missing) => true,
            None => false,
        }
    }

    /// Returns whether a NodePool can create no node of the architecture unless its specification or its class is changed.
    pub(super) fn is_impossible(&self, node_pool: &NodePool, architecture: &str) -> bool {
        let is_lacking = match self.all.get(&node_pool.node_class) {
            Some(Lookup::Class(class)) => lacks(class, architecture),
            Some(Lookup::Missing) | None => false,
        };
        let obstacle = Obstacle::of(node_pool);
        is_lacking
            || without_instance(node_pool, architecture).is_some()
            || matches!(obstacle, Some(Obstacle::Deleted | Obstacle::Contradiction))
    }

    /// Reports the fault of a NodePool's class, once for each class; returns whether there is one.
    pub(super) fn report_fault(
        &mut self,
        node_pool: &'a NodePool,
        arrival: &Arrival<'_>,
        findings: &mut Findings,
    ) -> bool {
        let class_ref = &node_pool.node_class;
        let architecture = arrival.architecture;
        let Some(lookup) = self.all.get(class_ref) else {
            return false;
        };
        let class = named(class_ref);
        let kind = class_ref.kind.to_ascii_lowercase();
        let name = &class_ref.name;
        let node_pool = node_pool.name();
        let (message, fix) = match lookup {
            Lookup::Missing => (
                format!("NodePool {node_pool} names {class}, which does not exist"),
                format!("create {class}, or correct nodeClassRef in NodePool {node_pool}"),
            ),
            Lookup::Class(NodeClass {
                fault: Some(why), ..
            }) => (
                format!("{class} of NodePool {node_pool} is not ready: {why}"),
                format!("see its conditions: kubectl describe {kind} {name}"),
            ),
            Lookup::Class(read) if lacks(read, architecture) => {
                let architectures = read.architectures.iter().flatten();
                let others = some_of(architectures.map(String::as_str));
                let platform = arrival.platform;
                let message = format!(
                    "{class} has machine images only for {others}: NodePool {node_pool} creates no {platform} node"
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

    pub(super) fn report_without_fault(&self, arrival: &Arrival<'_>, findings: &mut Findings) {
        let architecture = arrival.architecture;
        for (class_ref, lookup) in &self.all {
            let Lookup::Class(class) = lookup else {
                continue;
            };
            if class.fault.is_some() || lacks(class, architecture) {
                continue;
            }
            let class_ref = named(class_ref);
            let message = match &class.architectures {
                Some(_) => format!("{class_ref} has machine images for {architecture}"),
                None => format!("{class_ref} shows no fault"),
            };
            findings.ok(CHECK, message);
        }
    }
}

/// Reads a class, or returns why it cannot be read.
async fn read(
    client: &UserClient,
    kinds: &ServedKinds,
    class: &NodeClassRef,
) -> Result<Lookup, String> {
    let NodeClassRef { group, kind, name } = class;
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

fn lacks(class: &NodeClass, architecture: &str) -> bool {
    let all = class.architectures.as_ref();
    all.is_some_and(|all| !all.contains(architecture))
}

fn named(class: &NodeClassRef) -> String {
    format!("{} {}", class.kind, class.name)
}

fn images_fix(class: &NodeClassRef, architecture: &str) -> String {
    let NodeClassRef { kind, name, .. } = class;
    if kind == EC2 {
        format!(
            "have amiSelectorTerms of {kind} {name} select by an alias, such as al2023@v20260801, which has both architectures, or add an AMI for {architecture}"
        )
    } else {
        format!("have {kind} {name} select machine images for {architecture} as well")
    }
}
