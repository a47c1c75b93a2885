//! `tolerarch doctor`: its statuses and its JSON. What it finds is tried in its own module, against a fake API server.

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use super::Ran;
use super::cluster::{FakeCluster, kubeconfig};
use crate::support::soon;

/// A cluster where nothing is installed.
async fn nothing() -> String {
    let webhooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let cluster = FakeCluster::default()
        .with("/version", json!({"minor": "34", "gitVersion": "v1.34.0"}))
        .with(
            "/api/v1/namespaces",
            json!([{"metadata": {"name": "default"}}]),
        )
        .with(webhooks, json!([]));
    cluster.serve().await.url
}

async fn doctor(server: &str, arguments: &[&str]) -> Ran {
    let directory = TempDir::new().unwrap();
    let file = kubeconfig(server, directory.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_tolerarch"));
    command
        .arg("doctor")
        .arg("--kubeconfig")
        .arg(file)
        .args(arguments)
        .kill_on_drop(true);
    // For registries: no command fails or asks the API server by it.
    command.env("HTTPS_PROXY", "http://127.0.0.1:1");
    let output = soon("the end", command.output()).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran {
        status: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

#[tokio::test]
async fn something_wrong_is_status_3() {
    let api = nothing().await;
    let ran = doctor(&api, &[]).await;
    assert_eq!(ran.status, Some(3), "{}", ran.stderr);
    // What is wrong comes first.
    assert!(ran.stdout.starts_with("✗ webhook "), "{}", ran.stdout);
    assert!(ran.stdout.contains("\n✓ version "), "{}", ran.stdout);
    assert!(ran.stdout.contains("→ install it"), "{}", ran.stdout);
    let ran = doctor(&api, &["-o", "json"]).await;
    assert_eq!(ran.status, Some(3));
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(json["healthy"], false);
    let failed = json["checks"]
        .as_array()
        .unwrap()
        .iter()
        .find(|check| check["status"] == "failed")
        .unwrap();
    assert_eq!(failed["check"], "webhook");
    assert!(
        failed["fix"]
            .as_str()
            .unwrap()
            .contains("helm upgrade --install")
    );
}

#[tokio::test]
async fn nothing_checked_is_status_4() {
    let webhooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let version = json!({"minor": "34", "gitVersion": "v1.34.0"});
    let mut cluster = FakeCluster::default().with("/version", version);
    cluster.forbidden = vec![
        webhooks,
        "/api/v1/namespaces",
        "/api/v1/namespaces/default/pods",
    ];
    let api = cluster.serve().await.url;
    let ran = doctor(&api, &["-o", "json"]).await;
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(
        (ran.status, &json["status"], &json["healthy"]),
        (Some(4), &json!("unproven"), &json!(false))
    );
}

#[tokio::test]
async fn a_cluster_that_cannot_be_asked_is_status_1() {
    let gone = format!(
        "http://{}",
        testregistry::reserve("127.0.0.1:0".parse().unwrap()).unwrap()
    );
    let ran = doctor(&gone, &[]).await;
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(1), ""));
    let expected = format!(
        "tolerarch: cannot reach the API server {gone} (context \"c\"): connection refused\n"
    );
    assert_eq!(ran.stderr, expected);
    let ran = doctor(&gone, &["--context", "other"]).await;
    assert_eq!(ran.status, Some(1));
    assert!(
        ran.stderr.contains("kubeconfig cannot be used"),
        "{}",
        ran.stderr
    );
}
