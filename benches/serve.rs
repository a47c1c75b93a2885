//! Measures the CPU time of a review: `cargo bench --bench serve`.
//!
//! Two processes answer the same reviews in turns, over TLS connections that stay open:
//!
//! - the program as it is shipped, which logs to a file
//! - its *ceiling*: the same accept loop, TLS settings and router, with a handler that reads the body and returns a prepared
//!   answer
//!
//! The operating system counts the CPU time of each process, so other load on the machine distorts it little. The distance to
//! the ceiling is the cost of tolerarch itself: decoding, deciding, counting, logging.
//!
//! The driver keeps one core busy, and never sleeps. A server that answers a sleeping client pays for waking it, and a slower
//! server would find its client asleep more often. The servers sleep while they have nothing to do, the ceiling more often than
//! tolerarch. The number of sleeps is printed, as the servers pay for them.
//!
//! `cargo bench --bench serve -- --against PATH` measures another binary in the same turns, for example one built before a
//! change. `--steering` measures the program once more with parts that are off by default: placement and explain.
//!
//! The bench asserts that each answer is right: status 200, and the body byte for byte. It asserts no time.

#![allow(
    clippy::too_many_lines,
    clippy::cognitive_complexity,
    reason = "a test tells one story, however long"
)]

mod support;

mod serve {
    pub(super) mod report;
    pub(super) mod target;
}

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use serde_json::json;
use testregistry::{Pki, Registry};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::Duration;
use tokio_rustls::TlsConnector;
use tolerarch_support::metrics::Metrics;
use tolerarch_webhook::admission::BODY_LIMIT;
use tolerarch_webhook::listener::{Limits, Listener, Phase};
use tolerarch_webhook::tls::{CertificateFiles, ServingCertificate, TlsMetrics, TlsMode};

use serve::report::report;
use serve::target::Target;
use support::{NAME, Result, typical};

/// Number of connections: those of a busy cluster with several API servers, each of which keeps a few open.
const CONNECTIONS: usize = 16;
/// Argument with which the bench runs as its own ceiling.
const CEILING: &str = "--ceiling";
/// Argument with another binary of tolerarch to measure.
const AGAINST: &str = "--against";
/// Argument with which tolerarch is also measured with [`STEERING_CONFIG`].
const STEERING: &str = "--steering";
const STEERING_CONFIG: &str = "placement:
  require: affinity
  prefer: [{platform: linux/arm64, weight: 80}]
explain: true
";

