//! JSON, YAML and durations of untrusted input, read within bounds, and characters that no text may contain.

pub mod escape;
pub mod go_duration;
pub mod json;
pub mod yaml;
