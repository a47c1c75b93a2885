//! A process that answers reviews, what it is driven with, and what was seen of it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use futures_util::future::try_join_all;
use serde_json::Value;
use tokio::process::{Child, Command};
use tokio::task::yield_now;
use tokio::time::{Duration, Instant, sleep};
use tokio_rustls::TlsConnector;

use super::connection::Connection;
use super::{CONNECTIONS, NAME, Result};

/// How long a process may take to listen.
const START_TIME: Duration = Duration::from_secs(10);

/// A process that answers reviews, and what was seen of it.
pub(super) struct Target {
    pub(super) name: &'static str,
    process: Child,
    connections: Vec<Connection>,
    /// The answer to the review, which each further one has to equal.
    pub(super) answer: Vec<u8>,
    /// Reviews for each CPU-second, by round.
    pub(super) rates: Vec<f64>,
    pub(super) latencies: Vec<Duration>,
    /// How often its threads went to sleep while all these reviews were answered.
    pub(super) sleeps: u64,
}

impl Target {
    /// Starts a process that tells on its standard output where it listens, connects to it, and takes its first answer.
    pub(super) async fn start(
        name: &'static str,
        mut command: Command,
        dir: &Path,
        tls: &TlsConnector,
        review: &str,
    ) -> Result<Self> {
        let output = dir.join(name);
        command.stdin(Stdio::null()).stdout(std::fs::File::create(&output)?).kill_on_drop(true);
        let mut process = command.spawn()?;
        let begun = Instant::now();
        let address = loop {
            if let Some(address) = listening(&std::fs::read_to_string(&output)?) {
                break address;
            }
            if let Some(status) = process.try_wait()? {
                return Err(format!("{name} has ended: {status}").into());
            }
            if begun.elapsed() > START_TIME {
                return Err(format!("{name} does not listen").into());
            }
            sleep(Duration::from_millis(10)).await;
        };
        let request = format!(
            "POST /mutate?timeout=10s HTTP/1.1\r\nHost: {NAME}\r\nUser-Agent: kube-apiserver-admission\r\n\
             Content-Length: {}\r\nAccept: application/json, */*\r\nContent-Type: application/json\r\n\
             Accept-Encoding: gzip\r\n\r\n{review}",
            review.len(),
        );
        let request: Arc<[u8]> = request.into_bytes().into();
        let connections = (0..CONNECTIONS).map(|_| Connection::open(address, tls, Arc::clone(&request)));
        let mut connections = try_join_all(connections).await?;
        let answer = connections[0].first_answer().await?;
        Ok(Self { name, process, connections, answer, rates: Vec::new(), latencies: Vec::new(), sleeps: 0 })
    }

    /// Sends reviews on all connections for some time, each connection one after the other; gives their latencies.
    pub(super) async fn drive(&mut self, time: Duration) -> Result<Vec<Duration>> {
        let end = Instant::now() + time;
        let all = self.connections.iter_mut().map(|connection| connection.drive(end, &self.answer));
        tokio::select! {
            biased;
            latencies = try_join_all(all) => Ok(latencies?.concat()),
            never = stay_awake() => match never {},
        }
    }

    pub(super) async fn measure(&mut self, time: Duration) -> Result<()> {
        let (before, sleeps) = (self.cpu_seconds()?, self.sleeps()?);
        let latencies = self.drive(time).await?;
        let spent = self.cpu_seconds()? - before;
        self.sleeps += self.sleeps()?.saturating_sub(sleeps);
        self.rates.push(latencies.len() as f64 / spent);
        self.latencies.extend(latencies);
        Ok(())
    }

    /// What the process has used of the CPUs so far, in its own code and in the kernel's (proc_pid_stat(5)).
    fn cpu_seconds(&self) -> Result<f64> {
        /// The unit of these fields, `getconf CLK_TCK`: 100 a second on every Linux that there is.
        const TICKS: f64 = 100.0;
        let stat = self.proc("stat")?;
        // The second field is a name in parentheses and may have spaces; utime and stime are the 14th and 15th.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
        let ticks: Vec<f64> =
            fields.skip(11).take(2).map(str::parse).collect::<std::result::Result<_, _>>()?;
        Ok(ticks.iter().sum::<f64>() / TICKS)
    }

    /// The memory that the process has now, in MiB.
    pub(super) fn resident(&self) -> Result<f64> {
        let status = self.proc("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
    }

    /// How often its threads have given up the CPU by themselves so far (proc_pid_status(5)).
    fn sleeps(&self) -> Result<u64> {
        let threads = std::fs::read_dir(self.path("task")?)?;
        let of = |thread: std::io::Result<std::fs::DirEntry>| -> Result<u64> {
            // A thread that has just ended counts no more.
            let Ok(status) = std::fs::read_to_string(thread?.path().join("status")) else { return Ok(0) };
            let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            Ok(count.unwrap_or_default().trim().parse()?)
        };
        threads.map(of).sum()
    }

    fn proc(&self, file: &str) -> Result<String> {
        Ok(std::fs::read_to_string(self.path(file)?)?)
    }

    fn path(&self, file: &str) -> Result<String> {
        let id = self.process.id().ok_or_else(|| format!("{} has ended", self.name))?;
        Ok(format!("/proc/{id}/{file}"))
    }
}

async fn stay_awake() -> Infallible {
    loop {
        yield_now().await;
    }
}

/// The address in a line that tells it: a log line of tolerarch, or the one line of the ceiling.
fn listening(output: &str) -> Option<SocketAddr> {
    let line = output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    line.filter_map(|line| line["listen"].as_str()?.parse().ok()).next()
}
