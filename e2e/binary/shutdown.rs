//! Shutdown. The program is unready at once, but serves until the API server has noticed. It answers every open request
//! before it ends.

use futures_util::future::join_all;
use serde_json::json;
use testregistry::{Fault, Registry};

use super::program::Program;
use crate::support::review::{Verdict, pod, post, review};
use crate::support::until;

const SIGNALS: [&str; 2] = ["TERM", "INT"];

#[tokio::test]
async fn reviews_are_served_while_draining() {
    join_all(SIGNALS.map(serves_while_it_drains)).await;
}

async fn serves_while_it_drains(signal: &str) {
    let registry = Registry::start().await;
    let repo = registry.repo("team/app");
    repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    let program = Program::start(&registry, json!({"server": {"drain": "10m"}})).await;
    let request = post("/mutate", &review("u-1", &pod(&[&repo.reference("v1")])));
    let mut open = program.webhook.connect().await;
    assert!(!open.exchange(&request).await.closes());

    program.signal(signal).await;
    until("it is not ready", async || {
        program.admin.get("/readyz").await.status == 503
    })
    .await;
    let ready = program.admin.get("/readyz").await.text();
    assert!(ready.contains("[-]serving failed\n"), "{ready}");
    assert_eq!(program.admin.get("/livez").await.status, 200);
    for connection in [&mut open, &mut program.webhook.connect().await] {
        let answer = connection.exchange(&request).await;
        assert_eq!(
            (Verdict::of(&answer).reason.as_str(), answer.closes()),
            ("tolerated", true)
        );
        assert!(connection.end().await.is_empty());
    }
}

#[tokio::test]
async fn process_ends_after_open_requests_are_answered() {
    join_all(SIGNALS.map(answers_open_requests_and_ends)).await;
}

async fn answers_open_requests_and_ends(signal: &str) {
    let registry = Registry::start().await;
    let repo = registry.repo("team/app");
    repo.fault(Some(Fault::hang()));
    // The review waits longer than the drain takes.
    let settings = json!({"server": {"drain": "1ms"}, "lookup": {"budget": "2s"}});
    let mut program = Program::start(&registry, settings).await;
    let mut waiting = program.webhook.connect().await;
    waiting
        .send(&post(
            "/mutate",
            &review("u-2", &pod(&[&repo.reference("v1")])),
        ))
        .await
        .unwrap();
    registry.wait_until(|requests| !requests.is_empty()).await;
    program.signal(signal).await;
    let answer = waiting.answer().await.unwrap();
    let verdict = Verdict::of(&answer);
    assert_eq!(
        (verdict.uid.as_str(), verdict.reason.as_str()),
        ("u-2", "budget-exceeded")
    );
    assert!(answer.closes());
    assert_eq!(program.ended().await.code(), Some(0));
    program.logged("ended").await;
}

#[tokio::test]
async fn second_signal_ends_the_process_at_once() {
    let registry = Registry::start().await;
    let mut program = Program::start(&registry, json!({"server": {"drain": "10m"}})).await;
    program.signal("INT").await;
    until("it is not ready", async || {
        program.admin.get("/readyz").await.status == 503
    })
    .await;
    program.signal("TERM").await;
    assert_eq!(program.ended().await.code(), Some(0));
    program
        .logged("a second signal: ended at once, open requests are cut off")
        .await;
}
