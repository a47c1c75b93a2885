//! Programs that `e2e/zoo/install` or Debian installed.

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

/// Returns the directory of the programs that `e2e/zoo/install` builds.
fn zoo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/zoo")
}

/// Returns the path of a program of the zoo or of the system.
fn find(name: &str) -> Option<PathBuf> {
    let environment = Environment::of_process();
    let path = environment.get("PATH").unwrap_or_default();
    let zoo_directories =
        ["bin", "venv/bin", "keycloak/bin", "pulp/bin"].map(|directory| zoo().join(directory));
    // nginx is in /usr/sbin, which is not in the PATH of every user.
    let directories = zoo_directories
        .into_iter()
        .chain(std::env::split_paths(&path))
        .chain(["/usr/sbin".into()]);
    directories
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
}

/// Returns whether these programs are installed. If not, prints the missing ones; in CI the test fails.
pub(crate) fn are_installed(names: &[&str]) -> bool {
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
    // The test harness captures the output of macros.
    std::io::stderr().write_all(text.as_bytes()).unwrap();
    false
}

/// Returns a command that uses `home` for its files, and no credentials of the user who runs the tests.
pub(crate) fn command(name: &str, home: &Path) -> Command {
    let mut command = Command::new(find(name).unwrap_or_else(|| panic!("no {name}")));
    command
        .env("DOCKER_CONFIG", home)
        .env("REGISTRY_AUTH_FILE", home.join("auth.json"))
        .kill_on_drop(true);
    command
}

/// Runs a tool that has to succeed, and returns its standard output.
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

/// Runs a tool of this name with these arguments.
pub(crate) async fn tool<A: AsRef<OsStr>>(home: &Path, name: &str, arguments: &[A]) -> String {
    run(command(name, home).args(arguments)).await
}

/// Starts a server without output, and waits until its port accepts connections.
pub(crate) async fn serve(command: &mut Command, address: &str) -> Child {
    let quiet = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let process = quiet.spawn().unwrap();
    until(address, async || TcpStream::connect(address).await.is_ok()).await;
    process
}

/// Returns an address of this host with a free port. The port is below those that the kernel gives to clients, so it stays free.
pub(crate) fn free_address(host: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        // Other runs on the same machine begin at another port.
        let address = format!(
            "{host}:{}",
            10_000 + (std::process::id() * 41 + next) % 20_000
        );
        if TcpListener::bind(&address).is_ok() {
            return address;
        }
    }
}
