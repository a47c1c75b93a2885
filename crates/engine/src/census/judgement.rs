//! The judgement on Pods that are alike.

use super::summary::Coverage;
use tolerarch_core::decision::Decision;
use tolerarch_core::image::PlatformSet;
use tolerarch_core::placement::is_tolerated;
use tolerarch_core::pod::Pod;
use tolerarch_core::policy::{Cause, ImageSupport, Policy};
use tolerarch_core::reason::Reason;
use tolerarch_text::escape::shortened;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    pub coverage: Coverage,
    /// Outcome for such a Pod today; for an unknown image the reason why it is unknown.
    pub reason: Reason,
    /// The images that keep the Pods from the pools. An image is named as by the Pods, shortened.
    pub blockers: Vec<(String, Cause)>,
    /// The nodes that each image suits, as far as they are known.
    pub nodes: Vec<(String, PlatformSet)>,
    /// The pools that the Pods could use, but lack the tolerations of.
    pub usable: Vec<String>,
}

impl Judgement {
    /// Judges by the decision on one of the Pods, and the platforms of its images. `skipped` says why there is none.
    pub(super) fn of(
        skipped: Option<Reason>,
        policy: &Policy,
        namespace: &str,
        pod: &Pod<'_>,
        decision: &Decision<'_>,
        images: &[ImageSupport<'_>],
    ) -> Self {
        if let Some(reason) = skipped.or((!pod.has_containers()).then_some(Reason::Malformed)) {
            return Self::skipped(reason, nodes(images));
        }
        let verdicts = policy.verdicts(policy.rank(namespace, pod), images);
        let blockers = verdicts.blockers();
        let lacking = blockers.iter().find(|blocker| blocker.cause.lacks().is_some());
        let (coverage, reason) = match (lacking, blockers.first()) {
            (Some(lacking), _) => (Coverage::Partial, lacking.cause.into()),
            (None, Some(unknown)) => (Coverage::Unknown, unknown.cause.into()),
            (None, None) => (Coverage::All, decision.reason),
        };
        // A decision that is only observed counts, too: the Pod could use the pool.
        let would_open = matches!(decision.reason, Reason::Tolerated | Reason::Observed);
        let lacking = policy.pools.iter().filter(|pool| verdicts.is_open(pool) && !is_tolerated(pod, pool));
        let usable = lacking.map(|pool| pool.name.clone()).filter(|_| would_open).collect();
        let blockers = blockers.iter().map(|own| (shortened(own.image).to_owned(), own.cause)).collect();
        Self { coverage, reason, blockers, nodes: nodes(images), usable }
    }

    /// Judges Pods that are not decided on. Their images count for the nodes on which the Pods are.
    pub const fn skipped(reason: Reason, nodes: Vec<(String, PlatformSet)>) -> Self {
        Self { coverage: Coverage::Skipped, reason, blockers: Vec::new(), nodes, usable: Vec::new() }
    }
}

/// Returns the nodes that each image suits, if they are known; each image once.
fn nodes(images: &[ImageSupport<'_>]) -> Vec<(String, PlatformSet)> {
    let known =
        images.iter().filter_map(|image| Some((shortened(image.given).to_owned(), image.nodes().ok()?)));
    let mut nodes: Vec<(String, PlatformSet)> = known.collect();
    nodes.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    nodes.dedup();
    nodes
}
