//! How a scenario is run: within a limit, timed, and with what there is to know where it fails.

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

/// How long a scenario may take, and one that waits for minutes by its nature.
pub(crate) const LIMIT: Duration = Duration::from_secs(600);
pub(crate) const LONG: Duration = Duration::from_secs(1_800);
/// How many lines of a log are shown, and how much of each.
const LINES: usize = 30;
const WIDTH: usize = 300;
/// Whose logs are shown: the programs under test, and what calls them.
const SHOWN: [&str; 4] = [
    "tolerarch.log",
    "peer.log",
    "kube-apiserver.log",
    "cluster-autoscaler.log",
];
/// How many of the slowest are told.
const SLOWEST: usize = 10;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));
/// Started by the first scenario; an error if that failed.
static CLUSTER: Mutex<Option<Result<Arc<Cluster>, String>>> = Mutex::new(None);
static ENDED: Mutex<Vec<Ended>> = Mutex::new(Vec::new());

/// A scenario by its name.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Cluster) -> LocalBoxFuture<'_, ()>,
}

struct Ended {
    name: &'static str,
    took: Duration,
    failed: bool,
}

/// What libtest runs for these.
pub(crate) fn trials(scenarios: Vec<Scenario>, limit: Duration) -> impl Iterator<Item = Trial> {
    scenarios
        .into_iter()
        .map(move |one| Trial::test(one.name, move || run(&one, limit)))
}

fn run(scenario: &Scenario, limit: Duration) -> Result<(), Failed> {
    let cluster = cluster()?;
    let begun = Instant::now();
    let since = SystemTime::now();
    let end = catch_unwind(AssertUnwindSafe(|| {
        RUNTIME.block_on(async { timeout(limit, (scenario.run)(&cluster)).await })
    }));
    let took = begun.elapsed();
    print!("{:.1} s; ", took.as_secs_f64());
    let why = match end {
        Ok(Ok(())) => None,
        Ok(Err(_)) => Some(format!("it has not ended after {limit:?}")),
        Err(panic) => Some(message(&*panic)),
    };
    let ended = Ended {
        name: scenario.name,
        took,
        failed: why.is_some(),
    };
    ENDED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(ended);
    why.map_or(Ok(()), |why| {
        Err(failure(scenario.name, &why, &cluster, since))
    })
}

fn cluster() -> Result<Arc<Cluster>, Failed> {
    let mut cluster = CLUSTER.lock().unwrap_or_else(PoisonError::into_inner);
    // The other scenarios need not try it again.
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

/// The ends of the logs that were written meanwhile, and behind them, where they are seen first, the reason and the next steps.
fn failure(name: &str, why: &str, cluster: &Cluster, since: SystemTime) -> Failed {
    let mut text = String::new();
    let mut where_from = String::new();
    if !Cluster::is_external() {
        let directory = cluster.local().directory();
        let mut logs = Vec::new();
        collect(directory, since, &mut logs);
        for log in logs {
            text += &format!("--- the end of {}\n{}\n", log.display(), end_of(&log));
        }
        where_from = format!("\nall logs are kept in {}", directory.display());
    }
    Failed::from(format!(
        "{text}--- {name} FAILED: {why}\nalone: cargo test -p scenarios -- {name}{where_from}"
    ))
}

/// Finds the logs that were written since then.
fn collect(directory: &Path, since: SystemTime, logs: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        let is_shown = SHOWN.iter().any(|name| entry.file_name() == *name);
        if metadata.is_dir() {
            collect(&entry.path(), since, logs);
        } else if is_shown && metadata.modified().is_ok_and(|modified| modified >= since) {
            logs.push(entry.path());
        }
    }
}

fn end_of(log: &Path) -> String {
    let text = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let cut = |line: &&str| line.chars().take(WIDTH).collect::<String>();
    lines[lines.len().saturating_sub(LINES)..]
        .iter()
        .map(cut)
        .collect::<Vec<_>>()
        .join("\n")
}

/// Ends the cluster, and says which took longest, and which failed.
pub(crate) fn conclude(has_failed: bool) {
    let cluster = CLUSTER
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    if let Some(Ok(cluster)) = cluster.map(|cluster| cluster.map(Arc::into_inner))
        && let Some(cluster) = cluster
    {
        let keep = has_failed || std::env::var_os("E2E_KEEP").is_some();
        RUNTIME.block_on(cluster.stop(keep));
    }
    let mut ended = std::mem::take(&mut *ENDED.lock().unwrap_or_else(PoisonError::into_inner));
    if !ended.is_empty() {
        println!("the slowest:");
    }
    ended.sort_by_key(|one| std::cmp::Reverse(one.took));
    for one in ended.iter().take(SLOWEST) {
        println!("{:>8.1} s  {}", one.took.as_secs_f64(), one.name);
    }
    for one in ended.iter().filter(|one| one.failed) {
        println!("FAILED: {}", one.name);
    }
}
