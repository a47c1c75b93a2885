//! Invariants that hold for everything that a registry sends, and for every `hosts.toml` of the operator.

pub use super::auth::fuzzing::challenge;
pub use super::hosts::fuzzing::hosts;
pub use super::manifest::fuzzing::manifest;
