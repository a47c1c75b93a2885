//! The keys of placement.

use std::borrow::Cow;

use serde_json::{Value as Json, json};

use super::shape::{Shape, Slot, Value, key};
use super::values::{either, taken};
use crate::policy::{PlacementRules, Require};

impl Slot for PlacementRules {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key(
                "require",
                "off, affinity or nodeSelector: keep a Pod off the platforms that its images lack",
                &mut self.require,
            ),
            key("platforms", "that the cluster's nodes have", &mut self.platforms),
            key(
                "whenUnknown",
                "platforms for a Pod with an image that is not known; none: such a Pod is not steered",
                &mut self.when_unknown,
            ),
        ])
    }

    fn objections(&self) -> Vec<String> {
        let none = self.platforms.is_empty();
        let none =
            none.then_some("the cluster has no platforms; write for example [linux/amd64, linux/arm64]");
        none.map(str::to_owned).into_iter().collect()
    }

    fn warnings(&self) -> Vec<String> {
        let Self { require, platforms, when_unknown } = self;
        let idle = *require == Require::Off && !when_unknown.is_empty();
        let idle = idle.then(|| "whenUnknown does nothing while require is off".to_owned());
        let beyond = when_unknown.difference(*platforms);
        let beyond = (!beyond.is_empty())
            .then(|| format!("whenUnknown has {beyond}, which the cluster's nodes do not have by platforms"));
        idle.into_iter().chain(beyond).collect()
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
