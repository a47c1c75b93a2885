//! What must hold for whatever a registry sends, and for the operator's `hosts.toml`.

pub use super::auth::fuzzing::challenge;
pub use super::hosts::fuzzing::hosts;
pub use super::manifest::fuzzing::manifest;
