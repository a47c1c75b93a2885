//! What of the cluster's objects is looked at.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

pub(super) type Labels = BTreeMap<String, String>;

/// What is `null` counts as absent.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

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

#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Selector {
    #[serde(deserialize_with = "or_default")]
    match_labels: Labels,
    #[serde(deserialize_with = "or_default")]
    match_expressions: Vec<Requirement>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Requirement {
    key: String,
    operator: String,
    #[serde(deserialize_with = "or_default")]
    values: Vec<String>,
}

impl Selector {
    /// As the API server decides; an operator that is not known matches nothing.
    pub(super) fn matches(&self, labels: &Labels) -> bool {
        let holds = |requirement: &Requirement| {
            let value = labels.get(&requirement.key);
            let listed = value.is_some_and(|value| requirement.values.contains(value));
            match requirement.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        };
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(holds)
    }

    /// Labels that it selects; none if there are no such labels.
    pub(super) fn example(&self) -> Option<Labels> {
        let mut labels = self.match_labels.clone();
        for Requirement { key, operator, values } in &self.match_expressions {
            let value = match operator.as_str() {
                "In" => values.first().cloned(),
                "Exists" => Some("true".to_owned()),
                _ => None,
            };
            if let Some(value) = value {
                labels.entry(key.clone()).or_insert(value);
            }
        }
        self.matches(&labels).then_some(labels)
    }
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

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Container {
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
pub(super) struct Node {
    pub(super) metadata: Metadata,
    pub(super) spec: Tainted,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Tainted {
    #[serde(deserialize_with = "or_default")]
    pub(super) taints: Vec<Taint>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Taint {
    pub(super) key: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) value: String,
    pub(super) effect: String,
}

/// Karpenter's.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct NodePool {
    pub(super) metadata: Metadata,
    pub(super) spec: NodePoolSpec,
    pub(super) status: NodePoolStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct NodePoolSpec {
    pub(super) weight: Option<u32>,
    pub(super) template: NodePoolTemplate,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct NodePoolTemplate {
    pub(super) spec: Tainted,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct NodePoolStatus {
    #[serde(deserialize_with = "or_default")]
    pub(super) conditions: Vec<Condition>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Condition {
    pub(super) r#type: String,
    pub(super) status: String,
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
