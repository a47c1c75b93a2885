//! Runs a scenario: with a limit, with its duration, and with logs if it fails.

use std::any::Any;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use futures_util::future::LocalBoxFuture;
use libtest_mimic::{Failed, Trial};
use scenarios::Cluster;
use tokio::runtime::Runtime;
use tokio::time::{Instant, timeout};

/// The maximum duration of a scenario.
pub(crate) const LIMIT: Duration = Duration::from_secs(600);
/// The maximum duration of a scenario that waits for minutes.
pub(crate) const LONG: Duration = Duration::from_secs(1_800);
/// How many lines of a log are printed.
const LINES: usize = 30;
/// How many characters of a line are printed.
const WIDTH: usize = 300;
/// The logs that are printed: of the programs under test, and of their callers.
const PRINTED_LOGS: [&str; 4] = [
    "tolerarch.log",
    "peer.log",
    "kube-apiserver.log",
    "cluster-autoscaler.log",
];
/// How many of the slowest scenarios are printed.
const SLOWEST: usize = 10;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));
/// The cluster, started by the first scenario, or why it did not start.
static CLUSTER: Mutex<Option<Result<Arc<Cluster>, String>>> = Mutex::new(None);
static RESULTS: Mutex<Vec<ScenarioResult>> = Mutex::new(Vec::new());

/// A scenario and its name.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Cluster) -> LocalBoxFuture<'_, ()>,
}

struct ScenarioResult {
    name: &'static str,
    duration: Duration,
    failed: bool,
}

/// Makes tests for libtest of scenarios.
pub(crate) fn trials(scenarios: Vec<Scenario>, limit: Duration) -> impl Iterator<Item = Trial> {
    scenarios
        .into_iter()
        .map(move |scenario| Trial::test(scenario.name, move || run(&scenario, limit)))
}

fn run(scenario: &Scenario, limit: Duration) -> Result<(), Failed> {
    let cluster = cluster()?;
    let begun = Instant::now();
    let since = SystemTime::now();
    let end = catch_unwind(AssertUnwindSafe(|| {
        RUNTIME.block_on(async { timeout(limit, (scenario.run)(&cluster)).await })
    }));
    let duration = begun.elapsed();
    print!("{:.1} s; ", duration.as_secs_f64());
    let error = match end {
        Ok(Ok(())) => None,
        Ok(Err(_)) => Some(format!("it has not ended after {limit:?}")),
        Err(panic) => Some(message(&*panic)),
    };
    let result = ScenarioResult {
        name: scenario.name,
        duration,
        failed: error.is_some(),
    };
    RESULTS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(result);
    match error {
        None => Ok(()),
        Some(error) => Err(failure(scenario.name, &error, &cluster, since)),
    }
}

fn cluster() -> Result<Arc<Cluster>, Failed> {
    let mut cluster = CLUSTER.lock().unwrap_or_else(PoisonError::into_inner);
    // An error is kept, so that the other scenarios do not try again.
    let start = || {
        let begun = Instant::now();
        let started = catch_unwind(|| Arc::new(RUNTIME.block_on(Cluster::start())));
        print!("the cluster started in {:.1?}; ", begun.elapsed());
        started.map_err(|panic| message(&*panic))
    };
    let started = cluster.get_or_insert_with(start).clone();
    started.map_err(|why| Failed::from(format!("the cluster did not start: {why}")))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref().copied());
    text.unwrap_or("a panic without a text").to_owned()
}

/// Returns the ends of the logs that were written meanwhile. The reason and the next steps come last, where readers look
/// first.
fn failure(name: &str, why: &str, cluster: &Cluster, since: SystemTime) -> Failed {
    let mut text = String::new();
    let mut where_logs_are = String::new();
    if !Cluster::is_external() {
        let directory = cluster.local().directory();
        let mut logs = Vec::new();
        collect(directory, since, &mut logs);
        for log in logs {
            text += &format!("--- the end of {}\n{}\n", log.display(), end_of(&log));
        }
        where_logs_are = format!("\nall logs are kept in {}", directory.display());
    }
    Failed::from(format!(
        "{text}--- {name} FAILED: {why}\nalone: cargo test -p scenarios -- {name}{where_logs_are}"
    ))
}

/// Collects the logs below a directory that were written since a time.
fn collect(directory: &Path, since: SystemTime, logs: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        let is_printed = PRINTED_LOGS.iter().any(|name| entry.file_name() == *name);
        let is_new = metadata.modified().is_ok_and(|modified| modified >= since);
        if metadata.is_dir() {
            collect(&entry.path(), since, logs);
        } else if is_printed && is_new {
            logs.push(entry.path());
        }
    }
}

fn end_of(log: &Path) -> String {
    let text = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let last_lines = &lines[lines.len().saturating_sub(LINES)..];
    let mut end: Vec<String> = Vec::new();
    for line in last_lines {
        end.push(line.chars().take(WIDTH).collect());
    }
    end.join("\n")
}

/// Ends the cluster, and prints the slowest and the failed scenarios.
pub(crate) fn conclude(has_failed: bool) {
    let cluster = CLUSTER
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if let Some(Ok(cluster)) = cluster
        && let Some(cluster) = Arc::into_inner(cluster)
    {
        let keep_logs = has_failed || std::env::var_os("E2E_KEEP").is_some();
        RUNTIME.block_on(cluster.stop(keep_logs));
    }
    let mut results = std::mem::take(&mut *RESULTS.lock().unwrap_or_else(PoisonError::into_inner));
    if !results.is_empty() {
        println!("the slowest:");
    }
    results.sort_by_key(|result| std::cmp::Reverse(result.duration));
    for result in results.iter().take(SLOWEST) {
        println!("{:>8.1} s  {}", result.duration.as_secs_f64(), result.name);
    }
    for result in results.iter().filter(|result| result.failed) {
        println!("FAILED: {}", result.name);
    }
}
