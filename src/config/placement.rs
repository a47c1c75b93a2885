//! The keys of `placement`.

use serde_json::json;

use super::Config;
use super::reader::Reader;
use super::shape::{Describe, Description, key, repeated};
use super::values::{label_key, named, number, platform, platforms};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::pod::{is_label_key, names_architecture};
use tolerarch_core::policy::{PlacementRules, Preference, Require};

impl Describe for PlacementRules {
    fn describe(&mut self) -> Description<'_> {
        let faults = faults(self);
        let warnings = warnings(self);
        let require = [
            ("off", Require::Off),
            ("affinity", Require::Affinity),
            ("nodeSelector", Require::NodeSelector),
        ];
        Description::section(vec![
            key("require", named(require).of(&mut self.require))
                .means("off, affinity or nodeSelector: how to keep a Pod off the platforms that its images lack"),
            key("platforms", platforms(&mut self.platforms, Some(&mut self.discovered))).means(
                "platforms that the cluster's nodes can have; discovered: those of all NodePools, nodes and pools, see discover",
            ),
            key("whenUnknown", &mut self.when_unknown).means(
                "platforms for a Pod with an unknown image; empty: such a Pod gets no requirement",
            ),
            key("prefer", Description::list(&mut self.prefer))
                .means("platforms, with weights, that Pods prefer if their images run there"),
            key("podLabels", label_key(may_be_required).list(&mut self.pod_labels))
                .means("labels of Pods that are also required of their nodes"),
        ])
        .with_faults(faults)
        .with_warnings(warnings)
    }
}

fn faults(rules: &PlacementRules) -> Vec<(bool, String)> {
    let mut faults = Vec::new();
    let architectures = |preference: &Preference| preference.platform.architectures();
    for Preference { platform, .. } in repeated(&rules.prefer, architectures) {
        let repeated =
            format!("{platform} is preferred twice: nodes differ only by their architecture");
        faults.push((true, repeated));
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
    // If the cluster's platforms are discovered, they are unknown here.
    let platforms = if rules.discovered {
        PlatformSet::ALL
    } else {
        rules.platforms
    };
    let has_no_effect = *require == Require::Off && !when_unknown.is_empty();
    let mut warnings = vec![
        (
            has_no_effect,
            "whenUnknown has no effect while require is off".to_owned(),
        ),
        not_in_cluster("whenUnknown", *when_unknown, platforms),
    ];
    for preference in prefer {
        warnings.push(not_in_cluster("prefer", preference.platform, platforms));
    }
    warnings
}

/// Returns a warning on platforms of a key that are not among those of the cluster, and whether there are any.
fn not_in_cluster(key: &str, named: PlatformSet, cluster: PlatformSet) -> (bool, String) {
    let others = named.difference(cluster);
    let text = format!("{key} has {others}, which is not in platforms");
    (!others.is_empty(), text)
}

impl Describe for Preference {
    fn describe(&mut self) -> Description<'_> {
        let faults = [
            (self.platform.is_empty(), "the preference has no platform"),
            (
                self.weight == 0,
                "the preference has no weight; write 1 to 100",
            ),
        ];
        Description::section(vec![
            key("platform", platform().of(&mut self.platform)).means("such as linux/arm64"),
            key("weight", number(1, 100).of(&mut self.weight)).means("1 to 100"),
        ])
        .with_faults(faults)
    }
}

/// Returns whether a label may be required of nodes. The label of the architecture may not: it depends on the images.
fn may_be_required(text: &str) -> bool {
    is_label_key(text) && !names_architecture(text)
}

/// Reports platforms that need discovery although it is off. Called when all keys have been read.
pub(super) fn check_discovery(config: &mut Config, reader: &mut Reader) {
    if config.discover.is_on() {
        return;
    }
    config.describe().values(&mut |path, _, value| {
        if let Some(word) = value.accepted.word
            && value.written == json!([word])
            && let Some(location) = reader.locations.get(path).cloned()
        {
            let message = "discovered needs `discover`, which is off".to_owned();
            reader.fault_at(path, location, message);
        }
    });
}
