//! Log lines of failed lookups.

use tolerarch_support::testing::Log;

use super::*;

/// Returns the line of the failed lookup.
fn failure(log: &Log) -> String {
    let text = log.text();
    let mut lines = text.lines().filter(|line| line.contains("lookup failed"));
    let line = lines.next().unwrap().to_owned();
    assert_eq!(lines.next(), None, "{text}");
    line
}

#[tokio::test]
async fn a_failed_lookup_names_who_began_it_and_how_many_others_waited() {
    let log = Log::listen();
    let bench = Bench::new().await;
    let (repo, image) = bench.multi("app");
    repo.fault(Some(Fault::hang()));
    let images = [image];
    for namespace in ["shop", "shop", "shop", "bank"] {
        bench.pod(namespace, &images, Duration::ZERO).await;
    }
    later(20 * SECOND).await;
    bench.landed().await;
    let line = failure(&log);
    assert!(
        line.contains("namespace=\"shop\" uid=\"3f1d\" others=3"),
        "{line}"
    );
}

#[tokio::test]
async fn what_a_line_names_is_short_whatever_the_review_says() {
    let log = Log::listen();
    let bench = Bench::new().await;
    let (repo, image) = bench.multi("app");
    repo.fault(Some(Fault::status(500)));
    let long = "\u{1b}u".repeat(10_000);
    let requester = Requester {
        namespace: Some(&long),
        review: Some(&long),
    };
    let candidates = |_: &ImageRef| vec![CredentialCandidate::anonymous()].into();
    let deadline = Instant::now() + SECOND;
    let images = [&image];
    let mut lookups = bench
        .resolver
        .lookups(requester, &images, candidates, deadline);
    assert!(matches!(lookups.next().await, Some((0, Err(_)))));
    assert!(failure(&log).len() < 4096);
}
