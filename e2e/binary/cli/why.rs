//! `tolerarch why`: the decision on objects of a cluster, past and today, and the nodes of their Pods.

use serde_json::{Value, json};

use super::cluster::{FakeApiServer, FakeCluster, group};
use super::{BOTH, CommandLine, CommandOutput};

const PODS: &str = "/api/v1/namespaces/shop/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";

fn template(image: &str) -> Value {
    json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app", "image": image}]}})
}

fn pod(name: &str, owner: &str, image: &str, node: &str) -> Value {
    let mut pod = template(image);
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"] = json!({
        "name": name,
        "namespace": "shop",
        "uid": name,
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "controller": true}],
    });
    pod["spec"]["nodeName"] = node.into();
    pod
}

/// Serves the cluster of [`shop_objects`].
async fn serve_shop(cli: &CommandLine) -> FakeApiServer {
    shop_objects(cli).serve().await
}

/// Returns a cluster with the Deployments web and legacy, the Rollout canary, and their Pods.
fn shop_objects(cli: &CommandLine) -> FakeCluster {
    let web = cli.image("shop/web", &BOTH);
    let legacy = cli.image("shop/legacy", &BOTH[..1]);
    let deployment = |name: &str, image: &str| {
        let metadata = json!({"name": name, "namespace": "shop"});
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"template": template(image)}})
    };
    let rollout = json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Rollout",
        "metadata": {"name": "canary", "namespace": "shop"},
        "spec": {"template": template(&web)},
    });
    let set = |name: &str, kind: &str, owner: &str| {
        let owner =
            json!({"apiVersion": "apps/v1", "kind": kind, "name": owner, "controller": true});
        json!({"metadata": {"name": name, "namespace": "shop", "ownerReferences": [owner]}})
    };
    let mut tolerating = pod("web-1", "web-5d5c", &web, "arm");
    tolerating["metadata"]["annotations"] = json!({"tolerarch.io/pools": "multi-arch"});
    tolerating["spec"]["tolerations"] =
        json!([{"key": "tolerarch.io/multi-arch", "operator": "Exists", "effect": "NoSchedule"}]);
    // The API server stores managed fields of this depth. They do not change the decision.
    let deep = (0..200).fold(json!({}), |inner, _| json!({"f:a": inner}));
    tolerating["metadata"]["managedFields"] = json!([{"manager": "web", "fieldsV1": deep}]);
    let pods = [
        tolerating.clone(),
        pod("web-2", "web-5d5c", &web, "x86"),
        pod("legacy-1", "legacy-1", &legacy, "arm"),
        pod("canary-1", "canary-1", &web, "x86"),
    ];
    let node = |name: &str, arch: &str| json!({"metadata": {"name": name, "labels": {"kubernetes.io/arch": arch, "kubernetes.io/os": "linux"}}});
    let rollouts = group("argoproj.io", &["v1alpha1"]);
    FakeCluster::default()
        .with(&format!("{DEPLOYMENTS}/web"), deployment("web", &web))
        .with(&format!("{DEPLOYMENTS}/legacy"), deployment("legacy", &legacy))
        .with(&format!("{PODS}/web-1"), tolerating)
        .with("/apis/argoproj.io/v1alpha1/namespaces/shop/rollouts/canary", rollout)
        .with("/apis", json!({"groups": [
            group("gone.example.com", &["v1"]),
            group("apps", &["v1"]),
            rollouts,
        ]}))
        .with(
            "/apis/argoproj.io/v1alpha1",
            json!({"resources": [
                {"name": "rollouts/status", "kind": "Rollout", "namespaced": true},
                {"name": "rollouts", "kind": "Rollout", "singularName": "rollout", "namespaced": true, "shortNames": ["ro"]},
            ]}),
        )
        .with(PODS, json!(pods))
        .with("/api/v1/nodes", json!([node("x86", "amd64"), node("arm", "arm64")]))
        .with("/api/v1/namespaces/shop", json!({"metadata": {"name": "shop"}}))
        .with(
            "/apis/apps/v1/namespaces/shop/replicasets",
            json!([
                set("web-5d5c", "Deployment", "web"),
                set("legacy-1", "Deployment", "legacy"),
                set("canary-1", "Rollout", "canary"),
            ]),
        )
}

