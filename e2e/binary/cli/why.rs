//! `tolerarch why`: what was decided on objects of a cluster, what would be today, and where their Pods run.

use serde_json::{Value, json};

use super::cluster::{FakeCluster, Served, group};
use super::{BOTH, Desk, Ran};

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

/// Deployments web and legacy, a Rollout, and their Pods.
async fn shop(desk: &Desk) -> Served {
    shop_of(desk).serve().await
}

fn shop_of(desk: &Desk) -> FakeCluster {
    let web = desk.image("shop/web", &BOTH);
    let legacy = desk.image("shop/legacy", &BOTH[..1]);
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
    let mut opened = pod("web-1", "web-5d5c", &web, "arm");
    opened["metadata"]["annotations"] = json!({"tolerarch.io/pools": "multi-arch"});
    opened["spec"]["tolerations"] =
        json!([{"key": "tolerarch.io/multi-arch", "operator": "Exists", "effect": "NoSchedule"}]);
    // As deep as the API server stores them: they decide nothing.
    let deep = (0..200).fold(json!({}), |inner, _| json!({"f:a": inner}));
    opened["metadata"]["managedFields"] = json!([{"manager": "web", "fieldsV1": deep}]);
    let pods = [
        opened.clone(),
        pod("web-2", "web-5d5c", &web, "x86"),
        pod("legacy-1", "legacy-1", &legacy, "arm"),
        pod("canary-1", "canary-1", &web, "x86"),
    ];
    let node = |name: &str, arch: &str| json!({"metadata": {"name": name, "labels": {"kubernetes.io/arch": arch, "kubernetes.io/os": "linux"}}});
    let rollouts = group("argoproj.io", &["v1alpha1"]);
    FakeCluster::default()
        .with(&format!("{DEPLOYMENTS}/web"), deployment("web", &web))
        .with(&format!("{DEPLOYMENTS}/legacy"), deployment("legacy", &legacy))
        .with(&format!("{PODS}/web-1"), opened)
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

async fn why(desk: &Desk, cluster: &Served, arguments: &[&str]) -> Ran {
    let kubeconfig = cluster.kubeconfig(desk.path());
    desk.run(
        &[
            &["why", "--kubeconfig", &kubeconfig, "-n", "shop"],
            arguments,
        ]
        .concat(),
    )
    .await
}

async fn explained(desk: &Desk, cluster: &Served, target: &str) -> Value {
    let ran = why(desk, cluster, &[target, "-o", "json"]).await;
    assert_eq!(ran.status, Some(0), "{target}: {}", ran.stderr);
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(json["notes"], json!([]));
    json["objects"][0].clone()
}

#[tokio::test]
async fn a_workload_is_explained_by_its_images_and_pods() {
    let desk = Desk::new(json!({})).await;
    let cluster = shop(&desk).await;
    for target in ["deploy/web", "deployments/web", "Deployment.apps/web"] {
        let web = explained(&desk, &cluster, target).await;
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
    let legacy = explained(&desk, &cluster, "deploy/legacy").await;
    assert_eq!(
        (&legacy["decision"], &legacy["reason"]),
        (&json!("unchanged"), &json!("platform-missing"))
    );
    assert_eq!(legacy["images"][0]["lacks"], json!(["linux/arm64"]));
    assert_eq!(legacy["pools"][0]["lacks"], json!(["linux/arm64"]));
    assert_eq!(
        legacy["pods"][0]["misplaced"],
        json!([format!("{}/shop/legacy:v1", desk.registry.address())])
    );
    for target in [
        "rollout/canary",
        "ro.argoproj.io/canary",
        "rollouts.argoproj.io/canary",
    ] {
        let canary = explained(&desk, &cluster, target).await;
        assert_eq!(
            (&canary["reason"], &canary["pods"][0]["name"]),
            (&json!("tolerated"), &json!("canary-1"))
        );
    }
}

#[tokio::test]
async fn a_pod_shows_what_was_decided_on_it() {
    let desk = Desk::new(json!({})).await;
    let cluster = shop(&desk).await;
    let web = explained(&desk, &cluster, "po/web-1").await;
    assert_eq!(web["decided"]["pools"], "multi-arch");
    assert_eq!(
        (&web["reason"], &web["pools"][0]["tolerated"]),
        (&json!("already-tolerated"), &json!(true))
    );
    assert_eq!(web["pods"].as_array().unwrap().len(), 1, "{web:#}");
    let ran = why(&desk, &cluster, &["po/web-1", "deploy/legacy"]).await;
    assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""));
    for text in [
        "Pod/web-1 in shop\n  decided    opened multi-arch\n  today      unchanged: already-tolerated\n",
        "\nDeployment/legacy in shop\n  today      unchanged: platform-missing\n",
        "closed, as not every image runs on linux/arm64",
        "linux/arm64 (misplaced)",
    ] {
        assert!(ran.stdout.contains(text), "{text} in\n{}", ran.stdout);
    }
}

