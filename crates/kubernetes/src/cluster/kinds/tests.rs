use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::*;
use crate::cluster::testing::{FakeApi, Reply};

/// Kinds of `e2e/conformance/kinds.go`.
#[derive(Deserialize)]
struct Case {
    groups: Vec<CaseGroup>,
    names: Vec<CaseName>,
}

#[derive(Deserialize)]
struct CaseGroup {
    name: String,
    preferred: String,
    versions: Vec<CaseVersion>,
}

#[derive(Deserialize)]
struct CaseVersion {
    version: String,
    resources: Vec<APIResource>,
}

#[derive(Deserialize)]
struct CaseName {
    name: String,
    #[serde(default)]
    is: String,
}

#[test]
fn kinds_agree_with_upstream() {
    let mut compared = Vec::new();
    for Case { groups, names } in conformance::cases("kinds") {
        let mut kinds = ServedKinds::default();
        for CaseGroup {
            name,
            preferred,
            versions,
        } in groups
        {
            let read = |CaseVersion { version, resources }| Version {
                name: version,
                resources: resources
                    .into_iter()
                    .filter_map(Resource::of_listed)
                    .collect(),
            };
            let versions = versions.into_iter().map(read).collect();
            kinds.groups.push(Group {
                name,
                preferred,
                versions,
            });
        }
        for CaseName { name, is } in names {
            let kind = kinds.find(&name.parse().unwrap());
            let kind = kind.map(|kind| format!("{}/{}.{}", kind.version, kind.plural, kind.group));
            // kubectl accepts a Kind that is not the singular only with its group, and no short name in capitals.
            let has_group = name.contains('.') && !name.ends_with('.');
            let is_extension = is.is_empty() && (!has_group || name.contains(char::is_uppercase));
            if !is_extension {
                let name = format!("{name} of {kinds:?}");
                compared.push((name, kind.unwrap_or_default(), is));
            }
        }
    }
    assert!(
        compared
            .iter()
            .filter(|(_, _, theirs)| theirs.is_empty())
            .count()
            > 20
    );
    assert!(
        compared
            .iter()
            .filter(|(_, _, theirs)| !theirs.is_empty())
            .count()
            > 500
    );
    conformance::assert_agreement(compared);
}

#[test]
fn invalid_names_of_kinds_are_refused() {
    for name in [
        "pods",
        "po",
        "my-things.example.com",
        "pods.v1.",
        "Deployment.v1.apps",
        "pods.",
    ] {
        name.parse::<KindName>().unwrap();
    }
    for name in [
        "", ".", ".apps", "a/b", "a..b", "..", "a.b..", "a b", "a,b", "a.b/c", "a.b?c",
    ] {
        assert_eq!(name.parse::<KindName>(), Err(()), "{name}");
    }
}

fn aggregated(groups: Value) -> Value {
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": groups})
}

fn resource(plural: &str, kind: &str, scope: &str) -> Value {
    json!({
        "resource": plural,
        "responseKind": {"group": "", "version": "", "kind": kind},
        "scope": scope,
        "singularResource": kind.to_lowercase(),
        "verbs": ["get"],
        "subresources": [{"subresource": "scale", "responseKind": {"kind": "Scale"}, "verbs": ["get"]}],
    })
}

