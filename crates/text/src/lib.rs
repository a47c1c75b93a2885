//! Text that anybody may have written, read within bounds and written so that it can do no harm. No clock, no network.
//!
//! [`json`] reads what the API server sends, fast and without a tree; [`yaml`] reads files of operators and users, each
//! value with its line; [`go_duration`] reads durations; [`escape`] knows which characters no log
//! line, table or annotation may contain.

pub mod escape;
pub mod go_duration;
pub mod json;
pub mod yaml;
