//! `tolerarch report` on fake clusters: its figures, its output formats, the rights it needs, and large clusters.

use serde_json::{Value, json};

use super::cluster::{FakeApiServer, FakeCluster};
use super::{BOTH, CommandLine, CommandOutput};

pub(super) const PODS: &str = "/api/v1/pods";
pub(super) const NODES: &str = "/api/v1/nodes";
pub(super) const NAMESPACES: &str = "/api/v1/namespaces";
pub(super) const REPLICA_SETS: &str = "/apis/apps/v1/replicasets";
const JOBS: &str = "/apis/batch/v1/jobs";

/// Returns a running Pod of a Deployment, with the ReplicaSet as its owner.
pub(super) fn pod(
    namespace: &str,
    deployment: &str,
    number: usize,
    image: &str,
    node: &str,
) -> Value {
    json!({
        "metadata": {
            "name": format!("{deployment}-5d5c-{number}"),
            "namespace": namespace,
            "uid": format!("{deployment}-{number}"),
            "labels": {"app": deployment, "pod-template-hash": "5d5c"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{deployment}-5d5c"), "controller": true,
            }],
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "app", "image": image, "resources": {"requests": {"cpu": "250m", "memory": "1Gi"}}}],
        },
        "status": {"phase": "Running"},
    })
}

fn replica_set(namespace: &str, deployment: &str) -> Value {
    let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment, "controller": true});
    json!({"metadata": {"name": format!("{deployment}-5d5c"), "namespace": namespace, "ownerReferences": [owner]}})
}

pub(super) fn node(name: &str, architecture: &str) -> Value {
    json!({"metadata": {"name": name}, "status": {"nodeInfo": {"architecture": architecture, "operatingSystem": "linux"}}})
}

pub(super) fn namespace(name: &str, labels: &Value) -> Value {
    json!({"metadata": {"name": name, "labels": labels}})
}

