//! The cluster-autoscaler, by what it reads and writes in a cluster. Pure.

mod priorities;

pub use priorities::{Priorities, PrioritiesError};
