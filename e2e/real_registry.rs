//! Tests against real registries. Images that other tools pushed are read as they were meant, and as other clients read them.
//! A test that needs a program that is not installed is skipped; in CI it fails.

#![allow(
    clippy::too_many_lines,
    clippy::cognitive_complexity,
    reason = "a test tells one story, however long"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "tests and their support"
)]

#[expect(dead_code, reason = "the tests of the program use all of it")]
mod support;

mod real_registry {
    mod distribution;
    mod images;
    mod second_opinion;
    mod token_server;
    mod webhook;

    mod answers;
    mod credentials;
    mod documented;
    mod failures;
    mod mirror;
    mod zoo;
}
