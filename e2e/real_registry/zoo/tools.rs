//! Programs, as `e2e/zoo/install` or Debian installed them.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tolerarch_support::environment::Environment;

use crate::support::until;

/// Where `e2e/zoo/install` puts what it makes.
fn zoo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/zoo")
}

/// The path of a program of the zoo or of the system.
fn find(name: &str) -> Option<PathBuf> {
    let environment = Environment::of_process();
    let path = environment.get("PATH").unwrap_or_default();
    let own =
        ["bin", "venv/bin", "keycloak/bin", "pulp/bin"].map(|directory| zoo().join(directory));
    // Where nginx is, and not in everybody's PATH.
    let all = own
        .into_iter()
        .chain(std::env::split_paths(&path))
        .chain(["/usr/sbin".into()]);
    all.map(|directory| directory.join(name))
        .find(|file| file.is_file())
}

/// Whether these programs are there. If not, says so; in CI that is a failure.
pub(crate) fn are_there(names: &[&str]) -> bool {
    let missing: BTreeSet<&str> = names
        .iter()
        .copied()
        .filter(|name| find(name).is_none())
        .collect();
    if missing.is_empty() {
        return true;
    }
    let text =
        format!("SKIPPED: there is no {missing:?} here; run e2e/zoo/install, see e2e/README.md\n");
    assert!(
        Environment::of_process()
            .get("CI")
            .is_none_or(|ci| ci != "true"),
        "{text}"
    );
    // Not by a macro, whose output the test harness keeps to itself.
    std::io::stderr().write_all(text.as_bytes()).unwrap();
    false
}

/// A command that sees no login and no proxy of whoever runs the tests, with `home` for what it keeps.
pub(crate) fn command(name: &str, home: &Path) -> Command {
    let mut command = Command::new(find(name).unwrap_or_else(|| panic!("no {name}")));
    command
        .env("DOCKER_CONFIG", home)
        .env("REGISTRY_AUTH_FILE", home.join("auth.json"))
        .kill_on_drop(true);
    command
}

/// Runs a tool to its good end, and gives what it wrote.
pub(crate) async fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Runs a tool with these arguments.
pub(crate) async fn tool<A: AsRef<OsStr>>(home: &Path, name: &str, arguments: &[A]) -> String {
    run(command(name, home).args(arguments)).await
}

/// Starts a server whose output nobody reads, and waits until its port takes connections.
pub(crate) async fn serve(command: &mut Command, address: &str) -> Child {
    let quiet = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let process = quiet.spawn().unwrap();
    until(address, async || TcpStream::connect(address).await.is_ok()).await;
    process
}

/// An address of this host that is free now, below the ports that the kernel gives to clients, so that it stays free.
pub(crate) fn free_address(host: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        // Other runs on the same machine start elsewhere.
        let address = format!(
            "{host}:{}",
            10_000 + (std::process::id() * 41 + next) % 20_000
        );
        if TcpListener::bind(&address).is_ok() {
            return address;
        }
    }
}
