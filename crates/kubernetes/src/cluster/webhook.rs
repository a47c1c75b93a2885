//! Webhooks in the cluster's MutatingWebhookConfigurations: how the API server calls them, and for which Pods.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Expression, Selector, SelectorExt};
use kube::{Resource, ResourceExt};
use url::Url;

use super::{Cluster, ClusterError, ObjectName};

type Labels = BTreeMap<String, String>;

/// The matchConditions in tolerarch's manifests, without blanks: a decision skips the same Pods. Others cannot be
/// evaluated without the API server's CEL.
const CONDITIONS: [&str; 5] = [
    "!has(object.spec.nodeName)||object.spec.nodeName==''",
    "!has(object.metadata.annotations)||!('kubernetes.io/config.mirror'inobject.metadata.annotations)",
    "!has(object.metadata.ownerReferences)||!object.metadata.ownerReferences.exists(o,o.kind=='DaemonSet'&&o.?controller.orValue(false))",
    "object.spec.?os.?name.orValue('linux')!='windows'",
    "!has(object.metadata.annotations)||!('tolerarch.io/mode'inobject.metadata.annotations)||object.metadata.annotations['tolerarch.io/mode']!='off'",
];

/// Resources with Pod templates, for which tolerarch has webhooks of their own.
const TEMPLATES: [&str; 2] = ["daemonsets", "podtemplates"];

pub struct WebhookConfiguration {
    /// Path of the object in the API.
    pub path: String,
    pub version: String,
    pub webhooks: Vec<Webhook>,
}

impl WebhookConfiguration {
    pub async fn read(cluster: &Cluster, name: &ObjectName) -> Result<Self, ClusterError> {
        let path = format!(
            "{}/{}",
            MutatingWebhookConfiguration::url_path(&(), None),
            name.as_str()
        );
        let object: MutatingWebhookConfiguration = cluster.get_managed(&path).await?.object;
        let version = object.metadata.resource_version.clone().unwrap_or_default();
        Ok(Self {
            path,
            version,
            webhooks: Webhook::all_of(object).collect(),
        })
    }
}

#[derive(Clone)]
pub struct Webhook {
    /// Name of the MutatingWebhookConfiguration.
    pub configuration: String,
    /// Creation time of the MutatingWebhookConfiguration, in seconds since 1970; `None` if it is unknown.
    pub created: Option<i64>,
    pub spec: MutatingWebhook,
    /// Path of the URL that is called; may be empty.
    pub path: String,
    pub namespaces: Selector,
    pub objects: Selector,
    /// Set if all matchConditions can be evaluated here.
    is_evaluable: bool,
}

impl Webhook {
    pub fn all_of(configuration: MutatingWebhookConfiguration) -> impl Iterator<Item = Self> {
        let name = configuration.metadata.name.unwrap_or_default();
        let created = configuration.metadata.creation_timestamp;
        let created = created.map(|time| time.0.as_second());
        let webhooks = configuration.webhooks.into_iter().flatten();
        webhooks.map(move |webhook| Self {
            created,
            ..Self::new(name.clone(), webhook)
        })
    }

    pub fn new(configuration: String, spec: MutatingWebhook) -> Self {
        let namespaces = selector(spec.namespace_selector.clone());
        let objects = selector(spec.object_selector.clone());
        let path = match &spec.client_config.service {
            Some(service) => service.path.clone(),
            None => url(&spec).map(|url| url.path().to_owned()),
        };
        let mut conditions = spec.match_conditions.iter().flatten();
        let is_evaluable = conditions.all(|condition| is_shipped(&condition.expression));
        Self {
            configuration,
            created: None,
            spec,
            path: path.unwrap_or_default(),
            namespaces,
            objects,
            is_evaluable,
        }
    }

    /// Returns the name that the API server logs.
    pub fn name(&self) -> String {
        format!("{}/{}", self.configuration, self.spec.name)
    }

    /// Returns whether the webhook is tolerarch's: its name is in tolerarch's domain.
    pub fn is_of_tolerarch(&self) -> bool {
        self.spec.name.ends_with(".tolerarch.io")
    }

    pub fn bundle(&self) -> &[u8] {
        match &self.spec.client_config.ca_bundle {
            Some(bundle) => &bundle.0,
            None => &[],
        }
    }

    pub fn profile(&self) -> Option<&str> {
        let profile = self.path.strip_prefix("/mutate/");
        profile.filter(|profile| !profile.is_empty())
    }

    /// Returns the Service that the webhook calls: namespace, name and port.
    pub fn service(&self) -> Option<(&str, &str, i32)> {
        let service = self.spec.client_config.service.as_ref()?;
        let port = service.port.unwrap_or(443);
        Some((&service.namespace, &service.name, port))
    }

    /// Returns the name or address that the certificate has to have: the API server's ServerName
    /// (pkg/util/webhook/client.go). An IPv6 address has no brackets.
    pub fn server_name(&self) -> Option<String> {
        if let Some((namespace, name, _)) = self.service() {
            return Some(format!("{name}.{namespace}.svc"));
        }
        let url = url(&self.spec)?;
        let host = url.host_str()?;
        Some(host.trim_matches(['[', ']']).to_owned())
    }

