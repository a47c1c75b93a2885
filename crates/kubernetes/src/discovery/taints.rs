//! Which taints keep Pods away, and which tolerations open them.

use crate::cluster::Taint;
use tolerarch_core::pod::{Toleration, is_label_key, is_label_value};

/// Prefixes of taints that come and go with the state of a node.
const PASSING: [&str; 4] =
    ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/", "readiness.k8s.io/"];

/// Whether a taint comes and goes with the state of a node.
pub(super) fn is_passing(taint: &Taint) -> bool {
    PASSING.iter().any(|prefix| taint.key.starts_with(prefix))
}

/// Whether a taint only makes other nodes better.
pub(super) fn is_wish(taint: &Taint) -> bool {
    taint.effect == "PreferNoSchedule"
}

pub(super) fn is_tolerated<'a, 't: 'a>(
    taint: &Taint,
    tolerations: impl IntoIterator<Item = &'a Toleration<'t>>,
) -> bool {
    let Taint { key, value, effect } = taint;
    tolerations.into_iter().any(|toleration| toleration.tolerates(key, value, effect))
}

/// What a pool's tolerations make of the taints of some nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit<'a> {
    /// None of the taints concerns the pool.
    Foreign,
    /// All are tolerated, and there are some.
    Opened,
    /// Some are, and this one is not.
    Lacking(&'a Taint),
}

/// See [`Fit`]. Taints that pass, or that only make other nodes better, do not count.
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

/// By `ValidateTolerations` of k8s.io/kubernetes. Karpenter takes values that are no label values, of any length.
pub(super) fn is_tolerable(taint: &Taint) -> bool {
    let Taint { key, value, effect, .. } = taint;
    let is_effect = matches!(&**effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute");
    is_label_key(key) && is_label_value(value) && is_effect
}

/// The toleration of just this taint.
pub(super) fn exact(taint: &Taint) -> Toleration<'static> {
    Toleration {
        key: taint.key.clone().into(),
        operator: "Equal".into(),
        value: taint.value.clone().into(),
        effect: taint.effect.clone().into(),
        toleration_seconds: None,
    }
}
