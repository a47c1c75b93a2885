//! The keys of the controller.

use super::duration::or_never;
use super::shape::{Shape, Slot, holding, key, key_as};
use tolerarch_controller::ControllerSettings;

impl Slot for ControllerSettings {
    fn shape(&mut self) -> Shape<'_> {
        Shape::Section(vec![
            key(
                "repair",
                "whether pools are opened to Pods without a node that the webhook could not decide, or never saw",
                &mut self.repair,
            ),
            key(
                "events",
                "whether Pods show by events why their pools stay closed, which were opened, and images that are not for their node",
                &mut self.events,
            ),
            key(
                "podLogs",
                "whether, for these events, the last line is read that a container has written which ended at once",
                &mut self.pod_logs,
            ),
            key_as(
                "census",
                "how often all Pods are counted for the metrics of the cluster; 0 for never",
                or_never().of(&mut self.census),
            ),
            key("nodeTaints", "taints that nodes get, by their labels", &mut self.node_taints),
            key(
                "webhookConfigurations",
                "the MutatingWebhookConfigurations that say which Pods it is about",
                &mut self.webhook_configurations,
            ),
            key("lease", "the Lease by which one replica leads, in its own namespace", &mut self.lease)
                .at_start(),
        ])
    }

    fn validate(&self) -> Vec<String> {
        let none = self.webhook_configurations.is_empty();
        holding([(none, "webhookConfigurations is empty; write for example [zz-tolerarch]")])
    }
}
