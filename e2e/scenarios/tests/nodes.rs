//! Real nodes: kubelets pull the images, containers run or fail, nodes are drained.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use scenarios::{Cluster, Kind, Namespace, PodExt, deployment, pod, until};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::creations::{Creation, PATIENCE, Times, failures, tolerated, unchanged};

/// Pods a second.
const RATE: u32 = 10;
/// For one Pod of so many, tolerarch is not called.
const UNSEEN: usize = 5;
/// The maximum duration of a creation, beyond what it takes without tolerarch: far more than it takes even on a busy
/// machine, where replicas and nodes are down for minutes.
pub(crate) const LONGEST: Duration = Duration::from_secs(20);
/// The timeout in the webhook configuration.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);
/// How many Pods may stay unchanged because they were sent to a replica that had ended. On an idle machine it is one or
/// two; if every call went there, it would be some hundred.
pub(crate) const HELD_UP: usize = 50;
/// The namespace and the name of the installation.
pub(crate) const TOLERARCH: &str = "tolerarch";
pub(crate) const ROLLED_OUT: [&str; 6] = [
    "--namespace",
    TOLERARCH,
    "rollout",
    "status",
    "deployment/tolerarch",
    "--timeout=240s",
];

pub(crate) async fn pods_run_only_where_their_images_run(cluster: &Cluster) {
    let namespace = cluster.namespace("run").await;
    let deploy = async |name: &str, image: &str, node: &str| {
        let mut pod = pod(&[&cluster.images.program(image)]);
        pod["spec"]["nodeSelector"] = json!({"e2e.tolerarch.io/node": node});
        namespace.apply(&deployment(name, 2, &pod)).await;
    };
    deploy("in-pool", "multi", "multi-arch").await;
    deploy("on-plain", "amd64", "plain").await;
    deploy("kept-out", "amd64", "multi-arch").await;
    let pods = namespace.until_pods("in-pool", 2, runs).await;
    for pod in &pods {
        assert!(namespace.is_in_pool(pod), "{pod:?}");
        assert_eq!(pod.pools(), Some("multi-arch"));
    }
    let pods = namespace.until_pods("on-plain", 2, runs).await;
    for pod in &pods {
        assert!(namespace.is_on_plain_node(pod), "{pod:?}");
        assert!(!pod.tolerates_pool(), "{pod:?}");
    }
    namespace
        .until_pods("kept-out", 2, PodExt::is_unschedulable)
        .await;
}

/// A program of another architecture, and an index without the node's, as today's containerd and runc report them.
pub(crate) async fn events_name_containers_that_fail_on_a_wrong_node(cluster: &Cluster) {
    let namespace = cluster.namespace("wrong").await;
    for image in ["lies", "arm64"] {
        let mut pod = pod(&[&cluster.images.program(image)]);
        pod["metadata"] = json!({"name": image, "labels": {"app": image}});
        pod["spec"]["nodeSelector"] = json!({"e2e.tolerarch.io/node": "plain"});
        // Without this the status has only the exit code, and the controller would need the right to read logs.
        pod["spec"]["containers"][0]["terminationMessagePolicy"] = "FallbackToLogsOnError".into();
        namespace.apply(&pod).await;
    }
    for image in ["lies", "arm64"] {
        let note = until_event(&namespace, image, "WrongArchitecture").await;
        assert!(note.contains(&cluster.images.program(image)), "{note}");
    }
    let lies = namespace
        .until_pods("lies", 1, |pod| container(pod).is_some_and(has_failed))
        .await;
    let status = container(&lies[0]).expect("a status");
    let state = status.last_state.as_ref().or(status.state.as_ref());
    let ended = state.and_then(|state| state.terminated.as_ref());
    let exit_code = ended.map(|ended| ended.exit_code);
    println!("nodes: a program of another architecture ends with {exit_code:?}");
}

