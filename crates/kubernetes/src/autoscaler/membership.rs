//! The node group of a node. The Kubernetes API has no field for it; each provider names groups and nodes in its own
//! way.

use std::collections::HashMap;

use super::status::NodeGroup;
use crate::cluster::Node;

/// Returns the nodes by the name of their group. Nodes without a group, or whose group is ambiguous, are left out.
pub(super) fn members<'a, 'n>(
    groups: &'a [NodeGroup],
    nodes: &'n [Node],
) -> HashMap<&'a str, Vec<&'n Node>> {
    let names: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
    let mut members = HashMap::<&str, Vec<&Node>>::new();
    for node in nodes {
        if let Some(group) = group_of(node, &names) {
            members.entry(group).or_default().push(node);
        }
    }
    members
}

/// Returns the name of a node's group; `None` if none of these names fits, or if several fit equally well.
fn group_of<'a>(node: &Node, groups: &[&'a str]) -> Option<&'a str> {
    let identity = Identity::of(node);
    let mut longest = 0;
    let mut fitting = Vec::new();
    for group in groups {
        let name = last_part(group);
        if name.len() < longest || !identity.fits(name) {
            continue;
        }
        // The node `worker-7-x7k2p` belongs to `worker-7` rather than `worker`.
        if name.len() > longest {
            longest = name.len();
            fitting.clear();
        }
        fitting.push(*group);
    }
    match fitting.as_slice() {
        [only] => Some(only),
        _ => None,
    }
}

/// Returns the last part of a group's name: some names are URLs, or `<kind>/<namespace>/<name>`.
fn last_part(group: &str) -> &str {
    group.rsplit('/').next().unwrap_or(group)
}

/// Names and labels of a node that may show its group.
struct Identity<'n> {
    /// Values of labels whose keys speak of a group or a pool: each provider has its own label.
    labels: Vec<&'n str>,
    /// Scale set of Azure: `azure:///subscriptions/…/virtualMachineScaleSets/aks-arm-12345678-vmss/virtualMachines/0`.
    scale_set: &'n str,
    name: &'n str,
    /// Machine of Cluster API or OpenShift, without its namespace.
    machine: &'n str,
    /// Managed node group of EKS.
    eks: Option<&'n str>,
    eksctl: Option<&'n str>,
    kops: Option<&'n str>,
}

impl<'n> Identity<'n> {
    fn of(node: &'n Node) -> Self {
        let mut group_labels = Vec::new();
        for (key, value) in &node.metadata.labels {
            let name = key.rsplit('/').next().unwrap_or(key);
            if name.contains("group") || name.contains("pool") {
                group_labels.push(value.as_str());
            }
        }
        let mut parts = node.provider_id.split("/virtualMachineScaleSets/");
        let scale_set = parts.nth(1).unwrap_or_default();
        let label = |key: &str| node.metadata.labels.get(key).map(String::as_str);
        Self {
            labels: group_labels,
            scale_set: scale_set.split('/').next().unwrap_or_default(),
            name: node.name(),
            machine: node.machine.rsplit('/').next().unwrap_or_default(),
            eks: label("eks.amazonaws.com/nodegroup"),
            eksctl: label("alpha.eksctl.io/nodegroup-name"),
            kops: label("kops.k8s.io/instancegroup"),
        }
    }

    /// Returns whether the node may belong to a group with this name.
    fn fits(&self, group: &str) -> bool {
        if group.is_empty() {
            return false;
        }
        if self.labels.contains(&group) || self.scale_set.eq_ignore_ascii_case(group) {
            return true;
        }
        if is_node_of(self.name, group) || is_machine_of(self.machine, group) {
            return true;
        }
        if let Some(name) = self.eks
            && is_managed_by_eks(group, name)
        {
            return true;
        }
        if let Some(name) = self.eksctl
            && is_made_by_eksctl(group, name)
        {
            return true;
        }
        self.kops.is_some_and(|name| is_made_by_kops(group, name))
    }
}

/// Returns whether a node is named `<group>-<random>`. GKE's instance groups end in `-grp` instead of the random part.
fn is_node_of(node: &str, group: &str) -> bool {
    let prefix = group.strip_suffix("-grp").unwrap_or(group);
    let Some(random) = after_dash(node, prefix) else {
        return false;
    };
    let is_random = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=16).contains(&random.len()) && random.bytes().all(is_random)
}

