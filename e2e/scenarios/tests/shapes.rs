//! Pods of every shape: the API server accepts with tolerarch what it accepts without it.

use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_openapi::api::core::v1::{Pod, PodSpec, Toleration};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use scenarios::{Cluster, Namespace, PodExt, pod, until};
use serde_json::{Value, json};

const SHAPES: usize = 300;

pub(crate) async fn dry_run_equals_the_stored_pod(cluster: &Cluster) {
    let namespace = cluster.namespace("dry-run").await;
    let pod = pod(&[&cluster.images.tag("multi")]);
    let previewed = namespace.dry_run(&pod).await.unwrap();
    let stored = namespace.pod(&pod).await;
    assert!(previewed.tolerates_pool());
    assert_eq!(
        previewed.spec.unwrap().tolerations,
        stored.spec.unwrap().tolerations
    );
}

pub(crate) async fn repeated_server_side_apply_changes_nothing(cluster: &Cluster) {
    let namespace = cluster.namespace("apply").await;
    let mut pod = pod(&[&cluster.images.tag("multi")]);
    pod["metadata"] = json!({"name": "web", "labels": {"app": "web"}});
    let apply = async || {
        let patch = Patch::Apply(&pod);
        namespace
            .pods()
            .patch("web", &PatchParams::apply("user"), &patch)
            .await
            .unwrap()
    };
    let first = apply().await;
    assert!(first.tolerates_pool());
    // The second request neither conflicts with what tolerarch added nor removes it.
    let second = apply().await;
    assert_eq!(
        first.spec.unwrap().tolerations,
        second.spec.unwrap().tolerations
    );
    assert_eq!(first.metadata.generation, second.metadata.generation);
}

pub(crate) async fn webhook_causes_no_rejection_of_generated_pods(cluster: &Cluster) {
    let with = cluster.namespace("shapes").await;
    let without = cluster.namespace_opted_out("shapes").await;
    let images =
        ["multi", "sidecar", "amd64", "arm64", "single"].map(|tag| cluster.images.tag(tag));
    // The same shapes in each run, so that a failure can be reproduced.
    let mut runner = TestRunner::deterministic();
    let shapes = any_pod(images.to_vec());
    let mut accepted = 0;
    let mut eligible = 0;
    for _ in 0..SHAPES {
        let mut pod = shapes.new_tree(&mut runner).unwrap().current();
        // The token's volume would have a different name in each Pod.
        pod["spec"]["automountServiceAccountToken"] = false.into();
        // No scheduler is to choose a node.
        pod["spec"]["schedulerName"] = "none".into();
        let expected = without.try_pod(&pod).await;
        let actual = with.try_pod(&pod).await;
        match (&expected, &actual) {
            (Ok(expected), Ok(actual)) => {
                assert_eq!(
                    without_pool_toleration(actual),
                    without_pool_toleration(expected),
                    "{pod}"
                );
                accepted += 1;
                eligible += usize::from(actual.pools().is_some());
            }
            (Err(_), Err(_)) => {}
            _ => panic!("without: {expected:?}\nwith: {actual:?}\n{pod}"),
        }
    }
    // Enough shapes were accepted and eligible.
    assert!(
        accepted > SHAPES / 2 && eligible > SHAPES / 20,
        "{accepted} accepted, {eligible} eligible"
    );
}

/// An annotation that is removed from large Pods before they are deleted.
const BALLAST: &str = "e2e/ballast";

