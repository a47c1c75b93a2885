//! Taints that keep Pods away, and the tolerations that open them.

use crate::cluster::Taint;
use tolerarch_core::pod::{Toleration, is_label_key, is_label_value};

/// Prefixes of taints that come and go with the state of a node.
const PASSING: [&str; 4] =
    ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/", "readiness.k8s.io/"];

pub(super) fn is_passing(taint: &Taint) -> bool {
    PASSING.iter().any(|prefix| taint.key.starts_with(prefix))
}

/// Returns whether a taint only makes the scheduler prefer other nodes.
pub(super) fn is_wish(taint: &Taint) -> bool {
    taint.effect == "PreferNoSchedule"
}

pub(super) fn is_tolerated(taint: &Taint, tolerations: &[Toleration<'_>]) -> bool {
    let Taint { key, value, effect } = taint;
    tolerations.iter().any(|toleration| toleration.tolerates(key, value, effect))
}

/// Effect of a pool's tolerations on the taints of some nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit<'a> {
    /// The pool tolerates none of the taints.
    Foreign,
    /// The pool tolerates all taints, and there are some.
    Opened,
    /// The pool tolerates some taints, but not this one.
    Lacking(&'a Taint),
}

/// Matches tolerations with taints, see [`Fit`]. Taints that come and go, or are `PreferNoSchedule`, do not count.
pub fn fit<'a>(tolerations: &[Toleration<'_>], taints: &'a [Taint]) -> Fit<'a> {
    let lasting = taints.iter().filter(|taint| !is_wish(taint) && !is_passing(taint));
    let (open, closed): (Vec<&Taint>, Vec<&Taint>) =
        lasting.partition(|taint| is_tolerated(taint, tolerations));
    match (open.is_empty(), closed.first()) {
        (true, _) => Fit::Foreign,
        (false, None) => Fit::Opened,
        (false, Some(taint)) => Fit::Lacking(taint),
    }
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
