//! Node affinity that tolerarch adds: requirements and preferences, as the API server stores and the scheduler reads them.

use k8s_openapi::api::core::v1::Pod;
use scenarios::{Cluster, Namespace, PodExt, Tolerarch, deployment, pod};
use serde_json::{Value, json};

/// Starts a tolerarch with this placement, for the Pods of a namespace.
async fn start(cluster: &Cluster, placement: Value) -> (Tolerarch, Namespace) {
    let tolerarch = cluster
        .local()
        .tolerarch(json!({"placement": placement}))
        .await;
    let namespace = cluster
        .namespace_with("node-affinity", &tolerarch.url)
        .await;
    cluster.until_called(&namespace).await;
    (tolerarch, namespace)
}

/// The pool's node is arm64, the plain one is amd64.
pub(crate) async fn pods_avoid_architectures_that_their_images_lack(cluster: &Cluster) {
    let (_tolerarch, namespace) = start(cluster, json!({"require": "affinity"})).await;
    // A toleration of the user allows the pool, and only the pool has places.
    namespace.offer(0, 10).await;
    for (tag, fits) in [
        ("multi", true),
        ("arm64", true),
        ("amd64", false),
        ("single", false),
    ] {
        let mut pod = namespace.takes_a_place(&pod(&[&cluster.images.tag(tag)]));
        pod["spec"]["tolerations"] = json!([{"key": scenarios::POOL, "operator": "Exists"}]);
        namespace.apply(&deployment(tag, 2, &pod)).await;
        let settled = |pod: &Pod| {
            if fits {
                namespace.is_in_pool(pod)
            } else {
                pod.is_unschedulable()
            }
        };
        namespace.until_pods(tag, 2, settled).await;
    }
    // When the plain node has places, the others run there.
    namespace.offer(10, 10).await;
    for tag in ["amd64", "single"] {
        namespace
            .until_pods(tag, 2, |pod| namespace.is_on_plain_node(pod))
            .await;
    }
}

pub(crate) async fn pods_run_on_the_preferred_architecture(cluster: &Cluster) {
    let prefer = json!({"prefer": [{"platform": "linux/arm64", "weight": 100}]});
    let (_tolerarch, namespace) = start(cluster, prefer).await;
    namespace.offer(10, 10).await;
    let web = namespace.takes_a_place(&pod(&[&cluster.images.tag("multi")]));
    namespace.apply(&deployment("web", 3, &web)).await;
    namespace
        .until_pods("web", 3, |pod| namespace.is_in_pool(pod))
        .await;
}

/// User constraints of every form stay, and the API server accepts the result.
pub(crate) async fn user_constraints_stay_valid(cluster: &Cluster) {
    let required = |terms: Value| {
        json!({"affinity": {"nodeAffinity":
            {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
    };
    let zone = json!({"key": "zone", "operator": "In", "values": ["a"]});
    let name = json!({"key": "metadata.name", "operator": "In", "values": ["x"]});
    let preferred = json!([{"weight": 1, "preference": {"matchExpressions": [zone]}}]);
    let specs = [
        json!({}),
        json!({"nodeSelector": {}}),
        json!({"nodeSelector": {"zone": "a"}}),
        json!({"affinity": null}),
        json!({"affinity": {}}),
        json!({"affinity": {"nodeAffinity": {}}}),
        json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}),
        json!({"affinity": {"podAntiAffinity": {}}}),
        required(json!([{"matchExpressions": [zone]}])),
        required(json!([{"matchFields": [name]}, {"matchExpressions": [zone]}])),
        required(json!([{}, {"matchExpressions": []}, {"matchExpressions": [zone]}])),
    ];
    for require in ["affinity", "nodeSelector"] {
        let (_tolerarch, namespace) = start(
            cluster,
            json!({"require": require, "prefer": [{"platform": "linux/amd64", "weight": 1}], "podLabels": ["team"]}),
        )
        .await;
        for spec in &specs {
            let mut submitted = pod(&[&cluster.images.tag("amd64")]);
            submitted["metadata"]["labels"]["team"] = json!("blue");
            let members = submitted["spec"].as_object_mut().unwrap();
            members.extend(spec.as_object().unwrap().clone());
            let stored = namespace
                .dry_run(&submitted)
                .await
                .unwrap_or_else(|error| panic!("{error}: {submitted}"));
            let annotations = stored.metadata.annotations.unwrap_or_default();
            let required = annotations.get("tolerarch.io/required");
            assert_eq!(
                required.map(String::as_str),
                Some("amd64,team=blue"),
                "{submitted}"
            );
            let stored = serde_json::to_string(&stored.spec).unwrap();
            for (key, value) in spec.as_object().unwrap() {
                let constrains = value.to_string().contains("zone");
                assert!(!constrains || stored.contains("zone"), "{key}: {stored}");
            }
        }
    }
}
