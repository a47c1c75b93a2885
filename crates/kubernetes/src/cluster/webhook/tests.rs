use serde_json::{Value, json};

use super::*;
use tolerarch_text::yaml::{self, Dialect};

fn labels(labels: &[(&str, &str)]) -> Labels {
    labels
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn scope(webhooks: &Value) -> Scope {
    let configuration = json!({"webhooks": webhooks});
    let configuration: MutatingWebhookConfiguration =
        serde_json::from_value(configuration).unwrap();
    Scope::of(Webhook::all_of(configuration))
}

fn shipped() -> Value {
    let text = include_str!("../../../../../manifests/mutatingwebhookconfiguration.yaml");
    let documents = yaml::read(text, Dialect::Kubernetes).unwrap();
    documents[0].value()["webhooks"].take()
}

/// Returns the webhooks that the chart renders, with its matchConditions and, as the last one, a user's.
fn conditioned() -> Value {
    let text = include_str!("../../../../../e2e/manifests/testdata/chart/webhook.yaml");
    let documents = yaml::read(text, Dialect::Kubernetes).unwrap();
    let mut documents = documents.iter().map(|document| document.value());
    documents
        .find(|document| document["kind"] == "MutatingWebhookConfiguration")
        .unwrap()["webhooks"]
        .take()
}

#[test]
fn rendered_webhook_is_evaluable() {
    let mut conditioned = conditioned();
    let conditions = conditioned[0]["matchConditions"].as_array_mut().unwrap();
    conditions.pop();
    assert_eq!(conditions.len(), CONDITIONS.len());
    assert!(scope(&conditioned).is_evaluable());
    let scope = scope(&shipped());
    assert!(scope.is_evaluable());
    let name = "kubernetes.io/metadata.name";
    let team = labels(&[(name, "team")]);
    assert_eq!(scope.called(&team, &labels(&[])), WebhookCall::For(None));
    for (namespace, pod) in [
        (labels(&[(name, "kube-system")]), labels(&[])),
        (labels(&[(name, "tolerarch")]), labels(&[])),
        (
            labels(&[(name, "team"), ("tolerarch.io/mode", "off")]),
            labels(&[]),
        ),
        (team.clone(), labels(&[("tolerarch.io/mode", "off")])),
    ] {
        assert_eq!(
            scope.called(&namespace, &pod),
            WebhookCall::No,
            "{namespace:?} {pod:?}"
        );
    }
}

#[test]
fn unknown_match_condition_is_unknown() {
    let mut webhooks = shipped();
    webhooks[0]["matchConditions"] =
        json!([{"name": "own", "expression": "object.metadata.name != 'web'"}]);
    let scope = scope(&webhooks);
    assert!(!scope.is_evaluable());
    assert_eq!(
        scope.called(&labels(&[]), &labels(&[])),
        WebhookCall::Unknown
    );
    assert_eq!(
        scope.called(&labels(&[("tolerarch.io/mode", "off")]), &labels(&[])),
        WebhookCall::No
    );
}

#[test]
fn path_names_the_profile() {
    let mut webhooks = shipped();
    let mut profile = webhooks[0].clone();
    profile["clientConfig"] = json!({"url": "https://a.test:8443/mutate/batch?timeout=5s"});
    profile["namespaceSelector"] = json!({"matchLabels": {"tolerarch.io/profile": "batch"}});
    let without = json!({"key": "tolerarch.io/profile", "operator": "DoesNotExist"});
    webhooks[0]["namespaceSelector"]["matchExpressions"]
        .as_array_mut()
        .unwrap()
        .push(without);
    webhooks.as_array_mut().unwrap().push(profile);
    let mut daemon_sets = webhooks[0].clone();
    daemon_sets["rules"] =
        json!([{"operations": ["CREATE"], "apiGroups": ["apps"], "resources": ["daemonsets"]}]);
    daemon_sets["namespaceSelector"] = json!({});
    webhooks.as_array_mut().unwrap().insert(0, daemon_sets);
    let scope = scope(&webhooks);
    let batch = labels(&[("tolerarch.io/profile", "batch")]);
    assert_eq!(
        scope.called(&batch, &labels(&[])),
        WebhookCall::For(Some("batch"))
    );
    assert_eq!(
        scope.called(&labels(&[]), &labels(&[])),
        WebhookCall::For(None)
    );
    let other = labels(&[("tolerarch.io/profile", "other")]);
    assert_eq!(scope.called(&other, &labels(&[])), WebhookCall::No);
}

#[test]
fn label_without_effect_is_ignored() {
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
fn server_name_has_the_form_of_certificates() {
    for (config, name) in [
        (
            json!({"url": "https://Hook.example:8443/mutate"}),
            Some("hook.example"),
        ),
        (json!({"url": "https://10.1.2.3/"}), Some("10.1.2.3")),
        (json!({"url": "https://[FD00:0::7]:8443/"}), Some("fd00::7")),
        (json!({"url": "hook.example"}), None),
        (
            json!({"service": {"namespace": "team", "name": "hook"}}),
            Some("hook.team.svc"),
        ),
    ] {
        let spec = json!({"name": "a.test", "clientConfig": config, "sideEffects": "None", "admissionReviewVersions": []});
        let webhook = Webhook::new(String::new(), serde_json::from_value(spec).unwrap());
        assert_eq!(webhook.server_name().as_deref(), name, "{config}");
    }
}

#[test]
fn selectors_agree_with_the_api_server() {
    let labels = BTreeMap::from([
        ("a".to_owned(), "1".to_owned()),
        ("b".to_owned(), String::new()),
    ]);
    let expression = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
    for (selector, expected) in [
        (json!({}), true),
        (json!({"matchLabels": null, "matchExpressions": null}), true),
        (json!({"matchLabels": {"a": "1"}}), true),
        (json!({"matchLabels": {"a": "2"}}), false),
        (json!({"matchLabels": {"c": ""}}), false),
        (expression("a", "In", json!(["0", "1"])), true),
        (expression("c", "In", json!(["0", "1"])), false),
        (expression("a", "NotIn", json!(["1"])), false),
        // An absent label is in no list.
        (expression("c", "NotIn", json!(["1"])), true),
        (expression("b", "Exists", Value::Null), true),
        (expression("c", "Exists", Value::Null), false),
        (expression("c", "DoesNotExist", Value::Null), true),
        (expression("b", "DoesNotExist", Value::Null), false),
        (expression("a", "Later", json!(["1"])), false),
    ] {
        let read = super::selector(serde_json::from_value(selector.clone()).unwrap());
        assert_eq!(read.matches(&labels), expected, "{selector}");
    }
}
