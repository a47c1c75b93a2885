//! How much of the machine a review costs: `cargo bench --bench serve`.
//!
//! Two processes answer the same reviews over the same kept TLS connections, in turns: the binary as it is shipped, its
//! log going to a file, and its *ceiling*, the same accept loop, TLS settings and router around a handler that reads
//! the body and returns an answer that it was given beforehand. What is compared is the CPU time that the operating
//! system counts for each process, so a busy neighbour does not distort it much. The distance to the ceiling is what
//! tolerarch itself costs: decoding, deciding, counting, logging.
//!
//! The driver keeps one core busy. It never sleeps: who answers a client that sleeps pays for waking it, and the slower it
//! is, the more often it would find the client asleep. The servers do sleep where the driver gives them nothing to do, the
//! ceiling more often than tolerarch; how often is printed, as they pay for that themselves.
//!
//! Nothing here asserts a time. That each answer is right is asserted: status 200, and the body byte for byte.

mod connection;
mod typical;

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use futures_util::future::try_join_all;
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};
use testregistry::{Pki, Registry};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{Duration, Instant, sleep};
use tokio_rustls::TlsConnector;
use tolerarch::admission::BODY_LIMIT;
use tolerarch::admission::listener::{Listener, Phase};
use tolerarch::metrics::Metrics;
use tolerarch::tls::{CertificateFiles, ServingCertificate};

use connection::Connection;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The name by which the API server knows the webhook.
const NAME: &str = "tolerarch.tolerarch.svc";
/// API servers keep a few connections open; this is a busy cluster with several of them.
const CONNECTIONS: usize = 16;
/// With this argument the benchmark is its own ceiling.
const CEILING: &str = "--ceiling";
/// How long a process may take to listen.
const START_TIME: Duration = Duration::from_secs(10);

/// How long it is measured.
struct Plan {
    rounds: usize,
    round: Duration,
    warm_up: Duration,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is = |name: &str| arguments.iter().any(|argument| argument == name);
    // Without `--bench`, cargo is testing: it is enough to see that everything works.
    let plan = if is("--bench") && !is("--test") {
        // Many and short, so that what else the machine does is in few of them.
        Plan { rounds: 40, round: Duration::from_millis(500), warm_up: Duration::from_secs(2) }
    } else {
        Plan { rounds: 1, round: Duration::from_millis(100), warm_up: Duration::ZERO }
    };
    let done = match arguments.iter().position(|argument| argument == CEILING) {
        Some(place) => run(
            // As the binary has it.
            tokio::runtime::Builder::new_multi_thread(),
            ceiling(Path::new(arguments.get(place + 1).map_or(".", String::as_str))),
        ),
        // The driver leaves one core to what it measures.
        None => run(tokio::runtime::Builder::new_current_thread(), compare(&plan)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut runtime: tokio::runtime::Builder, task: impl Future<Output = Result<()>>) -> Result<()> {
    runtime.enable_all().build()?.block_on(task)
}

/// Serves `answer.json` of the directory, whatever is asked.
async fn ceiling(dir: &Path) -> Result<()> {
    async fn answer(State(answer): State<Bytes>, body: Body) -> Response {
        let Ok(body) = Limited::new(body, BODY_LIMIT).collect().await else {
            return StatusCode::BAD_REQUEST.into_response();
        };
        std::hint::black_box(body.to_bytes());
        ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], answer).into_response()
    }
    let answered = Bytes::from(std::fs::read(dir.join("answer.json"))?);
    let metrics = Metrics::new([])?;
    let files = CertificateFiles { certificate: dir.join("tls.crt"), key: dir.join("tls.key") };
    let certificate = ServingCertificate::load(files, metrics.clone()).await?;
    let listener = Listener {
        tcp: TcpListener::bind("127.0.0.1:0").await?,
        tls: Some(Arc::new(certificate.server_config()?)),
        idle: tolerarch::serve::IDLE_TIME,
        router: axum::Router::new().route("/mutate", post(answer)).with_state(answered),
        max_connections: 4096,
        metrics,
    };
    println!("{}", json!({"listen": listener.tcp.local_addr()?.to_string()}));
    let (_phase, seen) = watch::channel(Phase::Serving);
    listener.run(seen).await;
    Ok(())
}

