//! The group of a node. The Kubernetes API does not say it; each provider names groups and nodes by a rule of its own.

use std::collections::HashMap;

use super::status::NodeGroup;
use crate::cluster::Node;

/// Nodes by the name of their group. Nodes of no group, or of one that cannot be told, are left out.
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

/// Returns the name of the group that a node belongs to; `None` if none of these names fits, or several do.
fn group_of<'a>(node: &Node, groups: &[&'a str]) -> Option<&'a str> {
    let marks = Marks::of(node);
    let fits = |group: &&str| marks.fit(own_name(group));
    let mut fitting: Vec<&str> = groups.iter().copied().filter(fits).collect();
    // Of `worker` and `worker-7` the node `worker-7-x7k2p` is the latter's.
    let longest = fitting.iter().map(|group| own_name(group).len()).max()?;
    fitting.retain(|group| own_name(group).len() == longest);
    match fitting.as_slice() {
        [only] => Some(only),
        _ => None,
    }
}

/// Returns the last part of a group's name: some are URLs or `<kind>/<namespace>/<name>`.
fn own_name(group: &str) -> &str {
    group.rsplit('/').next().unwrap_or(group)
}

/// The names of a node by which its group is known.
struct Marks<'n> {
    /// Values of labels of groups and pools, of which each provider has another.
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

impl<'n> Marks<'n> {
    fn of(node: &'n Node) -> Self {
        let labels = &node.metadata.labels;
        let is_of_a_group = |key: &str| {
            let name = key.rsplit('/').next().unwrap_or(key);
            name.contains("group") || name.contains("pool")
        };
        let label = |key: &str| labels.get(key).map(String::as_str);
        let of_groups = labels.iter().filter(|(key, _)| is_of_a_group(key));
        let mut parts = node.provider_id.split("/virtualMachineScaleSets/");
        let scale_set = parts.nth(1).unwrap_or_default();
        Self {
            labels: of_groups.map(|(_, value)| value.as_str()).collect(),
            scale_set: scale_set.split('/').next().unwrap_or_default(),
            name: node.name(),
            machine: node.machine.rsplit('/').next().unwrap_or_default(),
            eks: label("eks.amazonaws.com/nodegroup"),
            eksctl: label("alpha.eksctl.io/nodegroup-name"),
            kops: label("kops.k8s.io/instancegroup"),
        }
    }

    /// Returns whether a group with this name may be the node's.
    fn fit(&self, group: &str) -> bool {
        if group.is_empty() {
            return false;
        }
        self.labels.contains(&group)
            || self.scale_set.eq_ignore_ascii_case(group)
            || is_node_of(self.name, group)
            || is_machine_of(self.machine, group)
            || self.eks.is_some_and(|name| is_managed_by_eks(group, name))
            || self
                .eksctl
                .is_some_and(|name| is_made_by_eksctl(group, name))
            || self.kops.is_some_and(|name| is_made_by_kops(group, name))
    }
}

/// Returns whether a node is named `<group>-<random>`. GKE's instance groups end with `-grp` in place of the random part.
fn is_node_of(node: &str, group: &str) -> bool {
    let prefix = group.strip_suffix("-grp").unwrap_or(group);
    let Some(random) = behind_dash(node, prefix) else {
        return false;
    };
    let is_random = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=16).contains(&random.len()) && random.bytes().all(is_random)
}

/// Returns what follows a name and a dash.
fn behind_dash<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.strip_prefix(name)?.strip_prefix('-')
}

/// Returns whether a Machine is named `<MachineSet>-<random>` or `<MachineDeployment>-<hash>-<random>`.
fn is_machine_of(machine: &str, group: &str) -> bool {
    let Some(rest) = behind_dash(machine, group) else {
        return false;
    };
    let parts: Vec<&str> = rest.split('-').collect();
    parts.len() <= 2 && parts.into_iter().all(is_made_up)
}

/// Returns whether Kubernetes may have made up a part of a name: these have no vowels, so that they are no words.
fn is_made_up(part: &str) -> bool {
    let is_made_up = |c: u8| c.is_ascii_digit() || b"bcdfghjklmnpqrstvwxz".contains(&c);
    part.len() >= 4 && part.bytes().all(is_made_up)
}

/// Returns whether an auto scaling group is that of a managed node group: `eks-<name>-<uuid>`.
fn is_managed_by_eks(group: &str, name: &str) -> bool {
    let Some(rest) = group.strip_prefix("eks-") else {
        return false;
    };
    let is_of_uuid = |c: u8| c.is_ascii_hexdigit() || c == b'-';
    behind_dash(rest, name).is_some_and(|uuid| uuid.len() == 36 && uuid.bytes().all(is_of_uuid))
}

/// Returns whether an auto scaling group is one of eksctl: `eksctl-<cluster>-nodegroup-<name>-NodeGroup-<id>`.
fn is_made_by_eksctl(group: &str, name: &str) -> bool {
    let Some((_, rest)) = group.split_once("-nodegroup-") else {
        return false;
    };
    let rest = rest.strip_prefix(name);
    rest.is_some_and(|rest| rest.starts_with("-NodeGroup-"))
}

/// Returns whether a group is one of kops: `<name>.<cluster>`.
fn is_made_by_kops(group: &str, name: &str) -> bool {
    let rest = group.strip_prefix(name);
    rest.is_some_and(|rest| rest.starts_with('.'))
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
    fn nodes_are_known_as_each_provider_names_them() {
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
        assert_eq!(
            group("multi-x7k2p", json!({}), json!({}), &["multi", "plain"]),
            Some("multi")
        );
    }

    /// Nodes of other groups, which are not scaled, have names that begin alike.
    #[test]
    fn names_that_only_begin_alike_are_those_of_others() {
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
    fn what_fits_none_or_several_is_in_no_group() {
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
