//! The keys of placement.

use super::Config;
use super::reader::{Reader, quoted};
use super::shape::{Content, Shape, Slot, holding, key, key_as};
use super::values::{Platforms, label_key_that, platform, weight};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::pod::{is_label_key, names_architecture};
use tolerarch_core::policy::{PlacementRules, Preference, Require};

impl Slot for PlacementRules {
    fn shape(&mut self) -> Shape<'_> {
        let (faults, warnings) = (faults(self), warnings(self));
        let keys = vec![
            key("require", &mut self.require)
                .means("off, affinity or nodeSelector: keep a Pod off the platforms that its images lack"),
            key_as(
                "platforms",
                Shape::value(Platforms {
                    known: &mut self.platforms,
                    discovered: Some(&mut self.discovered),
                }),
            )
            .means(
                "that the cluster's nodes have; discovered: those of all NodePools and nodes, see discover",
            ),
            key("whenUnknown", &mut self.when_unknown).means(
                "platforms for a Pod with an image that is not known; none: such a Pod is not steered",
            ),
            key_as("prefer", Shape::entries(&mut self.prefer))
                .means("platforms that Pods prefer whose images run there, with weights"),
            key_as("podLabels", label_key_that(is_chosen_label).set(&mut self.pod_labels))
                .means("labels of Pods that are required of their nodes, too"),
        ];
        Shape { content: Content::Section(keys), faults, warnings }
    }
}

fn faults(rules: &PlacementRules) -> Vec<String> {
    let none = rules.platforms.is_empty();
    let none = none.then_some("the cluster has no platforms; write for example [linux/amd64, linux/arm64]");
    let twice = |at: &usize| {
        let architectures = |at: usize| rules.prefer[at].platform.architectures();
        rules.prefer[..*at].iter().any(|other| other.platform.architectures() == architectures(*at))
    };
    let twice = (1..rules.prefer.len()).find(twice);
    let twice = twice.map(|at| {
        let platform = rules.prefer[at].platform;
        format!("{platform} is preferred twice: nodes are told apart by their architecture")
    });
    none.map(str::to_owned).into_iter().chain(twice).collect()
}

fn warnings(rules: &PlacementRules) -> Vec<String> {
    let PlacementRules { require, when_unknown, prefer, .. } = rules;
    // What the cluster has is not known here, if it is to be discovered.
    let platforms = if rules.discovered { &PlatformSet::ALL } else { &rules.platforms };
    let idle = *require == Require::Off && !when_unknown.is_empty();
    let idle = idle.then(|| "whenUnknown does nothing while require is off".to_owned());
    let beyond = when_unknown.difference(*platforms);
    let beyond = (!beyond.is_empty())
        .then(|| format!("whenUnknown has {beyond}, which the cluster's nodes do not have by platforms"));
    let strange = prefer.iter().map(|own| own.platform).filter(|own| !platforms.contains_all(*own));
    let strange =
        strange.map(|own| format!("prefer has {own}, which the cluster's nodes do not have by platforms"));
    idle.into_iter().chain(beyond).chain(strange).collect()
}

impl Slot for Preference {
    fn shape(&mut self) -> Shape<'_> {
        let faults = holding([
            (self.platform.is_empty(), "the preference has no platform"),
            (self.weight == 0, "the preference has no weight; write 1 to 100"),
        ]);
        Shape::section(vec![
            key_as("platform", platform().of(&mut self.platform)).means("such as linux/arm64"),
            key_as("weight", weight().of(&mut self.weight)).means("1 to 100"),
        ])
        .faulty(faults)
    }
}

/// Not of an architecture: that is for the images to say.
fn is_chosen_label(text: &str) -> bool {
    is_label_key(text) && !names_architecture(text)
}

/// Finds what relies on discovery although it is off, once all has been read.
pub(super) fn check_discovery(config: &Config, reader: &mut Reader) {
    if config.discover.is_on() {
        return;
    }
    let profiles = config.profiles.iter().map(|(name, profile)| {
        (format!("profiles[{}].placement.platforms", quoted(name)), &profile.placement)
    });
    let top = ("placement.platforms".to_owned(), &config.policy.placement);
    for (path, rules) in std::iter::once(top).chain(profiles) {
        if let Some(place) = reader.places.get(&path).cloned().filter(|_| rules.discovered) {
            reader.fault_at(&path, place, "discovered needs `discover`, which is off".to_owned());
        }
    }
}
