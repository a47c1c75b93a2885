//! The health of the components of the process, for `/readyz` and the metrics.
//!
//! A degraded component does not make the process unready: without an endpoint the API server admits Pods undecided, and a
//! stale configuration is better than that. Only what keeps reviews from being answered fails readiness.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::IntGaugeVec;
use tokio::time::{Duration, timeout};

use crate::metrics::Metrics;

/// How long a look at files may take before it shows: on a network file system it may never end.
const STALLED: Duration = Duration::from_secs(30);

/// How a component fares. Reasons are fixed texts, so that nothing secret or untrusted is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// It works.
    #[default]
    Healthy,
    /// It does not work as it should, and reviews are answered all the same.
    Degraded(&'static str),
    /// Reviews cannot be answered, or will soon not be. The reason may be empty.
    Failed(&'static str),
}

/// A state that a task reports. Clones are the same one.
#[derive(Clone, Default)]
pub struct Reported(Arc<Mutex<State>>);

impl Reported {
    /// Reports it.
    pub fn set(&self, state: State) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// As it was reported last.
    pub fn get(&self) -> State {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a look at files, and reports it while it takes too long. It is not given up: a next look would hang on
    /// another thread.
    pub(crate) async fn looking<T>(&self, look: impl Future<Output = T>) -> T {
        let mut look = pin!(look);
        if let Ok(done) = timeout(STALLED, &mut look).await {
            return done;
        }
        let before = self.get();
        self.set(State::Degraded("its files cannot be read in time"));
        let done = look.await;
        self.set(before);
        done
    }
}

/// One component, whose state is the worst of what these checks say.
pub struct Component {
    name: &'static str,
    checks: Vec<Check>,
    exists: Box<dyn Fn() -> bool + Send + Sync>,
}

type Check = Box<dyn Fn() -> State + Send + Sync>;

impl Component {
    /// A component without checks.
    pub fn new(name: &'static str) -> Self {
        Self { name, checks: Vec::new(), exists: Box::new(|| true) }
    }

    /// Also checks this, whenever it is asked.
    #[must_use]
    pub fn checked(mut self, check: impl Fn() -> State + Send + Sync + 'static) -> Self {
        self.checks.push(Box::new(check));
        self
    }

    /// Is one only while this is so.
    #[must_use]
    pub fn only_if(self, exists: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { exists: Box::new(exists), ..self }
    }

    /// Also looks at what a task reports.
    #[must_use]
    pub fn reported(self, state: Reported) -> Self {
        self.checked(move || state.get())
    }
}

/// All components. Clones are the same.
#[derive(Clone)]
pub struct Health {
    components: Arc<[Component]>,
    healthy: IntGaugeVec,
}

impl Health {
    /// Registers the metric.
    ///
    /// # Errors
    /// A name is taken: a defect.
    pub fn register(metrics: &Metrics, components: Vec<Component>) -> Result<Self, prometheus::Error> {
        let healthy = metrics.gauges(
            "tolerarch_component_healthy",
            "Whether a component works as it should; /readyz?verbose says why not.",
            &["component"],
        )?;
        Ok(Self { components: components.into(), healthy })
    }

    /// The state of each component right now, which the metric shows from now on.
    pub fn check(&self) -> Vec<(&'static str, State)> {
        let check = |component: &Component| {
            let state = component.checks.iter().map(|check| check()).max().unwrap_or_default();
            self.healthy.with_label_values(&[component.name]).set((state == State::Healthy).into());
            (component.name, state)
        };
        self.components.iter().filter(|component| (component.exists)()).map(check).collect()
    }
}

#[cfg(test)]
mod tests;