/// The names of the namespaces are stored with the Pods, so both have the same length.
pub(crate) async fn webhook_causes_no_rejection_of_the_largest_pods(cluster: &Cluster) {
    let with = cluster.namespace("size").await;
    let without = cluster.namespace_opted_out("size").await;
    let image = cluster.images.tag("multi");
    let tries = AtomicUsize::new(0);
    // With more than 90,000 entries of one letter, the request exceeds 3 MiB before etcd's limit is reached.
    for (name, value, count) in [
        ("A", "", 85_000),
        ("NAME", "some <text>", 40_000),
        ("A", "v", 1),
    ] {
        let of_size = |filling: usize| {
            let mut pod = pod(&[&image]);
            let number = tries.fetch_add(1, Ordering::Relaxed);
            pod["metadata"]["name"] = format!("large-{number:04}").into();
            pod["metadata"]["annotations"] = json!({BALLAST: "x".repeat(2 << 10)});
            pod["spec"]["automountServiceAccountToken"] = false.into();
            pod["spec"]["schedulerName"] = "none".into();
            let entry = json!({"name": name, "value": value});
            pod["spec"]["containers"][0]["env"] = vec![entry; count].into();
            pod["spec"]["containers"][0]["args"] = json!(["x".repeat(filling)]);
            pod
        };
        let stores = async |namespace: &Namespace, filling: usize| {
            let stored = namespace.try_pod(&of_size(filling)).await;
            if let Ok(pod) = &stored {
                // A deletion begins with an update, which would be too large for the largest Pods.
                let lighter = Patch::Merge(json!({"metadata": {"annotations": {BALLAST: null}}}));
                namespace
                    .pods()
                    .patch(&pod.name_any(), &PatchParams::default(), &lighter)
                    .await
                    .unwrap();
                // The API server uses the Pod of its cache, which may still have the annotation.
                until("the lighter Pod is deleted", async || {
                    let now = DeleteParams::default().grace_period(0);
                    namespace.pods().delete(&pod.name_any(), &now).await.ok()
                })
                .await;
            }
            stored
        };
        // Finds the largest Pod that is stored without tolerarch.
        let mut fits = 0;
        let mut exceeds = 3 << 19;
        while exceeds - fits > 8 {
            let middle = usize::midpoint(fits, exceeds);
            if stores(&without, middle).await.is_ok() {
                fits = middle;
            } else {
                exceeds = middle;
            }
        }
        assert!(fits > 0, "{count} entries are too large by themselves");
        for less in [0, 8, 50, 100, 150, 200, 250, 300] {
            let stored = stores(&with, fits - less).await;
            assert!(
                stored.is_ok(),
                "{less} bytes below the limit, {count} entries: {stored:?}"
            );
        }
        let far_below = stores(&with, fits.saturating_sub(1 << 20)).await.unwrap();
        // Many small entries count with a multiple of their size.
        assert_eq!(far_below.pools().is_some(), count == 1, "{count} entries");
    }
}

/// Returns the spec without the toleration that tolerarch may add.
fn without_pool_toleration(pod: &Pod) -> PodSpec {
    let mut spec = pod.spec.clone().unwrap();
    let added: Toleration = serde_json::from_value(
        json!({"key": scenarios::POOL, "operator": "Exists", "effect": "NoSchedule"}),
    )
    .unwrap();
    spec.tolerations
        .get_or_insert_default()
        .retain(|toleration| *toleration != added);
    spec
}

