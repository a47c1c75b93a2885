//! Taints that keep Pods away, and the tolerations that match them.

use crate::cluster::Taint;
use tolerarch_core::pod::{Toleration, is_label_key, is_label_value};

/// Prefixes of taints that Kubernetes, Karpenter and the cluster-autoscaler set by the state of a node, or that the
/// cluster-autoscaler takes to be such (`utils/taints` of the cluster-autoscaler).
const RESERVED: [&str; 10] = [
    "node.kubernetes.io/",
    "node.cloudprovider.kubernetes.io/",
    "karpenter.sh/",
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "status-taint.cluster-autoscaler.kubernetes.io/",
    "cloud.google.com/impending-node-termination",
    "NodeWithImpairedVolumes",
];

/// Prefixes of taints that others set while a node starts, is repaired or is about to be removed: the node readiness
/// controller, Cluster API, AWS's node termination handler, and AKS under its new name and its old one.
const TRANSIENT: [&str; 6] = [
    "readiness.k8s.io/",
    "node.cluster.x-k8s.io/uninitialized",
    "node.cluster.x-k8s.io/outdated-revision",
    "aws-node-termination-handler/",
    "remediator.kubernetes.azure.com/",
    "remediator.aks.microsoft.com/",
];
/// Suffix of taints that agents of networks and volumes remove once they run, such as Cilium and AWS's CSI drivers.
const AGENT: &str = "/agent-not-ready";

/// Returns whether tolerarch never sets taints with this key, so that an existing one has another owner.
pub fn is_reserved_taint(key: &str) -> bool {
    RESERVED.iter().any(|prefix| key.starts_with(prefix))
}

/// Returns whether a taint comes and goes with the state of a node.
pub(crate) fn is_transient(taint: &Taint) -> bool {
    let key = &taint.key;
    if is_reserved_taint(key) || key.ends_with(AGENT) {
        return true;
    }
    TRANSIENT.iter().any(|prefix| key.starts_with(prefix))
}

/// Returns whether a taint only makes the scheduler prefer other nodes.
pub(crate) fn is_preference(taint: &Taint) -> bool {
    taint.effect == "PreferNoSchedule"
}

pub(crate) fn is_tolerated(taint: &Taint, tolerations: &[Toleration<'_>]) -> bool {
    let Taint { key, value, effect } = taint;
    let mut tolerations = tolerations.iter();
    tolerations.any(|toleration| toleration.tolerates(key, value, effect))
}

pub(super) fn is_any_tolerated(taints: &[&Taint], tolerations: &[Toleration<'_>]) -> bool {
    taints.iter().any(|taint| is_tolerated(taint, tolerations))
}

pub(super) fn are_tolerated(taints: &[&Taint], tolerations: &[Toleration<'_>]) -> bool {
    taints.iter().all(|taint| is_tolerated(taint, tolerations))
}

/// Returns the first of a node's taints that is not tolerated, if another one is. Taints that come and go, or are
/// `PreferNoSchedule`, do not count.
pub fn lacking<'a>(tolerations: &[Toleration<'_>], taints: &'a [Taint]) -> Option<&'a Taint> {
    let mut opens_any = false;
    let mut closed = None;
    for taint in taints {
        if is_preference(taint) || is_transient(taint) {
            continue;
        }
        if is_tolerated(taint, tolerations) {
            opens_any = true;
        } else {
            closed = closed.or(Some(taint));
        }
    }
    if opens_any { closed } else { None }
}

/// Checks by `ValidateTolerations` of k8s.io/kubernetes. Karpenter takes other values, too, of any length.
pub(super) fn is_tolerable(taint: &Taint) -> bool {
    let Taint {
        key, value, effect, ..
    } = taint;
    let is_effect = matches!(&**effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute");
    is_label_key(key) && is_label_value(value) && is_effect
}

pub(super) fn exact(taint: &Taint) -> Toleration<'static> {
    Toleration {
        key: taint.key.clone().into(),
        operator: "Equal".into(),
        value: taint.value.clone().into(),
        effect: taint.effect.clone().into(),
        toleration_seconds: None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// The controller may not remove taints that it never sets, whatever its annotation on the node says.
    #[test]
    fn admission_policy_of_node_taints_has_the_same_keys() {
        let policy = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../manifests/node-taints/nodetaints.yaml");
        let policy = std::fs::read_to_string(policy).unwrap();
        let (_before, list) = policy.split_once("- name: reserved\n").unwrap();
        let (list, _behind) = list.split_once(']').unwrap();
        let keys: BTreeSet<&str> = list.split('\'').skip(1).step_by(2).collect();
        assert_eq!(keys, BTreeSet::from(RESERVED));
    }

    #[test]
    fn keys_of_kubernetes_and_autoscalers_are_reserved() {
        for key in [
            "node.kubernetes.io/not-ready",
            "ToBeDeletedByClusterAutoscaler",
            "DeletionCandidateOfClusterAutoscaler",
            "ignore-taint.cluster-autoscaler.kubernetes.io/agent",
            "startup-taint.cluster-autoscaler.kubernetes.io/agent",
            "status-taint.cluster-autoscaler.kubernetes.io/agent",
            "cloud.google.com/impending-node-termination",
        ] {
            assert!(is_reserved_taint(key), "{key}");
        }
        // Teams may set these themselves.
        for key in [
            "tolerarch.io/multi-arch",
            "readiness.k8s.io/agent",
            "cluster-autoscaler.kubernetes.io/a",
        ] {
            assert!(!is_reserved_taint(key), "{key}");
        }
    }
}
