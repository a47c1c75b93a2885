//! The keys of placement.

use super::shape::{Sections, Shape, Slot, holding, key, key_as};
use super::values::{Platforms, label_key_that, platform, weight};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::pod::{is_label_key, names_architecture};
use tolerarch_core::policy::{PlacementRules, Preference, Require};

impl Slot for PlacementRules {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key(
                "require",
                "off, affinity or nodeSelector: keep a Pod off the platforms that its images lack",
                &mut self.require,
            ),
            key_as(
                "platforms",
                "that the cluster's nodes have; discovered: those of all NodePools and nodes, see discover",
                Platforms { known: &mut self.platforms, discovered: Some(&mut self.discovered) },
            ),
            key(
                "whenUnknown",
                "platforms for a Pod with an image that is not known; none: such a Pod is not steered",
                &mut self.when_unknown,
            ),
            key_as(
                "prefer",
                "platforms that Pods prefer whose images run there, with weights",
                Sections(&mut self.prefer),
            ),
            key_as(
                "podLabels",
                "labels of Pods that are required of their nodes, too",
                label_key_that(is_chosen_label).set(&mut self.pod_labels),
            ),
        ])
    }

    fn validate(&self) -> Vec<String> {
        let none = self.platforms.is_empty();
        let none =
            none.then_some("the cluster has no platforms; write for example [linux/amd64, linux/arm64]");
        let twice = |at: &usize| {
            let architectures = |at: usize| self.prefer[at].platform.architectures();
            self.prefer[..*at].iter().any(|other| other.platform.architectures() == architectures(*at))
        };
        let twice = (1..self.prefer.len()).find(twice);
        let twice = twice.map(|at| {
            let platform = self.prefer[at].platform;
            format!("{platform} is preferred twice: nodes are told apart by their architecture")
        });
        none.map(str::to_owned).into_iter().chain(twice).collect()
    }

    fn warnings(&self) -> Vec<String> {
        let Self { require, when_unknown, prefer, .. } = self;
        // What the cluster has is not known here, if it is to be discovered.
        let platforms = if self.discovered { &PlatformSet::ALL } else { &self.platforms };
        let idle = *require == Require::Off && !when_unknown.is_empty();
        let idle = idle.then(|| "whenUnknown does nothing while require is off".to_owned());
        let beyond = when_unknown.difference(*platforms);
        let beyond = (!beyond.is_empty())
            .then(|| format!("whenUnknown has {beyond}, which the cluster's nodes do not have by platforms"));
        let strange = prefer.iter().map(|own| own.platform).filter(|own| !platforms.contains_all(*own));
        let strange = strange
            .map(|own| format!("prefer has {own}, which the cluster's nodes do not have by platforms"));
        idle.into_iter().chain(beyond).chain(strange).collect()
    }
}

impl Slot for Preference {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key_as("platform", "such as linux/arm64", platform().of(&mut self.platform)),
            key_as("weight", "1 to 100", weight().of(&mut self.weight)),
        ])
    }

    fn validate(&self) -> Vec<String> {
        holding([
            (self.platform.is_empty(), "the preference has no platform"),
            (self.weight == 0, "the preference has no weight; write 1 to 100"),
        ])
    }
}

/// Not of an architecture: that is for the images to say.
fn is_chosen_label(text: &str) -> bool {
    is_label_key(text) && !names_architecture(text)
}