/// Returns the text after a name and a dash.
fn after_dash<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.strip_prefix(name)?.strip_prefix('-')
}

/// Returns whether a Machine is named `<MachineSet>-<random>` or `<MachineDeployment>-<hash>-<random>`.
fn is_machine_of(machine: &str, group: &str) -> bool {
    let Some(rest) = after_dash(machine, group) else {
        return false;
    };
    let parts: Vec<&str> = rest.split('-').collect();
    parts.len() <= 2 && parts.into_iter().all(is_generated)
}

/// Returns whether Kubernetes may have generated this part of a name: generated parts have no vowels, so they form no
/// words.
fn is_generated(part: &str) -> bool {
    let is_generated = |c: u8| c.is_ascii_digit() || b"bcdfghjklmnpqrstvwxz".contains(&c);
    part.len() >= 4 && part.bytes().all(is_generated)
}

/// Returns whether an auto scaling group is that of a managed node group: `eks-<name>-<uuid>`.
fn is_managed_by_eks(group: &str, name: &str) -> bool {
    let Some(rest) = group.strip_prefix("eks-") else {
        return false;
    };
    let Some(uuid) = after_dash(rest, name) else {
        return false;
    };
    let is_of_uuid = |c: u8| c.is_ascii_hexdigit() || c == b'-';
    uuid.len() == 36 && uuid.bytes().all(is_of_uuid)
}

/// Returns whether eksctl made an auto scaling group: `eksctl-<cluster>-nodegroup-<name>-NodeGroup-<id>`.
fn is_made_by_eksctl(group: &str, name: &str) -> bool {
    let Some((_, rest)) = group.split_once("-nodegroup-") else {
        return false;
    };
    match rest.strip_prefix(name) {
        Some(suffix) => suffix.starts_with("-NodeGroup-"),
        None => false,
    }
}

