//! The controller records no owner whose Pods Kubernetes itself deletes, however many.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, EvictParams, ListParams};
use kube::{Api, ResourceExt};
use scenarios::{Cluster, Namespace, PodExt, deployment, pod, until};
use serde_json::{Value, json};
use tokio::time::{Duration, interval};

use crate::certificates::RELEASE;
use crate::controller::give_rights;
use crate::failed_images::define_brokers;

/// Pods of each workload at a time. With four workloads and five rounds, 1,000 Pods.
const PODS: usize = 50;
/// How often all Pods are deleted.
const ROUNDS: usize = 5;

pub(crate) async fn only_owner_that_deletes_its_pods_is_recorded(cluster: &Cluster) {
    let home = cluster.namespace_opted_out("churned").await;
    let account = give_rights(cluster, &home).await;
    let lease = format!("{RELEASE}-controller");
    let settings = json!({"controller": {"lease": lease, "repair": false, "census": "0"}});
    let controller = cluster
        .local()
        .controller_as(&account, &cluster.images.registry, settings)
        .await;
    until("the controller leads", async || {
        controller
            .process
            .log()
            .contains(r#""message":"leading""#)
            .then_some(())
    })
    .await;
    let team = cluster.namespace("churn").await;
    let mut unplaced = pod(&[&cluster.images.tag("multi")]);
    // Pods without a node are deleted at once, as no kubelet has to end them.
    unplaced["spec"]["schedulerName"] = "nobody".into();
    define_brokers(cluster).await;
    tokio::join!(
        churn(&team, "web", "apps/v1", "Deployment", &unplaced),
        churn(&team, "shop", "apps/v1", "ReplicaSet", &unplaced),
        churn(&team, "db", "apps/v1", "StatefulSet", &unplaced),
        churn(&team, "sums", "batch/v1", "Job", &unplaced),
        run_operator(&team, "evicted", &unplaced, async |name| {
            team.pods()
                .evict(name, &EvictParams::default())
                .await
                .unwrap();
        }),
        run_operator(&team, "deletes", &unplaced, async |name| {
            team.pods()
                .delete(name, &DeleteParams::default().grace_period(0))
                .await
                .unwrap();
        }),
    );
    let records = Api::<ConfigMap>::namespaced(cluster.client.clone(), &home.name);
    let record = until("something is recorded", async || {
        let record = records
            .get_opt(&format!("{lease}-failed-images"))
            .await
            .ok()??;
        record.data?.remove("record.json")
    })
    .await;
    let record: Vec<Value> = serde_json::from_str(&record).unwrap();
    let owners: Vec<&Value> = record.iter().map(|entry| &entry["name"]).collect();
    assert_eq!(owners, ["deletes"], "{record:?}");
}

/// Creates a workload, and deletes all its Pods repeatedly. Its controller replaces them; a Job is created again.
async fn churn(team: &Namespace, app: &str, api: &str, kind: &str, pod: &Value) {
    let mut workload = deployment(app, u32::try_from(PODS).unwrap(), pod);
    workload["apiVersion"] = api.into();
    workload["kind"] = kind.into();
    match kind {
        "StatefulSet" => workload["spec"]["podManagementPolicy"] = "Parallel".into(),
        "Job" => {
            workload["spec"]["template"]["spec"]["restartPolicy"] = "Never".into();
            let template = workload["spec"]["template"].take();
            workload["spec"] =
                json!({"parallelism": PODS, "completions": PODS, "template": template});
        }
        _ => {}
    }
    let at_once = DeleteParams::default().grace_period(0);
    for _ in 0..ROUNDS {
        team.apply(&workload).await;
        let pods = team.until_pods(app, PODS, PodExt::tolerates_pool).await;
        if kind == "Job" {
            let jobs = Api::<Job>::namespaced(team.pods().into_client(), &team.name);
            jobs.delete(app, &DeleteParams::background()).await.unwrap();
        } else {
            let labelled = ListParams::default().labels(&format!("app={app}"));
            team.pods()
                .delete_collection(&at_once, &labelled)
                .await
                .unwrap();
        }
        let deleted: Vec<String> = pods.iter().filter_map(ResourceExt::uid).collect();
        until(&format!("the Pods of {app} are replaced"), async || {
            let labelled = ListParams::default().labels(&format!("app={app}"));
            let pods: Vec<Pod> = team.pods().list(&labelled).await.ok()?.items;
            let is_deleted = |pod: &Pod| pod.uid().is_some_and(|uid| deleted.contains(&uid));
            (!pods.iter().any(is_deleted)).then_some(())
        })
        .await;
    }
}

/// Acts as an operator that creates its Pod again, once a second, after `remove` has removed it.
async fn run_operator(team: &Namespace, name: &str, pod: &Value, remove: impl AsyncFn(&str)) {
    let broker = json!({"apiVersion": "e2e.test/v1", "kind": "Broker", "metadata": {"name": name}});
    let uid = team.apply(&broker).await.metadata.uid;
    let mut owned = pod.clone();
    owned["metadata"] = json!({"name": name, "ownerReferences": [{
        "apiVersion": "e2e.test/v1", "kind": "Broker", "name": name, "uid": uid, "controller": true,
    }]});
    let mut turns = interval(Duration::from_secs(1));
    for _ in 0..=ROUNDS {
        turns.tick().await;
        team.pod(&owned).await;
        turns.tick().await;
        remove(name).await;
    }
}
