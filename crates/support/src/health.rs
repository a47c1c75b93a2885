//! The health of the components of the process, for `/readyz` and the metrics.
//!
//! A degraded component does not make the process unready: without an endpoint the API server admits Pods undecided, and a
//! stale configuration is better than that. Only what keeps reviews from being answered fails readiness.

use std::collections::BTreeSet;
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
    pub fn set(&self, state: State) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// As it was reported last.
    pub fn get(&self) -> State {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a look at files, and reports it while it takes too long. It is not given up: a next look would hang on
    /// another thread.
    pub async fn looking<T>(&self, look: impl Future<Output = T>) -> T {
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

/// What is wrong with a task, each thing by itself, so that the end of one hides no other. Clones are the same.
#[derive(Clone, Default)]
pub struct Conditions(Arc<Mutex<BTreeSet<&'static str>>>);

impl Conditions {
    /// Whether this is wrong from now on.
    pub fn set(&self, what: &'static str, is_wrong: bool) {
        let mut wrong = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if is_wrong {
            wrong.insert(what)
        } else {
            wrong.remove(what)
        };
    }

    /// Nothing is.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Whether this is.
    pub fn has(&self, what: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(what)
    }

    fn states(&self) -> Vec<State> {
        let wrong = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        wrong.iter().map(|what| State::Degraded(what)).collect()
    }
}

/// One component, which is healthy if all these checks say so.
pub struct Component {
    name: &'static str,
    checks: Vec<Check>,
    exists: Box<dyn Fn() -> bool + Send + Sync>,
}

type Check = Box<dyn Fn() -> Vec<State> + Send + Sync>;

impl Component {
    /// A component without checks.
    pub fn new(name: &'static str) -> Self {
        Self { name, checks: Vec::new(), exists: Box::new(|| true) }
    }

    /// Also checks this, whenever it is asked.
    #[must_use]
    pub fn checked(mut self, check: impl Fn() -> State + Send + Sync + 'static) -> Self {
        self.checks.push(Box::new(move || vec![check()]));
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

    /// Also looks at all that is wrong with a task.
    #[must_use]
    pub fn with(mut self, conditions: Conditions) -> Self {
        self.checks.push(Box::new(move || conditions.states()));
        self
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
    /// A name is taken: an internal error.
    pub fn register(metrics: &Metrics, components: Vec<Component>) -> Result<Self, prometheus::Error> {
        let healthy = metrics.gauges(
            "tolerarch_component_healthy",
            "Whether a component works as it should; /readyz?verbose says why not.",
            &["component"],
        )?;
        Ok(Self { components: components.into(), healthy })
    }

    /// The state of each component right now, which the metric shows from now on: all that is wrong with it, or that it is
    /// healthy.
    pub fn check(&self) -> Vec<(&'static str, State)> {
        let check = |component: &Component| {
            let mut states: Vec<State> = component.checks.iter().flat_map(|check| check()).collect();
            states.retain(|state| *state != State::Healthy);
            self.healthy.with_label_values(&[component.name]).set(states.is_empty().into());
            if states.is_empty() {
                states.push(State::Healthy);
            }
            let name = component.name;
            states.into_iter().map(move |state| (name, state))
        };
        self.components.iter().filter(|component| (component.exists)()).flat_map(check).collect()
    }
}

#[cfg(test)]
mod tests;
