//! On real nodes: kubelets pull the images, containers run or die, nodes are drained.

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

/// Pods in a second.
const RATE: u32 = 10;
/// One of so many is not seen by tolerarch.
const UNSEEN: usize = 5;
/// The longest that one creation may take, beyond what it takes without tolerarch: far more than it does on a busy machine, where
/// replicas and nodes are away for minutes.
pub(crate) const LONGEST: Duration = Duration::from_secs(20);
/// What the webhook configuration gives a call.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);
/// Pods that may stay unchanged as they were sent to a replica that is no more: one or two where the machine is not busy, and all of
/// some hundred where each call were sent there.
pub(crate) const HELD_UP: usize = 50;
/// Where it is installed.
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
    let run = async |name: &str, image: &str, node: &str| {
        let mut pod = pod(&[&cluster.images.program(image)]);
        pod["spec"]["nodeSelector"] = json!({"e2e.tolerarch.io/node": node});
        namespace.apply(&deployment(name, 2, &pod)).await;
    };
    run("in-pool", "multi", "multi-arch").await;
    run("on-plain", "amd64", "plain").await;
    run("kept-out", "amd64", "multi-arch").await;
    let pods = namespace.until_pods("in-pool", 2, runs).await;
    assert!(
        pods.iter()
            .all(|pod| namespace.is_in_pool(pod) && pod.pools() == Some("multi-arch"))
    );
    let pods = namespace.until_pods("on-plain", 2, runs).await;
    assert!(
        pods.iter()
            .all(|pod| namespace.is_on_plain_node(pod) && !pod.tolerates_pool())
    );
    namespace
        .until_pods("kept-out", 2, PodExt::is_unschedulable)
        .await;
}

/// As containerd and runc tell it today: a program of another architecture, and an index without the node's.
pub(crate) async fn events_name_containers_that_fail_on_a_wrong_node(cluster: &Cluster) {
    let namespace = cluster.namespace("wrong").await;
    for image in ["lies", "arm64"] {
        let mut pod = pod(&[&cluster.images.program(image)]);
        pod["metadata"] = json!({"name": image, "labels": {"app": image}});
        pod["spec"]["nodeSelector"] = json!({"e2e.tolerarch.io/node": "plain"});
        // Without this the status has the exit code alone, and the controller would need the right to read logs.
        pod["spec"]["containers"][0]["terminationMessagePolicy"] = "FallbackToLogsOnError".into();
        namespace.apply(&pod).await;
    }
    for image in ["lies", "arm64"] {
        let note = event(&namespace, image, "WrongArchitecture").await;
        assert!(note.contains(&cluster.images.program(image)), "{note}");
    }
    let lies = namespace
        .until_pods("lies", 1, |pod| container(pod).is_some_and(has_died))
        .await;
    let exit = container(&lies[0]).and_then(|status| {
        let ended = status
            .last_state
            .as_ref()
            .or(status.state.as_ref())?
            .terminated
            .as_ref()?;
        Some(ended.exit_code)
    });
    println!("nodes: a program of another architecture ends with {exit:?}");
}

/// The same secret opens the registry to both; without it, and with a wrong one, neither gets in.
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
        assert!(
            pods.iter()
                .all(|pod| pod.tolerates_pool() && namespace.is_in_pool(pod)),
            "{name}"
        );
    }
    for (name, change) in [("wrong", secret("wrong")), ("none", json!({}))] {
        let mut pod = with(change);
        // Where the kubelet can try it, too.
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

/// Nodes here have no label of a zone, as with kind and on bare metal.
pub(crate) async fn rollout_spreads_the_replicas_without_warnings(cluster: &Cluster) {
    let mut warnings = Vec::new();
    // A start that takes a second, on a machine that is busy with something else, would leave one.
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
        let uid = event
            .regarding
            .as_ref()
            .and_then(|regarding| regarding.uid.as_ref());
        pods.iter().any(|pod| pod.metadata.uid.as_ref() == uid)
    });
    warnings
}

pub(crate) async fn pods_are_created_while_replicas_and_nodes_are_replaced(cluster: &Cluster) {
    let (creations, longest) = create_during(cluster, replace(cluster)).await;
    assert_eq!(unchanged(&creations, longest, PATIENCE), 0);
    assert!(Times::of(&creations).percentile(100) < LONGEST + longest);
}

