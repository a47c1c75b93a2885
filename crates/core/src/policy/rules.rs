//! Nodes on which a Pod may run at all, by the platforms of its images.

use crate::image::PlatformSet;
use crate::pod::{Pod, PodPreference};

/// Rules of node affinity and preferences, beside the pools that are opened to Pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementRules {
    pub require: Require,
    /// The platforms that the cluster's nodes have.
    pub platforms: PlatformSet,
    /// Set if `platforms` only counts until the platforms have been read from the cluster.
    pub discovered: bool,
    /// Platforms for a Pod with an unknown image; empty if such a Pod is not steered.
    pub when_unknown: PlatformSet,
    /// The platforms that Pods prefer if their images run there.
    pub prefer: Vec<Preference>,
    /// Labels of Pods that are required of their nodes as well.
    pub pod_labels: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preference {
    pub platform: PlatformSet,
    /// A number from 1 to 100.
    pub weight: u8,
}

/// Means by which Pods are kept off the platforms that their images lack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Require {
    #[default]
    Off,
    Affinity,
    /// The node selector if one architecture is left, else the affinity.
    NodeSelector,
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
    /// Returns whether this Pod is steered, if its images allow it.
    pub fn steer(&self, pod: &Pod<'_>) -> bool {
        self.requires()
            || !self.prefer.is_empty()
            || matches!(pod.preference(), PodPreference::Architecture(_))
    }

    pub fn requires(&self) -> bool {
        self.require != Require::Off || !self.pod_labels.is_empty()
    }

    /// Returns the cluster's platforms within `nodes`, by whole architectures: nodes are told apart by nothing else.
    pub(super) fn within(&self, nodes: PlatformSet) -> PlatformSet {
        self.platforms
            .without_architectures_of(self.platforms.difference(nodes))
    }
}
