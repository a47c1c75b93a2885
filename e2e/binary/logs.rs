//! The log: its lines, its secrets, and a reader that stalls.

use serde_json::json;
use testregistry::Registry;

use super::program::Program;
use crate::support::https::request;
use crate::support::review::{Verdict, opted_out, pod, post, review};

#[tokio::test]
async fn each_decision_is_one_log_line() {
    let registry = Registry::start().await;
    let repo = registry.repo("team/app");
    repo.image("linux/amd64", Some("v1"));
    let program = Program::start(&registry, json!({})).await;

    let image = repo.reference("v1");
    program.review(&pod(&[&image])).await;
    let line = program.logged("reviewed").await;
    for (field, value) in [
        ("level", "INFO"),
        ("namespace", "shop"),
        ("pod", "ReplicaSet/web-5d5c"),
        ("uid", "u-1"),
        ("reason", "platform-missing"),
        ("image", &image),
        ("blockers", &format!("{image} (lacks linux/arm64)")),
        ("pools", ""),
    ] {
        assert_eq!(line[field], value, "{field} in {line}");
    }
    assert!(line["milliseconds"].as_f64().unwrap() > 0.0, "{line}");
    assert_eq!(program.written().await.matches("\"reviewed\"").count(), 1);
}

/// Pods hold secrets in many places, and requests of the API server may have credentials. No log level may show any of them.
#[tokio::test]
async fn content_of_a_pod_is_never_logged() {
    let registry = Registry::start().await;
    let repo = registry.repo("team/app");
    repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    let program = Program::start(&registry, json!({"log": {"level": "trace"}})).await;

    let mut pod = pod(&[&repo.reference("v1"), &repo.reference("absent")]);
    pod["metadata"]["annotations"] = json!({"note": "canary"});
    pod["metadata"]["labels"] = json!({"note": "canary"});
    let container = &mut pod["spec"]["containers"][0];
    container["env"] = json!([{"name": "PASSWORD", "value": "canary"}]);
    container["args"] = json!(["--password=canary"]);
    container["command"] = json!(["canary"]);
    let mut malformed = pod.clone();
    malformed["spec"]["tolerations"] = json!("canary");
    let headers = [
        ("Content-Type", "application/json"),
        ("Authorization", "Bearer canary"),
        ("Cookie", "canary"),
        ("X-Canary", "canary"),
    ];
    let bodies = [
        (200, review("u-1", &pod).to_string()),
        (200, review("u-1", &malformed).to_string()),
        (400, json!({"kind": "canary"}).to_string()),
        (400, "canary".into()),
    ];
    let mut output = String::new();
    for (status, body) in bodies {
        let answer = program
            .webhook
            .exchange(&request(
                "POST",
                "/mutate?key=canary",
                &headers,
                body.as_bytes(),
            ))
            .await;
        assert_eq!(answer.status, status, "{body}");
        output += &answer.text();
    }
    output += &program.metrics().await;
    output += &program.written().await;
    assert!(
        output.contains("reviewed") && output.contains("not a review"),
        "{output}"
    );
    assert!(!output.to_lowercase().contains("canary"), "{output}");
    assert!(
        registry
            .requests()
            .iter()
            .all(|request| !format!("{request:?}").contains("canary"))
    );
}

/// The reader of the pipe on the node may stall with its disk.
#[tokio::test]
async fn stalled_log_reader_delays_no_review() {
    let mut program = Program::start(&Registry::start().await, json!({})).await;
    program.stop_reading_the_log();
    // A pipe holds 64 KiB.
    let request = post("/mutate", &review("u-1", &opted_out()));
    let mut connection = program.webhook.connect().await;
    for _ in 0..1000 {
        assert_eq!(
            Verdict::of(&connection.exchange(&request).await).reason,
            "opted-out"
        );
    }
    program.signal("TERM").await;
    assert_eq!(program.ended().await.code(), Some(0));
}
