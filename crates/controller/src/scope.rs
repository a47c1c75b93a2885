//! Pods for which the webhook is called, by its configurations in the cluster, so that there is one source of truth.

use std::collections::BTreeMap;

use tolerarch_kubernetes::cluster::{
    Cluster, ClusterError, MutatingWebhook, MutatingWebhookConfiguration, ObjectName, Selector,
};

type Labels = BTreeMap<String, String>;

const PATH: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

/// Shipped matchConditions, without blanks: a decision skips the same Pods. Others would need the API server's CEL.
const CONDITIONS: [&str; 5] = [
    "!has(object.spec.nodeName)||object.spec.nodeName==''",
    "!has(object.metadata.annotations)||!('kubernetes.io/config.mirror'inobject.metadata.annotations)",
    "!has(object.metadata.ownerReferences)||!object.metadata.ownerReferences.exists(o,o.kind=='DaemonSet'&&o.?controller.orValue(false))",
    "object.spec.?os.?name.orValue('linux')!='windows'",
    "!has(object.metadata.annotations)||!('tolerarch.io/mode'inobject.metadata.annotations)||object.metadata.annotations['tolerarch.io/mode']!='off'",
];

/// Webhooks that are called for Pods.
#[derive(Debug, Default)]
pub struct Scope(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    profile: Option<String>,
    namespaces: Selector,
    objects: Selector,
    is_evaluable: bool,
}

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
    pub(super) async fn read(cluster: &Cluster, names: &[ObjectName]) -> Result<Self, ClusterError> {
        let mut webhooks = Vec::new();
        for name in names {
            let path = format!("{PATH}/{}", name.as_str());
            match cluster.get::<MutatingWebhookConfiguration>(&path).await {
                Ok(answer) => webhooks.extend(answer.object.webhooks.into_iter().flatten()),
                Err(ClusterError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self::of(webhooks))
    }

    pub fn of(webhooks: impl IntoIterator<Item = MutatingWebhook>) -> Self {
        Self(webhooks.into_iter().filter_map(Entry::of).collect())
    }

    /// Returns whether the webhook is called for Pods with the labels `pod` in a namespace with the labels `namespace`.
    pub fn called(&self, namespace: &Labels, pod: &Labels) -> Called<'_> {
        let selects = |entry: &&Entry| entry.namespaces.matches(namespace) && entry.objects.matches(pod);
        match self.0.iter().find(selects) {
            None => Called::No,
            Some(Entry { is_evaluable: false, .. }) => Called::Unknown,
            Some(Entry { profile, .. }) => Called::For(profile.as_deref()),
        }
    }

    /// Returns whether a selected namespace has this label with a value that makes no difference.
    pub fn ignores(&self, namespace: &Labels, key: &str) -> bool {
        let is_named = |value: &String| self.0.iter().any(|entry| entry.namespaces.names(key, value));
        namespace.get(key).is_some_and(|value| !is_named(value))
            && self.0.iter().any(|entry| entry.namespaces.matches(namespace))
    }

    /// Returns whether all matchConditions can be evaluated here.
    pub(super) fn is_evaluable(&self) -> bool {
        self.0.iter().all(|entry| entry.is_evaluable)
    }
}

impl Entry {
    /// Makes an entry; `None` for a webhook that is not called when Pods are created.
    fn of(webhook: MutatingWebhook) -> Option<Self> {
        let has = |list: &Option<Vec<String>>, wanted: &str| {
            list.iter().flatten().any(|one| one == wanted || one == "*")
        };
        let is_for_pods = webhook.rules.iter().flatten().any(|rule| {
            has(&rule.operations, "CREATE") && has(&rule.api_groups, "") && has(&rule.resources, "pods")
        });
        if !is_for_pods {
            return None;
        }
        let path = match (webhook.client_config.service, webhook.client_config.url) {
            (Some(service), _) => service.path.unwrap_or_default(),
            (None, Some(url)) => url::Url::parse(&url).ok()?.path().to_owned(),
            (None, None) => return None,
        };
        let profile = path.strip_prefix("/mutate/").filter(|profile| !profile.is_empty());
        let is_evaluable = webhook.match_conditions.iter().flatten().all(|condition| {
            let expression: String = condition.expression.split_whitespace().collect();
            CONDITIONS.contains(&&*expression)
        });
        Some(Self {
            profile: profile.map(str::to_owned),
            namespaces: Selector(webhook.namespace_selector.unwrap_or_default()),
            objects: Selector(webhook.object_selector.unwrap_or_default()),
            is_evaluable,
        })
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
        Scope::of(configuration.webhooks.into_iter().flatten())
    }

    fn shipped() -> Value {
        let text = include_str!("../../../manifests/mutatingwebhookconfiguration.yaml");
        let documents = yaml::read(text, Dialect::Kubernetes, &mut Copies::default()).unwrap();
        documents[0].value()["webhooks"].take()
    }

    /// As the chart renders it with conditions of its own and one of the user's, the last.
    fn conditioned() -> Value {
        let text = include_str!("../../../e2e/manifests/testdata/chart/webhook.yaml");
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
}
