//! Measures how long a Pod waits when none of its images is in the cache: `cargo bench --bench cold`.
//!
//! The program runs as a process. Its registry is behind a wire on which a round trip takes 40 ms, as across a continent. For
//! each kind of registry the bench prints:
//!
//! - the time of the first Pod, and the requests for it
//! - the time until the last of 100 more Pods is answered, which arrive at once with 100 further images
//!
//! `-- --quick` measures two kinds only. The bench asserts that each Pod is tolerated, and asserts no time.

#![allow(
    clippy::too_many_lines,
    clippy::cognitive_complexity,
    reason = "a test tells one story, however long"
)]

mod support;

mod cold {
    pub(super) mod kind;
    pub(super) mod wire;
}

use std::process::ExitCode;
use std::sync::Arc;

use futures_util::future::try_join_all;
use serde_json::{Value, json};
use testregistry::Pki;
use tokio::process::Command;
use tokio::time::{Duration, Instant};
use tokio_rustls::TlsConnector;

use cold::kind::Kind;
use support::connection::Connection;
use support::server::Server;
use support::{NAME, Result, request, typical};

/// Time of a round trip.
const ROUND_TRIP: Duration = Duration::from_millis(40);
/// Number of Pods that arrive at once, each with another image.
const AT_ONCE: usize = 100;
/// Number of namespaces of the Pods. Each namespace has its share of the lookups: one may have 72 at once for a registry.
const NAMESPACES: usize = 10;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is = |name: &str| arguments.iter().any(|argument| argument == name);
    // Without `--bench`, cargo runs tests: a quick run shows that everything works.
    let quick = is("--quick") || is("--test") || !is("--bench");
    let done = tokio::runtime::Runtime::new()
        .map_err(Into::into)
        .and_then(|runtime| runtime.block_on(run(quick)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(quick: bool) -> Result<()> {
    println!(
        "A round trip takes {ROUND_TRIP:?}; a connection takes two before its first request.\n"
    );
    println!(
        "{:<44}{:>12}{:>10}{:>13}   {AT_ONCE} more at once",
        "registry", "first Pod", "requests", "connections"
    );
    for kind in Kind::ALL
        .into_iter()
        .take(if quick { 2 } else { Kind::ALL.len() })
    {
        measure(kind).await?;
    }
    Ok(())
}

async fn measure(kind: Kind) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let pki = Arc::new(Pki::new());
    let registries = kind.start(&pki, dir.path(), AT_ONCE + 1).await?;
    pki.leaf(&[NAME]).write(dir.path())?;
    let mut config = json!({
        "server": {
            "listen": "127.0.0.1:0",
            "certFile": dir.path().join("tls.crt"),
            "keyFile": dir.path().join("tls.key"),
        },
        "admin": {"listen": "127.0.0.1:0"},
        // On a slow machine the default of 3 s would end a lookup before it is measured.
        "lookup": {"budget": "9s"},
        "network": {"allow": ["127.0.0.0/8"]},
    });
    json_patch::merge(&mut config, &registries.settings);
    let file = dir.path().join("config.yaml");
    // JSON is YAML.
    std::fs::write(&file, config.to_string())?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_tolerarch"));
    command.arg("serve").arg("--config").arg(&file);
    let server = Server::start("tolerarch", command, dir.path()).await?;
    let tls = TlsConnector::from(Arc::new(pki.client_config()));
    let address = server.address("listen")?;
    let connections = (0..AT_ONCE).map(|_| Connection::open(address, &tls));
    let mut connections = try_join_all(connections).await?;

    let started = Instant::now();
    review(&mut connections[0], 0, &registries.images[0]).await?;
    let first = started.elapsed();
    let (requests, opened) = registries.traffic();
    let started = Instant::now();
    let others = connections
        .iter_mut()
        .zip(&registries.images[1..])
        .enumerate();
    try_join_all(
        others.map(|(number, (connection, image))| review(connection, number % NAMESPACES, image)),
    )
    .await?;
    let all = started.elapsed();
    let (requests_in_all, opened_in_all) = registries.traffic();
    println!(
        "{:<44}{:>9.0} ms{requests:>10}{opened:>13}   {:.0} ms, {} requests, {} connections",
        kind.as_str(),
        first.as_secs_f64() * 1e3,
        all.as_secs_f64() * 1e3,
        requests_in_all - requests,
        opened_in_all - opened,
    );
    Ok(())
}

async fn review(connection: &mut Connection, namespace: usize, image: &str) -> Result<()> {
    let mut review = typical::review(&typical::pod(&[image.to_owned()]));
    review["request"]["namespace"] = format!("team-{namespace}").into();
    let answer: Value =
        serde_json::from_slice(connection.review(&request(&review.to_string())).await?)?;
    if answer["response"]["patch"].is_string() {
        return Ok(());
    }
    Err(format!("an answer without a patch: {answer}").into())
}