/// The same secret gives both access to the registry. Without it, and with a wrong one, neither has access.
pub(crate) async fn pull_secrets_work_for_kubelet_and_webhook_alike(cluster: &Cluster) {
    let kind = cluster.kind();
    let namespace = cluster.namespace("secrets").await;
    let rights = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../manifests/pull-secrets/rights"
    );
    kind.kubectl(&[
        "apply",
        "--namespace",
        &namespace.name,
        "--kustomize",
        rights,
    ])
    .await;
    let mut account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "puller"}});
    account["imagePullSecrets"] = json!([{"name": "right"}]);
    namespace.apply(&account).await;
    for (name, password) in [("right", Kind::PASSWORD), ("wrong", "guessed")] {
        let auths = json!({"auths": {&kind.private_registry: {"username": Kind::USER, "password": password}}});
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "type": "kubernetes.io/dockerconfigjson",
            "stringData": {".dockerconfigjson": auths.to_string()},
        });
        namespace.apply(&secret).await;
    }
    let image = kind.private.program("multi");
    let with = |change: Value| {
        let mut pod = pod(&[&image]);
        pod["spec"]["nodeSelector"] = json!({"e2e.tolerarch.io/node": "multi-arch"});
        for (key, value) in change.as_object().expect("fields of a spec") {
            pod["spec"][key] = value.clone();
        }
        pod
    };
    let secret = |name: &str| json!({"imagePullSecrets": [{"name": name}]});
    namespace
        .apply(&deployment("secret", 1, &with(secret("right"))))
        .await;
    namespace
        .apply(&deployment(
            "account",
            1,
            &with(json!({"serviceAccountName": "puller"})),
        ))
        .await;
    for name in ["secret", "account"] {
        let pods = namespace.until_pods(name, 1, runs).await;
        for pod in &pods {
            assert!(pod.tolerates_pool() && namespace.is_in_pool(pod), "{name}");
        }
    }
    for (name, change) in [("wrong", secret("wrong")), ("none", json!({}))] {
        let mut pod = with(change);
        // On a node to which the Pod can be scheduled, so that the kubelet tries to pull.
        pod["spec"]["nodeSelector"] = json!({"e2e.tolerarch.io/node": "plain"});
        namespace.apply(&deployment(name, 1, &pod)).await;
        let pods = namespace
            .until_pods(name, 1, |pod| container(pod).is_some_and(is_not_pulled))
            .await;
        assert!(pods.iter().all(|pod| !pod.tolerates_pool()), "{name}");
    }
}

