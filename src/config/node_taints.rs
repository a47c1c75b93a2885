//! Taints that the controller sets, checked as the API server checks them.

use super::shape::{Shape, Slot, key, repeated};
use super::values::{label_key, label_value, one_of};
use tolerarch_controller::NodeTaint;
use tolerarch_core::pod::is_label_key;
use tolerarch_kubernetes::cluster::Taint;
use tolerarch_kubernetes::discovery::is_reserved_taint;

impl Slot for Vec<NodeTaint> {
    fn shape(&mut self) -> Shape<'_> {
        // A node can have only one taint of a key and an effect.
        let place = |NodeTaint { selector, taint }: &NodeTaint| {
            (selector.clone(), taint.key.clone(), taint.effect.clone())
        };
        let fault = |NodeTaint { taint, .. }: &NodeTaint| {
            let Taint { key, effect, .. } = taint;
            format!("two entries set the taint {key}:{effect} on the same nodes")
        };
        let repeated = repeated(self, place).into_iter();
        let faults: Vec<_> = repeated.map(|entry| (true, fault(entry))).collect();
        Shape::list(self).faulty(faults)
    }
}

impl Slot for NodeTaint {
    fn shape(&mut self) -> Shape<'_> {
        let every = "the selector is empty, so every node would be tainted; write for example kubernetes.io/arch: arm64";
        let faults = [(self.selector.is_empty(), every)];
        Shape::section(vec![
            key("selector", &mut self.selector).means("labels of the nodes"),
            key("taint", &mut self.taint).means("that they get"),
        ])
        .faulty(faults)
    }
}

impl Slot for Taint {
    fn shape(&mut self) -> Shape<'_> {
        let reserved = format!(
            "{} is a key of the taints that Kubernetes, Karpenter and the cluster-autoscaler set",
            self.key
        );
        let faults = [
            (self.key.is_empty(), "the taint has no key".to_owned()),
            (
                self.effect.is_empty(),
                "the taint has no effect; write for example effect: NoSchedule".to_owned(),
            ),
            // Reserved taints come and go with the state of a node: to set them would be a fight over every node.
            (is_reserved_taint(&self.key), reserved),
        ];
        let evicts =
            "the taint has effect NoExecute, which evicts Pods that run there without a toleration";
        let warnings = [(self.effect == "NoExecute", evicts)];
        let effects = one_of(&["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        Shape::section(vec![
            key("key", label_key(is_label_key).of(&mut self.key)).means("the taint's key"),
            key("value", label_value().of(&mut self.value)).means("the taint's value"),
            key("effect", effects.of(&mut self.effect)).means("the taint's effect"),
        ])
        .faulty(faults)
        .doubtful(warnings)
    }
}