/// Returns the path of the object `x` of the kind, or the error.
fn path_or_error(kinds: &ServedKinds, name: &str) -> String {
    match kinds.find(&name.parse().unwrap()) {
        Ok(kind) => kind.path("shop", "x"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn all_kinds_are_read_by_two_requests() {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&requests);
    let api = FakeApi::start(move |request| {
        recorded.lock().unwrap().push(request.path.clone());
        match request.path.as_str() {
            "/api" => Reply::of(
                200,
                aggregated(json!([{"metadata": {}, "versions": [
                    {"version": "v1", "freshness": "Current", "resources": [resource("pods", "Pod", "Namespaced"), resource("nodes", "Node", "Cluster")]},
                ]}])),
            ),
            "/apis" => Reply::of(
                200,
                aggregated(json!([
                    {"metadata": {"name": "example.com"}, "versions": [
                        {"version": "v2", "freshness": "Current", "resources": [resource("widgets", "Widget", "Namespaced")]},
                        {"version": "v1", "freshness": "Current", "resources": [resource("gadgets", "Gadget", "Namespaced"), resource("widgets", "Widget", "Namespaced")]},
                    ]},
                    {"metadata": {"name": "metrics.k8s.io"}, "versions": [{"version": "v1beta1", "freshness": "Stale"}]},
                ])),
            ),
            path => panic!("{path}"),
        }
    })
    .await;
    let kinds = ServedKinds::read(&api.client()).await.unwrap();
    for (name, path) in [
        ("pods.v1.", "/api/v1/namespaces/shop/pods/x"),
        ("node", "/api/v1/nodes/x"),
        ("Widget", "/apis/example.com/v2/namespaces/shop/widgets/x"),
        (
            "widgets.v1.example.com",
            "/apis/example.com/v1/namespaces/shop/widgets/x",
        ),
        ("gadget", "/apis/example.com/v1/namespaces/shop/gadgets/x"),
        (
            "scale",
            "the API server has no such kind, but may have it in an API that is unavailable: metrics.k8s.io/v1beta1 (its server does not answer)",
        ),
        ("nothing.example.com", "the API server has no such kind"),
        (
            "nothing.v1.metrics.k8s.io",
            "the API server has no such kind",
        ),
        (
            "nothing.v1beta1.metrics.k8s.io",
            "the API server has no such kind, but may have it in an API that is unavailable: metrics.k8s.io/v1beta1 (its server does not answer)",
        ),
    ] {
        assert_eq!(path_or_error(&kinds, name), path, "{name}");
    }
    assert_eq!(*requests.lock().unwrap(), ["/apis", "/api"]);
}

#[tokio::test]
async fn old_api_server_gets_a_request_for_each_version() {
    let api = FakeApi::start(|request| {
        let group = |name: &str, versions: &[&str]| {
            let version = |one: &&str| json!({"groupVersion": format!("{name}/{one}"), "version": one});
            let versions: Vec<Value> = versions.iter().map(version).collect();
            json!({"name": name, "preferredVersion": versions[0], "versions": versions})
        };
        let kinds = |resources: Value| Reply::of(200, json!({"kind": "APIResourceList", "resources": resources}));
        match request.path.as_str() {
            "/apis" => Reply::of(
                200,
                json!({"kind": "APIGroupList", "groups": [group("kubeflow.org", &["v1", "v2beta1"]), group("away.example.com", &["v1"]), group("gone.example.com", &["v1"])]}),
            ),
            "/api/v1" => kinds(json!([{"name": "pods", "singularName": "", "kind": "Pod", "namespaced": true, "shortNames": ["po"]}])),
            "/apis/kubeflow.org/v1" => kinds(json!([])),
            "/apis/kubeflow.org/v2beta1" => kinds(json!([
                {"name": "mpijobs/status", "singularName": "", "kind": "MPIJob", "namespaced": true},
                {"name": "mpijobs", "singularName": "mpijob", "kind": "MPIJob", "namespaced": true},
            ])),
            "/apis/away.example.com/v1" => Reply::refused(503, "service unavailable"),
            _ => Reply::refused(404, "no such group"),
        }
    })
    .await;
    let kinds = ServedKinds::read(&api.client()).await.unwrap();
    let mpi_job = "/apis/kubeflow.org/v2beta1/namespaces/shop/mpijobs/x";
    for (name, path) in [
        ("po", "/api/v1/namespaces/shop/pods/x"),
        ("pod", "/api/v1/namespaces/shop/pods/x"),
        ("mpijob", mpi_job),
        ("MPIJob", mpi_job),
        ("mpijobs.v2beta1.kubeflow.org", mpi_job),
        ("mpijobs.kube", mpi_job),
        (
            "nothing",
            "the API server has no such kind, but may have it in an API that is unavailable: away.example.com/v1 (service unavailable (503))",
        ),
        (
            "nothing.gone.example.com",
            "the API server has no such kind",
        ),
    ] {
        assert_eq!(path_or_error(&kinds, name), path, "{name}");
    }
}
