use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::FutureExt;

use super::*;

/// Task that panics and returns in turns, each time at once. Its fifth run does not end.
struct Fragile(Arc<AtomicU64>);

impl Fragile {
    async fn run(&mut self) {
        match self.0.fetch_add(1, Ordering::SeqCst) {
            0 | 2 => panic!("a canary"),
            1 | 3 => {}
            _ => std::future::pending().await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn ended_task_is_restarted_with_growing_pauses() {
    let metrics = Metrics::new([]).unwrap();
    let mut supervisor = Supervisor::register(&metrics).unwrap();
    let runs = Arc::new(AtomicU64::new(0));
    let state = Reported::default();
    let task = Fragile(Arc::clone(&runs));
    state.set_fault("its own", true);
    supervisor.keep("fragile", state.clone(), task, |task| Box::pin(task.run()));
    let restarts = || supervisor.restarts.with_label_values(&["fragile"]).get();
    let start = Instant::now();
    for (run, pause) in [(1, 1), (2, 2), (3, 4), (4, 8)] {
        sleep(Duration::from_millis(100)).await;
        assert_eq!((runs.load(Ordering::SeqCst), restarts()), (run, run - 1));
        assert!(state.has(ENDED), "{run}");
        sleep(Duration::from_secs(pause) - Duration::from_millis(100)).await;
        // The pause of the supervisor ends at the same time.
        tokio::task::yield_now().await;
    }
    sleep(Duration::from_millis(100)).await;
    assert_eq!(start.elapsed().as_secs(), 15);
    assert_eq!((runs.load(Ordering::SeqCst), restarts()), (5, 4));
    assert!(!state.has(ENDED) && state.has("its own"));
    assert!(supervisor.ended().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn ended_supervision_is_noticed() {
    let mut supervisor = Supervisor::register(&Metrics::new([]).unwrap()).unwrap();
    assert!(supervisor.ended().now_or_never().is_none(), "without tasks");
    supervisor.tasks.spawn(async {});
    supervisor.ended().await;
}
