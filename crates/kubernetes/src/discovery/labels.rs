//! Labels of nodes that select pools.

use std::collections::{BTreeMap, BTreeSet};

use super::platforms::Allowed;
use crate::cluster::NodePool;
use tolerarch_core::policy::Pool;

/// Label with the name of a node's NodePool.
pub(super) const NODE_POOL: &str = "karpenter.sh/nodepool";

/// Returns the keys of the labels that select these pools.
pub fn selected_label_keys(pools: &[Pool]) -> BTreeSet<String> {
    let keys = pools.iter().flat_map(|pool| pool.select.keys());
    keys.cloned().collect()
}

/// Returns whether Karpenter may make a node with all of these labels from this NodePool.
pub(super) fn may_have(node_pool: &NodePool, labels: &BTreeMap<String, String>) -> bool {
    let mut labels = labels.iter();
    labels.all(|(key, value)| may_have_label(node_pool, key, value))
}

/// Karpenter itself sets its own labels and those of Kubernetes and providers; a node has any other label only if its
/// NodePool names the label (`Compatible` of `scheduling/requirements.go`).
fn may_have_label(node_pool: &NodePool, key: &str, value: &str) -> bool {
    if key == NODE_POOL {
        return node_pool.name() == value;
    }
    if !is_well_known(key) && !names_label(node_pool, key) {
        return false;
    }
    Allowed::of(node_pool, key).has(value)
}

fn names_label(node_pool: &NodePool, key: &str) -> bool {
    if node_pool.template_labels.contains_key(key) {
        return true;
    }
    let mut requirements = node_pool.requirements.iter();
    requirements.any(|requirement| requirement.key == key)
}

fn is_well_known(key: &str) -> bool {
    let Some((domain, _name)) = key.split_once('/') else {
        return false;
    };
    domain.ends_with("kubernetes.io")
        || domain.starts_with("karpenter.")
        || domain.starts_with("eks.")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node_pool(labels: Value, requirements: Value) -> NodePool {
        let template =
            json!({"metadata": {"labels": labels}, "spec": {"requirements": requirements}});
        let pool = json!({"metadata": {"name": "multi"}, "spec": {"template": template}});
        serde_json::from_value(pool).unwrap()
    }

    #[test]
    fn node_may_have_labels_that_its_node_pool_names() {
        let one = |key: &str, operator: &str, values: &[&str]| json!([{"key": key, "operator": operator, "values": values}]);
        let none = json!({});
        for (pool, key, value, expected) in [
            (
                node_pool(json!({"group": "multi"}), json!([])),
                "group",
                "multi",
                true,
            ),
            (
                node_pool(json!({"group": "multi"}), json!([])),
                "group",
                "other",
                false,
            ),
            (
                node_pool(none.clone(), one("group", "In", &["a", "b"])),
                "group",
                "b",
                true,
            ),
            (
                node_pool(none.clone(), one("group", "In", &["a", "b"])),
                "group",
                "c",
                false,
            ),
            (
                node_pool(none.clone(), one("group", "Exists", &[])),
                "group",
                "c",
                true,
            ),
            (
                node_pool(none.clone(), one("group", "NotIn", &["c"])),
                "group",
                "c",
                false,
            ),
            (node_pool(none.clone(), json!([])), "group", "multi", false),
            (node_pool(none.clone(), json!([])), NODE_POOL, "multi", true),
            (
                node_pool(none.clone(), json!([])),
                NODE_POOL,
                "other",
                false,
            ),
            (
                node_pool(none.clone(), json!([])),
                "topology.kubernetes.io/zone",
                "a",
                true,
            ),
            (
                node_pool(none, json!([])),
                "karpenter.k8s.aws/instance-family",
                "m7g",
                true,
            ),
        ] {
            let labels = BTreeMap::from([(key.to_owned(), value.to_owned())]);
            assert_eq!(may_have(&pool, &labels), expected, "{key}={value} {pool:?}");
        }
    }
}
