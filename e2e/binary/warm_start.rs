//! The warm start: the program looks up images of running Pods before new Pods need them.

use serde_json::json;
use testregistry::{Kind, Registry};

use super::cli::cluster::FakeCluster;
use super::program::Program;
use crate::support::review::pod;
use crate::support::until;

const PODS: &str = "/api/v1/pods";

#[tokio::test]
async fn images_of_running_pods_are_cached_at_start() {
    let registry = Registry::start().await;
    let repo = registry.repo("team/app");
    repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    let mut running = pod(&[&repo.reference("v1")]);
    running["metadata"] = json!({"name": "web", "namespace": "team", "resourceVersion": "1"});
    running["status"] = json!({"phase": "Running"});
    let cluster = FakeCluster::default()
        .with(PODS, json!([running]))
        .serve()
        .await;
    let directory = tempfile::tempdir().unwrap();
    let environment = [("KUBECONFIG", &*cluster.kubeconfig(directory.path()))];

    let cold = Program::start_with(&registry, json!({}), &environment).await;
    let settings = json!({"cache": {"warm": {"fromPods": true}}});
    let warm = Program::start_with(&registry, settings, &environment).await;
    warm.logged("looked up the images of running Pods").await;
    assert!(
        cluster.requests()[0].contains("fieldSelector=status.phase%3DRunning"),
        "{:?}",
        cluster.requests()
    );
    let manifest_requests =
        || repo.count(|request| request.method == "GET" && request.kind == Kind::Manifest);
    assert_eq!(manifest_requests(), 1);
    assert_eq!(
        warm.review(&pod(&[&repo.reference("v1")])).await.reason,
        "tolerated"
    );
    assert_eq!(manifest_requests(), 1, "the image is cached");
    let ready = warm.admin.get("/readyz?verbose").await.text();
    assert!(ready.contains("[+]warm-start ok"), "{ready}");
    // The warm start is off by default.
    assert!(
        !cold
            .admin
            .get("/readyz?verbose")
            .await
            .text()
            .contains("warm-start")
    );
}

#[tokio::test]
async fn missing_right_to_list_pods_is_reported() {
    let registry = Registry::start().await;
    let repo = registry.repo("team/app");
    repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    let cluster = FakeCluster {
        forbidden: vec![PODS],
        ..FakeCluster::default()
    }
    .serve()
    .await;
    let directory = tempfile::tempdir().unwrap();
    let environment = [("KUBECONFIG", &*cluster.kubeconfig(directory.path()))];
    let settings = json!({"cache": {"warm": {"fromPods": true}}});
    let program = Program::start_with(&registry, settings, &environment).await;
    until("its line", async || {
        let ready = program.admin.get("/readyz?verbose").await;
        ready.status == 200
            && ready
                .text()
                .contains("[-]warm-start failed: Pods could not be listed")
    })
    .await;
    assert_eq!(
        program.review(&pod(&[&repo.reference("v1")])).await.reason,
        "tolerated"
    );
}
