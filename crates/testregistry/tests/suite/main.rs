//! The registry as its clients see it: each feature once, over real connections.

#![allow(clippy::expect_used, reason = "a failure names the wrong assumption")]

mod auth;
mod client;
mod content;
mod faults;
mod pki;
