//! Steps of `tolerarch report` that depend on the installation: whether a restart helps, and which cluster a command is for.

use serde_json::{Value, json};

use super::cluster::FakeCluster;
use super::configured::run;
use super::{BOTH, CommandLine};

const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

/// Returns a cluster with tolerarch, whose configuration includes `settings`, and with a StatefulSet in each of two
/// namespaces.
fn cluster(cli: &CommandLine, settings: &Value) -> FakeCluster {
    let ca = cli.path().join("ca.crt");
    let mut config = json!({
        "registries": {"hosts": {cli.registry.address(): {"caFile": ca}}},
        "network": {"allow": ["127.0.0.0/8"]},
        "controller": {"learn": false},
    });
    for (key, value) in settings.as_object().unwrap() {
        config[key] = value.clone();
    }
    let image = cli.image("shop/web", &BOTH);
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

async fn report(cli: &CommandLine, cluster: FakeCluster, arguments: &[&str]) -> Value {
    let served = cluster.serve().await;
    let output = run(
        cli,
        Some(&served),
        &[&["report", "-o", "json"], arguments].concat(),
    )
    .await;
    assert_eq!(output.status, Some(0), "{}", output.stderr);
    serde_json::from_str(&output.stdout).unwrap()
}

/// Returns kind, namespace, and command or advice of each step.
fn steps(report: &Value) -> Vec<[&str; 3]> {
    let mut steps = Vec::new();
    for step in report["steps"].as_array().unwrap() {
        let instruction = step.get("command").or(step.get("advice"));
        steps.push([
            step["step"].as_str().unwrap(),
            step["namespace"].as_str().unwrap(),
            instruction.unwrap().as_str().unwrap(),
        ]);
    }
    steps
}

#[tokio::test]
async fn no_restart_is_advised_where_no_webhook_is_called() {
    let cli = CommandLine::new(json!({})).await;
    let mut cluster = cluster(&cli, &json!({}));
    let webhooks = cluster.objects.get_mut(WEBHOOKS).unwrap();
    webhooks[0]["webhooks"][0]["namespaceSelector"] =
        json!({"matchLabels": {"kubernetes.io/metadata.name": "shop"}});
    let report = report(&cli, cluster, &[]).await;
    let steps = steps(&report);
    assert_eq!(steps.len(), 2, "{steps:?}");
    let restart = "kubectl --namespace shop rollout restart statefulset/web";
    assert_eq!(steps[0], ["restart", "shop", restart]);
    assert_eq!(steps[1][0], "select");
    assert_eq!(report["progress"]["waiting"]["pods"], 1);
    assert_eq!(report["progress"]["notCalled"]["pods"], 1);
}

#[tokio::test]
async fn pool_with_share_zero_is_a_step() {
    let cli = CommandLine::new(json!({})).await;
    let pool = json!({
        "name": "p", "platforms": BOTH, "share": 0,
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
    });
    let cluster = cluster(&cli, &json!({"pools": [pool]}));
    let report = report(&cli, cluster, &[]).await;
    let steps = steps(&report);
    assert_eq!(steps.len(), 1, "{steps:?}");
    assert_eq!(steps[0][0], "open");
    assert_eq!(report["progress"]["eligible"]["pods"], 2);
    assert_eq!(report["progress"]["closed"]["pods"], 2);
}

#[tokio::test]
async fn command_names_the_kubeconfig_of_the_report() {
    let cli = CommandLine::new(json!({})).await;
    let served = cluster(&cli, &json!({})).serve().await;
    let kubeconfig = served.kubeconfig(cli.path());
    let arguments = ["report", "-o", "json", "--kubeconfig", &kubeconfig];
    let output = run(&cli, None, &arguments).await;
    assert_eq!(output.status, Some(0), "{}", output.stderr);
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    let expected = format!(
        "kubectl --kubeconfig {kubeconfig} --namespace shop rollout restart statefulset/web"
    );
    assert!(
        steps(&report).contains(&["restart", "shop", &expected]),
        "{:#}",
        report["steps"]
    );
}
