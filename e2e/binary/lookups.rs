//! A Pod waits for a registry no longer than it may, and what it could not wait for is there for the next one.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use testregistry::{Fault, Kind, Registry, Repo};
use tokio::time::Instant;

use super::program::Program;
use crate::support::review::{pod, post, review};
use crate::support::until;

fn multi_arch(registry: &Registry) -> Repo {
    let repo = registry.repo("team/app");
    repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    repo
}

/// The methods of the requests for manifests: of the index, and of what it names for each platform.
fn manifests(repo: &Repo) -> Vec<String> {
    let requests = repo
        .requests()
        .into_iter()
        .filter(|request| request.kind == Kind::Manifest);
    requests.map(|request| request.method.to_string()).collect()
}

/// The API server tells its own timeout, of which a second is kept for the way back. None of them waits for what would end
/// it otherwise: the registry, or the larger one of the two times.
#[tokio::test]
async fn a_hanging_registry_costs_a_pod_its_budget_and_no_more() {
    let registry = Registry::start().await;
    let repo = multi_arch(&registry);
    repo.fault(Some(Fault::hang()));
    let image = repo.reference("v1");
    let program =
        |budget: &'static str| Program::start(&registry, json!({"lookup": {"budget": budget}}));
    let short = program("300ms").await;
    let long = program("20s").await;

    let cases = [
        (&short, "/mutate", 300..20_000),
        (&short, "/mutate?timeout=30s", 300..20_000),
        (&long, "/mutate?timeout=1s", 0..20_000),
        (&long, "/mutate?timeout=2s", 1000..20_000),
    ];
    join_all(
        cases
            .into_iter()
            .map(async |(program, path, milliseconds)| {
                let begun = Instant::now();
                let verdict = program.review_at(path, &pod(&[&image])).await;
                let took = begun.elapsed().as_millis();
                assert_eq!(
                    verdict.audit(),
                    ("unchanged", "budget-exceeded", Some(image.as_str())),
                    "{path}"
                );
                assert!(milliseconds.contains(&took), "{path}: {took} ms");
            }),
    )
    .await;
}

#[tokio::test]
async fn a_lookup_goes_on_behind_the_pod_that_could_not_wait() {
    let registry = Registry::start().await;
    let repo = multi_arch(&registry);
    repo.fault(Some(Fault::drip(Duration::from_millis(1))));
    let program = Program::start(&registry, json!({"lookup": {"budget": "100ms"}})).await;

    let pod = pod(&[&repo.reference("v1")]);
    assert_eq!(program.review(&pod).await.reason, "budget-exceeded");
    let fetched = format!(
        r#"tolerarch_lookups_total{{registry="{}",result="fetched"}}"#,
        registry.address()
    );
    until("the lookup's end", async || {
        program.metric(&fetched).await == "1"
    })
    .await;
    assert_eq!(program.review(&pod).await.reason, "tolerated");
    assert_eq!(manifests(&repo), ["GET", "HEAD", "HEAD"]);
}

/// The API server hangs up when its own time is over.
#[tokio::test]
async fn a_lookup_goes_on_when_the_client_hangs_up() {
    let registry = Registry::start().await;
    let repo = multi_arch(&registry);
    repo.fault(Some(Fault::drip(Duration::from_millis(1))));
    let program = Program::start(&registry, json!({})).await;

    let pod = pod(&[&repo.reference("v1")]);
    let mut connection = program.webhook.connect().await;
    connection
        .send(&post("/mutate", &review("u-1", &pod)))
        .await
        .unwrap();
    registry.wait_until(|requests| !requests.is_empty()).await;
    drop(connection);
    assert_eq!(program.review(&pod).await.reason, "tolerated");
    assert_eq!(manifests(&repo), ["GET", "HEAD", "HEAD"]);
}

#[tokio::test]
async fn a_registry_that_recovers_is_asked_again() {
    let registry = Registry::start().await;
    let repo = multi_arch(&registry);
    repo.fault(Some(Fault::hang()));
    let settings = json!({
        "lookup": {"budget": "100ms", "timeout": "2s"},
        "cache": {"negative": {"timeout": "1ms"}},
    });
    let program = Program::start(&registry, settings).await;

    let pod = pod(&[&repo.reference("v1")]);
    assert_eq!(program.review(&pod).await.reason, "budget-exceeded");
    repo.fault(None);
    until("a toleration", async || {
        program.review(&pod).await.reason == "tolerated"
    })
    .await;
}

#[tokio::test]
async fn many_pods_of_one_new_image_cost_one_request() {
    let registry = Registry::start().await;
    let repo = multi_arch(&registry);
    // Slow enough for all of them to come before it is known.
    repo.fault(Some(Fault::drip(Duration::from_millis(1))));
    let program = Program::start(&registry, json!({"lookup": {"budget": "20s"}})).await;

    let pod = pod(&[&repo.reference("v1")]);
    let verdicts = join_all((0..50).map(|_| program.review_at("/mutate?timeout=30s", &pod))).await;
    // On a busy machine some come when the registry has been silent for long, and wait no longer than a moment.
    let count = |reason: &str| {
        verdicts
            .iter()
            .filter(|verdict| verdict.reason == reason)
            .count()
    };
    let tolerated = count("tolerated");
    assert!(
        tolerated > 0 && tolerated + count("budget-exceeded") == verdicts.len(),
        "{verdicts:?}"
    );
    assert_eq!(program.review(&pod).await.reason, "tolerated");
    assert_eq!(manifests(&repo), ["GET", "HEAD", "HEAD"]);
}
