//! Helpers for the tests of several loops.

#![allow(clippy::unwrap_used, reason = "a test fails at once")]

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Duration;

use crate::{Context, ControllerMetrics, ControllerSettings, LOOPS, Leadership, Learner, Recorder};
use tolerarch_engine::decide::testing::TestEngine;
use tolerarch_kubernetes::cluster::OwnedName;
use tolerarch_kubernetes::cluster::testing::{Lists, Objects};
use tolerarch_support::health::Reported;
use tolerarch_support::metrics::Metrics;

/// Timeout of tests that wait for a state.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Returns a learner that writes to these objects.
pub(crate) fn learner(objects: &Objects) -> Arc<Learner> {
    let name = ControllerSettings::default().failed_images();
    Learner::new(
        Arc::new(objects.cluster()),
        OwnedName {
            namespace: "team".into(),
            name,
        },
    )
    .into()
}

/// Returns the context of a leader's loop, in a cluster with these lists and objects.
pub(crate) fn context(
    bench: &TestEngine,
    lists: &Lists,
    objects: &Objects,
    settings: &watch::Sender<ControllerSettings>,
) -> Context {
    let cluster = Arc::new(objects.cluster());
    let metrics = ControllerMetrics::register(&Metrics::new([]).unwrap()).unwrap();
    Context {
        leadership: Leadership::held(),
        watcher: lists.watcher(),
        current: bench.current.clone(),
        settings: settings.subscribe(),
        recorder: Recorder::new(Arc::clone(&cluster), "a".into(), metrics.clone()),
        metrics,
        learner: learner(objects),
        cluster,
        is_discovered: Arc::new(|| true),
        state: Reported::default(),
    }
}

/// Runs the loop of this name.
pub(crate) async fn run(name: &str, context: &Context) {
    let mut loops = LOOPS.into_iter();
    let (_, run) = loops.find(|(loop_name, _)| *loop_name == name).unwrap();
    run(&mut context.clone()).await;
}
