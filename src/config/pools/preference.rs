//! How a pool of the configuration is preferred.

use crate::config::node_labels::NodeLabels;
use crate::config::placement::Weight;
use crate::config::shape::{Shape, Slot, key};
use tolerarch_core::policy::PoolPreference;

/// It as the file has it: with neither key there is none.
#[derive(Default)]
pub(super) struct Entry {
    weight: Weight,
    labels: NodeLabels,
}

impl From<&Option<PoolPreference>> for Entry {
    fn from(preference: &Option<PoolPreference>) -> Self {
        let Some(PoolPreference { weight, labels }) = preference else { return Self::default() };
        let weight = Weight(Some(*weight).filter(|weight| *weight > 0));
        Self { weight, labels: NodeLabels(labels.clone()) }
    }
}

impl From<Entry> for Option<PoolPreference> {
    fn from(Entry { weight: Weight(weight), labels: NodeLabels(labels) }: Entry) -> Self {
        let is_there = weight.is_some() || !labels.is_empty();
        is_there.then(|| PoolPreference { weight: weight.unwrap_or_default(), labels })
    }
}

impl Slot for Entry {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key("weight", "1 to 100", &mut self.weight),
            key("labels", "of its nodes", &mut self.labels),
        ])
    }

    fn objections(&self) -> Vec<String> {
        let message = match (self.weight.0, self.labels.0.is_empty()) {
            (None, false) => "the preference has no weight; write 1 to 100",
            (Some(_), true) => "the preference has no labels, so it would be for no nodes",
            _ => return Vec::new(),
        };
        vec![message.to_owned()]
    }
}
