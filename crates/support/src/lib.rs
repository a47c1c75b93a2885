//! Parts that any server needs and no other crate should write twice.
//!
//! Untrusted input within bounds: [`body`] (HTTP, with a budget of memory), [`mod@file`] (the operator's). Work shared
//! fairly: [`concurrency`] (permits by tenant), [`single_flight`] (one run for all who wait), [`recently`] (work done).
//! Requests: [`proxy`] (those of the environment), [`tunnel`] (what one answers), [`header`] (values that are secret).
//! Output for operators: [`logging`], [`metrics`], [`health`]. [`environment`] alone reads the process's variables.

#![cfg_attr(
    test,
    allow(
        clippy::too_many_lines,
        clippy::cognitive_complexity,
        reason = "a test tells one story, however long"
    )
)]

pub mod body;
pub mod concurrency;
pub mod environment;
pub mod file;
pub mod header;
pub mod health;
pub mod logging;
pub mod metrics;
pub mod proxy;
pub mod recently;
pub mod single_flight;
pub mod sync;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tunnel;
