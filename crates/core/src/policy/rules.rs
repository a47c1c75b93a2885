//! Rules for node affinity and preferences: on which nodes a Pod may run, by the platforms of its images.

use crate::image::PlatformSet;
use crate::pod::{Pod, PodPreference};

/// Rules for node affinity, node selectors and preferences, which apply beside the pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementRules {
    pub require: Require,
    /// The platforms that the cluster's nodes have.
    pub platforms: PlatformSet,
    /// Set if `platforms` counts only until the platforms have been read from the cluster.
    pub discovered: bool,
    /// Platforms for a Pod with an unknown image; empty if such a Pod is not steered.
    pub when_unknown: PlatformSet,
    /// The platforms that Pods prefer if their images run there.
    pub prefer: Vec<Preference>,
    /// Keys of Pod labels that the nodes of the Pod must have with the same value.
    pub pod_labels: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preference {
    pub platform: PlatformSet,
    /// A number from 1 to 100.
    pub weight: u8,
}

/// The way in which Pods are kept off the platforms that their images lack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Require {
    #[default]
    Off,
    Affinity,
    /// The node selector if only one architecture is left, else the affinity.
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

    /// Returns the platforms of those architectures whose platforms in the cluster are all in `nodes`. The labels of nodes
    /// name only architectures.
    pub(super) fn within(&self, nodes: PlatformSet) -> PlatformSet {
        let lacking = self.platforms.difference(nodes);
        self.platforms.without_architectures_of(lacking)
    }
}
