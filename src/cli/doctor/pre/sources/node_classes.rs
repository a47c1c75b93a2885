//! Classes of Karpenter's nodes, each read once.

use std::collections::{BTreeMap, BTreeSet};

use super::super::arrival::{Arrival, NOT_TRIED};
use super::makers::makers;
use crate::cli::doctor::findings::{Findings, some_of};
use tolerarch_kubernetes::cluster::{
    KindName, NodeClass, NodeClassRef, NodePool, RequestError, ServedKinds, UserClient, is_name,
};
use tolerarch_kubernetes::discovery::{KnownPool, Obstacle, Origin, without_instance};

const CHECK: &str = "node-classes";
const EC2: &str = "EC2NodeClass";

/// Classes by the reference to them; those that could not be read are left out.
pub(super) struct NodeClasses<'a> {
    all: BTreeMap<&'a NodeClassRef, Found>,
    /// Classes whose faults were reported.
    reported: BTreeSet<&'a NodeClassRef>,
}

enum Found {
    Class(NodeClass),
    Missing,
}

impl<'a> NodeClasses<'a> {
    /// Reads the classes of NodePools that may make nodes of the platform: those of these pools, and untainted ones.
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
        let what = format!("{NOT_TRIED}the kinds of node classes");
        let Some(kinds) = findings.read(CHECK, &what, kinds) else {
            return classes;
        };
        for class in wanted {
            match read(arrival.client, &kinds, class).await {
                Ok(found) => {
                    classes.all.insert(class, found);
                }
                Err(why) => findings.unknown(CHECK, format!("{NOT_TRIED}{}: {why}", named(class))),
            }
        }
        classes
    }

    pub(super) fn has_fault(&self, node_pool: &NodePool, architecture: &str) -> bool {
        match self.all.get(&node_pool.node_class) {
            Some(Found::Class(class)) => class.fault.is_some() || lacks(class, architecture),
            Some(Found::Missing) => true,
            None => false,
        }
    }

    /// Returns whether a NodePool can make no node of the architecture, whatever happens to it short of a change of its
    /// specification or of its class.
    pub(super) fn is_impossible(&self, node_pool: &NodePool, architecture: &str) -> bool {
        let is_lacking = match self.all.get(&node_pool.node_class) {
            Some(Found::Class(class)) => lacks(class, architecture),
            Some(Found::Missing) | None => false,
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
        let Some(found) = self.all.get(class_ref) else {
            return false;
        };
        let class = named(class_ref);
        let kind = class_ref.kind.to_ascii_lowercase();
        let name = &class_ref.name;
        let node_pool = node_pool.name();
        let (message, fix) = match found {
            Found::Missing => (
                format!("NodePool {node_pool} names {class}, which does not exist"),
                format!("create {class}, or correct nodeClassRef in NodePool {node_pool}"),
            ),
            Found::Class(NodeClass {
                fault: Some(why), ..
            }) => (
                format!("{class} of NodePool {node_pool} is not ready: {why}"),
                format!("see its conditions: kubectl describe {kind} {name}"),
            ),
            Found::Class(read) if lacks(read, architecture) => (
                format!(
                    "{class} has machine images for {} only: NodePool {node_pool} makes no {} node",
                    some_of(read.architectures.iter().flatten().map(String::as_str)),
                    arrival.platform
                ),
                images_fix(class_ref, architecture),
            ),
            Found::Class(_) => return false,
        };
        if self.reported.insert(class_ref) {
            findings.failed(CHECK, message, fix);
        }
        true
    }

    /// Reports the classes without a fault.
    pub(super) fn report_sound(&self, arrival: &Arrival<'_>, findings: &mut Findings) {
        let architecture = arrival.architecture;
        for (class_ref, found) in &self.all {
            let Found::Class(class) = found else {
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
) -> Result<Found, String> {
    let NodeClassRef { group, kind, name } = class;
    let Ok(kind_name) = format!("{kind}.{group}").parse::<KindName>() else {
        return Ok(Found::Missing);
    };
    let served = match kinds.find(&kind_name) {
        Ok(served) => served,
        Err(missing) if missing.may_be_unavailable() => return Err(missing.to_string()),
        Err(_) => return Ok(Found::Missing),
    };
    if served.is_namespaced || !is_name(name) {
        return Ok(Found::Missing);
    }
    match client.get(&served.path("", name)).await {
        Ok(class) => Ok(Found::Class(class)),
        Err(error) if error.is_missing() => Ok(Found::Missing),
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
            "let amiSelectorTerms of {kind} {name} select by an alias, such as al2023@v20260801, which has both architectures, or add an AMI for {architecture}"
        )
    } else {
        format!("let {kind} {name} select machine images for {architecture} as well")
    }
}
