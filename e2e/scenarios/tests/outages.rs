//! Real nodes on which replicas hang, run out of memory, or have a full disk.

use std::time::Duration;

use futures_util::future::join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams};
use scenarios::{Cluster, PodExt, until, until_in};
use serde_json::json;
use tokio::time::Instant;

use crate::creations::{PATIENCE, Times, unchanged};
use crate::nodes::{
    HELD_UP, LONGEST, ROLLED_OUT, TIMEOUT, TOLERARCH, container, create_during, replicas, roll_out,
    runs,
};

/// A shorter timeout for a webhook configuration, with which tolerarch looks up images for at most a second.
const SHORTER: Duration = Duration::from_secs(2);
/// Half of the shipped memory limit.
const HALF: &str = "256Mi";
/// The shipped memory limit.
const SHIPPED: &str = "512Mi";
/// How long to wait for a kubelet: it syncs a Pod every 60 to 90 s, and evicts one Pod every ten seconds if a disk is full.
const SYNC: Duration = Duration::from_secs(600);
/// So many creations probably reach all replicas.
const REPLIES: usize = 20;

/// A replica's process is stopped: its connections stay open, and nothing answers. The API server waits once for each of
/// its connections, as long as the configuration says. Both replicas hang in turn, as one may have no connections.
pub(crate) async fn hanging_replica_delays_few_pods_and_fails_none(cluster: &Cluster) {
    roll_out(cluster).await;
    for (node, timeout) in cluster.node_names().into_iter().zip([SHORTER, TIMEOUT]) {
        set_timeout(cluster, timeout).await;
        let (creations, longest) = create_during(cluster, hang(cluster, node)).await;
        let unchanged = unchanged(&creations, longest, timeout.min(PATIENCE));
        assert!(unchanged <= HELD_UP, "{unchanged}");
        assert!(Times::of(&creations).percentile(100) < timeout + LONGEST + longest);
    }
}

async fn set_timeout(cluster: &Cluster, timeout: Duration) {
    let patch = json!([{"op": "replace", "path": "/webhooks/0/timeoutSeconds", "value": timeout.as_secs()}]);
    let configuration = "mutatingwebhookconfiguration/zz-tolerarch";
    cluster
        .kind()
        .kubectl(&[
            "patch",
            configuration,
            "--type=json",
            "--patch",
            &patch.to_string(),
        ])
        .await;
}

/// Stops the replica on a node until it is not ready, and then continues it.
async fn hang(cluster: &Cluster, node: &str) {
    let signal = async |name: &str| {
        cluster
            .kind()
            .docker(&["exec", node, "pkill", name, "-f", "tolerarch serve"])
            .await;
    };
    let until_ready = async |wanted: usize| {
        until(
            &format!("{wanted} replicas are ready with the one on {node}"),
            async || {
                let mut ready = replicas(cluster).await;
                ready.retain(runs);
                (ready.len() == wanted).then_some(())
            },
        )
        .await;
    };
    let begun = Instant::now();
    signal("-STOP").await;
    until_ready(1).await;
    println!(
        "outages: the replica on {node} is not ready after {:.1?}",
        begun.elapsed()
    );
    signal("-CONT").await;
    until_ready(2).await;
}

/// A process in the cgroup of each replica takes the remaining memory, and the kernel kills the replica first, then the
/// process.
pub(crate) async fn pods_are_created_while_replicas_run_out_of_memory(cluster: &Cluster) {
    limit(cluster, HALF).await;
    let replicas_before = replicas(cluster).await;
    let killed = async {
        join_all(replicas_before.iter().map(|pod| exhaust(cluster, pod))).await;
        until("both were killed and run again", async || {
            let replicas = replicas(cluster).await;
            let runs_again = |pod: &Pod| runs(pod) && was_killed(pod);
            (replicas.len() == 2 && replicas.iter().all(runs_again)).then_some(())
        })
        .await;
    };
    let (creations, longest) = create_during(cluster, killed).await;
    assert!(Times::of(&creations).percentile(100) < LONGEST + longest);
    limit(cluster, SHIPPED).await;
}

async fn limit(cluster: &Cluster, memory: &str) {
    let limit = format!("--limits=memory={memory}");
    let set = [
        "--namespace",
        TOLERARCH,
        "set",
        "resources",
        "deployment/tolerarch",
        &limit,
    ];
    for step in [&set[..], &ROLLED_OUT] {
        cluster.kind().kubectl(step).await;
    }
}

