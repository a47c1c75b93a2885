//! Log lines of failed lookups.

use tolerarch_support::testing::Log;

use super::*;

/// Returns the one line about a failed lookup.
fn failure(log: &Log) -> String {
    let text = log.text();
    let mut lines = text.lines().filter(|line| line.contains("lookup failed"));
    let line = lines.next().unwrap().to_owned();
    assert_eq!(lines.next(), None, "{text}");
    line
}

#[tokio::test]
async fn failed_lookup_logs_its_pod_and_other_callers() {
    let log = Log::listen();
    let test = ResolverTest::new().await;
    let (repo, image) = test.multi("app");
    repo.fault(Some(Fault::hang()));
    let images = [image];
    for namespace in ["shop", "shop", "shop", "bank"] {
        test.pod(namespace, &images, Duration::ZERO).await;
    }
    later(20 * SECOND).await;
    test.wait_until_idle().await;
    let line = failure(&log);
    assert!(
        line.contains("namespace=\"shop\" uid=\"3f1d\" others=3"),
        "{line}"
    );
}

#[tokio::test]
async fn log_line_shortens_texts_of_the_review() {
    let log = Log::listen();
    let test = ResolverTest::new().await;
    let (repo, image) = test.multi("app");
    repo.fault(Some(Fault::status(500)));
    let long = "\u{1b}u".repeat(10_000);
    let requester = Requester {
        namespace: Some(&long),
        review: Some(&long),
    };
    let candidates = |_: &ImageRef| vec![CredentialCandidate::anonymous()].into();
    let deadline = Instant::now() + SECOND;
    let images = [&image];
    let mut lookups = test
        .resolver
        .lookups(requester, &images, candidates, deadline);
    assert!(matches!(lookups.next().await, Some((0, Err(_)))));
    assert!(failure(&log).len() < 4096);
}
