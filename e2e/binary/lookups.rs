//! A Pod waits for a registry no longer than its budget. The lookup goes on, and its result serves the next Pod.

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

/// Returns the methods of all requests for manifests: one for the index, and one for each platform in it.
fn manifest_methods(repo: &Repo) -> Vec<String> {
    let requests = repo
        .requests()
        .into_iter()
        .filter(|request| request.kind == Kind::Manifest);
    requests.map(|request| request.method.to_string()).collect()
}

/// The request has the API server's timeout, of which a second is reserved for the answer. The smaller one of budget and
/// timeout ends each review.
#[tokio::test]
async fn hanging_registry_costs_a_pod_only_its_budget() {
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
                let started = Instant::now();
                let verdict = program.review_at(path, &pod(&[&image])).await;
                let took = started.elapsed().as_millis();
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
async fn lookup_goes_on_after_the_pods_budget() {
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
    assert_eq!(manifest_methods(&repo), ["GET", "HEAD", "HEAD"]);
}

/// The API server hangs up after its own timeout.
#[tokio::test]
async fn lookup_goes_on_after_the_client_hangs_up() {
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
    assert_eq!(manifest_methods(&repo), ["GET", "HEAD", "HEAD"]);
}

#[tokio::test]
async fn recovered_registry_gets_requests_again() {
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
    // Slow enough that all Pods arrive before the lookup ends.
    repo.fault(Some(Fault::drip(Duration::from_millis(1))));
    let program = Program::start(&registry, json!({"lookup": {"budget": "20s"}})).await;

    let pod = pod(&[&repo.reference("v1")]);
    let verdicts = join_all((0..50).map(|_| program.review_at("/mutate?timeout=30s", &pod))).await;
    // On a busy machine some Pods arrive when the registry has been silent for long. These wait only a moment.
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
    assert_eq!(manifest_methods(&repo), ["GET", "HEAD", "HEAD"]);
}
