//! Pods as they were created, and one decision on all that are alike.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::decide::{BatchLimits, Examined, Snapshot};
use tolerarch_core::pod::{MODE_KEY, PROFILE_KEY, Pod};
use tolerarch_core::reason::Reason;
use tolerarch_kubernetes::cluster::StoredPod;

#[derive(PartialEq, Eq, Hash)]
pub struct Shape {
    pub namespace: Arc<str>,
    /// The profile for which the webhook is called, if it is known.
    pub profile: Option<Arc<str>>,
    pub pod: Pod<'static>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct NamespaceSettings<'a> {
    pub profile: Option<&'a str>,
    pub is_opted_out: bool,
    /// Set if images count for the node of their Pod even if the Pod is not decided on.
    pub with_nodes: bool,
}

impl<'a> NamespaceSettings<'a> {
    /// Reads the namespace's labels, by which the webhook configuration selects.
    pub fn of(labels: Option<&'a BTreeMap<String, String>>, with_nodes: bool) -> Self {
        let label = |key: &str| {
            labels
                .and_then(|labels| labels.get(key))
                .map(String::as_str)
        };
        Self {
            profile: label(PROFILE_KEY),
            is_opted_out: label(MODE_KEY) == Some("off"),
            with_nodes,
        }
    }
}

impl Shape {
    /// Makes the shape; `None` if the Pod cannot be read within the limits on untrusted input.
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
        terms: NamespaceSettings<'_>,
    ) -> Examined {
        let Self { namespace, pod, .. } = self;
        let mut skipped = pod.skipped();
        if skipped.is_none() && terms.is_opted_out {
            skipped = Some(Reason::OptedOut);
        }
        // Platforms of Windows are not known.
        if let Some(reason) = skipped
            && (reason == Reason::Windows || !terms.with_nodes)
        {
            return Examined::skipped(reason);
        }
        let policy = snapshot.policy_for(terms.profile);
        let policy = policy.unwrap_or(&snapshot.policy);
        let examined = snapshot.examine(policy, namespace, pod, limits).await;
        Examined {
            skipped: skipped.or(examined.skipped),
            ..examined
        }
    }
}
