//! How tolerarch behaves in large clusters: `cargo bench --bench scale`.
//!
//! The binary is driven from outside, as API servers do it, against a registry in this process that knows every image and
//! counts what it is asked. Three parts:
//! - `flood`: many more images than the cache holds.
//! - `kept`: as many kept connections as a large control plane could have.
//! - `day`: a day of a large cluster, compressed, with a registry that fails for a while; with several replicas, each with
//!   a cache of its own or sharing what they know.
//!
//! `-- flood`, `-- kept` or `-- day` runs one of them; `--tenth` and `--quick` run them with a tenth and a hundredth of the
//! load. Nothing here asserts a time. That Pods get their answer is asserted.

#![allow(
    clippy::too_many_lines,
    clippy::cognitive_complexity,
    reason = "a test tells one story, however long"
)]

mod support;

#[path = "../e2e/support/redis.rs"]
#[allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "shared with the tests"
)]
mod redis;

mod scale {
    pub(super) mod cluster;
    pub(super) mod day;
    pub(super) mod flood;
    pub(super) mod kept;
    pub(super) mod registry;
    pub(super) mod replica;
}

use std::process::ExitCode;

use support::Result;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is = |name: &str| arguments.iter().any(|argument| argument == name);
    // Without `--bench`, cargo is testing: it is enough to see that everything works.
    let part = match () {
        () if is("--quick") || is("--test") || !is("--bench") => 100,
        () if is("--tenth") => 10,
        () => 1,
    };
    let parts = ["flood", "kept", "day"];
    let chosen = |part: &str| is(part) || !parts.iter().any(|part| is(part));
    let all = async {
        if chosen("flood") {
            scale::flood::run(part).await?;
        }
        if chosen("kept") {
            scale::kept::run(part).await?;
        }
        if chosen("day") {
            scale::day::run(part).await?;
        }
        Result::Ok(())
    };
    let done = tokio::runtime::Runtime::new()
        .map_err(Into::into)
        .and_then(|runtime| runtime.block_on(all));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}