/// Starts both, drives them in turns, and prints what came of it.
async fn compare(plan: &Plan) -> Result<()> {
    let registry = Registry::start().await;
    let images = ["shop/web", "shop/cache", "mesh/proxy"].map(|name| {
        registry.repo(name).index(Some("v1.4.2"), ["linux/amd64", "linux/arm64"]);
        registry.repo(name).reference("v1.4.2")
    });
    let review = typical::review(&typical::pod(&images)).to_string();
    let dir = tempfile::tempdir()?;
    let pki = Pki::new();
    pki.leaf(&[NAME]).write(dir.path())?;
    std::fs::write(dir.path().join("registry-ca.crt"), registry.pki().ca_pem())?;
    std::fs::write(dir.path().join("config.yaml"), configuration(dir.path(), &registry.address()))?;
    let tls = TlsConnector::from(Arc::new(pki.client_config()));

    let mut binary = Command::new(env!("CARGO_BIN_EXE_tolerarch"));
    binary.arg("serve").arg("--config").arg(dir.path().join("config.yaml"));
    let mut real = Target::start("tolerarch", binary, dir.path(), &tls, &review).await?;
    // The first answer comes from the registry, all others from the cache; they are the same.
    let answer = real.connections[0].first_answer().await?;
    std::fs::write(dir.path().join("answer.json"), &answer)?;
    let mut itself = Command::new(std::env::current_exe()?);
    itself.arg(CEILING).arg(dir.path());
    let mut ceiling = Target::start("ceiling", itself, dir.path(), &tls, &review).await?;

    println!(
        "{CONNECTIONS} kept TLS connections, reviews of {} bytes with {} cached images, answers of {} bytes with a \
         patch;\n{} rounds of {:?} for each, in turns; tolerarch logs each review to a file.\n",
        review.len(),
        images.len(),
        answer.len(),
        plan.rounds,
        plan.round,
    );
    for target in [&mut real, &mut ceiling] {
        target.drive(plan.warm_up, &answer).await?;
    }
    for _ in 0..plan.rounds {
        for target in [&mut real, &mut ceiling] {
            target.measure(plan.round, &answer).await?;
        }
    }
    report(&real, &ceiling)
}

/// All that concerns tolerarch but its ports is the default.
fn configuration(dir: &Path, registry: &str) -> String {
    let dir = dir.display();
    format!(
        r#"server: {{listen: "127.0.0.1:0", certFile: {dir}/tls.crt, keyFile: {dir}/tls.key}}
admin: {{listen: "127.0.0.1:0"}}
registries: {{hosts: {{"{registry}": {{caFile: {dir}/registry-ca.crt}}}}}}
network: {{allow: [127.0.0.0/8]}}
"#
    )
}

/// A process that answers reviews, and what was seen of it.
struct Target {
    name: &'static str,
    process: Child,
    connections: Vec<Connection>,
    /// Reviews for each CPU-second, by round.
    rates: Vec<f64>,
    latencies: Vec<Duration>,
    /// How often its threads went to sleep, while all these reviews were answered.
    sleeps: u64,
}

impl Target {
    /// Starts a process that tells on its standard output where it listens, and connects to it.
    async fn start(
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
        let connections = try_join_all(connections).await?;
        Ok(Self { name, process, connections, rates: Vec::new(), latencies: Vec::new(), sleeps: 0 })
    }

    /// Sends reviews on all connections for some time, each connection one after the other; gives their latencies.
    async fn drive(&mut self, time: Duration, answer: &[u8]) -> Result<Vec<Duration>> {
        let end = Instant::now() + time;
        let all = self.connections.iter_mut().map(|connection| connection.drive(end, answer));
        tokio::select! {
            biased;
            latencies = try_join_all(all) => Ok(latencies?.concat()),
            never = stay_awake() => match never {},
        }
    }

    async fn measure(&mut self, time: Duration, answer: &[u8]) -> Result<()> {
        let (before, sleeps) = (self.cpu_seconds()?, self.sleeps()?);
        let latencies = self.drive(time, answer).await?;
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
    fn resident(&self) -> Result<f64> {
        let status = self.proc("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
    }

    /// How often its threads have given up the CPU by themselves so far (proc_pid_status(5)).
    fn sleeps(&self) -> Result<u64> {
        let threads = std::fs::read_dir(self.path("task")?)?;
        let of = |thread: std::io::Result<std::fs::DirEntry>| -> Result<u64> {
            let status = std::fs::read_to_string(thread?.path().join("status"))?;
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

fn report(real: &Target, ceiling: &Target) -> Result<()> {
    let shares: Vec<f64> =
        real.rates.iter().zip(&ceiling.rates).map(|(real, ceiling)| 100.0 * real / ceiling).collect();
    let row = |what: &str, of: &dyn Fn(&Target) -> String| {
        println!("{what:<26}{:<28}{}", of(real), of(ceiling));
    };
    row("", &|target| target.name.to_owned());
    row("reviews per CPU-second", &|target| spread(&target.rates, 0));
    row("CPU per review", &|target| format!("{:.1} µs", 1e6 / median(&target.rates)));
    row("sleeps per review", &|target| {
        format!("{:.2}", target.sleeps as f64 / target.latencies.len() as f64)
    });
    row("latency p50, p99", &|target| {
        let mut latencies = target.latencies.clone();
        latencies.sort_unstable();
        let at = |share: usize| latencies.get(latencies.len() * share / 100).copied().unwrap_or_default();
        format!("{:.2} ms, {:.2} ms", at(50).as_secs_f64() * 1e3, at(99).as_secs_f64() * 1e3)
    });
    let (real, ceiling) = (real.resident()?, ceiling.resident()?);
    println!("{:<26}{:<28}{:.1} MiB", "resident", format!("{real:.1} MiB"), ceiling);
    println!("\ntolerarch reaches {} % of its ceiling.", spread(&shares, 1));
    Ok(())
}

/// The median, and the range of all.
fn spread(values: &[f64], digits: usize) -> String {
    let (least, most) = values
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(least, most), &value| (least.min(value), most.max(value)));
    format!("{:.digits$} ({least:.digits$}..{most:.digits$})", median(values))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        _ if sorted.is_empty() => f64::NAN,
        0 => f64::midpoint(sorted[middle - 1], sorted[middle]),
        _ => sorted[middle],
    }
}
