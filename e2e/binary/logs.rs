//! What the log tells, and what it costs.

use serde_json::json;
use testregistry::Registry;

use super::program::Program;
use crate::support::https::request;
use crate::support::review::{Verdict, opted_out, pod, post, review};

#[tokio::test]
async fn tells_each_decision_in_one_log_line() {
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

/// Secrets get into Pods in many places, and the API server may authenticate itself; at no level of the log may any of
/// it show.
#[tokio::test]
async fn tells_nothing_of_the_content_of_a_pod() {
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
    let mut told = String::new();
    for (status, body) in bodies {
        let answer = program
            .webhook
            .ask(&request(
                "POST",
                "/mutate?key=canary",
                &headers,
                body.as_bytes(),
            ))
            .await;
        assert_eq!(answer.status, status, "{body}");
        told += &answer.text();
    }
    told += &program.metrics().await;
    told += &program.written().await;
    assert!(
        told.contains("reviewed") && told.contains("not a review"),
        "{told}"
    );
    assert!(!told.to_lowercase().contains("canary"), "{told}");
    assert!(
        registry
            .requests()
            .iter()
            .all(|request| !format!("{request:?}").contains("canary"))
    );
}

/// The kubelet's side of the pipe may stall with its disk.
#[tokio::test]
async fn a_reader_of_the_log_that_stalls_costs_no_review() {
    let mut program = Program::start(&Registry::start().await, json!({})).await;
    program.stop_reading_the_log();
    // A pipe takes 64 KiB.
    let request = post("/mutate", &review("u-1", &opted_out()));
    let mut connection = program.webhook.connect().await;
    for _ in 0..1000 {
        assert_eq!(
            Verdict::of(&connection.ask(&request).await).reason,
            "opted-out"
        );
    }
    program.signal("TERM").await;
    assert_eq!(program.ended().await.code(), Some(0));
}