#[tokio::test]
async fn pools_are_those_that_the_cluster_shows() {
    let discover = json!({"nodePools": true, "nodes": true});
    let desk = Desk::new(json!({"discover": discover})).await;
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
    let cluster = shop_of(&desk)
        .with("/apis/karpenter.sh/v1/nodepools", node_pools)
        .serve()
        .await;
    let ran = why(&desk, &cluster, &["deploy/web", "-o", "json"]).await;
    let all: Value = serde_json::from_str(&ran.stdout).unwrap();
    let open = |place: usize| {
        let pool = &all["objects"][0]["pools"][place];
        (
            pool["name"].as_str().unwrap(),
            pool["open"].as_bool().unwrap(),
        )
    };
    assert_eq!(
        (open(0), open(1)),
        (("multi-arch", false), ("found", true)),
        "{all:#}"
    );
    let notes = all["notes"].as_array().unwrap();
    let is_told = |note: &Value| {
        note.as_str()
            .unwrap()
            .starts_with("pool multi-arch opens nodes with linux/s390x")
    };
    assert!(notes.iter().any(is_told), "{notes:?}");
}

/// As with operators that have moved some of their kinds only, and beside an aggregated API that is down.
#[tokio::test]
async fn kinds_of_any_version_are_found() {
    let desk = Desk::new(json!({})).await;
    let job = json!({
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": "train", "namespace": "shop"},
        "spec": {"template": template(&desk.image("shop/train", &BOTH))},
    });
    let kinds = json!({"resources": [{"name": "mpijobs", "kind": "MPIJob", "singularName": "mpijob", "namespaced": true}]});
    let mut cluster = shop_of(&desk)
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
            explained(&desk, &cluster, target).await["reason"],
            "tolerated",
            "{target}"
        );
    }
    let ran = why(&desk, &cluster, &["widget/x"]).await;
    let message = "widget/x: the API server has no such kind, but may have it in an API that is unavailable: away.example.com/v1 (";
    assert!(
        ran.status == Some(1) && ran.stderr.contains(message),
        "{}",
        ran.stderr
    );
}

#[tokio::test]
async fn what_is_not_there_is_a_failure_and_the_rest_is_done() {
    let desk = Desk::new(json!({})).await;
    let cluster = shop(&desk).await;
    let arguments = [
        "deploy/gone",
        "widget.example.com/x",
        "node/x",
        "deploy/web",
    ];
    let ran = why(&desk, &cluster, &arguments).await;
    assert_eq!(ran.status, Some(1));
    // Nodes are in no namespace.
    let asked = cluster.asked();
    assert!(
        ran.stderr.contains("tolerarch: node/x: ")
            && !asked.iter().any(|path| path.ends_with("/x")),
        "{asked:?}"
    );
    assert!(
        ran.stdout.starts_with("Deployment/web in shop\n"),
        "{}",
        ran.stdout
    );
    assert!(
        ran.stderr.contains("tolerarch: deploy/gone: "),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr
            .contains("widget.example.com/x: the API server has no such kind"),
        "{}",
        ran.stderr
    );
    for target in ["web", "po/../nodes", "deploy/"] {
        assert_eq!(
            why(&desk, &cluster, &[target]).await.status,
            Some(2),
            "{target}"
        );
    }
}
