//! Labels by which nodes are chosen.

use std::collections::BTreeMap;

use super::pools::label_value;
use super::shape::{Map, Shape, Slot, Visit};
use tolerarch_core::pod::{Text, is_label_key};

/// Labels and their values, all of which a node has to have.
#[derive(Default)]
pub(super) struct NodeLabels(pub(super) BTreeMap<String, String>);

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