async fn why(cli: &CommandLine, cluster: &FakeApiServer, arguments: &[&str]) -> CommandOutput {
    let kubeconfig = cluster.kubeconfig(cli.path());
    cli.run(
        &[
            &["why", "--kubeconfig", &kubeconfig, "-n", "shop"],
            arguments,
        ]
        .concat(),
    )
    .await
}

async fn explained(cli: &CommandLine, cluster: &FakeApiServer, target: &str) -> Value {
    let output = why(cli, cluster, &[target, "-o", "json"]).await;
    assert_eq!(output.status, Some(0), "{target}: {}", output.stderr);
    let json: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(json["notes"], json!([]));
    json["objects"][0].clone()
}

#[tokio::test]
async fn workload_is_explained_by_its_images_and_pods() {
    let cli = CommandLine::new(json!({})).await;
    let cluster = serve_shop(&cli).await;
    for target in ["deploy/web", "deployments/web", "Deployment.apps/web"] {
        let web = explained(&cli, &cluster, target).await;
        assert_eq!(
            (&web["kind"], &web["name"], &web["namespace"]),
            (&json!("Deployment"), &json!("web"), &json!("shop"))
        );
        assert_eq!(
            (&web["decision"], &web["reason"]),
            (&json!("tolerated"), &json!("tolerated"))
        );
        assert_eq!(
            (&web["pools"][0]["name"], &web["pools"][0]["open"]),
            (&json!("multi-arch"), &json!(true))
        );
        assert_eq!(web["images"][0]["platforms"], json!(BOTH));
        let pods = web["pods"].as_array().unwrap();
        assert_eq!(pods.len(), 2, "{web:#}");
        assert_eq!(
            (&pods[0]["node"], &pods[0]["platform"]),
            (&json!("arm"), &json!("linux/arm64"))
        );
        assert_eq!(
            (&pods[0]["decided"]["pools"], &pods[1]["decided"]["pools"]),
            (&json!("multi-arch"), &json!(""))
        );
    }
    let legacy = explained(&cli, &cluster, "deploy/legacy").await;
    assert_eq!(
        (&legacy["decision"], &legacy["reason"]),
        (&json!("unchanged"), &json!("platform-missing"))
    );
    assert_eq!(legacy["images"][0]["lacks"], json!(["linux/arm64"]));
    assert_eq!(legacy["pools"][0]["lacks"], json!(["linux/arm64"]));
    assert_eq!(
        legacy["pods"][0]["misplaced"],
        json!([format!("{}/shop/legacy:v1", cli.registry.address())])
    );
    for target in [
        "rollout/canary",
        "ro.argoproj.io/canary",
        "rollouts.argoproj.io/canary",
    ] {
        let canary = explained(&cli, &cluster, target).await;
        assert_eq!(
            (&canary["reason"], &canary["pods"][0]["name"]),
            (&json!("tolerated"), &json!("canary-1"))
        );
    }
}

#[tokio::test]
async fn pod_shows_its_recorded_decision() {
    let cli = CommandLine::new(json!({})).await;
    let cluster = serve_shop(&cli).await;
    let web = explained(&cli, &cluster, "po/web-1").await;
    assert_eq!(web["decided"]["pools"], "multi-arch");
    assert_eq!(
        (&web["reason"], &web["pools"][0]["tolerated"]),
        (&json!("already-tolerated"), &json!(true))
    );
    assert_eq!(web["pods"].as_array().unwrap().len(), 1, "{web:#}");
    let output = why(&cli, &cluster, &["po/web-1", "deploy/legacy"]).await;
    assert_eq!((output.status, output.stderr.as_str()), (Some(0), ""));
    for text in [
        "Pod/web-1 in shop\n  decided    opened multi-arch\n  today      unchanged: already-tolerated\n",
        "\nDeployment/legacy in shop\n  today      unchanged: platform-missing\n",
        "closed, as not every image runs on linux/arm64",
        "linux/arm64 (misplaced)",
    ] {
        assert!(output.stdout.contains(text), "{text} in\n{}", output.stdout);
    }
}

