//! The cluster-autoscaler: its node groups, and how it chooses among them. Pure.
//!
//! A toleration allows Pods into a group but does not send them there. The cluster-autoscaler simulates which groups
//! fit the Pods' requirements, and its expander chooses one of these groups. Only the expander `priority` lets users
//! order the groups
//! (<https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md#what-are-expanders>).

mod choice;
mod flags;
mod known;
mod membership;
mod outlook;
mod priorities;
mod sides;
mod status;

pub use choice::Choice;
pub use flags::{Flags, IgnoredTaints};
pub use known::{Autoscaler, Expanders, KnownPriorities};
pub use outlook::{Grouped, Outlook};
pub use priorities::{Priorities, PrioritiesError};
pub use status::{NodeGroup, Status};