pub(crate) async fn doctor_finds_no_fault(cluster: &Cluster) {
    let output = cluster
        .kind()
        .tolerarch(&["doctor", "--output", "json"])
        .await;
    let report = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{report}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The nodes have no zone labels, as on bare metal.
pub(crate) async fn rollout_spreads_the_replicas_without_warnings(cluster: &Cluster) {
    let mut warnings = Vec::new();
    // On a busy machine, a start that takes a second would cause a warning.
    for _ in 0..3 {
        roll_out(cluster).await;
        let replicas = replicas(cluster).await;
        let nodes: HashSet<_> = replicas
            .iter()
            .map(|pod| pod.node().expect("a node"))
            .collect();
        assert_eq!((replicas.len(), nodes.len()), (2, 2), "{nodes:?}");
        warnings = warnings_of(cluster, &replicas).await;
        if warnings.is_empty() {
            return;
        }
        println!("nodes: a rollout left {warnings:?}");
    }
    panic!("{warnings:#?}");
}

async fn warnings_of(cluster: &Cluster, pods: &[Pod]) -> Vec<Event> {
    let events: Api<Event> = Api::namespaced(cluster.client.clone(), TOLERARCH);
    let mut warnings = events
        .list(&ListParams::default().fields("type=Warning"))
        .await
        .unwrap()
        .items;
    warnings.retain(|event| {
        let object = event.regarding.as_ref();
        let uid = object.and_then(|object| object.uid.as_ref());
        pods.iter().any(|pod| pod.metadata.uid.as_ref() == uid)
    });
    warnings
}

pub(crate) async fn pods_are_created_while_replicas_and_nodes_are_replaced(cluster: &Cluster) {
    let (creations, longest) = create_during(cluster, replace(cluster)).await;
    assert_eq!(unchanged(&creations, longest, PATIENCE), 0);
    assert!(Times::of(&creations).percentile(100) < LONGEST + longest);
}

/// Rolls the Deployment out, and then drains each node on which a replica may run.
async fn replace(cluster: &Cluster) {
    let kubectl = async |arguments: &[&str]| drop(cluster.kind().kubectl(arguments).await);
    roll_out(cluster).await;
    let flags = [
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--force",
        "--timeout=240s",
    ];
    for node in cluster.node_names() {
        kubectl(&[&["drain", node], &flags[..]].concat()).await;
        kubectl(&ROLLED_OUT).await;
        kubectl(&["uncordon", node]).await;
    }
}

/// The node's replica and the API server's connections to it end without notice.
pub(crate) async fn dead_node_delays_few_pods_and_fails_none(cluster: &Cluster) {
    roll_out(cluster).await;
    let [_, node] = cluster.node_names();
    assert!(
        replicas(cluster)
            .await
            .iter()
            .any(|replica| replica.node() == Some(node)),
        "none on {node}"
    );
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let until_ready = async |wanted: bool| {
        until(&format!("{node} is ready: {wanted}"), async || {
            let conditions = nodes.get(node).await.ok()?.status?.conditions?;
            let ready = conditions
                .iter()
                .find(|condition| condition.type_ == "Ready")?;
            ((ready.status == "True") == wanted).then_some(())
        })
        .await;
    };
    let restart = async {
        cluster.kind().docker(&["kill", node]).await;
        until_ready(false).await;
        cluster.kind().docker(&["start", node]).await;
        until_ready(true).await;
    };
    let (creations, longest) = create_during(cluster, restart).await;
    let unchanged = unchanged(&creations, longest, PATIENCE);
    assert!(unchanged <= HELD_UP, "{unchanged}");
    assert!(Times::of(&creations).percentile(100) < TIMEOUT + LONGEST + longest);
    cluster.kind().kubectl(&ROLLED_OUT).await;
}

/// Calls [`create_at_rate_during`] with [`RATE`].
pub(crate) async fn create_during(
    cluster: &Cluster,
    event: impl Future<Output = ()>,
) -> (Vec<Creation>, Duration) {
    create_at_rate_during(cluster, RATE, event).await
}

/// Creates Pods at a rate until `event` is over, and some for which tolerarch is not called, which show how slow the
/// cluster is. Asserts that no creation fails. Returns the creations with tolerarch, and the longest duration without it.
pub(crate) async fn create_at_rate_during(
    cluster: &Cluster,
    rate: u32,
    event: impl Future<Output = ()>,
) -> (Vec<Creation>, Duration) {
    let namespace = cluster.namespace("creations").await;
    let opted_out = cluster.namespace_opted_out("unseen").await;
    cluster.until_called(&namespace).await;
    let pod = pod(&[&cluster.images.tag("multi")]);
    let mut times = interval(Duration::from_secs(1) / rate);
    times.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut creations = Vec::new();
    let mut unseen = Vec::new();
    let mut event = std::pin::pin!(event);
    loop {
        tokio::select! {
            () = &mut event => break,
            _ = times.tick() => creations.push(Creation::begin(&namespace, pod.clone())),
        }
        if creations.len().is_multiple_of(UNSEEN) {
            unseen.push(Creation::begin(&opted_out, pod.clone()));
        }
    }
    let until_done = async |creations| -> Vec<Creation> {
        let results = join_all(creations).await;
        results.into_iter().map(Result::unwrap).collect()
    };
    let creations = until_done(creations).await;
    let unseen = until_done(unseen).await;
    let with = Times::of(&creations);
    let without = Times::of(&unseen);
    println!(
        "nodes: {} creations, {} tolerated, {with}; without tolerarch {without}",
        creations.len(),
        tolerated(&creations)
    );
    let failures = [failures(&creations), failures(&unseen)].concat();
    assert!(failures.is_empty(), "{failures:?}");
    (creations, without.percentile(100))
}

pub(crate) async fn roll_out(cluster: &Cluster) {
    let restart = [
        "--namespace",
        TOLERARCH,
        "rollout",
        "restart",
        "deployment/tolerarch",
    ];
    for step in [&restart[..], &ROLLED_OUT] {
        cluster.kind().kubectl(step).await;
    }
}

/// Returns the webhook's Pods that are neither being deleted nor failed.
pub(crate) async fn replicas(cluster: &Cluster) -> Vec<Pod> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), TOLERARCH);
    let webhook = ListParams::default().labels("app.kubernetes.io/component=webhook");
    // An evicted Pod stays until somebody deletes it.
    let has_failed = |pod: &Pod| {
        let status = pod.status.as_ref();
        status.is_some_and(|status| status.phase.as_deref() == Some("Failed"))
    };
    let mut replicas = pods.list(&webhook).await.unwrap().items;
    replicas.retain(|pod| pod.metadata.deletion_timestamp.is_none() && !has_failed(pod));
    replicas
}

/// Waits for an event of tolerarch about a Pod. Returns its text.
async fn until_event(namespace: &Namespace, pod: &str, reason: &str) -> String {
    let events: Api<Event> = namespace.api();
    let is_wanted = |event: &Event| {
        let object = event.regarding.as_ref();
        let name = object.and_then(|object| object.name.as_deref());
        event.reason.as_deref() == Some(reason) && name == Some(pod)
    };
    until(&format!("{reason} of {pod}"), async || {
        let events = events.list(&ListParams::default()).await.ok()?;
        events.items.into_iter().find(is_wanted)?.note
    })
    .await
}

pub(crate) fn container(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()
}

pub(crate) fn runs(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && container(pod).is_some_and(|status| status.ready)
}

fn has_failed(status: &ContainerStatus) -> bool {
    for state in [&status.state, &status.last_state].into_iter().flatten() {
        if let Some(ended) = &state.terminated
            && ended.exit_code != 0
        {
            return true;
        }
    }
    false
}

pub(crate) fn is_not_pulled(status: &ContainerStatus) -> bool {
    let waiting = status
        .state
        .as_ref()
        .and_then(|state| state.waiting.as_ref());
    let reason = waiting.and_then(|waiting| waiting.reason.as_deref());
    matches!(reason, Some("ErrImagePull" | "ImagePullBackOff"))
}
