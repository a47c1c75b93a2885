//! The controller: work beside admission that needs rights in the cluster, in a separate process and service account.
//!
//! Several replicas run, and one of them leads, by a Lease: only the leader changes anything. Each loop is a task that
//! begins when its replica becomes the leader, and ends when the replica stops leading.

mod census;
mod container_failure;
mod evictor;
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