#[tokio::test]
async fn discovered_pools_decide() {
    let discover = json!({"nodePools": true, "nodes": true});
    let cli = CommandLine::new(json!({"discover": discover})).await;
    let node_pool = |name: &str, labels: Value, taint: &str, architectures: &[&str]| {
        let requirements =
            json!([{"key": "kubernetes.io/arch", "operator": "In", "values": architectures}]);
        let taints = json!([{"key": taint, "value": "true", "effect": "NoSchedule"}]);
        let template = json!({"spec": {"requirements": requirements, "taints": taints}});
        json!({"metadata": {"name": name, "labels": labels}, "spec": {"template": template}})
    };
    let node_pools = json!([
        node_pool(
            "apart",
            json!({"tolerarch.io/pool": "found"}),
            "example.com/found",
            &["amd64"]
        ),
        node_pool(
            "wide",
            json!({}),
            "tolerarch.io/multi-arch",
            &["amd64", "arm64", "s390x"]
        ),
    ]);
    let cluster = shop_objects(&cli)
        .with("/apis/karpenter.sh/v1/nodepools", node_pools)
        .serve()
        .await;
    let output = why(&cli, &cluster, &["deploy/web", "-o", "json"]).await;
    let report: Value = serde_json::from_str(&output.stdout).unwrap();
    let pool_state = |index: usize| {
        let pool = &report["objects"][0]["pools"][index];
        (
            pool["name"].as_str().unwrap(),
            pool["open"].as_bool().unwrap(),
        )
    };
    assert_eq!(
        (pool_state(0), pool_state(1)),
        (("multi-arch", false), ("found", true)),
        "{report:#}"
    );
    let notes = report["notes"].as_array().unwrap();
    let is_expected = |note: &Value| {
        note.as_str()
            .unwrap()
            .starts_with("pool multi-arch opens nodes with linux/s390x")
    };
    assert!(notes.iter().any(is_expected), "{notes:?}");
}

/// Some operators serve a kind in one version only, and an aggregated API may be down.
#[tokio::test]
async fn kinds_of_every_version_are_found() {
    let cli = CommandLine::new(json!({})).await;
    let job = json!({
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "train", "namespace": "shop"},
        "spec": {"template": template(&cli.image("shop/train", &BOTH))},
    });
    let kinds = json!({"resources": [{"name": "mpijobs", "kind": "MPIJob", "singularName": "mpijob", "namespaced": true}]});
    let mut cluster = shop_objects(&cli)
        .with("/apis", json!({"groups": [group("away.example.com", &["v1"]), group("kubeflow.org", &["v1", "v2beta1"])]}))
        .with("/apis/kubeflow.org/v1", json!({"resources": []}))
        .with("/apis/kubeflow.org/v2beta1", kinds)
        .with("/apis/kubeflow.org/v2beta1/namespaces/shop/mpijobs/train", job);
    cluster.forbidden.push("/apis/away.example.com/v1");
    let cluster = cluster.serve().await;
    for target in [
        "mpijob/train",
        "MPIJob.kubeflow.org/train",
        "mpijobs.v2beta1.kubeflow.org/train",
    ] {
        assert_eq!(
            explained(&cli, &cluster, target).await["reason"],
            "tolerated",
            "{target}"
        );
    }
    let output = why(&cli, &cluster, &["widget/x"]).await;
    let message = "widget/x: the API server has no such kind, but may have it in an API that is unavailable: away.example.com/v1 (";
    assert!(
        output.status == Some(1) && output.stderr.contains(message),
        "{}",
        output.stderr
    );
}

#[tokio::test]
async fn missing_object_fails_and_the_others_are_explained() {
    let cli = CommandLine::new(json!({})).await;
    let cluster = serve_shop(&cli).await;
    let arguments = [
        "deploy/gone",
        "widget.example.com/x",
        "node/x",
        "deploy/web",
    ];
    let output = why(&cli, &cluster, &arguments).await;
    assert_eq!(output.status, Some(1));
    // Nodes have no namespace, so no object `x` is requested.
    let requests = cluster.requests();
    assert!(
        output.stderr.contains("tolerarch: node/x: ")
            && !requests.iter().any(|path| path.ends_with("/x")),
        "{requests:?}"
    );
    assert!(
        output.stdout.starts_with("Deployment/web in shop\n"),
        "{}",
        output.stdout
    );
    assert!(
        output.stderr.contains("tolerarch: deploy/gone: "),
        "{}",
        output.stderr
    );
    assert!(
        output
            .stderr
            .contains("widget.example.com/x: the API server has no such kind"),
        "{}",
        output.stderr
    );
    for target in ["web", "po/../nodes", "deploy/"] {
        assert_eq!(
            why(&cli, &cluster, &[target]).await.status,
            Some(2),
            "{target}"
        );
    }
}
