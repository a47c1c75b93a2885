//! A brute-force model of the nodes that a Pod fits. It follows the API's documentation (k8s.io/api core/v1 `types.go`),
//! not the code that it checks. A node is a name and labels, and the model tries every node of a small cluster.

use serde_json::{Value, json};

/// A node: its name and its labels.
pub(super) struct Node {
    name: String,
    labels: Vec<(&'static str, &'static str)>,
}

impl Node {
    pub(super) fn arch(&self) -> &str {
        self.label("kubernetes.io/arch").unwrap_or_default()
    }

    pub(super) fn label(&self, key: &str) -> Option<&str> {
        self.labels
            .iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| *value)
    }
}

/// Nodes with every combination of the labels that Pods of the tests name, and more.
pub(super) fn nodes() -> Vec<Node> {
    let mut nodes = Vec::new();
    for arch in ["amd64", "arm64", "s390x"] {
        for zone in [None, Some("a"), Some("b")] {
            for size in [None, Some("1"), Some("5")] {
                let mut labels = vec![
                    ("kubernetes.io/arch", arch),
                    ("beta.kubernetes.io/arch", arch),
                ];
                labels.extend(zone.map(|zone| ("zone", zone)));
                labels.extend(size.map(|size| ("size", size)));
                nodes.push(Node {
                    name: format!("n{}", nodes.len() % 4),
                    labels,
                });
            }
        }
    }
    nodes
}

/// The indices of the nodes that the Pod fits.
pub(super) fn fitting(pod: &Value, nodes: &[Node]) -> Vec<usize> {
    (0..nodes.len())
        .filter(|&index| fits(pod, &nodes[index]))
        .collect()
}

fn fits(pod: &Value, node: &Node) -> bool {
    let selector = pod.pointer("/spec/nodeSelector").and_then(Value::as_object);
    let selected = selector
        .into_iter()
        .flatten()
        .all(|(key, value)| node.label(key) == value.as_str());
    let required =
        pod.pointer("/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution");
    // "The terms are ORed."
    let terms =
        |required: &Value| list(&required["nodeSelectorTerms"]).any(|term| matches(term, node));
    selected
        && required
            .filter(|required| !required.is_null())
            .is_none_or(terms)
}

/// "A null or empty node selector term matches no objects. The requirements of them are ANDed."
fn matches(term: &Value, node: &Node) -> bool {
    let (expressions, fields) = (&term["matchExpressions"], &term["matchFields"]);
    list(expressions).chain(list(fields)).next().is_some()
        && list(expressions)
            .all(|expression| holds(expression, node.label(text(&expression["key"]))))
        && list(fields).all(|field| {
            assert_eq!(field["key"], "metadata.name");
            holds(field, Some(&node.name))
        })
}

fn holds(requirement: &Value, label: Option<&str>) -> bool {
    let values: Vec<&str> = list(&requirement["values"]).map(text).collect();
    let number = |text: &str| text.parse::<i64>().ok();
    let compared = || Some((number(label?)?, number(values.first()?)?));
    match text(&requirement["operator"]) {
        "In" => label.is_some_and(|label| values.contains(&label)),
        "NotIn" => label.is_none_or(|label| !values.contains(&label)),
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        "Gt" => compared().is_some_and(|(label, value)| label > value),
        "Lt" => compared().is_some_and(|(label, value)| label < value),
        other => panic!("no operator: {other}"),
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Whether the Pod says something of its nodes' architecture.
pub(super) fn names_architecture(pod: &Value) -> bool {
    let is_arch = |key: &str| key == "kubernetes.io/arch" || key == "beta.kubernetes.io/arch";
    let selector = pod.pointer("/spec/nodeSelector").and_then(Value::as_object);
    let terms = pod.pointer(
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms",
    );
    selector.into_iter().flatten().any(|(key, _)| is_arch(key))
        || terms.into_iter().flat_map(list).any(|term| {
            list(&term["matchExpressions"]).any(|expression| is_arch(text(&expression["key"])))
        })
}

/// Whether the Pod's node affinity passes the API server's validation (`ValidateNodeSelector`,
/// `ValidatePreferredSchedulingTerms` of k8s.io/kubernetes).
pub(super) fn is_valid(pod: &Value) -> bool {
    let affinity = pod
        .pointer("/spec/affinity/nodeAffinity")
        .unwrap_or(&Value::Null);
    let required = &affinity["requiredDuringSchedulingIgnoredDuringExecution"];
    let preferred = &affinity["preferredDuringSchedulingIgnoredDuringExecution"];
    let expression = |requirement: &Value| {
        let count = list(&requirement["values"]).count();
        !text(&requirement["key"]).is_empty()
            && match text(&requirement["operator"]) {
                "In" | "NotIn" => count > 0,
                "Exists" | "DoesNotExist" => count == 0,
                "Gt" | "Lt" => count == 1,
                _ => false,
            }
    };
    let term = |term: &Value| list(&term["matchExpressions"]).all(expression);
    let weight = |item: &Value| (1..=100).contains(&item["weight"].as_i64().unwrap_or_default());
    (required.is_null() || list(&required["nodeSelectorTerms"]).count() > 0)
        && list(&required["nodeSelectorTerms"]).all(term)
        && list(preferred).all(|item| weight(item) && term(&item["preference"]))
}

/// Lists whose order does not matter.
const SETS: [&str; 3] = [
    "matchExpressions",
    "tolerations",
    "preferredDuringSchedulingIgnoredDuringExecution",
];

/// The Pod without null and empty members, and with lists sorted if their order does not matter. Items of lists stay, as an
/// empty term matches no node.
pub(super) fn normal(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let sorted = |key: &str, mut member: Value| {
                if let Some(items) = member.as_array_mut().filter(|_| SETS.contains(&key)) {
                    items.sort_by_key(Value::to_string);
                }
                member
            };
            let kept = members
                .iter()
                .map(|(key, member)| (key.clone(), sorted(key, normal(member))));
            let empty =
                |member: &Value| member.is_null() || *member == json!([]) || *member == json!({});
            kept.filter(|(_, member)| !empty(member)).collect()
        }
        Value::Array(items) => items.iter().map(normal).collect(),
        other => other.clone(),
    }
}
