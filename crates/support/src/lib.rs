//! Parts that any server needs, shared by all other crates.
//!
//! - Untrusted input within bounds: [`body`] (HTTP bodies, with a budget of memory), [`mod@file`] (files of the operator).
//! - Work shared fairly: [`concurrency`] (permits by tenant), [`single_flight`] (one task for all callers), [`recent_work`]
//!   (work that was done lately).
//! - Requests: [`proxy`] (proxies of the environment), [`tunnel`] (answers of a proxy), [`header`] (secret values).
//! - Output for operators: [`logging`], [`metrics`], [`health`].
//! - [`environment`]: the variables of the process, which no other module reads.

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
pub mod recent_work;
pub mod single_flight;
pub mod sync;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tunnel;
