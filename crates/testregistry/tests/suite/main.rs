//! The registry as its clients see it: each thing that it can do, once, over real connections.

#![allow(
    clippy::expect_used,
    reason = "a test fails at once, and says which assumption did not hold"
)]

mod auth;
mod client;
mod content;
mod faults;
mod pki;
