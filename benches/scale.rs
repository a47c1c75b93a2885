//! Measures tolerarch in large clusters: `cargo bench --bench scale`.
//!
//! The program runs as a process, and the bench sends reviews as API servers do. A registry in this process has every image,
//! and counts requests. There are three parts:
//!
//! - `flood`: many more images than the cache holds.
//! - `kept`: as many open connections as a large control plane may have.
//! - `day`: a compressed day of a large cluster, with several replicas and a registry that fails for a while. The replicas
//!   run with caches of their own, then with a shared cache.
//!
//! `-- flood`, `-- kept` or `-- day` runs one of them. `--tenth` and `--quick` run with a tenth and a hundredth of the load. The
//! bench asserts that Pods get their answers, and asserts no time.

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
    // Without `--bench`, cargo runs tests: a quick run shows that everything works.
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
