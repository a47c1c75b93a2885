//! What of the cluster's objects is looked at in several places. Where one field is, it is taken from the JSON.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use tolerarch_kubernetes::cluster::{Selector, or_default};

pub(super) type Labels = BTreeMap<String, String>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) deletion_timestamp: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(super) labels: Labels,
    #[serde(deserialize_with = "or_default")]
    pub(super) annotations: Labels,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WebhookConfiguration {
    pub(super) metadata: Metadata,
    #[serde(deserialize_with = "or_default")]
    pub(super) webhooks: Vec<Webhook>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Webhook {
    pub(super) name: String,
    pub(super) client_config: ClientConfig,
    #[serde(deserialize_with = "or_default")]
    pub(super) rules: Vec<Rule>,
    pub(super) failure_policy: String,
    pub(super) timeout_seconds: Option<u32>,
    pub(super) reinvocation_policy: String,
    pub(super) namespace_selector: Selector,
    pub(super) object_selector: Selector,
    #[serde(deserialize_with = "or_default")]
    pub(super) match_conditions: Vec<MatchCondition>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ClientConfig {
    pub(super) ca_bundle: Option<String>,
    pub(super) service: Option<ServiceReference>,
    pub(super) url: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ServiceReference {
    pub(super) name: String,
    pub(super) namespace: String,
    port: Option<u16>,
    pub(super) path: Option<String>,
}

impl ServiceReference {
    pub(super) fn port(&self) -> u16 {
        self.port.unwrap_or(443)
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Rule {
    operations: Vec<String>,
    api_groups: Vec<String>,
    resources: Vec<String>,
}

impl Rule {
    pub(super) fn has_pods(&self) -> bool {
        self.has("CREATE", "", &["pods", "*", "*/*"])
    }

    pub(super) fn has_daemon_sets(&self) -> bool {
        self.has("", "apps", &["daemonsets"])
    }

    pub(super) fn has_updates_of(&self, resource: &str) -> bool {
        self.has("UPDATE", "", &[resource, "*", "*/*"])
    }

    /// Any operation, where it is empty.
    fn has(&self, operation: &str, group: &str, resources: &[&str]) -> bool {
        let is_among = |all: &[String], wanted: &str| all.iter().any(|one| one == wanted || one == "*");
        (operation.is_empty() || is_among(&self.operations, operation))
            && is_among(&self.api_groups, group)
            && self.resources.iter().any(|one| resources.contains(&one.as_str()))
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct MatchCondition {
    pub(super) name: String,
    pub(super) expression: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Namespace {
    pub(super) metadata: Metadata,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Pod {
    pub(super) metadata: Metadata,
    pub(super) spec: PodSpec,
    pub(super) status: Value,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PodSpec {
    pub(super) service_account_name: String,
    pub(super) automount_service_account_token: Option<bool>,
    #[serde(deserialize_with = "or_default")]
    pub(super) containers: Vec<Container>,
    #[serde(deserialize_with = "or_default")]
    pub(super) image_pull_secrets: Vec<Value>,
    #[serde(deserialize_with = "or_default")]
    pub(super) volumes: Vec<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) image: String,
    #[serde(deserialize_with = "or_default")]
    ports: Vec<ContainerPort>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ContainerPort {
    name: String,
    container_port: u16,
}

impl Pod {
    pub(super) fn service_account(&self) -> &str {
        match self.spec.service_account_name.as_str() {
            "" => "default",
            name => name,
        }
    }

    /// The container that shows metrics, and on which port.
    pub(super) fn admin(&self) -> Option<(&Container, u16)> {
        let port = |container: &Container| {
            container.ports.iter().find(|port| port.name == "admin").map(|port| port.container_port)
        };
        self.spec.containers.iter().find_map(|container| Some((container, port(container)?)))
    }
}