/// Returns a cluster with something for each section of a report.
pub(super) fn shop(cli: &CommandLine) -> FakeCluster {
    let web = cli.image("shop/web", &BOTH);
    let legacy = cli.image("shop/legacy", &BOTH[..1]);
    let gone = format!("{}/shop/gone:v1", cli.registry.address());
    let mut pods: Vec<Value> = (0..3)
        .map(|number| pod("shop", "web", number, &web, "x86"))
        .collect();
    pods.extend((0..2).map(|number| pod("shop", "legacy", number, &legacy, "x86")));
    pods.push(pod("shop", "gone", 0, &gone, "x86"));
    pods.push(pod("team", "off", 0, &legacy, "arm"));
    let mut agent = pod("ops", "agent", 0, &legacy, "arm");
    agent["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "controller": true}]);
    pods.push(agent);
    let mut bill = pod("shop", "bills", 0, &web, "x86");
    bill["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "bills-29388480", "controller": true}]);
    bill["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    pods.push(bill);
    let mut finished = pod("shop", "finished", 0, &legacy, "x86");
    finished["status"]["phase"] = "Succeeded".into();
    pods.push(finished);
    let cron_job =
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "name": "bills", "controller": true});
    let job = json!({"metadata": {"name": "bills-29388480", "namespace": "shop", "ownerReferences": [cron_job]}});
    let mut replica_sets: Vec<Value> = ["web", "legacy", "gone"]
        .map(|name| replica_set("shop", name))
        .to_vec();
    replica_sets.push(replica_set("team", "off"));
    FakeCluster::default()
        .with(PODS, pods.into())
        .with(NODES, json!([node("x86", "amd64"), node("arm", "arm64")]))
        .with(
            NAMESPACES,
            json!([
                namespace("shop", &json!({})),
                namespace("ops", &json!(null)),
                namespace("team", &json!({"tolerarch.io/mode": "off"})),
            ]),
        )
        .with(REPLICA_SETS, replica_sets.into())
        .with(JOBS, json!([job]))
}

pub(super) async fn report(
    cli: &CommandLine,
    cluster: &FakeApiServer,
    arguments: &[&str],
) -> CommandOutput {
    let kubeconfig = cluster.kubeconfig(cli.path());
    cli.run(&[&["report", "--kubeconfig", &kubeconfig], arguments].concat())
        .await
}

pub(super) async fn json_of(
    cli: &CommandLine,
    cluster: &FakeApiServer,
    arguments: &[&str],
) -> Value {
    let output = report(cli, cluster, &[arguments, &["-o", "json"]].concat()).await;
    assert_eq!(output.status, Some(0), "{}", output.stderr);
    serde_json::from_str(&output.stdout).unwrap()
}

#[tokio::test]
async fn totals_count_pods_and_their_requests() {
    let cli = CommandLine::new(json!({})).await;
    let cluster = shop(&cli).serve().await;
    let json = json_of(&cli, &cluster, &[]).await;
    for (support, pods, cores, workloads) in [
        ("all", 4, 1.0, 2),
        ("partial", 2, 0.5, 1),
        ("unknown", 1, 0.25, 1),
        ("skipped", 2, 0.5, 2),
    ] {
        let total = &json["totals"][support];
        assert_eq!(total["pods"], pods, "{support}: {json:#}");
        assert_eq!(total["cpuCores"], cores, "{support}: {json:#}");
        assert_eq!(
            total["memoryBytes"],
            u64::from(pods as u32) << 30,
            "{support}: {json:#}"
        );
        assert_eq!(total["workloads"], workloads, "{support}: {json:#}");
    }
    assert_eq!(
        (&json["complete"], &json["notes"]),
        (&json!(true), &json!([]))
    );
}

/// Returns kind and name of each entry in a list of the report.
fn kinds_and_names(json: &Value, list: &str) -> Vec<String> {
    let mut names = Vec::new();
    for entry in json[list].as_array().unwrap() {
        let kind = entry["kind"].as_str().unwrap();
        let name = entry["name"].as_str().unwrap();
        names.push(format!("{kind}/{name}"));
    }
    names
}

#[tokio::test]
async fn images_and_workloads_are_listed_with_their_findings() {
    let cli = CommandLine::new(json!({})).await;
    let legacy = format!("{}/shop/legacy:v1", cli.registry.address());
    let gone = format!("{}/shop/gone:v1", cli.registry.address());
    let cluster = shop(&cli).serve().await;
    let json = json_of(&cli, &cluster, &[]).await;
    let workloads = kinds_and_names(&json, "workloads");
    for name in [
        "Deployment/web",
        "Deployment/legacy",
        "Deployment/gone",
        "DaemonSet/agent",
        "CronJob/bills",
    ] {
        assert!(
            workloads.iter().any(|listed| listed == name),
            "{workloads:?}"
        );
    }
    assert_eq!(json["images"][0]["image"], legacy.as_str());
    assert_eq!(json["images"][0]["lacks"], json!(["linux/arm64"]));
    assert_eq!(json["images"][0]["pods"], 2);
    assert_eq!(json["images"][1]["image"], gone.as_str());
    let error = json["images"][1]["error"].as_str().unwrap();
    assert!(error.contains("answered 404"), "{json:#}");
    let unknown = &json["unknown"][0];
    assert_eq!(unknown["reason"], "not-found");
    assert_eq!(unknown["images"], json!([gone]));
    assert!(unknown["fix"].as_str().unwrap().contains("push the image"));
}

#[tokio::test]
async fn missed_and_misplaced_pods_are_listed() {
    let cli = CommandLine::new(json!({})).await;
    let legacy = format!("{}/shop/legacy:v1", cli.registry.address());
    let cluster = shop(&cli).serve().await;
    let json = json_of(&cli, &cluster, &[]).await;
    // Pods that already tolerate the pool are not missed.
    assert_eq!(kinds_and_names(&json, "missed"), ["Deployment/web"; 3]);
    assert_eq!(json["missed"][0]["pools"], json!(["multi-arch"]));
    let misplaced = json["misplaced"].as_array().unwrap();
    assert_eq!(misplaced.len(), 2, "{json:#}");
    assert_eq!(misplaced[0]["pod"], "agent-5d5c-0");
    assert_eq!(
        (&misplaced[0]["node"], &misplaced[0]["platform"]),
        (&json!("arm"), &json!("linux/arm64"))
    );
    assert_eq!(misplaced[0]["images"], json!([legacy]));
}

#[tokio::test]
async fn every_output_format_has_the_same_content() {
    let cli = CommandLine::new(json!({})).await;
    let cluster = shop(&cli).serve().await;
    for (form, by, expected) in [
        (
            "table",
            "image",
            &[
                "partial  0.5",
                "lacks linux/arm64",
                "not-found",
                "resolve: not-found",
                "Missed: ",
                "linux/arm64  arm",
            ][..],
        ),
        (
            "table",
            "workload",
            &["Deployment/legacy", "platform-missing"],
        ),
        ("table", "namespace", &["NAMESPACE  CPU", "ops"]),
        (
            "html",
            "image",
            &[
                "partial</td>",
                "What to do next",
                "lacks linux/arm64",
                "Deployment/legacy",
            ],
        ),
        (
            "markdown",
            "image",
            &[
                "- **CPU**, 2.25 cores requested: all 1 core, 44%; partial",
                "## What to do next\n",
                "| `shop` | `Deployment/legacy` |",
                "lacks linux/arm64",
            ],
        ),
    ] {
        let output = report(&cli, &cluster, &["-o", form, "--by", by]).await;
        assert_eq!(output.status, Some(0), "{}", output.stderr);
        for text in expected {
            assert!(
                output.stdout.contains(text),
                "{form} by {by}: {text} in\n{}",
                output.stdout
            );
        }
    }
}

#[tokio::test]
async fn report_needs_only_the_right_to_list_pods() {
    let cli = CommandLine::new(json!({})).await;
    let mut cluster = shop(&cli);
    cluster.forbidden = vec![NODES, NAMESPACES, REPLICA_SETS, JOBS];
    let cluster = cluster.serve().await;
    let json = json_of(&cli, &cluster, &[]).await;
    let notes: Vec<&str> = json["notes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|note| note.as_str().unwrap())
        .collect();
    for kind in ["nodes", "namespaces", "replicasets", "jobs"] {
        assert!(
            notes
                .iter()
                .any(|note| note.contains(&format!("{kind} cannot be listed"))),
            "{kind}: {notes:?}"
        );
    }
    assert_eq!(json["misplaced"], json!([]));
    // Names of Pods and Jobs show their workloads.
    let names: Vec<&str> = json["workloads"]
        .as_array()
        .unwrap()
        .iter()
        .map(|workload| workload["name"].as_str().unwrap())
        .collect();
    assert!(
        names.contains(&"web") && names.contains(&"bills"),
        "{names:?}"
    );

    // After any other error the numbers would be wrong, so the report fails.
    for path in [NODES, NAMESPACES, REPLICA_SETS, JOBS] {
        let mut cluster = shop(&cli);
        cluster.failing = vec![path];
        let output = report(&cli, &cluster.serve().await, &[]).await;
        assert_eq!(
            (output.status, output.stdout.as_str()),
            (Some(1), ""),
            "{path}"
        );
        assert!(output.stderr.contains("(400)"), "{}", output.stderr);
    }

    let mut cluster = shop(&cli);
    cluster.forbidden = vec![PODS];
    let output = report(&cli, &cluster.serve().await, &[]).await;
    assert_eq!((output.status, output.stdout.as_str()), (Some(1), ""));
    assert!(
        output.stderr.contains("/api/v1/pods is forbidden"),
        "{}",
        output.stderr
    );
}

#[tokio::test]
async fn report_on_a_namespace_needs_rights_in_it_alone() {
    let cli = CommandLine::new(json!({})).await;
    let web = cli.image("shop/web", &BOTH);
    let cluster = FakeCluster::default()
        .with(
            "/api/v1/namespaces/shop/pods",
            json!([pod("shop", "web", 0, &web, "x86")]),
        )
        .with("/api/v1/namespaces/shop", namespace("shop", &json!({})))
        .with(
            "/apis/apps/v1/namespaces/shop/replicasets",
            json!([replica_set("shop", "web")]),
        )
        .with(NODES, json!([]))
        .serve()
        .await;
    let json = json_of(&cli, &cluster, &["-n", "shop"]).await;
    assert_eq!(
        (&json["workloads"][0]["kind"], &json["notes"]),
        (&json!("Deployment"), &json!([]))
    );
    assert_eq!(
        report(&cli, &cluster, &["-n", "shop", "-A"]).await.status,
        Some(2)
    );
    for name in ["../nodes", "Shop", ""] {
        let output = report(&cli, &cluster, &["-n", name]).await;
        assert_eq!(output.status, Some(2), "{name}: {}", output.stderr);
    }
}

/// Each image is looked up once, whatever the number of Pods.
#[tokio::test]
async fn large_cluster_is_read_page_by_page() {
    let cli = CommandLine::new(json!({})).await;
    let images: Vec<String> = (0..40)
        .map(|number| cli.image(&format!("shop/app-{number}"), &BOTH[..1 + number % 2]))
        .collect();
    let pods: Vec<Value> = (0..2_000)
        .map(|number| {
            let app = number % 200;
            pod(
                "shop",
                &format!("app-{app}"),
                number,
                &images[app % 40],
                &format!("node-{}", number % 50),
            )
        })
        .collect();
    let replica_sets: Vec<Value> = (0..200)
        .map(|number| replica_set("shop", &format!("app-{number}")))
        .collect();
    let nodes: Vec<Value> = (0..50)
        .map(|number| node(&format!("node-{number}"), "amd64"))
        .collect();
    let cluster = FakeCluster::default()
        .with(PODS, pods.into())
        .with(NODES, nodes.into())
        .with(NAMESPACES, json!([namespace("shop", &json!({}))]))
        .with(REPLICA_SETS, replica_sets.into())
        .serve()
        .await;
    let json = json_of(&cli, &cluster, &[]).await;
    assert_eq!(json["totals"]["all"]["pods"], 1_000);
    assert_eq!(json["totals"]["partial"]["workloads"], 100);
    assert_eq!(
        (
            json["missed"].as_array().unwrap().len(),
            json["workloads"].as_array().unwrap().len()
        ),
        (1_000, 200)
    );
    let pages = cluster
        .requests()
        .iter()
        .filter(|path| path.starts_with(&format!("{PODS}?")))
        .count();
    assert_eq!(pages, 4);
    let requests = cli.registry.requests();
    let manifests = requests
        .iter()
        .filter(|request| request.path.ends_with("/manifests/v1"));
    assert_eq!(manifests.count(), images.len());
}

#[tokio::test]
async fn remaining_rate_limit_is_reported() {
    let cli = CommandLine::new(json!({})).await;
    let cluster = shop(&cli).serve().await;
    cli.registry
        .repo("shop/web")
        .header("ratelimit-remaining", Some("57;w=21600"));
    let json = json_of(&cli, &cluster, &[]).await;
    assert_eq!(json["rateLimits"][cli.registry.address()], 57, "{json:#}");
    assert!(
        json["notes"][0]
            .as_str()
            .unwrap()
            .ends_with("allows 57 more requests before it limits the rate"),
        "{json:#}"
    );
}
