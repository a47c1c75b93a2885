//! The taints that the controller sets, checked as the API server checks them.

use super::node_labels::NodeLabels;
use super::pools::{label_key, label_value};
use super::shape::{List, Shape, Slot, Visit, key, key_as};
use super::values::OneOf;
use tolerarch_controller::{NodeTaint, is_reserved_taint};
use tolerarch_core::pod::Text;
use tolerarch_kubernetes::cluster::Taint;

impl Slot for Vec<NodeTaint> {
    fn shape(&mut self) -> Shape<'_> {
        Shape::List(self)
    }

    fn objections(&self) -> Vec<String> {
        let twice = (1..self.len()).filter(|&at| {
            self[..at].iter().any(|other| {
                other.selector == self[at].selector && other.taint.is_at_the_place_of(&self[at].taint)
            })
        });
        let texts = twice.map(|at| {
            let Taint { key, effect, .. } = &self[at].taint;
            format!("two entries set the taint {key}:{effect} on the same nodes")
        });
        texts.collect()
    }
}

impl List for Vec<NodeTaint> {
    fn blank(&self, visit: Visit<'_>) {
        visit(&mut Entry::default());
    }

    fn clear(&mut self) {
        self.clear();
    }

    fn add(&mut self, fill: Visit<'_>) {
        let mut entry = Entry::default();
        fill(&mut entry);
        self.push(entry.into());
    }

    fn each(&mut self, visit: Visit<'_>) {
        for NodeTaint { selector, taint } in self {
            let Taint { key, value, effect } = taint.clone();
            let taint = TaintEntry { key: key.into(), value: value.into(), effect: effect.into() };
            visit(&mut Entry { selector: NodeLabels(selector.clone()), taint });
        }
    }
}

/// It as the file has it.
#[derive(Default)]
struct Entry {
    selector: NodeLabels,
    taint: TaintEntry,
}

#[derive(Default)]
struct TaintEntry {
    key: Text<'static>,
    value: Text<'static>,
    effect: Text<'static>,
}

impl From<Entry> for NodeTaint {
    fn from(Entry { selector: NodeLabels(selector), taint }: Entry) -> Self {
        let TaintEntry { key, value, effect } = taint;
        Self { selector, taint: Taint { key: key.into(), value: value.into(), effect: effect.into() } }
    }
}

impl Slot for Entry {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key("selector", "labels of the nodes", &mut self.selector),
            key("taint", "that they get", &mut self.taint),
        ])
    }

    fn objections(&self) -> Vec<String> {
        let none = self.selector.0.is_empty();
        let none = none.then(|| {
            "the selector is empty, so every node would be tainted; write for example kubernetes.io/arch: arm64"
                .to_owned()
        });
        none.into_iter().collect()
    }
}

impl Slot for TaintEntry {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key_as("key", "the taint's key", label_key(&mut self.key)),
            key_as("value", "the taint's value", label_value(&mut self.value)),
            key_as(
                "effect",
                "the taint's effect",
                OneOf(&mut self.effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]),
            ),
        ])
    }

    fn objections(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.key.is_empty() {
            faults.push("the taint has no key".to_owned());
        }
        if self.effect.is_empty() {
            faults.push("the taint has no effect; write for example effect: NoSchedule".to_owned());
        }
        // They come and go with the state of a node: setting them would be a fight over every node.
        if is_reserved_taint(self.key.as_str()) {
            faults.push(format!("{} is a key of Kubernetes' or Karpenter's own taints", self.key.as_str()));
        }
        faults
    }

    fn warnings(&self) -> Vec<String> {
        let evicts = self.effect.as_str() == "NoExecute";
        let warning = || {
            "the taint has effect NoExecute, which evicts Pods that run there without a toleration".to_owned()
        };
        evicts.then(warning).into_iter().collect()
    }
}
