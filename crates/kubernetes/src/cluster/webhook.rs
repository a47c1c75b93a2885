//! Webhooks of MutatingWebhookConfigurations: how the API server calls them, and for which Pods, as the cluster has them.

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Resource, ResourceExt};
use url::Url;

use super::{Cluster, ClusterError, ObjectName, Selector};

type Labels = BTreeMap<String, String>;

/// Shipped matchConditions, without blanks: a decision skips the same Pods. Others would need the API server's CEL.
const CONDITIONS: [&str; 5] = [
    "!has(object.spec.nodeName)||object.spec.nodeName==''",
    "!has(object.metadata.annotations)||!('kubernetes.io/config.mirror'inobject.metadata.annotations)",
    "!has(object.metadata.ownerReferences)||!object.metadata.ownerReferences.exists(o,o.kind=='DaemonSet'&&o.?controller.orValue(false))",
    "object.spec.?os.?name.orValue('linux')!='windows'",
    "!has(object.metadata.annotations)||!('tolerarch.io/mode'inobject.metadata.annotations)||object.metadata.annotations['tolerarch.io/mode']!='off'",
];

pub struct WebhookConfiguration {
    /// Path of the object in the API.
    pub path: String,
    pub version: String,
    pub webhooks: Vec<Webhook>,
}

impl WebhookConfiguration {
    pub async fn read(cluster: &Cluster, name: &ObjectName) -> Result<Self, ClusterError> {
        let path = format!("{}/{}", MutatingWebhookConfiguration::url_path(&(), None), name.as_str());
        let object: MutatingWebhookConfiguration = cluster.get(&path).await?.object;
        let version = object.metadata.resource_version.clone().unwrap_or_default();
        Ok(Self { path, version, webhooks: Webhook::all_of(object).collect() })
    }
}

#[derive(Clone)]
pub struct Webhook {
    /// Name of the MutatingWebhookConfiguration.
    pub configuration: String,
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
        configuration.webhooks.into_iter().flatten().map(move |webhook| Self::new(name.clone(), webhook))
    }

    pub fn new(configuration: String, mut spec: MutatingWebhook) -> Self {
        let [namespaces, objects] = [spec.namespace_selector.take(), spec.object_selector.take()]
            .map(|selector| Selector(selector.unwrap_or_default()));
        let path = match &spec.client_config.service {
            Some(service) => service.path.clone(),
            None => url(&spec).map(|url| url.path().to_owned()),
        };
        let is_evaluable = spec.match_conditions.iter().flatten().all(|condition| {
            let expression: String = condition.expression.split_whitespace().collect();
            CONDITIONS.contains(&&*expression)
        });
        Self { configuration, spec, path: path.unwrap_or_default(), namespaces, objects, is_evaluable }
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
        self.spec.client_config.ca_bundle.as_ref().map_or(&[], |bundle| &bundle.0)
    }

    pub fn profile(&self) -> Option<&str> {
        self.path.strip_prefix("/mutate/").filter(|profile| !profile.is_empty())
    }

    /// Returns the Service that the webhook calls: namespace, name and port.
    pub fn service(&self) -> Option<(&str, &str, i32)> {
        let service = self.spec.client_config.service.as_ref()?;
        Some((&service.namespace, &service.name, service.port.unwrap_or(443)))
    }

    /// Returns the name or address that the certificate has to be for, as the API server's ServerName
    /// (pkg/util/webhook/client.go): an IPv6 address without brackets.
    pub fn server_name(&self) -> Option<String> {
        match self.service() {
            Some((namespace, name, _)) => Some(format!("{name}.{namespace}.svc")),
            None => Some(url(&self.spec)?.host_str()?.trim_matches(['[', ']']).to_owned()),
        }
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

    /// Returns whether the webhook is not for DaemonSets only.
    pub fn is_for_pods(&self) -> bool {
        let mut resources = self.spec.rules.iter().flatten().filter_map(|rule| rule.resources.as_ref());
        self.has_pods() || !resources.any(|resources| resources.iter().any(|one| one == "daemonsets"))
    }
}

