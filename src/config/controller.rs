//! The keys of the controller.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::shape::{Shape, Slot, Value, key, key_as};
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
                OrNever(&mut self.census),
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

    fn objections(&self) -> Vec<String> {
        let none = self.webhook_configurations.is_empty();
        none.then(|| "webhookConfigurations is empty; write for example [zz-tolerarch]".to_owned())
            .into_iter()
            .collect()
    }
}

/// A duration, or `0`.
struct OrNever<'a>(&'a mut Duration);

impl Value for OrNever<'_> {
    fn expected(&self) -> Cow<'static, str> {
        "0, or a duration such as 30s, 10m or 1h30m, and at most 365d".into()
    }

    fn hint(&self, text: &str) -> Option<String> {
        self.0.hint(text)
    }

    fn schema(&self) -> Json {
        json!({"anyOf": [{"enum": [0, "0"]}, self.0.schema()]})
    }

    fn read(&mut self, text: &str) -> bool {
        if text == "0" {
            *self.0 = Duration::ZERO;
            return true;
        }
        self.0.read(text)
    }

    fn written(&self) -> Json {
        if self.0.is_zero() { json!("0") } else { self.0.written() }
    }
}
