//! `tolerarch doctor`: its exit statuses and its JSON. Unit tests of its module cover the findings.

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use super::CommandOutput;
use super::cluster::{FakeCluster, kubeconfig};
use crate::support::soon;

/// Serves a cluster where tolerarch is not installed, and returns its URL.
async fn empty_cluster() -> String {
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

async fn doctor(server: &str, arguments: &[&str]) -> CommandOutput {
    let directory = TempDir::new().unwrap();
    let file = kubeconfig(server, directory.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_tolerarch"));
    command
        .arg("doctor")
        .arg("--kubeconfig")
        .arg(file)
        .args(arguments)
        .kill_on_drop(true);
    // The proxy is only for registries: requests to the API server do not use it, so no command fails.
    command.env("HTTPS_PROXY", "http://127.0.0.1:1");
    let output = soon("the end", command.output()).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    CommandOutput {
        status: output.status.code(),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

#[tokio::test]
async fn failed_check_is_status_3() {
    let url = empty_cluster().await;
    let output = doctor(&url, &[]).await;
    assert_eq!(output.status, Some(3), "{}", output.stderr);
    // The failed check comes first.
    assert!(output.stdout.starts_with("✗ webhook "), "{}", output.stdout);
    assert!(output.stdout.contains("\n✓ version "), "{}", output.stdout);
    assert!(output.stdout.contains("→ install it"), "{}", output.stdout);
    let output = doctor(&url, &["-o", "json"]).await;
    assert_eq!(output.status, Some(3));
    let json: Value = serde_json::from_str(&output.stdout).unwrap();
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
    let url = cluster.serve().await.url;
    let output = doctor(&url, &["-o", "json"]).await;
    let json: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(
        (output.status, &json["status"], &json["healthy"]),
        (Some(4), &json!("unproven"), &json!(false))
    );
}

#[tokio::test]
async fn unreachable_cluster_is_status_1() {
    let url = format!(
        "http://{}",
        testregistry::reserve("127.0.0.1:0".parse().unwrap()).unwrap()
    );
    let output = doctor(&url, &[]).await;
    assert_eq!((output.status, output.stdout.as_str()), (Some(1), ""));
    let expected = format!(
        "tolerarch: cannot reach the API server {url} (context \"c\"): connection refused\n"
    );
    assert_eq!(output.stderr, expected);
    let output = doctor(&url, &["--context", "other"]).await;
    assert_eq!(output.status, Some(1));
    assert!(
        output.stderr.contains("kubeconfig cannot be used"),
        "{}",
        output.stderr
    );
}
