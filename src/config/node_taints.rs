//! The taints that the controller sets, checked as the API server checks them.

use super::shape::{Shape, Slot, holding, key, key_as};
use super::values::{label_key, label_value, one_of};
use tolerarch_controller::{NodeTaint, is_reserved_taint};
use tolerarch_kubernetes::cluster::Taint;

impl Slot for Vec<NodeTaint> {
    fn shape(&mut self) -> Shape<'_> {
        Shape::List(self)
    }

    fn validate(&self) -> Vec<String> {
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

impl Slot for NodeTaint {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key("selector", "labels of the nodes", &mut self.selector),
            key("taint", "that they get", &mut self.taint),
        ])
    }

    fn validate(&self) -> Vec<String> {
        holding([(
            self.selector.is_empty(),
            "the selector is empty, so every node would be tainted; write for example kubernetes.io/arch: arm64",
        )])
    }
}

impl Slot for Taint {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key_as("key", "the taint's key", label_key().of(&mut self.key)),
            key_as("value", "the taint's value", label_value().of(&mut self.value)),
            key_as(
                "effect",
                "the taint's effect",
                one_of(&["NoSchedule", "PreferNoSchedule", "NoExecute"]).of(&mut self.effect),
            ),
        ])
    }

    fn validate(&self) -> Vec<String> {
        let mut faults = holding([
            (self.key.is_empty(), "the taint has no key"),
            (self.effect.is_empty(), "the taint has no effect; write for example effect: NoSchedule"),
        ]);
        // They come and go with the state of a node: setting them would be a fight over every node.
        if is_reserved_taint(&self.key) {
            faults.push(format!("{} is a key of Kubernetes' or Karpenter's own taints", self.key));
        }
        faults
    }

    fn warnings(&self) -> Vec<String> {
        holding([(
            self.effect == "NoExecute",
            "the taint has effect NoExecute, which evicts Pods that run there without a toleration",
        )])
    }
}
