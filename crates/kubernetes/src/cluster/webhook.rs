//! Webhooks of MutatingWebhookConfigurations: how the API server calls them, and for which Pods, as the cluster has them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Expression, Selector, SelectorExt};
use kube::{Resource, ResourceExt};
use url::Url;

use super::{Cluster, ClusterError, ObjectName};

type Labels = BTreeMap<String, String>;

/// Shipped matchConditions, without blanks: a decision skips the same Pods. Others would need the API server's CEL.
const CONDITIONS: [&str; 5] = [
    "!has(object.spec.nodeName)||object.spec.nodeName==''",
    "!has(object.metadata.annotations)||!('kubernetes.io/config.mirror'inobject.metadata.annotations)",
    "!has(object.metadata.ownerReferences)||!object.metadata.ownerReferences.exists(o,o.kind=='DaemonSet'&&o.?controller.orValue(false))",
    "object.spec.?os.?name.orValue('linux')!='windows'",
    "!has(object.metadata.annotations)||!('tolerarch.io/mode'inobject.metadata.annotations)||object.metadata.annotations['tolerarch.io/mode']!='off'",
];

/// Resources with templates, for which tolerarch has webhooks beside that for Pods.
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
        let object: MutatingWebhookConfiguration = cluster.get_own(&path).await?.object;
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
    /// When the MutatingWebhookConfiguration was created, in seconds since 1970; `None` if it does not say.
    pub created: Option<i64>,
    pub spec: MutatingWebhook,
    /// Path of the URL that is called; empty if there is none.
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
        let is_evaluable = spec.match_conditions.iter().flatten().all(|condition| {
            let expression: String = condition.expression.split_whitespace().collect();
            CONDITIONS.contains(&&*expression)
        });
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

    /// Returns the name as in the API server's log.
    pub fn name(&self) -> String {
        format!("{}/{}", self.configuration, self.spec.name)
    }

    /// Returns whether the webhook is one of tolerarch, which have names below its domain.
    pub fn is_ours(&self) -> bool {
        self.spec.name.ends_with(".tolerarch.io")
    }

    pub fn bundle(&self) -> &[u8] {
        let bundle = self.spec.client_config.ca_bundle.as_ref();
        bundle.map_or(&[], |bundle| &bundle.0)
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

    /// Returns the name or address that the certificate has to be for, as the API server's ServerName
    /// (pkg/util/webhook/client.go): an IPv6 address without brackets.
    pub fn server_name(&self) -> Option<String> {
        if let Some((namespace, name, _)) = self.service() {
            return Some(format!("{name}.{namespace}.svc"));
        }
        let url = url(&self.spec)?;
        let host = url.host_str()?;
        Some(host.trim_matches(['[', ']']).to_owned())
    }

    /// Returns labels of an object for which the webhook is called; `None` if there are none.
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
        self.objects.matches(&labels).then_some(labels)
    }

    pub fn selects(&self, namespace: &Namespace) -> bool {
        self.namespaces.matches(namespace.labels())
    }

    /// Returns whether a rule covers the creation of Pods.
    pub fn has_pods(&self) -> bool {
        let rules = self.spec.rules.iter().flatten();
        let mut rules = rules.map(|rule| [&rule.operations, &rule.api_groups, &rule.resources]);
        rules.any(|rule| covers(rule, ["CREATE", "", "pods"]))
    }

    /// Returns whether the webhook is not for templates only.
    pub fn is_for_pods(&self) -> bool {
        let rules = self.spec.rules.iter().flatten();
        let mut resources = rules.flat_map(|rule| rule.resources.iter().flatten());
        self.has_pods() || !resources.any(|resource| TEMPLATES.contains(&&**resource))
    }
}

/// Reads a selector: without one everything is selected, by an unknown operator nothing.
fn selector(read: Option<LabelSelector>) -> Selector {
    let nothing = |_| Expression::In(String::new(), BTreeSet::new()).into();
    read.unwrap_or_default().try_into().unwrap_or_else(nothing)
}

fn url(webhook: &MutatingWebhook) -> Option<Url> {
    Url::parse(webhook.client_config.url.as_deref()?).ok()
}

/// Returns whether operations, API groups and resources of a rule include these.
pub fn covers(rule: [&Option<Vec<String>>; 3], wanted: [&str; 3]) -> bool {
    rule.iter().zip(wanted).all(|(listed, wanted)| {
        listed
            .iter()
            .flatten()
            .any(|one| one == wanted || one == "*" || one == "*/*")
    })
}

/// Webhooks that are called when Pods are created.
#[derive(Default)]
pub struct Scope(Vec<Webhook>);

#[derive(Debug, PartialEq, Eq)]
pub enum Called<'s> {
    /// Called with this profile, or without one.
    For(Option<&'s str>),
    No,
    /// A matchCondition that cannot be evaluated here decides.
    Unknown,
}

impl Scope {
    /// Reads these configurations; one that is missing calls no webhook.
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

    /// Keeps those of the webhooks that are called for Pods.
    pub fn of(webhooks: impl IntoIterator<Item = Webhook>) -> Self {
        Self(webhooks.into_iter().filter(Webhook::has_pods).collect())
    }

    /// Returns whether the webhook is called for Pods with the labels `pod` in a namespace with the labels `namespace`.
    pub fn called(&self, namespace: &Labels, pod: &Labels) -> Called<'_> {
        let selects = |webhook: &&Webhook| {
            webhook.namespaces.matches(namespace) && webhook.objects.matches(pod)
        };
        match self.0.iter().find(selects) {
            None => Called::No,
            Some(Webhook {
                is_evaluable: false,
                ..
            }) => Called::Unknown,
            Some(webhook) => Called::For(webhook.profile()),
        }
    }

    /// Returns whether a selected namespace has this label, and would be selected likewise without it.
    pub fn ignores(&self, namespace: &Labels, key: &str) -> bool {
        let mut without = namespace.clone();
        let selects = |labels: &Labels| -> Vec<bool> {
            let namespaces = self.0.iter().map(|webhook| &webhook.namespaces);
            namespaces
                .map(|selector| selector.matches(labels))
                .collect()
        };
        let selecting = selects(namespace);
        without.remove(key).is_some() && selecting.contains(&true) && selecting == selects(&without)
    }

    /// Returns whether all matchConditions can be evaluated here.
    pub fn is_evaluable(&self) -> bool {
        self.0.iter().all(|webhook| webhook.is_evaluable)
    }
}

#[cfg(test)]
mod tests;