    /// Returns labels of an object for which the webhook is called; `None` if the selector matches none of those tried.
    pub fn example(&self) -> Option<Labels> {
        let mut labels = Labels::new();
        for expression in self.objects.clone() {
            let (key, value) = match expression {
                Expression::Equal(key, value) => (key, value),
                Expression::In(key, values) => (key, values.into_iter().next()?),
                Expression::Exists(key) => (key, "true".to_owned()),
                _ => continue,
            };
            labels.entry(key).or_insert(value);
        }
        if self.objects.matches(&labels) {
            Some(labels)
        } else {
            None
        }
    }

    pub fn selects(&self, namespace: &Namespace) -> bool {
        self.namespaces.matches(namespace.labels())
    }

    /// Returns whether a rule covers the creation of Pods.
    pub fn has_pods(&self) -> bool {
        let mut rules = self.spec.rules.iter().flatten();
        rules.any(|rule| {
            let rule = [&rule.operations, &rule.api_groups, &rule.resources];
            covers(rule, ["CREATE", "", "pods"])
        })
    }

    /// Returns whether a rule covers Pods, or no rule covers templates.
    pub fn is_for_pods(&self) -> bool {
        if self.has_pods() {
            return true;
        }
        for rule in self.spec.rules.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                if TEMPLATES.contains(&resource.as_str()) {
                    return false;
                }
            }
        }
        true
    }
}

fn is_shipped(expression: &str) -> bool {
    let without_blanks: String = expression.split_whitespace().collect();
    CONDITIONS.contains(&without_blanks.as_str())
}

/// Converts a selector. Without a selector, everything is selected; with an unknown operator, nothing.
fn selector(selector: Option<LabelSelector>) -> Selector {
    match selector.unwrap_or_default().try_into() {
        Ok(selector) => selector,
        Err(_) => Expression::In(String::new(), BTreeSet::new()).into(),
    }
}

fn url(webhook: &MutatingWebhook) -> Option<Url> {
    Url::parse(webhook.client_config.url.as_deref()?).ok()
}

/// Returns whether the operations, API groups and resources of a rule include these.
pub fn covers(rule: [&Option<Vec<String>>; 3], wanted: [&str; 3]) -> bool {
    for (listed, wanted) in rule.into_iter().zip(wanted) {
        let mut listed = listed.iter().flatten();
        if !listed.any(|one| one == wanted || one == "*" || one == "*/*") {
            return false;
        }
    }
    true
}

/// Webhooks that are called when Pods are created.
#[derive(Default)]
pub struct Scope(Vec<Webhook>);

#[derive(Debug, PartialEq, Eq)]
pub enum WebhookCall<'s> {
    /// Called with this profile, or without one.
    For(Option<&'s str>),
    No,
    /// Depends on a matchCondition that cannot be evaluated here.
    Unknown,
}

impl Scope {
    /// Reads these configurations. A missing configuration has no webhooks.
    pub async fn read(cluster: &Cluster, names: &[ObjectName]) -> Result<Self, ClusterError> {
        let mut webhooks = Vec::new();
        for name in names {
            match WebhookConfiguration::read(cluster, name).await {
                Ok(configuration) => webhooks.extend(configuration.webhooks),
                Err(ClusterError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self::of(webhooks))
    }

    /// Keeps the webhooks that are called for Pods.
    pub fn of(webhooks: impl IntoIterator<Item = Webhook>) -> Self {
        Self(webhooks.into_iter().filter(Webhook::has_pods).collect())
    }

    /// Returns whether a webhook is called for Pods with the labels `pod` in a namespace with the labels `namespace`.
    pub fn called(&self, namespace: &Labels, pod: &Labels) -> WebhookCall<'_> {
        let selects = |webhook: &&Webhook| {
            webhook.namespaces.matches(namespace) && webhook.objects.matches(pod)
        };
        match self.0.iter().find(selects) {
            None => WebhookCall::No,
            Some(Webhook {
                is_evaluable: false,
                ..
            }) => WebhookCall::Unknown,
            Some(webhook) => WebhookCall::For(webhook.profile()),
        }
    }

    /// Returns whether a selected namespace has this label, and the same webhooks would select it without the label.
    pub fn ignores(&self, namespace: &Labels, key: &str) -> bool {
        let mut without = namespace.clone();
        if without.remove(key).is_none() {
            return false;
        }
        let mut is_selected = false;
        for Webhook { namespaces, .. } in &self.0 {
            if namespaces.matches(namespace) != namespaces.matches(&without) {
                return false;
            }
            is_selected |= namespaces.matches(namespace);
        }
        is_selected
    }

    /// Returns whether all matchConditions can be evaluated here.
    pub fn is_evaluable(&self) -> bool {
        self.0.iter().all(|webhook| webhook.is_evaluable)
    }
}

#[cfg(test)]
mod tests;