/// Takes memory in the cgroup of a replica until the process is killed, too. Raises `oom_score_adj` of the replica, so
/// that the kernel kills it first: otherwise their sizes and the runtime's setting would decide. Raising it needs no
/// capability.
async fn exhaust(cluster: &Cluster, replica: &Pod) {
    let status = replica
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref()?.first());
    let id = status
        .and_then(|status| status.container_id.as_deref())
        .expect("a container");
    let id = id.trim_start_matches("containerd://");
    let take = format!(
        "group=$(find /sys/fs/cgroup/memory /sys/fs/cgroup -type d -name '*{id}*' 2>/dev/null | head -n 1)
        test -f \"$group/cgroup.procs\"
        for process in $(cat \"$group/cgroup.procs\"); do echo 1000 >\"/proc/$process/oom_score_adj\"; done
        (echo \"$BASHPID\" >\"$group/cgroup.procs\" && exec tail /dev/zero) || true"
    );
    cluster
        .kind()
        .docker(&[
            "exec",
            replica.node().expect("a node"),
            "bash",
            "-euc",
            &take,
        ])
        .await;
}

/// Whether the previous container was killed. A runtime that notices the end before the reason reports only the exit code.
fn was_killed(replica: &Pod) -> bool {
    let ended =
        container(replica).and_then(|status| status.last_state.as_ref()?.terminated.as_ref());
    ended.is_some_and(|ended| {
        ended.reason.as_deref() == Some("OOMKilled") || ended.exit_code == 128 + 9
    })
}

/// With a full disk, a kubelet evicts Pods and accepts no new ones. Here its threshold says that the disk is full. Pods
/// have one second to end (`immediateEvictionGracePeriodSeconds` in kubelet's eviction_manager.go), and kube-proxy
/// applies changes once a second: on a busy machine the API server may still call a replica that has ended.
pub(crate) async fn pods_are_created_while_the_disk_of_a_node_is_full(cluster: &Cluster) {
    roll_out(cluster).await;
    let [_, node] = cluster.node_names();
    let nodes: Api<Node> = Api::all(cluster.client.clone());
    let set = async |available: &str| {
        let edit = format!(
            "sed -i -e 's/nodefs.available: .*/nodefs.available: {available}/' \
                -e 's/^evictionPressureTransitionPeriod: .*/evictionPressureTransitionPeriod: 1s/' /var/lib/kubelet/config.yaml
            systemctl restart kubelet"
        );
        cluster
            .kind()
            .docker(&["exec", node, "bash", "-euc", &edit])
            .await;
        let wanted = if available == "0%" { "False" } else { "True" };
        until(&format!("{node} has DiskPressure: {wanted}"), async || {
            let conditions = nodes.get(node).await.ok()?.status?.conditions?;
            let pressure = conditions
                .iter()
                .find(|condition| condition.type_ == "DiskPressure")?;
            (pressure.status == wanted).then_some(())
        })
        .await;
    };
    let full = async {
        let begun = Instant::now();
        set("99%").await;
        println!("outages: {node} has no disk after {:.1?}", begun.elapsed());
        until_in(
            SYNC,
            &format!("two replicas run, none on {node}"),
            async || {
                let mut replicas = replicas(cluster).await;
                replicas.retain(|pod| runs(pod) && pod.node() != Some(node));
                (replicas.len() == 2).then_some(())
            },
        )
        .await;
        println!(
            "outages: its replica runs on another node after {:.1?}",
            begun.elapsed()
        );
        set("0%").await;
    };
    let (creations, longest) = create_during(cluster, full).await;
    let unchanged = unchanged(&creations, longest, PATIENCE);
    assert!(unchanged <= HELD_UP, "{unchanged}");
    assert!(Times::of(&creations).percentile(100) < LONGEST + longest);
}

/// A kubelet updates the volume when it next syncs the Pod, which takes as long as the docs say.
pub(crate) async fn changed_configuration_arrives_through_the_volume(cluster: &Cluster) {
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), TOLERARCH);
    let file = "config.yaml";
    let namespace = cluster.namespace("configuration").await;
    let before = maps
        .get(TOLERARCH)
        .await
        .expect("the ConfigMap")
        .data
        .expect("data")[file]
        .clone();
    let set = async |text: &str| {
        let data = Patch::Merge(json!({"data": {file: text}}));
        maps.patch(TOLERARCH, &PatchParams::default(), &data)
            .await
            .expect("changed");
    };
    let pod = scenarios::pod(&[&cluster.images.tag("multi")]);
    cluster.until_called(&namespace).await;
    let begun = Instant::now();
    set(&format!("mode: observe\n{before}")).await;
    until_in(SYNC, "no replica changes Pods any more", async || {
        for _ in 0..REPLIES {
            if namespace.dry_run(&pod).await.ok()?.tolerates_pool() {
                return None;
            }
        }
        Some(())
    })
    .await;
    println!(
        "outages: a configuration arrived after {:.1?}",
        begun.elapsed()
    );
    set(&before).await;
    roll_out(cluster).await;
    cluster.until_called(&namespace).await;
}
