//! Thousands of Pods with a few images. Many of the Pods are cancelled before they have their answer.

use super::*;

const SEED: u64 = 7;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn thousands_of_pods_get_true_answers_with_few_requests() {
    let test = Arc::new(ResolverTest::on_another_clock().await);
    let amd64 = Support::Index("linux/amd64".parse().unwrap());
    let images: Arc<Vec<(ImageRef, Outcome)>> = Arc::new(
        (0..8)
            .map(|i| {
                let repo = test.remote.repo(&format!("app{i}"));
                match i % 4 {
                    0 => repo.index(Some("v1"), ["linux/amd64"]),
                    _ => repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]),
                };
                let tag = if i == 7 { "gone" } else { "v1" };
                let expected = if i == 7 {
                    Err(LookupError::NotFound)
                } else {
                    Ok(if i % 4 == 0 { amd64 } else { BOTH })
                };
                (repo.reference(tag).parse().unwrap(), expected)
            })
            .collect(),
    );
    let mut random = fastrand::Rng::with_seed(SEED);
    let tasks: Vec<_> = (0..5000)
        .map(|i| {
            let test = Arc::clone(&test);
            let images = Arc::clone(&images);
            let image = random.usize(..images.len());
            let limits = random.u64(0..500);
            let limits = Duration::from_micros(if i % 3 == 0 { limits } else { 60_000_000 });
            tokio::spawn(async move {
                let (image, expected) = &images[image];
                let lookup = async {
                    loop {
                        match test.look_up_within(image, 60 * SECOND).await {
                            // On a busy machine the registry may seem silent, so that Pods wait only `PATIENCE`.
                            Err(LookupError::BudgetExceeded) => {}
                            outcome => break outcome,
                        }
                    }
                };
                if let Ok(outcome) = timeout(limits, lookup).await {
                    assert_eq!(outcome, *expected, "{image}");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    test.wait_until_idle().await;
    assert_eq!(test.new_requests().len(), images.len());
    assert!(
        test.metrics
            .render()
            .unwrap()
            .contains("tolerarch_lookups_in_flight 0")
    );
}
