//! Untrusted text: read within bounds, and written so that it can do no harm. No clock, no network.
//!
//! [`json`] reads the API server's JSON, fast and without a tree. [`yaml`] reads files of operators and users, with the
//! line of each value. [`go_duration`] parses durations. [`escape`] escapes the characters that no log line, table or
//! annotation may contain. [`list`] writes lists that may be long.

#![cfg_attr(
    test,
    allow(
        clippy::too_many_lines,
        clippy::cognitive_complexity,
        reason = "a test tells one story, however long"
    )
)]

pub mod escape;
pub mod go_duration;
pub mod json;
pub mod list;
pub mod yaml;
