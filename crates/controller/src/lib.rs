//! The controller: work outside admission that needs rights in the cluster, in its own process and service account.
//!
//! Several replicas run. One of them leads, by a Lease, and only the leader changes anything. Each loop is a task that
//! works while its replica leads, and that restarts its work when the settings change.

#![cfg_attr(
    test,
    allow(
        clippy::too_many_lines,
        clippy::cognitive_complexity,
        reason = "a test tells one story, however long"
    )
)]

mod census;
mod container_failure;
mod evictor;
mod exec_format;
mod failing;
mod fair_queue;
mod leadership;
mod learner;
mod loops;
mod metrics;
mod node_taints;
mod note;
mod pace;
mod pending;
mod recorder;
mod recreations;
mod repair;
mod settings;
#[cfg(test)]
mod testing;

use futures_util::future::BoxFuture;

pub use leadership::{Elector, Leadership};
pub use learner::Learner;
pub use loops::Context;
pub use metrics::ControllerMetrics;
pub use recorder::Recorder;
pub use settings::{ControllerSettings, NodeTaint};

/// A loop, which never ends.
pub type Loop = fn(&mut Context) -> BoxFuture<'_, ()>;

/// All loops by the names of their components.
pub const LOOPS: [(&str, Loop); 5] = [
    ("pending-pods", |context| {
        Box::pin(context.lead(|on| on.repair || on.events || on.learn, pending::follow))
    }),
    ("failing-pods", |context| {
        Box::pin(context.lead(|on| on.events || on.learn, failing::work))
    }),
    ("events", |context| {
        Box::pin(context.recorder.run(&context.leadership, &context.state))
    }),
    ("census", |context| {
        Box::pin(context.lead(|on| !on.census.is_zero(), census::work))
    }),
    ("node-taints", |context| {
        Box::pin(context.lead(|_| true, node_taints::keep))
    }),
];
