//! Thousands of Pods on few images, many of which go away before they have their answer.

use super::*;

const SEED: u64 = 7;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn thousands_of_pods_some_cancelled_get_true_answers_and_cost_few_requests() {
    let bench = Arc::new(Bench::on_another_clock().await);
    let amd64 = Support::Index("linux/amd64".parse().unwrap());
    let images: Arc<Vec<(ImageRef, Outcome)>> = Arc::new(
        (0..8)
            .map(|i| {
                let repo = bench.remote.repo(&format!("app{i}"));
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
            let bench = Arc::clone(&bench);
            let images = Arc::clone(&images);
            let image = random.usize(..images.len());
            let limits = random.u64(0..500);
            let limits = Duration::from_micros(if i % 3 == 0 { limits } else { 60_000_000 });
            tokio::spawn(async move {
                let (image, expected) = &images[image];
                let asked = async {
                    loop {
                        match bench.ask_within(image, 60 * SECOND).await {
                            // Pods wait `PATIENCE` only while a busy machine is as silent as a registry that hangs.
                            Err(LookupError::BudgetExceeded) => {}
                            outcome => break outcome,
                        }
                    }
                };
                if let Ok(outcome) = timeout(limits, asked).await {
                    assert_eq!(outcome, *expected, "{image}");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    bench.landed().await;
    assert_eq!(bench.seen().len(), images.len());
    assert!(
        bench
            .metrics
            .render()
            .unwrap()
            .contains("tolerarch_lookups_in_flight 0")
    );
}
