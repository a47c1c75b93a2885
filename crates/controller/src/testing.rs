//! What the tests of several loops need.

#![allow(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test fails at once"
)]

use std::io;
use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use tokio::time::Duration;
use tracing::Dispatch;
use tracing::dispatcher::DefaultGuard;
use tracing::subscriber::NoSubscriber;

use crate::{Context, ControllerMetrics, ControllerSettings, LOOPS, Leadership, Learner, Recorder};
use tolerarch_engine::decide::testing::Bench;
use tolerarch_kubernetes::cluster::OwnedName;
use tolerarch_kubernetes::cluster::testing::{Lists, Objects};
use tolerarch_support::health::Reported;
use tolerarch_support::metrics::Metrics;

/// How long a test waits for what has to come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A learner that writes to these objects.
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

/// What a loop of a leader has, in a cluster with these lists and objects.
pub(crate) fn context(
    bench: &Bench,
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
    let (_, run) = LOOPS.into_iter().find(|(known, _)| *known == name).unwrap();
    run(&mut context.clone()).await;
}

/// What is logged by this thread from now on.
pub(crate) struct Log {
    text: Text,
    _logging: DefaultGuard,
    /// As long as there is one alone, what another test says first is of no interest to any thread from then on, as its own
    /// thread has none.
    _another: Dispatch,
}

#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    pub(crate) fn listen() -> Self {
        let text = Text::default();
        let writer = text.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .finish();
        let _another = Dispatch::new(NoSubscriber::new());
        Self {
            text,
            _logging: tracing::dispatcher::set_default(&Dispatch::new(subscriber)),
            _another,
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.text.0.lock().unwrap().clone()).unwrap()
    }
}
