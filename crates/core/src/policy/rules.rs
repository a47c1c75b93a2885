//! On which nodes a Pod may run at all, by what its images run on.

use super::{Blocker, ImageSupport, Verdicts};
use crate::image::PlatformSet;
use crate::pod::{Pod, PodPreference};

/// How Pods are steered, beyond the pools that are opened to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementRules {
    /// Whether Pods are kept off the platforms that their images lack.
    pub require: Require,
    /// The platforms that the cluster's nodes have.
    pub platforms: PlatformSet,
    /// Whether these are only what counts until they have been read of the cluster.
    pub discovered: bool,
    /// Those for a Pod with an image that is not known; empty where such a Pod is not steered.
    pub when_unknown: PlatformSet,
    /// The platforms that Pods prefer whose images run there.
    pub prefer: Vec<Preference>,
    /// Labels of Pods that are required of their nodes as well.
    pub pod_labels: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preference {
    pub platform: PlatformSet,
    /// 1 to 100.
    pub weight: u8,
}

/// How Pods are kept off the platforms that their images lack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Require {
    #[default]
    Off,
    /// By a required node affinity.
    Affinity,
    /// By the node selector where one architecture is left, else by the affinity.
    NodeSelector,
}

/// The nodes on which a Pod may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeFit {
    Everywhere,
    /// Those with these platforms: all that the cluster has of their architectures.
    Only(PlatformSet),
    Nowhere,
    Unknown,
}

impl Default for PlacementRules {
    fn default() -> Self {
        Self {
            require: Require::Off,
            platforms: PlatformSet::AMD64_AND_ARM64,
            discovered: false,
            when_unknown: PlatformSet::EMPTY,
            prefer: Vec::new(),
            pod_labels: Vec::new(),
        }
    }
}

impl PlacementRules {
    /// Whether this Pod is steered, if its images allow it.
    pub fn steer(&self, pod: &Pod<'_>) -> bool {
        self.requires()
            || !self.prefer.is_empty()
            || matches!(pod.preference(), PodPreference::Architecture(_))
    }

    pub fn requires(&self) -> bool {
        self.require != Require::Off || !self.pod_labels.is_empty()
    }

    /// Whether this image alone decides that a Pod is not steered, whatever its other images are.
    pub(super) fn is_settled_by(&self, pod: &Pod<'_>, image: &ImageSupport<'_>) -> bool {
        match (image.nodes(), self.require) {
            (Ok(_), Require::Off) => !self.steer(pod),
            (Ok(nodes), _) => self.within(nodes).is_empty(),
            (Err(_), require) => require == Require::Off || self.when_unknown.is_empty(),
        }
    }

    /// Of the cluster's platforms those on which something runs that runs on `nodes`. Nodes are told apart by their
    /// architecture: one of which a variant is lacking is none.
    fn within(&self, nodes: PlatformSet) -> PlatformSet {
        let runs = self.platforms.intersection(nodes);
        if runs == self.platforms {
            return runs;
        }
        runs.without_architectures_of(self.platforms.difference(nodes))
    }
}

impl<'a> Verdicts<'a, '_> {
    /// By the rules. If images that are known leave no nodes, those that are not known change nothing.
    pub(crate) fn node_fit(&self) -> NodeFit {
        let rules = &self.policy.placement;
        let known = self.known();
        let allowed = match self.shared {
            _ if self.images.is_empty() => return NodeFit::Unknown,
            _ if rules.within(known).is_empty() => return NodeFit::Nowhere,
            Some(shared) => rules.within(shared),
            None => rules.within(known.intersection(rules.when_unknown)),
        };
        if allowed.is_empty() {
            NodeFit::Unknown
        } else if allowed == rules.platforms {
            NodeFit::Everywhere
        } else {
            NodeFit::Only(allowed)
        }
    }

    /// The first image that lacks some of the cluster's platforms, or else that is not known.
    pub(crate) fn narrowing(&self) -> Option<Blocker<'a>> {
        let platforms = self.policy.placement.platforms;
        let blockers = || self.images.iter().filter_map(|image| image.blocker(platforms));
        blockers().find(Blocker::lacks).or_else(|| blockers().next())
    }
}
