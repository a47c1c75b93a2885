//! The health of the components of the process, for `/readyz` and the metrics.
//!
//! A degraded component does not make the process unready. Without a ready endpoint, the API server admits Pods without a
//! decision, which is worse than a decision by a stale configuration. Only faults that prevent answers to reviews make the
//! process unready.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;

use prometheus::IntGaugeVec;
use tokio::time::{Duration, timeout};

use crate::metrics::Metrics;
use crate::sync::Mutex;

/// Time after which an access to files is reported as a fault. On a network file system it may never end.
const STALLED: Duration = Duration::from_secs(30);
const UNREAD: &str = "its files cannot be read in time";

/// The state of a component. Reasons are constant texts, so that they contain nothing secret or untrusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    #[default]
    Healthy,
    /// The component has a fault, but reviews are still answered.
    Degraded(&'static str),
    /// Reviews cannot be answered yet, but soon, unless the start fails.
    Starting(&'static str),
    /// Reviews cannot be answered, or soon cannot be. The reason may be empty.
    Failed(&'static str),
}

/// The states that a task reports; without any, the task is healthy. Clones share the states.
#[derive(Clone, Default)]
pub struct Reported(Arc<Mutex<BTreeSet<State>>>);

impl Reported {
    /// Replaces all reported states.
    pub fn set(&self, state: State) {
        *self.0.lock() = BTreeSet::from([state]);
    }

    /// Reports a fault, or its end. Other faults stay reported.
    pub fn set_fault(&self, fault: &'static str, exists: bool) {
        let fault = State::Degraded(fault);
        let mut states = self.0.lock();
        if exists {
            states.insert(fault);
        } else {
            states.remove(&fault);
        }
    }

    pub fn has(&self, fault: &'static str) -> bool {
        self.0.lock().contains(&State::Degraded(fault))
    }

    /// Returns the worst of the states.
    pub fn get(&self) -> State {
        match self.0.lock().last() {
            Some(worst) => *worst,
            None => State::Healthy,
        }
    }

    /// Waits for an access to files, and reports a fault while it takes too long. Starting another access instead would
    /// block another thread.
    pub async fn await_files<T>(&self, access: impl Future<Output = T>) -> T {
        let mut access = pin!(access);
        if let Ok(result) = timeout(STALLED, &mut access).await {
            return result;
        }
        self.set_fault(UNREAD, true);
        let result = access.await;
        self.set_fault(UNREAD, false);
        result
    }
}

/// A part of the process. It is healthy if all its states are, and listed if it has a state.
pub struct Component {
    name: &'static str,
    check: Box<dyn Fn() -> BTreeSet<State> + Send + Sync>,
}

impl Component {
    pub fn new<S>(name: &'static str, check: impl Fn() -> S + Send + Sync + 'static) -> Self
    where
        S: IntoIterator<Item = State>,
    {
        Self {
            name,
            check: Box::new(move || check().into_iter().collect()),
        }
    }

    pub fn reported(name: &'static str, states: Reported) -> Self {
        Self::new(name, move || {
            let mut states = states.0.lock().clone();
            states.insert(State::Healthy);
            states
        })
    }
}

#[derive(Clone)]
pub struct Health {
    components: Arc<[Component]>,
    healthy: IntGaugeVec,
}

impl Health {
    pub fn register(
        metrics: &Metrics,
        components: Vec<Component>,
    ) -> Result<Self, prometheus::Error> {
        let healthy = metrics.add(
            "tolerarch_component_healthy",
            "Whether a component works as it should; /readyz?verbose says why not.",
            &["component"],
        )?;
        Ok(Self {
            components: components.into(),
            healthy,
        })
    }

    /// Returns the states of each component, and sets the metric. The states are all faults, or [`State::Healthy`] if there
    /// is none.
    pub fn check(&self) -> Vec<(&'static str, State)> {
        let mut all = Vec::new();
        for component in self.components.iter() {
            let mut states = (component.check)();
            if states.len() > 1 {
                states.remove(&State::Healthy);
            }
            if let Some(worst) = states.last() {
                let healthy = self.healthy.with_label_values(&[component.name]);
                healthy.set((*worst == State::Healthy).into());
            }
            for state in states {
                all.push((component.name, state));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests;
