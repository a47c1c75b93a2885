//! The health of the components of the process, for `/readyz` and the metrics.
//!
//! A degraded component does not make the process unready: without an endpoint the API server admits Pods undecided, and a
//! stale configuration is better than that. Only what keeps reviews from being answered fails readiness.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use prometheus::IntGaugeVec;
use tokio::time::{Duration, timeout};

use crate::metrics::Metrics;
use crate::sync::Mutex;

/// How long a look at files may take before it shows: on a network file system it may never end.
const STALLED: Duration = Duration::from_secs(30);

/// How a component fares. Reasons are fixed texts, so that nothing secret or untrusted is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    #[default]
    Healthy,
    /// It does not work as it should, and reviews are answered all the same.
    Degraded(&'static str),
    /// Reviews cannot be answered yet; soon they can, if all goes well.
    Starting(&'static str),
    /// Reviews cannot be answered, or will soon not be. The reason may be empty.
    Failed(&'static str),
}

/// A state that a task reports. Clones are the same one.
#[derive(Clone, Default)]
pub struct Reported(Arc<Mutex<State>>);

impl Reported {
    pub fn set(&self, state: State) {
        *self.0.lock() = state;
    }

    pub fn get(&self) -> State {
        *self.0.lock()
    }

    /// Reports a look at files that takes too long. It is not given up: a next look would hang on another thread.
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
    pub fn set(&self, what: &'static str, is_wrong: bool) {
        let mut wrong = self.0.lock();
        if is_wrong {
            wrong.insert(what)
        } else {
            wrong.remove(what)
        };
    }

    pub fn clear(&self) {
        self.0.lock().clear();
    }

    pub fn has(&self, what: &str) -> bool {
        self.0.lock().contains(what)
    }
}

pub trait Report: Send + Sync + 'static {
    fn states(&self) -> Vec<State>;
}

impl Report for Reported {
    fn states(&self) -> Vec<State> {
        vec![self.get()]
    }
}

impl Report for Conditions {
    fn states(&self) -> Vec<State> {
        self.0.lock().iter().map(|what| State::Degraded(what)).collect()
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
    pub fn new(name: &'static str) -> Self {
        Self { name, checks: Vec::new(), exists: Box::new(|| true) }
    }

    #[must_use]
    pub fn checked(mut self, check: impl Fn() -> State + Send + Sync + 'static) -> Self {
        self.checks.push(Box::new(move || vec![check()]));
        self
    }

    #[must_use]
    pub fn only_if(self, exists: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { exists: Box::new(exists), ..self }
    }

    #[must_use]
    pub fn reported(mut self, report: impl Report) -> Self {
        self.checks.push(Box::new(move || report.states()));
        self
    }
}

#[derive(Clone)]
pub struct Health {
    components: Arc<[Component]>,
    healthy: IntGaugeVec,
}

impl Health {
    pub fn register(metrics: &Metrics, components: Vec<Component>) -> Result<Self, prometheus::Error> {
        let healthy = metrics.gauges(
            "tolerarch_component_healthy",
            "Whether a component works as it should; /readyz?verbose says why not.",
            &["component"],
        )?;
        Ok(Self { components: components.into(), healthy })
    }

    /// The state of each component, which the metric shows from now on: all that is wrong, or that it is healthy.
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
