//! The group of a node. The Kubernetes API does not say it; each provider names groups and nodes by a rule of its own.

use crate::cluster::Node;

/// Returns the name of the group that a node belongs to; `None` if none of these names fits, or several do.
pub(super) fn group_of<'a>(node: &Node, groups: &[&'a str]) -> Option<&'a str> {
    let fits: Vec<&str> = groups.iter().copied().filter(|group| fits(node, own_name(group))).collect();
    // Of `worker` and `worker-big` the node `worker-big-x7k2p` is the latter's.
    let longest = fits.iter().map(|group| own_name(group).len()).max()?;
    let mut longest = fits.into_iter().filter(|group| own_name(group).len() == longest);
    let first = longest.next();
    first.filter(|_| longest.next().is_none())
}

/// Returns the last part of a group's name: some are URLs or `<kind>/<namespace>/<name>`.
fn own_name(group: &str) -> &str {
    group.rsplit('/').next().unwrap_or(group)
}

fn fits(node: &Node, group: &str) -> bool {
    let label = |key: &str| node.metadata.labels.get(key).map(String::as_str);
    is_labelled(node, group)
        // Azure: azure:///subscriptions/…/virtualMachineScaleSets/aks-arm-12345678-vmss/virtualMachines/0
        || node.provider_id.split('/').any(|part| part == group)
        || is_named_after(node.name(), group)
        // Cluster API and OpenShift: the Machine of a MachineSet.
        || is_named_after(node.machine.rsplit('/').next().unwrap_or_default(), group)
        || label("eks.amazonaws.com/nodegroup").is_some_and(|name| is_managed_by_eks(group, name))
        || label("alpha.eksctl.io/nodegroup-name").is_some_and(|name| group.contains(&format!("-nodegroup-{name}-NodeGroup-")))
        || label("kops.k8s.io/instancegroup").is_some_and(|name| group.starts_with(&format!("{name}.")))
}

/// Returns whether a label of groups or pools, of which each provider has another, has this value.
fn is_labelled(node: &Node, group: &str) -> bool {
    node.metadata.labels.iter().any(|(key, value)| {
        let name = key.rsplit('/').next().unwrap_or(key);
        value == group && (name.contains("group") || name.contains("pool"))
    })
}

/// Returns whether a node or machine has the group's name before its own suffix. GKE's instance groups end with `-grp`
/// in place of it.
fn is_named_after(name: &str, group: &str) -> bool {
    let prefix = group.strip_suffix("-grp").unwrap_or(group);
    name.strip_prefix(prefix).is_some_and(|suffix| suffix.starts_with('-'))
}

/// Returns whether an auto scaling group is that of a managed node group: `eks-<name>-<uuid>`.
fn is_managed_by_eks(group: &str, name: &str) -> bool {
    let uuid = group
        .strip_prefix("eks-")
        .and_then(|rest| rest.strip_prefix(name))
        .and_then(|rest| rest.strip_prefix('-'));
    uuid.is_some_and(|uuid| uuid.len() == 36 && uuid.chars().all(|c| c.is_ascii_hexdigit() || c == '-'))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const URL: &str = "https://www.googleapis.com/compute/v1/projects/p/zones/z/instanceGroups/";

    fn group<'a>(name: &str, labels: Value, more: Value, groups: &[&'a str]) -> Option<&'a str> {
        let mut node = json!({"metadata": {"name": name, "labels": labels}});
        json_patch_merge(&mut node, &more);
        group_of(&serde_json::from_value(node).unwrap(), groups)
    }

    fn json_patch_merge(into: &mut Value, from: &Value) {
        match (into, from) {
            (Value::Object(into), Value::Object(from)) => {
                for (key, value) in from {
                    json_patch_merge(into.entry(key).or_insert(Value::Null), value);
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
        assert_eq!(group("ip-10-0-0-1", eks_label("arm"), json!({}), &eks), Some(eks[0]));
        assert_eq!(group("ip-10-0-0-1", eks_label("arm-big"), json!({}), &eks), Some(eks[1]));
        assert_eq!(group("ip-10-0-0-1", eks_label("ar"), json!({}), &eks), None);

        let eksctl =
            ["eksctl-shop-nodegroup-arm-NodeGroup-1ABC", "eksctl-shop-nodegroup-x-arm-NodeGroup-2ABC"];
        assert_eq!(
            group("ip-10-0-0-1", json!({"alpha.eksctl.io/nodegroup-name": "arm"}), json!({}), &eksctl),
            Some(eksctl[0])
        );

        let gke = [&*format!("{URL}gke-shop-arm-1a2b3c4d-grp"), &*format!("{URL}gke-shop-arm-9a8b7c6d-grp")];
        assert_eq!(group("gke-shop-arm-9a8b7c6d-x7k2", json!({}), json!({}), &gke), Some(gke[1]));

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
        assert_eq!(group("ip-10-0-0-1", json!({}), machine, &openshift), Some(openshift[1]));
        let machine = json!({"metadata": {"annotations": {"cluster.x-k8s.io/machine": "arm-6d8f9-x7k2p"}}});
        assert_eq!(
            group("worker-7", json!({}), machine, &["MachineDeployment/shop/arm"]),
            Some("MachineDeployment/shop/arm")
        );

        let kops = ["nodes-arm.shop.example.com", "nodes.shop.example.com"];
        assert_eq!(
            group("i-0123", json!({"kops.k8s.io/instancegroup": "nodes"}), json!({}), &kops),
            Some(kops[1])
        );
        assert_eq!(
            group("n", json!({"doks.digitalocean.com/node-pool-id": "0a1b"}), json!({}), &["0a1b", "2c3d"]),
            Some("0a1b")
        );
        assert_eq!(group("multi-x7k2p", json!({}), json!({}), &["multi", "plain"]), Some("multi"));
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
        assert_eq!(group("a-1", json!({}), json!({}), &["MachineSet/x/a", "MachineSet/y/a"]), None);
        assert_eq!(group("a-1", json!({}), json!({}), &[]), None);
    }
}