/// Number and length of the rounds.
struct Plan {
    rounds: usize,
    round: Duration,
    warm_up: Duration,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is = |name: &str| arguments.iter().any(|argument| argument == name);
    // Without `--bench`, cargo runs tests: a short round shows that everything works.
    let plan = if is("--bench") && !is("--test") {
        // The rounds are many and short. So other load affects few of them, or all turns of a round alike.
        Plan {
            rounds: 240,
            round: Duration::from_millis(100),
            warm_up: Duration::from_secs(2),
        }
    } else {
        Plan {
            rounds: 1,
            round: Duration::from_millis(100),
            warm_up: Duration::ZERO,
        }
    };
    let value_of = |name: &str| {
        let index = arguments.iter().position(|argument| argument == name)?;
        arguments.get(index + 1).map(Path::new)
    };
    let done = match value_of(CEILING) {
        // The same runtime as that of the program.
        Some(dir) => run(tokio::runtime::Builder::new_multi_thread(), ceiling(dir)),
        // The driver has one thread, and leaves a core to the server.
        None => run(
            tokio::runtime::Builder::new_current_thread(),
            compare(&plan, value_of(AGAINST), is(STEERING)),
        ),
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

/// Answers every review with `answer.json` of the directory.
async fn ceiling(dir: &Path) -> Result<()> {
    async fn answer(State(answer): State<Bytes>, body: Body) -> Response {
        let Ok(body) = Limited::new(body, BODY_LIMIT).collect().await else {
            return StatusCode::BAD_REQUEST.into_response();
        };
        std::hint::black_box(body.to_bytes());
        (
            [(CONTENT_TYPE, HeaderValue::from_static("application/json"))],
            answer,
        )
            .into_response()
    }
    let answered = Bytes::from(std::fs::read(dir.join("answer.json"))?);
    let metrics = TlsMetrics::register(&Metrics::new([])?)?;
    let files = CertificateFiles {
        certificate: dir.join("tls.crt"),
        key: dir.join("tls.key"),
    };
    let (certificate, _) = ServingCertificate::load(files, TlsMode::Files, None, metrics.clone())?;
    let listener = Listener {
        tcp: TcpListener::bind("127.0.0.1:0").await?,
        tls: Some((Arc::new(certificate.server_config()?), metrics)),
        idle: tolerarch::serve::IDLE_TIME,
        router: axum::Router::new()
            .route("/mutate", post(answer))
            .with_state(answered),
        limits: Limits {
            connections: 4096,
            per_peer: 4096,
            grace_period: tolerarch::serve::IDLE_TIME,
        },
        first: tolerarch::serve::IDLE_TIME,
    };
    println!(
        "{}",
        json!({"listen": listener.tcp.local_addr()?.to_string()})
    );
    let (_phase, seen) = watch::channel(Phase::Serving);
    Ok(listener.start(seen).await?)
}

/// Starts the processes, sends them reviews in turns, and prints the results.
async fn compare(plan: &Plan, against: Option<&Path>, steering: bool) -> Result<()> {
    let registry = Registry::start().await;
    let images = ["shop/web", "shop/cache", "mesh/proxy"].map(|name| {
        registry
            .repo(name)
            .index(Some("v1.4.2"), ["linux/amd64", "linux/arm64"]);
        registry.repo(name).reference("v1.4.2")
    });
    let review = typical::review(&typical::pod(&images)).to_string();
    let dir = tempfile::tempdir()?;
    let pki = Pki::new();
    pki.leaf(&[NAME]).write(dir.path())?;
    std::fs::write(dir.path().join("registry-ca.crt"), registry.pki().ca_pem())?;
    let configuration = configuration(dir.path(), &registry.address());
    std::fs::write(dir.path().join("config.yaml"), &configuration)?;
    std::fs::write(
        dir.path().join("steering.yaml"),
        configuration + STEERING_CONFIG,
    )?;
    let tls = TlsConnector::from(Arc::new(pki.client_config()));

    let mut targets = Vec::new();
    let this = Path::new(env!("CARGO_BIN_EXE_tolerarch"));
    let steered = steering.then_some(("steering", this, "steering.yaml"));
    let against = against.map(|binary| ("the other", binary, "config.yaml"));
    let sides = [steered, Some(("tolerarch", this, "config.yaml")), against];
    for (name, binary, config) in sides.into_iter().flatten() {
        let mut command = Command::new(binary);
        command
            .arg("serve")
            .arg("--config")
            .arg(dir.path().join(config));
        targets.push(Target::start(name, command, dir.path(), &tls, &review).await?);
    }
    // The first answer comes from the registry, all others from the cache; they are the same.
    let answer = &targets
        .iter()
        .find(|target| target.name == "tolerarch")
        .ok_or("nothing to measure")?
        .answer;
    std::fs::write(dir.path().join("answer.json"), answer)?;
    println!(
        "{CONNECTIONS} kept TLS connections, reviews of {} bytes with {} cached images, answers of {} bytes with a \
         patch;\n{} rounds of {:?} for each, in turns; tolerarch logs each review to a file.\n",
        review.len(),
        images.len(),
        answer.len(),
        plan.rounds,
        plan.round,
    );
    let mut ceiling = Command::new(std::env::current_exe()?);
    ceiling.arg(CEILING).arg(dir.path());
    targets.push(Target::start("ceiling", ceiling, dir.path(), &tls, &review).await?);
    for target in &mut targets {
        target.drive(plan.warm_up).await?;
    }
    for round in 0..plan.rounds {
        for target in turns(round, targets.len()) {
            targets[target].measure(plan.round).await?;
        }
    }
    report(&targets)
}

/// Returns the order of a round. A target finds in the CPU's caches what the one before has left there. So each target has each
/// position, and follows each other target, equally often.
fn turns(round: usize, targets: usize) -> impl Iterator<Item = usize> {
    let backwards = (round / targets) % 2 == 1;
    (0..targets).map(move |turn| {
        let turn = if backwards { targets - 1 - turn } else { turn };
        (round + turn) % targets
    })
}

/// Returns a configuration that has the defaults, apart from ports, certificates and the registry.
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
