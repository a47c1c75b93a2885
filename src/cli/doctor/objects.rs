//! What of the cluster's objects is looked at.

use std::collections::BTreeMap;

use serde::Deserialize;

use tolerarch_kubernetes::cluster::{Selector, or_default};

pub(super) type Labels = BTreeMap<String, String>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Metadata {
    pub(super) name: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) labels: Labels,
    #[serde(deserialize_with = "or_default")]
    pub(super) annotations: Labels,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
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

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ServiceReference {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) port: Option<u16>,
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
    /// Whether it covers that Pods are created.
    pub(super) fn has_pods(&self) -> bool {
        let creates = self.operations.iter().any(|one| one == "CREATE" || one == "*");
        creates && self.has("", &["pods", "*", "*/*"])
    }

    /// Whether it covers DaemonSets, by name.
    pub(super) fn has_daemon_sets(&self) -> bool {
        self.has("apps", &["daemonsets"])
    }

    /// Whether it covers changes of this resource of the core group.
    pub(super) fn has_updates_of(&self, resource: &str) -> bool {
        let updates = self.operations.iter().any(|one| one == "UPDATE" || one == "*");
        updates && self.has("", &[resource, "*", "*/*"])
    }

    fn has(&self, group: &str, resources: &[&str]) -> bool {
        self.api_groups.iter().any(|one| one == group || one == "*")
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
pub(super) struct Service {
    pub(super) spec: ServiceSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ServiceSpec {
    #[serde(deserialize_with = "or_default")]
    pub(super) ports: Vec<ServicePort>,
    #[serde(deserialize_with = "or_default")]
    pub(super) selector: Labels,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ServicePort {
    pub(super) port: u16,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct EndpointSlice {
    #[serde(deserialize_with = "or_default")]
    endpoints: Vec<Endpoint>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Endpoint {
    conditions: EndpointConditions,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct EndpointConditions {
    ready: Option<bool>,
}

impl EndpointSlice {
    /// An unknown readiness counts as ready, as in Kubernetes.
    pub(super) fn ready(&self) -> usize {
        self.endpoints.iter().filter(|endpoint| endpoint.conditions.ready != Some(false)).count()
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Pod {
    pub(super) metadata: Metadata,
    pub(super) spec: PodSpec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PodSpec {
    pub(super) service_account_name: String,
    pub(super) automount_service_account_token: Option<bool>,
    #[serde(deserialize_with = "or_default")]
    pub(super) containers: Vec<Container>,
    #[serde(deserialize_with = "or_default")]
    pub(super) volumes: Vec<Volume>,
}

impl PodSpec {
    /// The name of its service account.
    pub(super) fn service_account(&self) -> &str {
        match self.service_account_name.as_str() {
            "" => "default",
            name => name,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Lease {
    pub(super) spec: LeaseSpec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct LeaseSpec {
    #[serde(deserialize_with = "or_default")]
    pub(super) holder_identity: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) renew_time: String,
}

/// A ValidatingAdmissionPolicy.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Policy {
    pub(super) metadata: Metadata,
    pub(super) spec: PolicySpec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PolicySpec {
    pub(super) match_constraints: MatchConstraints,
    #[serde(deserialize_with = "or_default")]
    pub(super) match_conditions: Vec<MatchCondition>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct MatchConstraints {
    #[serde(deserialize_with = "or_default")]
    pub(super) resource_rules: Vec<Rule>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct PolicyBinding {
    pub(super) spec: PolicyBindingSpec,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PolicyBindingSpec {
    pub(super) policy_name: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) validation_actions: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) image: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) ports: Vec<ContainerPort>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ContainerPort {
    pub(super) name: String,
    pub(super) container_port: u16,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Volume {
    pub(super) name: String,
    pub(super) config_map: Option<ConfigMapReference>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ConfigMapReference {
    pub(super) name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ConfigMap {
    #[serde(deserialize_with = "or_default")]
    pub(super) data: Labels,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct AccessReview {
    pub(super) status: AccessReviewStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct AccessReviewStatus {
    pub(super) allowed: bool,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Version {
    pub(super) minor: String,
    #[serde(rename = "gitVersion")]
    pub(super) git_version: String,
}
