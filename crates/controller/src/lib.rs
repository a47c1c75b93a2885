//! What goes on beside admission, and needs rights in the cluster: a process of its own, with a service account of its own.
//!
//! Several replicas run, and one of them leads, by a Lease: only that one changes anything. Each loop is a task that
//! begins when its replica leads and ends when it does not any more.

mod census;
mod container_failure;
mod election;
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
mod repair;
mod scope;
mod settings;
#[cfg(test)]
mod testing;

pub use census::{CensusLoop, CensusMetrics};
pub use failing::FailingPods;
pub use leadership::{Elector, Leadership};
pub use learner::Learner;
pub use loops::Context;
pub use metrics::ControllerMetrics;
pub use node_taints::NodeTaints;
pub use pending::PendingPods;
pub use recorder::{EventLoop, Recorder};
pub use settings::{ControllerSettings, NodeTaint, is_reserved_taint};