/// Returns whether kops made a group: `<name>.<cluster>`.
fn is_made_by_kops(group: &str, name: &str) -> bool {
    match group.strip_prefix(name) {
        Some(suffix) => suffix.starts_with('.'),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const URL: &str = "https://www.googleapis.com/compute/v1/projects/p/zones/z/instanceGroups/";

    fn group<'a>(name: &str, labels: Value, more: Value, groups: &[&'a str]) -> Option<&'a str> {
        let mut node = json!({"metadata": {"name": name, "labels": labels}});
        merge(&mut node, &more);
        group_of(&serde_json::from_value(node).unwrap(), groups)
    }

    fn merge(into: &mut Value, from: &Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                for (key, value) in from {
                    merge(into.entry(key).or_insert(Value::Null), value);
                }
            }
            (into, from) => *into = from.clone(),
        }
    }

    #[test]
    fn labels_show_the_group() {
        let eks = [
            "eks-arm-44c5e8a6-51bb-4d0c-8fbc-1f4f5a9d8a11",
            "eks-arm-big-90c5e8a6-51bb-4d0c-8fbc-1f4f5a9d8a12",
        ];
        let eks_label = |name: &str| json!({"eks.amazonaws.com/nodegroup": name});
        assert_eq!(
            group("ip-10-0-0-1", eks_label("arm"), json!({}), &eks),
            Some(eks[0])
        );
        assert_eq!(
            group("ip-10-0-0-1", eks_label("arm-big"), json!({}), &eks),
            Some(eks[1])
        );
        assert_eq!(group("ip-10-0-0-1", eks_label("ar"), json!({}), &eks), None);

        let eksctl = [
            "eksctl-shop-nodegroup-arm-NodeGroup-1ABC",
            "eksctl-shop-nodegroup-x-arm-NodeGroup-2ABC",
        ];
        assert_eq!(
            group(
                "ip-10-0-0-1",
                json!({"alpha.eksctl.io/nodegroup-name": "arm"}),
                json!({}),
                &eksctl
            ),
            Some(eksctl[0])
        );

        let kops = ["nodes-arm.shop.example.com", "nodes.shop.example.com"];
        assert_eq!(
            group(
                "i-0123",
                json!({"kops.k8s.io/instancegroup": "nodes"}),
                json!({}),
                &kops
            ),
            Some(kops[1])
        );
        assert_eq!(
            group(
                "n",
                json!({"doks.digitalocean.com/node-pool-id": "0a1b"}),
                json!({}),
                &["0a1b", "2c3d"]
            ),
            Some("0a1b")
        );
    }

    #[test]
    fn node_names_and_provider_ids_show_the_group() {
        let gke = [
            &*format!("{URL}gke-shop-arm-1a2b3c4d-grp"),
            &*format!("{URL}gke-shop-arm-9a8b7c6d-grp"),
        ];
        assert_eq!(
            group("gke-shop-arm-9a8b7c6d-x7k2", json!({}), json!({}), &gke),
            Some(gke[1])
        );

        let aks = ["aks-arm-12345678-vmss", "aks-arm2-12345678-vmss"];
        let scale_set = "azure:///subscriptions/s/resourceGroups/r/providers/Microsoft.Compute/virtualMachineScaleSets/aks-arm2-12345678-vmss/virtualMachines/0";
        assert_eq!(
            group(
                "aks-arm2-12345678-vmss000000",
                json!({"agentpool": "arm2"}),
                json!({"spec": {"providerID": scale_set}}),
                &aks
            ),
            Some(aks[1])
        );
        assert_eq!(
            group("multi-x7k2p", json!({}), json!({}), &["multi", "plain"]),
            Some("multi")
        );
    }

    #[test]
    fn names_of_machines_show_the_group() {
        let openshift = [
            "MachineSet/openshift-machine-api/shop-worker",
            "MachineSet/openshift-machine-api/shop-worker-arm",
        ];
        let machine = json!({"metadata": {"annotations": {"machine.openshift.io/machine": "openshift-machine-api/shop-worker-arm-x7k2p"}}});
        assert_eq!(
            group("ip-10-0-0-1", json!({}), machine, &openshift),
            Some(openshift[1])
        );
        let machine =
            json!({"metadata": {"annotations": {"cluster.x-k8s.io/machine": "arm-6d8f9-x7k2p"}}});
        assert_eq!(
            group(
                "worker-7",
                json!({}),
                machine,
                &["MachineDeployment/shop/arm"]
            ),
            Some("MachineDeployment/shop/arm")
        );
    }

    /// Nodes of groups that are not scaled may have names with the same beginning.
    #[test]
    fn shared_prefix_of_names_is_not_enough() {
        for (name, groups) in [
            ("workers-arm-1", "workers"),
            ("shop-worker-arm-x7k2p", "shop-worker"),
            ("workersx7k2p", "workers"),
        ] {
            assert_eq!(group(name, json!({}), json!({}), &[groups]), None, "{name}");
        }
        let machine = |name: &str| json!({"metadata": {"annotations": {"machine.openshift.io/machine": name}}});
        let groups = ["MachineSet/openshift-machine-api/shop-worker"];
        assert_eq!(
            group(
                "n",
                json!({}),
                machine("openshift-machine-api/shop-worker-x7k2p"),
                &groups
            ),
            Some(groups[0])
        );
        assert_eq!(
            group(
                "n",
                json!({}),
                machine("openshift-machine-api/shop-worker-east-x7k2p"),
                &groups
            ),
            None
        );
        // Neither an empty name nor another part of an identity is a group.
        let scale_set = json!({"spec": {"providerID": "azure:///subscriptions/s/resourceGroups/web/providers/x"}});
        assert_eq!(
            group("n", json!({"pool": ""}), scale_set, &["", "x/", "web"]),
            None
        );
    }

    #[test]
    fn node_that_fits_no_group_or_several_has_none() {
        assert_eq!(
            group(
                "ip-10-0-0-1",
                json!({"team": "web", "kubernetes.io/arch": "arm64"}),
                json!({}),
                &["web", "arm64"]
            ),
            None
        );
        assert_eq!(
            group(
                "a-x7k2p",
                json!({}),
                json!({}),
                &["MachineSet/x/a", "MachineSet/y/a"]
            ),
            None
        );
        assert_eq!(group("a-x7k2p", json!({}), json!({}), &[]), None);
    }
}