fn any_pod(images: Vec<String>) -> impl Strategy<Value = Value> {
    let image = prop_oneof![
        8 => prop::sample::select(images),
        1 => prop::sample::select(vec![String::new(), " ".into(), "UPPER/case".into(), "example.invalid/a@sha256:12".into()]),
    ]
    .boxed();
    let containers = prop::collection::vec(image.clone(), 1..4);
    let init = prop::collection::vec((image.clone(), any::<bool>()), 0..3);
    let volumes = prop::collection::vec(image, 0..2);
    let tolerations =
        sometimes(prop::collection::vec(any_toleration(), 0..4).prop_map(Value::from));
    (
        containers,
        init,
        volumes,
        tolerations,
        any_annotations(),
        any_rest(),
    )
        .prop_map(
            |(containers, init, volumes, tolerations, annotations, rest)| {
                let mut pod = pod(&containers.iter().map(String::as_str).collect::<Vec<_>>());
                for (index, (image, is_sidecar)) in init.into_iter().enumerate() {
                    let mut container = json!({"name": format!("i{index}"), "image": image});
                    if is_sidecar {
                        container["restartPolicy"] = "Always".into();
                    }
                    scenarios::add_container(&mut pod, "initContainers", container);
                }
                for (index, image) in volumes.into_iter().enumerate() {
                    let volume =
                        json!({"name": format!("v{index}"), "image": {"reference": image}});
                    scenarios::add_container(&mut pod, "volumes", volume);
                }
                if let Some(tolerations) = tolerations {
                    pod["spec"]["tolerations"] = tolerations;
                }
                if let Some(annotations) = annotations {
                    pod["metadata"]["annotations"] = annotations;
                }
                for (key, value) in rest.as_object().unwrap() {
                    pod["spec"][key] = value.clone();
                }
                pod
            },
        )
}

/// Absent, null, or a value.
fn sometimes(
    value: impl Strategy<Value = Value> + 'static,
) -> impl Strategy<Value = Option<Value>> {
    prop_oneof![1 => Just(None), 1 => Just(Some(Value::Null)), 6 => value.prop_map(Some)]
}

fn any_toleration() -> impl Strategy<Value = Value> {
    let usual = prop::sample::select(vec![
        json!({"operator": "Exists"}),
        json!({"key": scenarios::POOL, "operator": "Exists", "effect": "NoSchedule"}),
        json!({"key": scenarios::POOL, "operator": "Equal", "value": "true", "effect": "NoSchedule"}),
        json!({"key": scenarios::POOL, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}),
        json!({"key": scenarios::POOL, "value": "true"}),
        json!({"key": "kubernetes.io/arch", "value": "arm64", "effect": "NoSchedule"}),
        json!({"key": "example.com/a", "operator": "Exists", "effect": "PreferNoSchedule"}),
        json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}),
    ]);
    // Most of these are rejected by the API server.
    let part = |values: &'static [&'static str]| prop::option::of(prop::sample::select(values));
    let built = (
        part(&["", "a", scenarios::POOL]),
        part(&["", "Exists", "Equal", "Lt"]),
        part(&["", "true"]),
        part(&["", "NoSchedule", "NoExecute", "Future"]),
        prop::option::of(0..100),
    );
    let built = built.prop_map(|(key, operator, value, effect, seconds)| {
        json!({"key": key, "operator": operator, "value": value, "effect": effect, "tolerationSeconds": seconds})
    });
    prop_oneof![9 => usual, 1 => built]
}

fn any_annotations() -> impl Strategy<Value = Option<Value>> {
    let value = prop::sample::select(
        &[
            "",
            "multi-arch",
            "old, multi-arch",
            "a\"b\\c/d~e",
            "é\u{1f600}",
        ][..],
    );
    let key = prop::sample::select(&["tolerarch.io/pools", "example.com/note", "a", "x~y/z"][..]);
    sometimes(prop::collection::hash_map(key, value, 0..3).prop_map(|map| json!(map)))
}

fn any_rest() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!({}),
        json!({}),
        json!({"hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"}),
        json!({"nodeSelector": {"kubernetes.io/arch": "amd64"}}),
        json!({"nodeSelector": {"kubernetes.io/arch": "arm64"}}),
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]}]}}}}),
        json!({"os": {"name": "linux"}, "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}}}),
        json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway", "nodeTaintsPolicy": "Honor"}]}),
        json!({"restartPolicy": "Never", "activeDeadlineSeconds": 60, "imagePullSecrets": [{"name": "absent"}]}),
        json!({"schedulingGates": [{"name": "example.com/wait"}]}),
        json!({"hostUsers": false, "enableServiceLinks": false, "shareProcessNamespace": true}),
        json!({"readinessGates": [{"conditionType": "example.com/ready"}], "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}]}),
    ])
}
