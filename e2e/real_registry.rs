//! Against a real registry, Debian's docker-registry: what others pushed is read as it was meant, and as another client
//! reads it. Where the program is not installed the tests are skipped, except in CI.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests and their support")]

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
    mod failures;
    mod mirror;
}
