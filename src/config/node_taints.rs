//! Taints that the controller sets, validated as by the API server.

use super::shape::{Describe, Description, key, repeated};
use super::values::{label_key, label_value, one_of};
use tolerarch_controller::NodeTaint;
use tolerarch_core::pod::is_label_key;
use tolerarch_kubernetes::cluster::Taint;
use tolerarch_kubernetes::discovery::is_reserved_taint;

impl Describe for Vec<NodeTaint> {
    fn describe(&mut self) -> Description<'_> {
        // A node can have only one taint with a key and an effect.
        let identity = |NodeTaint { selector, taint }: &NodeTaint| {
            (selector.clone(), taint.key.clone(), taint.effect.clone())
        };
        let fault = |NodeTaint { taint, .. }: &NodeTaint| {
            let Taint { key, effect, .. } = taint;
            format!("two entries set the taint {key}:{effect} on the same nodes")
        };
        let repeated = repeated(self, identity).into_iter();
        let faults: Vec<_> = repeated.map(|entry| (true, fault(entry))).collect();
        Description::list(self).with_faults(faults)
    }
}

impl Describe for NodeTaint {
    fn describe(&mut self) -> Description<'_> {
        let every = "the selector is empty, so every node would be tainted; write for example kubernetes.io/arch: arm64";
        let faults = [(self.selector.is_empty(), every)];
        Description::section(vec![
            key("selector", &mut self.selector).means("labels of the nodes"),
            key("taint", &mut self.taint).means("the taint that these nodes get"),
        ])
        .with_faults(faults)
    }
}

impl Describe for Taint {
    fn describe(&mut self) -> Description<'_> {
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
            // Other components set and remove reserved taints by the state of a node, and would undo each change.
            (is_reserved_taint(&self.key), reserved),
        ];
        let evicts =
            "the taint has effect NoExecute, which evicts Pods that run there without a toleration";
        let warnings = [(self.effect == "NoExecute", evicts)];
        let effects = one_of(&["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        Description::section(vec![
            key("key", label_key(is_label_key).of(&mut self.key)).means("the taint's key"),
            key("value", label_value().of(&mut self.value)).means("the taint's value"),
            key("effect", effects.of(&mut self.effect)).means("the taint's effect"),
        ])
        .with_faults(faults)
        .with_warnings(warnings)
    }
}
