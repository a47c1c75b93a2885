//! The keys of placement.

use std::borrow::Cow;

use serde_json::{Value as Json, json};

use super::pools::{One, label_key};
use super::shape::{List, Shape, Slot, Value, Values, Visit, key, key_as, texts};
use super::values::{either, taken};
use tolerarch_core::image::PlatformSet;
use tolerarch_core::pod::{Text, is_label_key, names_architecture};
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
                ClusterPlatforms { known: &mut self.platforms, discovered: &mut self.discovered },
            ),
            key(
                "whenUnknown",
                "platforms for a Pod with an image that is not known; none: such a Pod is not steered",
                &mut self.when_unknown,
            ),
            key(
                "prefer",
                "platforms that Pods prefer whose images run there, with weights",
                &mut self.prefer,
            ),
            key_as(
                "podLabels",
                "labels of Pods that are required of their nodes, too",
                texts::<LabelKey>(&mut self.pod_labels),
            ),
        ])
    }

    fn objections(&self) -> Vec<String> {
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

/// What stands for the platforms that are read of the cluster.
const DISCOVERED: &str = "discovered";

/// The platforms of the cluster, or the word that they are read of it.
struct ClusterPlatforms<'a> {
    known: &'a mut PlatformSet,
    discovered: &'a mut bool,
}

impl Slot for ClusterPlatforms<'_> {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Values(self)
    }
}

impl Values for ClusterPlatforms<'_> {
    fn blank(&self) -> Box<dyn Value> {
        Box::new(OneOrDiscovered::default())
    }

    fn clear(&mut self) {
        (*self.known, *self.discovered) = (PlatformSet::EMPTY, false);
    }

    fn add(&mut self, text: &str) -> bool {
        if text == DISCOVERED {
            (*self.known, *self.discovered) = (PlacementRules::default().platforms, true);
            return true;
        }
        // Beside the word, which says it all.
        if *self.discovered { text.parse::<PlatformSet>().is_ok() } else { self.known.add(text) }
    }

    fn written(&self) -> Vec<Json> {
        if *self.discovered { vec![json!(DISCOVERED)] } else { Values::written(&*self.known) }
    }

    fn word(&self) -> Option<&'static str> {
        Some(DISCOVERED)
    }
}

/// An item of theirs.
#[derive(Default)]
struct OneOrDiscovered(PlatformSet);

impl Value for OneOrDiscovered {
    fn expected(&self) -> Cow<'static, str> {
        format!("{}; or {DISCOVERED}", One(self.0).expected()).into()
    }

    fn schema(&self) -> Json {
        json!({"anyOf": [One(self.0).schema(), {"const": DISCOVERED}]})
    }

    fn read(&mut self, text: &str) -> bool {
        text == DISCOVERED || One(self.0).read(text)
    }

    fn written(&self) -> Json {
        One(self.0).written()
    }
}

const REQUIRES: [(&str, Require); 3] =
    [("off", Require::Off), ("affinity", Require::Affinity), ("nodeSelector", Require::NodeSelector)];

impl Value for Require {
    fn expected(&self) -> Cow<'static, str> {
        either(&REQUIRES.map(|(name, _)| name)).into()
    }

    fn schema(&self) -> Json {
        json!({"enum": REQUIRES.map(|(name, _)| name)})
    }

    fn read(&mut self, text: &str) -> bool {
        taken(self, REQUIRES.iter().find(|(name, _)| *name == text).map(|(_, require)| *require))
    }

    fn written(&self) -> Json {
        json!(REQUIRES.iter().find(|(_, require)| require == self).map(|(name, _)| name))
    }
}

/// A weight, once it is set.
#[derive(Clone, Copy, Default)]
pub(super) struct Weight(pub(super) Option<u8>);

impl Value for Weight {
    fn expected(&self) -> Cow<'static, str> {
        "a weight from 1 to 100".into()
    }

    fn schema(&self) -> Json {
        json!({"type": "integer", "minimum": 1, "maximum": 100})
    }

    fn read(&mut self, text: &str) -> bool {
        let weight = text.parse().ok().filter(|weight| (1..=100).contains(weight));
        self.0 = weight.or(self.0);
        weight.is_some()
    }

    fn written(&self) -> Json {
        json!(self.0)
    }
}

/// A preference as the file has it.
#[derive(Default)]
struct Entry {
    platform: PlatformSet,
    weight: Weight,
}

impl Slot for Entry {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key_as("platform", "such as linux/arm64", OnePlatform(&mut self.platform)),
            key("weight", "1 to 100", &mut self.weight),
        ])
    }

    fn objections(&self) -> Vec<String> {
        let platform = self.platform.is_empty().then_some("the preference has no platform");
        let weight = self.weight.0.is_none().then_some("the preference has no weight; write 1 to 100");
        platform.into_iter().chain(weight).map(str::to_owned).collect()
    }
}

struct OnePlatform<'a>(&'a mut PlatformSet);

impl Value for OnePlatform<'_> {
    fn expected(&self) -> Cow<'static, str> {
        One(*self.0).expected()
    }

    fn schema(&self) -> Json {
        One(*self.0).schema()
    }

    fn read(&mut self, text: &str) -> bool {
        taken(self.0, text.parse().ok())
    }

    fn written(&self) -> Json {
        if self.0.is_empty() { Json::Null } else { json!(self.0.to_string()) }
    }
}

impl Slot for Vec<Preference> {
    fn shape(&mut self) -> Shape<'_> {
        Shape::List(self)
    }
}

impl List for Vec<Preference> {
    fn blank(&self, visit: Visit<'_>) {
        visit(&mut Entry::default());
    }

    fn clear(&mut self) {
        self.clear();
    }

    fn add(&mut self, fill: Visit<'_>) {
        let mut entry = Entry::default();
        fill(&mut entry);
        self.push(Preference { platform: entry.platform, weight: entry.weight.0.unwrap_or_default() });
    }

    fn each(&mut self, visit: Visit<'_>) {
        for Preference { platform, weight } in self {
            visit(&mut Entry {
                platform: *platform,
                weight: Weight(Some(*weight).filter(|weight| *weight > 0)),
            });
        }
    }
}

/// A key of labels that Pods and nodes have.
#[derive(Default)]
struct LabelKey(String);

impl From<LabelKey> for String {
    fn from(LabelKey(key): LabelKey) -> Self {
        key
    }
}

impl Value for LabelKey {
    fn expected(&self) -> Cow<'static, str> {
        label_key(&mut Text::default()).expected()
    }

    fn schema(&self) -> Json {
        label_key(&mut Text::default()).schema()
    }

    /// Not of an architecture: that is for the images to say.
    fn read(&mut self, text: &str) -> bool {
        let check = is_label_key(text) && !names_architecture(text);
        taken(&mut self.0, check.then(|| text.to_owned()))
    }

    fn written(&self) -> Json {
        json!(self.0)
    }
}