fn url(webhook: &MutatingWebhook) -> Option<Url> {
    Url::parse(webhook.client_config.url.as_deref()?).ok()
}

/// Returns whether operations, API groups and resources of a rule include these.
pub fn covers(rule: [&Option<Vec<String>>; 3], wanted: [&str; 3]) -> bool {
    rule.iter().zip(wanted).all(|(listed, wanted)| {
        listed.iter().flatten().any(|one| one == wanted || one == "*" || one == "*/*")
    })
}

/// Webhooks that are called when Pods are created.
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
        let selects =
            |webhook: &&Webhook| webhook.namespaces.matches(namespace) && webhook.objects.matches(pod);
        match self.0.iter().find(selects) {
            None => Called::No,
            Some(Webhook { is_evaluable: false, .. }) => Called::Unknown,
            Some(webhook) => Called::For(webhook.profile()),
        }
    }

    /// Returns whether a selected namespace has this label, and would be selected likewise without it.
    pub fn ignores(&self, namespace: &Labels, key: &str) -> bool {
        let mut without = namespace.clone();
        let selects = |labels: &Labels| -> Vec<bool> {
            self.0.iter().map(|webhook| webhook.namespaces.matches(labels)).collect()
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
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use tolerarch_text::yaml::{self, Copies, Dialect};

    fn labels(labels: &[(&str, &str)]) -> Labels {
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn scope(webhooks: &Value) -> Scope {
        let configuration = json!({"webhooks": webhooks});
        let configuration: MutatingWebhookConfiguration = serde_json::from_value(configuration).unwrap();
        Scope::of(Webhook::all_of(configuration))
    }

    fn shipped() -> Value {
        let text = include_str!("../../../../manifests/mutatingwebhookconfiguration.yaml");
        let documents = yaml::read(text, Dialect::Kubernetes, &mut Copies::default()).unwrap();
        documents[0].value()["webhooks"].take()
    }

    /// As the chart renders it with conditions of its own and one of the user's, the last.
    fn conditioned() -> Value {
        let text = include_str!("../../../../e2e/manifests/testdata/chart/webhook.yaml");
        let documents = yaml::read(text, Dialect::Kubernetes, &mut Copies::default()).unwrap();
        let mut documents = documents.iter().map(|document| document.value());
        documents.find(|document| document["kind"] == "MutatingWebhookConfiguration").unwrap()["webhooks"]
            .take()
    }

    #[test]
    fn what_the_chart_renders_is_understood() {
        let mut conditioned = conditioned();
        let conditions = conditioned[0]["matchConditions"].as_array_mut().unwrap();
        conditions.pop();
        assert_eq!(conditions.len(), CONDITIONS.len());
        assert!(scope(&conditioned).is_evaluable());
        let scope = scope(&shipped());
        assert!(scope.is_evaluable());
        let name = "kubernetes.io/metadata.name";
        let team = labels(&[(name, "team")]);
        assert_eq!(scope.called(&team, &labels(&[])), Called::For(None));
        for (namespace, pod) in [
            (labels(&[(name, "kube-system")]), labels(&[])),
            (labels(&[(name, "tolerarch")]), labels(&[])),
            (labels(&[(name, "team"), ("tolerarch.io/mode", "off")]), labels(&[])),
            (team.clone(), labels(&[("tolerarch.io/mode", "off")])),
        ] {
            assert_eq!(scope.called(&namespace, &pod), Called::No, "{namespace:?} {pod:?}");
        }
    }

    #[test]
    fn what_cannot_be_evaluated_is_not_guessed() {
        let mut webhooks = shipped();
        webhooks[0]["matchConditions"] =
            json!([{"name": "own", "expression": "object.metadata.name != 'web'"}]);
        let scope = scope(&webhooks);
        assert!(!scope.is_evaluable());
        assert_eq!(scope.called(&labels(&[]), &labels(&[])), Called::Unknown);
        assert_eq!(scope.called(&labels(&[("tolerarch.io/mode", "off")]), &labels(&[])), Called::No);
    }

    #[test]
    fn a_profile_is_known_by_its_path() {
        let mut webhooks = shipped();
        let mut profile = webhooks[0].clone();
        profile["clientConfig"] = json!({"url": "https://a.test:8443/mutate/batch?timeout=5s"});
        profile["namespaceSelector"] = json!({"matchLabels": {"tolerarch.io/profile": "batch"}});
        let without = json!({"key": "tolerarch.io/profile", "operator": "DoesNotExist"});
        webhooks[0]["namespaceSelector"]["matchExpressions"].as_array_mut().unwrap().push(without);
        webhooks.as_array_mut().unwrap().push(profile);
        let mut daemon_sets = webhooks[0].clone();
        daemon_sets["rules"] =
            json!([{"operations": ["CREATE"], "apiGroups": ["apps"], "resources": ["daemonsets"]}]);
        daemon_sets["namespaceSelector"] = json!({});
        webhooks.as_array_mut().unwrap().insert(0, daemon_sets);
        let scope = scope(&webhooks);
        let batch = labels(&[("tolerarch.io/profile", "batch")]);
        assert_eq!(scope.called(&batch, &labels(&[])), Called::For(Some("batch")));
        assert_eq!(scope.called(&labels(&[]), &labels(&[])), Called::For(None));
        let other = labels(&[("tolerarch.io/profile", "other")]);
        assert_eq!(scope.called(&other, &labels(&[])), Called::No);
    }
    #[test]
    fn a_label_of_a_namespace_is_ignored_if_it_makes_no_difference() {
        let scope = |selectors: &[&Value]| {
            let mut webhooks = shipped();
            let webhook = webhooks[0].take();
            let with = |selector: &&Value| {
                let mut webhook = webhook.clone();
                webhook["namespaceSelector"] = (*selector).clone();
                webhook
            };
            scope(&selectors.iter().map(with).collect())
        };
        let expression = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]});
        let namespace = labels(&[("a", "1")]);
        for (selector, ignored) in [
            (json!({}), true),
            (json!({"matchLabels": {"a": "1"}}), false),
            (json!({"matchLabels": {"a": "2", "b": "1"}}), true),
            (json!({"matchLabels": {"a": "1", "b": "1"}}), true),
            (expression("In", json!(["0", "1"])), false),
            (expression("NotIn", json!(["1"])), false),
            (expression("NotIn", json!(["2"])), true),
            (expression("Exists", Value::Null), false),
            (expression("DoesNotExist", json!([])), false),
        ] {
            let scope = scope(&[&json!({}), &selector]);
            assert_eq!(scope.ignores(&namespace, "a"), ignored, "{selector}");
            assert!(!scope.ignores(&namespace, "b"), "there is none");
        }
        let unselected = scope(&[&expression("NotIn", json!(["1", "2"]))]);
        assert!(!unselected.ignores(&labels(&[("a", "1"), ("b", "1")]), "b"));
    }

    #[test]
    fn a_host_is_written_as_in_certificates() {
        for (config, name) in [
            (json!({"url": "https://Hook.example:8443/mutate"}), Some("hook.example")),
            (json!({"url": "https://10.1.2.3/"}), Some("10.1.2.3")),
            (json!({"url": "https://[FD00:0::7]:8443/"}), Some("fd00::7")),
            (json!({"url": "hook.example"}), None),
            (json!({"service": {"namespace": "team", "name": "hook"}}), Some("hook.team.svc")),
        ] {
            let spec = json!({"name": "a.test", "clientConfig": config, "sideEffects": "None", "admissionReviewVersions": []});
            let webhook = Webhook::new(String::new(), serde_json::from_value(spec).unwrap());
            assert_eq!(webhook.server_name().as_deref(), name, "{config}");
        }
    }
}
