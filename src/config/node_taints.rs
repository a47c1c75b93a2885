//! The taints that the controller sets, checked as the API server checks them.

use super::shape::{Content, Shape, Slot, holding, key, key_as};
use super::values::{label_key, label_value, one_of};
use tolerarch_controller::{NodeTaint, is_reserved_taint};
use tolerarch_kubernetes::cluster::Taint;

impl Slot for Vec<NodeTaint> {
    fn shape(&mut self) -> Shape<'_> {
        let twice = (1..self.len()).filter(|&at| {
            self[..at].iter().any(|other| {
                other.selector == self[at].selector && other.taint.is_at_the_place_of(&self[at].taint)
            })
        });
        let texts = twice.map(|at| {
            let Taint { key, effect, .. } = &self[at].taint;
            format!("two entries set the taint {key}:{effect} on the same nodes")
        });
        let faults = texts.collect();
        Shape::entries(self).faulty(faults)
    }
}

impl Slot for NodeTaint {
    fn shape(&mut self) -> Shape<'_> {
        let faults = holding([(
            self.selector.is_empty(),
            "the selector is empty, so every node would be tainted; write for example kubernetes.io/arch: arm64",
        )]);
        Shape::section(vec![
            key("selector", &mut self.selector).means("labels of the nodes"),
            key("taint", &mut self.taint).means("that they get"),
        ])
        .faulty(faults)
    }
}

impl Slot for Taint {
    fn shape(&mut self) -> Shape<'_> {
        let mut faults = holding([
            (self.key.is_empty(), "the taint has no key"),
            (self.effect.is_empty(), "the taint has no effect; write for example effect: NoSchedule"),
        ]);
        // They come and go with the state of a node: setting them would be a fight over every node.
        if is_reserved_taint(&self.key) {
            faults.push(format!("{} is a key of Kubernetes' or Karpenter's own taints", self.key));
        }
        let warnings = holding([(
            self.effect == "NoExecute",
            "the taint has effect NoExecute, which evicts Pods that run there without a toleration",
        )]);
        let effects = one_of(&["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        let keys = vec![
            key_as("key", label_key().of(&mut self.key)).means("the taint's key"),
            key_as("value", label_value().of(&mut self.value)).means("the taint's value"),
            key_as("effect", effects.of(&mut self.effect)).means("the taint's effect"),
        ];
        Shape { content: Content::Section(keys), faults, warnings }
    }
}
