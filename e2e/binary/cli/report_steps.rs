//! Steps of `tolerarch report` that depend on the installation: what a restart brings, and where the command leads.

use serde_json::{Value, json};

use super::cluster::FakeCluster;
use super::configured::run;
use super::{BOTH, Desk};

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

/// A cluster with an installation of this configuration, and a Deployment in each of two namespaces.
fn cluster(desk: &Desk, more: &Value) -> FakeCluster {
    let ca = desk.path().join("ca.crt");
    let mut config = json!({
        "registries": {"hosts": {desk.registry.address(): {"caFile": ca}}},
        "network": {"allow": ["127.0.0.0/8"]},
        "controller": {"learn": false},
    });
    for (key, value) in more.as_object().unwrap() {
        config[key] = value.clone();
    }
    let image = desk.image("shop/web", &BOTH);
    let mut pods = Vec::new();
    let mut namespaces = Vec::new();
    for namespace in ["shop", "out"] {
        let owner = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "controller": true});
        pods.push(json!({
            "metadata": {
                "name": "web-0", "namespace": namespace, "ownerReferences": [owner],
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"nodeName": "n", "containers": [{"name": "a", "image": image}]},
        }));
        let labels = json!({"kubernetes.io/metadata.name": namespace});
        namespaces.push(json!({"metadata": {"name": namespace, "labels": labels}}));
    }
    FakeCluster::default()
        .with_tolerarch(&config)
        .with("/api/v1/pods", pods.into())
        .with("/api/v1/namespaces", namespaces.into())
        .with(
            "/api/v1/nodes",
            json!([{"metadata": {"name": "n"}, "status": {"nodeInfo": {"architecture": "amd64", "operatingSystem": "linux"}}}]),
        )
}

async fn report(desk: &Desk, cluster: FakeCluster, arguments: &[&str]) -> Value {
    let served = cluster.serve().await;
    let ran = run(
        desk,
        Some(&served),
        &[&["report", "-o", "json"], arguments].concat(),
    )
    .await;
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}

/// Returns kind, namespace, and command or advice of each step.
fn steps(report: &Value) -> Vec<[&str; 3]> {
    let mut steps = Vec::new();
    for step in report["steps"].as_array().unwrap() {
        let how = step.get("command").or(step.get("advice"));
        steps.push([
            step["step"].as_str().unwrap(),
            step["namespace"].as_str().unwrap(),
            how.unwrap().as_str().unwrap(),
        ]);
    }
    steps
}

#[tokio::test]
async fn no_restart_is_advised_where_no_webhook_is_called() {
    let desk = Desk::new(json!({})).await;
    let mut cluster = cluster(&desk, &json!({}));
    let webhooks = cluster.objects.get_mut(WEBHOOKS).unwrap();
    webhooks[0]["webhooks"][0]["namespaceSelector"] =
        json!({"matchLabels": {"kubernetes.io/metadata.name": "shop"}});
    let report = report(&desk, cluster, &[]).await;
    let steps = steps(&report);
    assert_eq!(steps.len(), 2, "{steps:?}");
    let restart = "kubectl --namespace shop rollout restart statefulset/web";
    assert_eq!(steps[0], ["restart", "shop", restart]);
    assert_eq!(steps[1][0], "select");
    assert_eq!(report["progress"]["waiting"]["pods"], 1);
    assert_eq!(report["progress"]["notCalled"]["pods"], 1);
}

#[tokio::test]
async fn a_pool_without_a_share_for_pods_is_a_step() {
    let desk = Desk::new(json!({})).await;
    let pool = json!({
        "name": "p", "platforms": BOTH, "share": 0,
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
    });
    let cluster = cluster(&desk, &json!({"pools": [pool]}));
    let report = report(&desk, cluster, &[]).await;
    let steps = steps(&report);
    assert_eq!(steps.len(), 1, "{steps:?}");
    assert_eq!(steps[0][0], "open");
    assert_eq!(report["progress"]["eligible"]["pods"], 2);
    assert_eq!(report["progress"]["closed"]["pods"], 2);
}

#[tokio::test]
async fn a_command_leads_to_the_cluster_of_the_report() {
    let desk = Desk::new(json!({})).await;
    let served = cluster(&desk, &json!({})).serve().await;
    let kubeconfig = served.kubeconfig(desk.path());
    let arguments = ["report", "-o", "json", "--kubeconfig", &kubeconfig];
    let ran = run(&desk, None, &arguments).await;
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    let expected = format!(
        "kubectl --kubeconfig {kubeconfig} --namespace shop rollout restart statefulset/web"
    );
    assert!(
        steps(&report).contains(&["restart", "shop", &expected]),
        "{:#}",
        report["steps"]
    );
}