/// A rollout, and then each node on which a replica may run is emptied.
async fn replace(cluster: &Cluster) {
    let kubectl = async |arguments: &[&str]| drop(cluster.kind().kubectl(arguments).await);
    roll_out(cluster).await;
    let ways = [
        "--ignore-daemonsets",
        "--delete-emptydir-data",
        "--force",
        "--timeout=240s",
    ];
    for node in cluster.node_names() {
        kubectl(&[&["drain", node], &ways[..]].concat()).await;
        kubectl(&ROLLED_OUT).await;
        kubectl(&["uncordon", node]).await;
    }
}

/// Its replica, and what the API server has open to it, are gone without a word.
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
    let ready = async |wanted: bool| {
        until(&format!("{node} is ready: {wanted}"), async || {
            let conditions = nodes.get(node).await.ok()?.status?.conditions?;
            let ready = conditions
                .iter()
                .find(|condition| condition.type_ == "Ready")?;
            ((ready.status == "True") == wanted).then_some(())
        })
        .await;
    };
    let dies = async {
        cluster.kind().docker(&["kill", node]).await;
        ready(false).await;
        cluster.kind().docker(&["start", node]).await;
        ready(true).await;
    };
    let (creations, longest) = create_during(cluster, dies).await;
    let unchanged = unchanged(&creations, longest, PATIENCE);
    assert!(unchanged <= HELD_UP, "{unchanged}");
    assert!(Times::of(&creations).percentile(100) < TIMEOUT + LONGEST + longest);
    cluster.kind().kubectl(&ROLLED_OUT).await;
}

/// Creates [`RATE`] Pods a second, see [`create_so_many_during`].
pub(crate) async fn create_during(
    cluster: &Cluster,
    event: impl Future<Output = ()>,
) -> (Vec<Creation>, Duration) {
    create_so_many_during(cluster, RATE, event).await
}

/// Creates so many Pods a second all the time, and some that tolerarch does not see; they show how slow the cluster itself is. None may
/// fail. Gives what became of the former, and how long the slowest of the latter took.
pub(crate) async fn create_so_many_during(
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
    let done = async |creations| -> Vec<Creation> {
        join_all(creations)
            .await
            .into_iter()
            .map(Result::unwrap)
            .collect()
    };
    let creations = done(creations).await;
    let unseen = done(unseen).await;
    let taken = Times::of(&creations);
    let without = Times::of(&unseen);
    println!(
        "nodes: {} creations, {} tolerated, {taken}; without tolerarch {without}",
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

/// The Pods of the webhook that are there to stay.
pub(crate) async fn replicas(cluster: &Cluster) -> Vec<Pod> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), TOLERARCH);
    let webhook = ListParams::default().labels("app.kubernetes.io/component=webhook");
    // A Pod that a node has evicted stays behind until somebody deletes it.
    let ends = |pod: &Pod| {
        pod.metadata.deletion_timestamp.is_some()
            || pod
                .status
                .as_ref()
                .is_some_and(|status| status.phase.as_deref() == Some("Failed"))
    };
    pods.list(&webhook)
        .await
        .unwrap()
        .items
        .into_iter()
        .filter(|pod| !ends(pod))
        .collect()
}

/// Waits for an event of tolerarch about a Pod. Gives its text.
async fn event(namespace: &Namespace, pod: &str, reason: &str) -> String {
    let events: Api<Event> = namespace.api();
    let is_it = |event: &Event| {
        event.reason.as_deref() == Some(reason)
            && event
                .regarding
                .as_ref()
                .and_then(|regarding| regarding.name.as_deref())
                == Some(pod)
    };
    until(&format!("{reason} of {pod}"), async || {
        let events = events.list(&ListParams::default()).await.ok()?;
        events.items.into_iter().find(is_it)?.note
    })
    .await
}

pub(crate) fn container(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()
}

pub(crate) fn runs(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && container(pod).is_some_and(|status| status.ready)
}

fn has_died(status: &ContainerStatus) -> bool {
    [&status.state, &status.last_state]
        .into_iter()
        .flatten()
        .any(|state| {
            state
                .terminated
                .as_ref()
                .is_some_and(|ended| ended.exit_code != 0)
        })
}

pub(crate) fn is_not_pulled(status: &ContainerStatus) -> bool {
    let waiting = status
        .state
        .as_ref()
        .and_then(|state| state.waiting.as_ref());
    let reason = waiting.and_then(|waiting| waiting.reason.as_deref());
    matches!(reason, Some("ErrImagePull" | "ImagePullBackOff"))
}
