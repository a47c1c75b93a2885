//! Taints that keep Pods away, and the tolerations that open them.

use crate::cluster::Taint;
use tolerarch_core::pod::{Toleration, is_label_key, is_label_value};

/// Prefixes of taints that other controllers set by the state of a node.
const RESERVED: [&str; 3] = ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/"];

/// Returns whether taints of this key are never set here, so that an existing one has another owner.
pub fn is_reserved_taint(key: &str) -> bool {
    RESERVED.iter().any(|prefix| key.starts_with(prefix))
}

/// Returns whether a taint comes and goes with the state of a node.
pub(crate) fn is_passing(taint: &Taint) -> bool {
    is_reserved_taint(&taint.key) || taint.key.starts_with("readiness.k8s.io/")
}

/// Returns whether a taint only makes the scheduler prefer other nodes.
pub(crate) fn is_wish(taint: &Taint) -> bool {
    taint.effect == "PreferNoSchedule"
}

pub(crate) fn is_tolerated(taint: &Taint, tolerations: &[Toleration<'_>]) -> bool {
    let Taint { key, value, effect } = taint;
    tolerations.iter().any(|toleration| toleration.tolerates(key, value, effect))
}

/// Returns the first of a node's taints that these tolerations lack, if they open another one of them. Taints that come
/// and go, or are `PreferNoSchedule`, do not count.
pub fn lacking<'a>(tolerations: &[Toleration<'_>], taints: &'a [Taint]) -> Option<&'a Taint> {
    let lasting = taints.iter().filter(|taint| !is_wish(taint) && !is_passing(taint));
    let (open, closed): (Vec<&Taint>, Vec<&Taint>) =
        lasting.partition(|taint| is_tolerated(taint, tolerations));
    closed.first().copied().filter(|_| !open.is_empty())
}

/// Checks by `ValidateTolerations` of k8s.io/kubernetes. Karpenter takes other values, too, of any length.
pub(super) fn is_tolerable(taint: &Taint) -> bool {
    let Taint { key, value, effect, .. } = taint;
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
