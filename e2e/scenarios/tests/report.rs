//! `tolerarch report` and `tolerarch why` on a real API server, with thousands of Pods.

use k8s_openapi::api::core::v1::Namespace as NamespaceObject;
use kube::Api;
use kube::api::{Patch, PatchParams};
use scenarios::{Cluster, Namespace, deployment, pod};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Replicas of a Deployment, by the tag of its image.
const DEPLOYMENTS: [(&str, u32); 3] = [("multi", 1_000), ("amd64", 700), ("gone", 300)];

pub(crate) async fn report_and_why_cover_two_thousand_pods(cluster: &Cluster) {
    // The report of all namespaces must not count other scenarios' Pods.
    let cluster = &cluster.another().await;
    // As before an installation: tolerarch has not decided these Pods.
    let namespace = cluster.namespace_opted_out("report").await;
    for (tag, replicas) in DEPLOYMENTS {
        let mut pod = pod(&[&cluster.images.tag(tag)]);
        pod["spec"]["containers"][0]["resources"] =
            json!({"requests": {"cpu": "100m", "memory": "64Mi"}});
        namespace.apply(&deployment(tag, replicas, &pod)).await;
    }
    let mut agent = pod(&[&cluster.images.tag("amd64")]);
    agent["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    let labels = json!({"app": "agent"});
    namespace
        .apply(&json!({
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "agent"},
            "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": agent["spec"]}},
        }))
        .await;
    for (tag, replicas) in DEPLOYMENTS {
        namespace.until_bound(tag, replicas as usize).await;
    }
    let agents = namespace.until_pods("agent", 2, |_| true).await;
    assert_eq!(agents.len(), 2);

    let namespaces = Api::<NamespaceObject>::all(cluster.client.clone());
    let labels = Patch::Merge(json!({"metadata": {"labels": {"tolerarch.io/mode": null}}}));
    namespaces
        .patch(&namespace.name, &PatchParams::default(), &labels)
        .await
        .unwrap();

    let begun = Instant::now();
    let prices = cluster.local().directory().join("prices.yaml");
    std::fs::write(
        &prices,
        "currency: EUR\narchitectures: {amd64: {vcpuHour: 1, gibHour: 0}, arm64: {vcpuHour: 0.5, gibHour: 0}}",
    )
    .unwrap();
    let prices = prices.display().to_string();
    let report = run_in_namespace(cluster, &namespace, &["report", "--prices", &prices]).await;
    print!("report: 2,002 Pods in {:.2?}; ", begun.elapsed());
    assert_totals(&report, cluster);

    let whole = run(cluster, &["report", "-A"]).await;
    assert!(
        whole["totals"]["all"]["pods"].as_u64() >= Some(1_000),
        "{:#}",
        whole["totals"]
    );
    assert_eq!(
        whole["notes"].as_array().map(Vec::len),
        Some(0),
        "{:#}",
        whole["notes"]
    );

    let why = run_in_namespace(cluster, &namespace, &["why", "deploy/amd64", "ds/agent"]).await;
    let [legacy, agent] = why["objects"].as_array().unwrap().as_slice() else {
        panic!("{why:#}")
    };
    assert_eq!(
        (&legacy["reason"], &legacy["images"][0]["lacks"]),
        (&json!("platform-missing"), &json!(["linux/arm64"]))
    );
    assert_eq!(legacy["pods"].as_array().unwrap().len(), 700);
    assert_eq!(agent["reason"], "daemonset");
    let mut misplaced = Vec::new();
    for pod in agent["pods"].as_array().unwrap() {
        if pod["misplaced"] != json!([]) {
            misplaced.push(&pod["platform"]);
        }
    }
    assert_eq!(misplaced, ["linux/arm64"]);
}

fn assert_totals(report: &Value, cluster: &Cluster) {
    for (support, pods, cores) in [
        ("all", 1_000_u64, 100.0),
        ("partial", 700, 70.0),
        ("unknown", 300, 30.0),
    ] {
        let total = &report["totals"][support];
        assert_eq!(
            (&total["pods"], &total["workloads"]),
            (&json!(pods), &json!(1)),
            "{support}: {total:#}"
        );
        assert_eq!(
            (&total["cpuCores"], &total["memoryBytes"]),
            (&json!(cores), &json!(pods << 26)),
            "{support}"
        );
    }
    assert_eq!(report["totals"]["skipped"]["pods"], 2);
    assert_eq!(report["images"][0]["image"], cluster.images.tag("amd64"));
    assert_eq!(report["images"][0]["lacks"], json!(["linux/arm64"]));
    assert_eq!(report["unknown"][0]["reason"], "not-found");
    let missed = report["missed"].as_array().unwrap();
    assert_eq!(missed.len(), 1_000);
    for pod in missed {
        assert_eq!(
            (&pod["kind"], &pod["name"]),
            (&json!("Deployment"), &json!("multi"))
        );
    }
    let progress = &report["progress"];
    for (part, pods) in [("eligible", 1_000), ("waiting", 1_000), ("createdSince", 0)] {
        assert_eq!(progress[part]["pods"], pods, "{part}: {progress:#}");
    }
    // Without the toleration all Pods are on the plain node.
    assert_eq!(progress["architectures"]["amd64"]["cpuCores"], 100.0);
    for (part, money) in [
        ("today", 146_000.0),
        ("saved", 36_500.0),
        ("kept", 36_500.0),
    ] {
        assert_eq!(
            report["money"][part], money,
            "{part}: {:#}",
            report["money"]
        );
    }
    let misplaced = report["misplaced"].as_array().unwrap();
    assert_eq!(misplaced.len(), 1, "{misplaced:#?}");
    assert_eq!(
        (&misplaced[0]["kind"], &misplaced[0]["platform"]),
        (&json!("DaemonSet"), &json!("linux/arm64"))
    );
}

/// Runs a command for a namespace.
async fn run_in_namespace(cluster: &Cluster, namespace: &Namespace, arguments: &[&str]) -> Value {
    run(cluster, &[arguments, &["-n", &namespace.name]].concat()).await
}

/// Runs a command with the registry of the scenarios. Returns its output.
async fn run(cluster: &Cluster, arguments: &[&str]) -> Value {
    let local = cluster.local();
    let image = cluster.images.tag("multi");
    let registry = image.split('/').next().unwrap();
    let ca = local.directory().join("report.ca.crt");
    let file = local.directory().join("report.yaml");
    std::fs::write(&ca, local.pki.ca_pem()).unwrap();
    std::fs::write(
        &file,
        json!({"registries": {"hosts": {registry: {"caFile": ca}}}}).to_string(),
    )
    .unwrap();
    let file = file.display().to_string();
    let arguments = [arguments, &["--config", &file, "-o", "json"]].concat();
    let (status, output) = cluster.local().run_tolerarch(&arguments).await;
    assert_eq!(status, 0, "{arguments:?}: {output}");
    serde_json::from_str(&output).unwrap()
}
