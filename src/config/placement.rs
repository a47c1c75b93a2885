//! Keys of `placement`.

use serde_json::json;

use super::Config;
use super::reader::Reader;
use super::shape::{Shape, Slot, key, repeated};
use super::values::{label_key, named, number, platform, platforms};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::pod::{is_label_key, names_architecture};
use tolerarch_core::policy::{PlacementRules, Preference, Require};

impl Slot for PlacementRules {
    fn shape(&mut self) -> Shape<'_> {
        let faults = faults(self);
        let warnings = warnings(self);
        let require = [
            ("off", Require::Off),
            ("affinity", Require::Affinity),
            ("nodeSelector", Require::NodeSelector),
        ];
        Shape::section(vec![
            key("require", named(require).of(&mut self.require))
                .means("off, affinity or nodeSelector: keep a Pod off the platforms that its images lack"),
            key("platforms", platforms(&mut self.platforms, Some(&mut self.discovered))).means(
                "that the cluster's nodes can have; discovered: those of all NodePools, nodes and pools, see discover",
            ),
            key("whenUnknown", &mut self.when_unknown).means(
                "platforms for a Pod with an image that is not known; none: such a Pod is not steered",
            ),
            key("prefer", Shape::list(&mut self.prefer))
                .means("platforms that Pods prefer whose images run there, with weights"),
            key("podLabels", label_key(is_chosen_label).list(&mut self.pod_labels))
                .means("labels of Pods that are required of their nodes, too"),
        ])
        .faulty(faults)
        .doubtful(warnings)
    }
}

fn faults(rules: &PlacementRules) -> Vec<(bool, String)> {
    let mut faults = Vec::new();
    let architectures = |preference: &Preference| preference.platform.architectures();
    for Preference { platform, .. } in repeated(&rules.prefer, architectures) {
        let twice =
            format!("{platform} is preferred twice: nodes are told apart by their architecture");
        faults.push((true, twice));
    }
    let none = "the cluster has no platforms; write for example [linux/amd64, linux/arm64]";
    faults.push((rules.platforms.is_empty(), none.to_owned()));
    faults
}

fn warnings(rules: &PlacementRules) -> Vec<(bool, String)> {
    let PlacementRules {
        require,
        when_unknown,
        prefer,
        ..
    } = rules;
    // The cluster's platforms are not known here, if they are to be discovered.
    let platforms = if rules.discovered {
        PlatformSet::ALL
    } else {
        rules.platforms
    };
    let strange = |key: &str, named: PlatformSet| {
        let beyond = named.difference(platforms);
        let text =
            format!("{key} has {beyond}, which the cluster's nodes do not have by platforms");
        (!beyond.is_empty(), text)
    };
    let idle = *require == Require::Off && !when_unknown.is_empty();
    let mut warnings = vec![
        (
            idle,
            "whenUnknown does nothing while require is off".to_owned(),
        ),
        strange("whenUnknown", *when_unknown),
    ];
    let preferred = prefer.iter().map(|preference| preference.platform);
    warnings.extend(preferred.map(|platform| strange("prefer", platform)));
    warnings
}

impl Slot for Preference {
    fn shape(&mut self) -> Shape<'_> {
        let faults = [
            (self.platform.is_empty(), "the preference has no platform"),
            (
                self.weight == 0,
                "the preference has no weight; write 1 to 100",
            ),
        ];
        Shape::section(vec![
            key("platform", platform().of(&mut self.platform)).means("such as linux/arm64"),
            key("weight", number(1, 100).of(&mut self.weight)).means("1 to 100"),
        ])
        .faulty(faults)
    }
}

/// Returns whether a label may be chosen: not one of an architecture, which depends on the images.
fn is_chosen_label(text: &str) -> bool {
    is_label_key(text) && !names_architecture(text)
}

/// Reports platforms that rely on discovery although it is off, once all keys have been read.
pub(super) fn check_discovery(config: &mut Config, reader: &mut Reader) {
    if config.discover.is_on() {
        return;
    }
    config.shape().values(&mut |path, _, value| {
        if let Some(word) = value.domain.word
            && value.written == json!([word])
            && let Some(place) = reader.places.get(path).cloned()
        {
            let message = "discovered needs `discover`, which is off".to_owned();
            reader.fault_at(path, place, message);
        }
    });
}
