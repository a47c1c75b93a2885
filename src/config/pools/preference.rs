//! How a pool of the configuration is preferred.

use std::collections::BTreeMap;

use super::{is_label_key, label_value};
use crate::config::placement::Weight;
use crate::config::shape::{Map, Shape, Slot, Visit, key};
use crate::pod::Text;
use crate::policy::PoolPreference;

/// It as the file has it: with neither key there is none.
#[derive(Default)]
pub(super) struct Entry {
    weight: Weight,
    labels: NodeLabels,
}

#[derive(Default)]
struct NodeLabels(BTreeMap<String, String>);

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

impl Slot for NodeLabels {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Map(self)
    }
}

impl Map for NodeLabels {
    fn key(&self) -> (&'static str, &'static str) {
        ("label", "karpenter.sh/nodepool")
    }

    fn normal(&self, name: &str) -> String {
        name.to_owned()
    }

    fn blank(&self, visit: Visit<'_>) {
        visit(&mut label_value(&mut Text::default()));
    }

    fn add(&mut self, name: &str, fill: Visit<'_>) -> Result<(), String> {
        if !is_label_key(name) {
            return Err("no label key; write for example karpenter.sh/nodepool".to_owned());
        }
        let mut value = Text::default();
        fill(&mut label_value(&mut value));
        self.0.insert(name.to_owned(), value.into());
        Ok(())
    }

    fn each(&mut self, visit: &mut dyn FnMut(&str, &mut dyn Slot)) {
        for (name, value) in &self.0 {
            visit(name, &mut label_value(&mut value.clone().into()));
        }
    }
}
