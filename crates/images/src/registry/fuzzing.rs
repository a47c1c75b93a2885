//! Invariants of everything that a registry sends, and of the operator's `hosts.toml`.

pub use super::auth::fuzzing::challenge;
pub use super::hosts::fuzzing::hosts;
pub use super::manifest::fuzzing::manifest;
