//! What the images of a Pod mean for it: decided once for all Pods that are alike.

use std::sync::Arc;

use tolerarch_core::decision::Decision;
use tolerarch_core::image::{LookupError, PlatformSet};
use tolerarch_core::placement::is_tolerated;
use tolerarch_core::pod::Pod;
use tolerarch_core::policy::{Blocker, Cause, ImageSupport, Policy};
use tolerarch_core::reason::Reason;
use tolerarch_text::escape::shortened;

/// Where the images of a Pod run, by the platforms of the pools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Support {
    /// Wherever a pool's nodes can be.
    All,
    /// An image lacks a platform.
    Partial,
    /// The platforms of an image are not known, and none is known to lack one.
    Unknown,
    /// The Pod is none that is decided on: of a DaemonSet, opted out, or the like.
    Skipped,
}

impl Support {
    pub const ALL: [Self; 4] = [Self::All, Self::Partial, Self::Unknown, Self::Skipped];

    /// What a workload with Pods of both counts as: the least supported; skipped Pods tell nothing of the others.
    pub(crate) fn or_less(self, other: Self) -> Self {
        let order = [Self::Partial, Self::Unknown, Self::All];
        order.into_iter().find(|one| [self, other].contains(one)).unwrap_or(Self::Skipped)
    }

    /// Its name in metrics and in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Partial => "partial",
            Self::Unknown => "unknown",
            Self::Skipped => "skipped",
        }
    }
}

/// An image that keeps Pods from the pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockingImage {
    /// As the Pod names it, shortened.
    pub image: Arc<str>,
    pub cause: Cause,
}

/// What is known of Pods that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    pub support: Support,
    /// What would become of them today; where an image is not known, why.
    pub reason: Reason,
    /// Every image that keeps them from the pools.
    pub blockers: Vec<BlockingImage>,
    /// The nodes that each image suits, as far as that is known.
    pub nodes: Vec<(Arc<str>, PlatformSet)>,
    /// The pools that they could use, and that they lack the tolerations of.
    pub usable: Vec<Arc<str>>,
}

impl Judgement {
    /// From the decision on one of them, and all that is known of its images.
    pub fn of(
        policy: &Policy,
        namespace: &str,
        pod: &Pod<'_>,
        decision: &Decision<'_>,
        images: &[ImageSupport<'_>],
    ) -> Self {
        if let Some(reason) = pod.skipped().or((!pod.has_containers()).then_some(Reason::Malformed)) {
            return Self::skipped(reason, images);
        }
        let verdicts = policy.verdicts(policy.rank(namespace, pod), images);
        let blockers = verdicts.blockers();
        let unknown = blockers.iter().find(|blocker| !blocker.lacks());
        let (support, reason) = match unknown {
            _ if blockers.is_empty() => (Support::All, decision.reason),
            Some(unknown) if !blockers.iter().any(Blocker::lacks) => (Support::Unknown, unknown.cause.into()),
            _ => (Support::Partial, Reason::PlatformMissing),
        };
        // What is only observed counts, too: it could be used.
        let would_open = matches!(decision.reason, Reason::Tolerated | Reason::Observed);
        let lacking =
            verdicts.of_pools().filter(|verdict| verdict.is_open && !is_tolerated(pod, verdict.pool));
        let usable = lacking.map(|verdict| Arc::from(&*verdict.pool.name)).filter(|_| would_open).collect();
        let blockers = blockers.iter().map(|own| BlockingImage { image: name(own.image), cause: own.cause });
        Self { support, reason, blockers: blockers.collect(), nodes: nodes(images), usable }
    }

    /// Of Pods that are not decided on. Their images count for the nodes that they are on.
    pub fn skipped(reason: Reason, images: &[ImageSupport<'_>]) -> Self {
        let support = Support::Skipped;
        Self { support, reason, blockers: Vec::new(), nodes: nodes(images), usable: Vec::new() }
    }

    /// Of Pods that cannot be read within the limits on untrusted input.
    pub fn unreadable() -> Self {
        Self::skipped(Reason::Malformed, &[])
    }

    /// Of Pods whose images could not be looked up.
    pub fn not_known(pod: &Pod<'_>, error: LookupError) -> Self {
        if let Some(reason) = pod.skipped() {
            return Self::skipped(reason, &[]);
        }
        let mut blockers: Vec<BlockingImage> = Vec::new();
        for usage in pod.images() {
            let cause = Cause::Unknown(usage.image.err().unwrap_or(error));
            let blocker = BlockingImage { image: name(usage.given), cause };
            if !blockers.contains(&blocker) {
                blockers.push(blocker);
            }
        }
        let (nodes, usable) = (Vec::new(), Vec::new());
        Self { support: Support::Unknown, reason: error.into(), blockers, nodes, usable }
    }

    pub(crate) fn images_without(&self, platform: PlatformSet) -> Vec<Arc<str>> {
        let wrong = self.nodes.iter().filter(|(_, nodes)| !nodes.contains_all(platform));
        wrong.map(|(image, _)| Arc::clone(image)).collect()
    }
}

fn name(image: &str) -> Arc<str> {
    shortened(image).into()
}

/// The nodes that each image suits, where that is known; each image once.
fn nodes(images: &[ImageSupport<'_>]) -> Vec<(Arc<str>, PlatformSet)> {
    let known = images.iter().filter_map(|image| Some((name(image.given), image.nodes().ok()?)));
    let mut nodes: Vec<(Arc<str>, PlatformSet)> = known.collect();
    nodes.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    nodes.dedup();
    nodes
}
