//! Pods as they were at their creation, and the decision that is common to all Pods that are alike.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::decide::{BatchLimits, Examined, Snapshot};
use tolerarch_core::pod::{MODE_KEY, PROFILE_KEY, Pod};
use tolerarch_core::reason::Reason;
use tolerarch_kubernetes::cluster::StoredPod;

#[derive(PartialEq, Eq, Hash)]
pub struct Shape {
    pub namespace: Arc<str>,
    /// The profile for which the webhook is called; `None` without one, or if it is unknown.
    pub profile: Option<Arc<str>>,
    pub pod: Pod<'static>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct NamespaceSettings<'a> {
    pub profile: Option<&'a str>,
    pub is_opted_out: bool,
    /// Set if the images of a Pod that is not decided on are looked up as well, for a comparison with its node.
    pub with_nodes: bool,
}

impl<'a> NamespaceSettings<'a> {
    /// Reads the namespace's labels, by which the webhook configuration selects.
    pub fn of(labels: Option<&'a BTreeMap<String, String>>, with_nodes: bool) -> Self {
        let label = |key: &str| {
            let value = labels?.get(key)?;
            Some(value.as_str())
        };
        Self {
            profile: label(PROFILE_KEY),
            is_opted_out: label(MODE_KEY) == Some("off"),
            with_nodes,
        }
    }
}

impl Shape {
    /// Returns the shape of a Pod; `None` if the Pod cannot be read within the limits on untrusted input.
    pub(super) fn of(
        pod: &mut StoredPod,
        namespace: &Arc<str>,
        profile: Option<&str>,
    ) -> Option<Self> {
        let pod = Arc::into_inner(pod.facts.take()?)?.as_created();
        Some(Self {
            namespace: Arc::clone(namespace),
            profile: profile.map(Into::into),
            pod,
        })
    }

    /// Decides as the webhook would, but waits for every image.
    pub async fn examine(
        &self,
        snapshot: &Snapshot,
        limits: &BatchLimits,
        settings: NamespaceSettings<'_>,
    ) -> Examined {
        let Self { namespace, pod, .. } = self;
        let mut skipped = pod.skipped();
        if skipped.is_none() && settings.is_opted_out {
            skipped = Some(Reason::OptedOut);
        }
        // The platforms of Windows nodes have no bit in a set, so there is nothing to compare.
        if let Some(reason) = skipped
            && (reason == Reason::Windows || !settings.with_nodes)
        {
            return Examined::skipped(reason);
        }
        let policy = match snapshot.policy_for(settings.profile) {
            Some(policy) => policy,
            None => &snapshot.policy,
        };
        let mut examined = snapshot.examine(policy, namespace, pod, limits).await;
        if skipped.is_some() {
            examined.skipped = skipped;
        }
        examined
    }
}
