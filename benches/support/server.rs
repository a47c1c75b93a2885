//! A process that answers reviews, with its CPU time and memory.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tokio::process::{Child, Command};
use tokio::time::{Duration, Instant, sleep};

use super::Result;

/// Maximum time until a process listens.
const START_TIME: Duration = Duration::from_secs(10);

/// A process that answers reviews, which is killed on drop.
pub(crate) struct Server {
    name: String,
    process: Child,
    /// The output line that has its addresses.
    started: Value,
}

impl Server {
    /// Starts a process that writes its addresses to standard output.
    pub(crate) async fn start(name: &str, mut command: Command, dir: &Path) -> Result<Self> {
        let output = dir.join(name);
        command
            .stdin(Stdio::null())
            .stdout(File::create(&output)?)
            .kill_on_drop(true);
        let mut process = command.spawn()?;
        let begun = Instant::now();
        loop {
            if let Some(started) = listening(&std::fs::read_to_string(&output)?) {
                return Ok(Self {
                    name: name.to_owned(),
                    process,
                    started,
                });
            }
            if let Some(status) = process.try_wait()? {
                return Err(format!("{name} has ended: {status}").into());
            }
            if begun.elapsed() > START_TIME {
                return Err(format!("{name} does not listen").into());
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Returns the address of the port `listen` or `admin`.
    pub(crate) fn address(&self, what: &str) -> Result<SocketAddr> {
        Ok(self.started[what].as_str().unwrap_or_default().parse()?)
    }

    /// Returns the CPU time of all threads so far, in user code and in the kernel.
    ///
    /// It is the first field of `schedstat`, in nanoseconds (the kernel's Documentation/scheduler/sched-stats.rst). `stat` counts
    /// in hundredths of a second, which is too coarse for short turns.
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        let nanoseconds = self.threads("schedstat", |stat| stat.split_whitespace().next())?;
        Ok(nanoseconds as f64 / 1e9)
    }

    /// Returns the resident memory of the process, in MiB.
    pub(crate) fn resident(&self) -> Result<f64> {
        let status = self.proc("status")?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap_or_default();
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
    }

    /// Returns how often the threads have given up the CPU voluntarily so far (proc_pid_status(5)).
    pub(crate) fn sleeps(&self) -> Result<u64> {
        let prefix = "voluntary_ctxt_switches:";
        self.threads("status", |status| {
            status.lines().find_map(|line| line.strip_prefix(prefix))
        })
    }

    /// Returns the sum of a number that `count` finds in this file of each thread.
    fn threads(&self, file: &str, count: impl Fn(&str) -> Option<&str>) -> Result<u64> {
        let threads = std::fs::read_dir(self.path("task")?)?;
        let of = |thread: std::io::Result<std::fs::DirEntry>| -> Result<u64> {
            // A thread that has just ended no longer counts.
            let Ok(text) = std::fs::read_to_string(thread?.path().join(file)) else {
                return Ok(0);
            };
            Ok(count(&text).unwrap_or_default().trim().parse()?)
        };
        threads.map(of).sum()
    }

    fn proc(&self, file: &str) -> Result<String> {
        Ok(std::fs::read_to_string(self.path(file)?)?)
    }

    fn path(&self, file: &str) -> Result<String> {
        let id = self
            .process
            .id()
            .ok_or_else(|| format!("{} has ended", self.name))?;
        Ok(format!("/proc/{id}/{file}"))
    }
}

/// Returns the line that has the addresses: a log line of tolerarch, or the only line of the ceiling.
fn listening(output: &str) -> Option<Value> {
    let mut lines = output
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.find(|line| line["listen"].is_string())
}
