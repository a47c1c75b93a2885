//! A program that runs beside the scenarios.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::wait::{soon, until};

/// A running program. Dropping it kills the program; so does the kernel when this process ends in any way.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program. Its output is appended to `<name>.log` in this directory.
    pub async fn start(name: &str, program: &Path, arguments: &[String], directory: &Path) -> Self {
        Self::start_with(name, program, arguments, &[], directory).await
    }

    /// Starts a program with additional variables in its environment.
    pub async fn start_with(
        name: &str,
        program: &Path,
        arguments: &[String],
        environment: &[(&str, String)],
        directory: &Path,
    ) -> Self {
        let log = directory.join(format!("{name}.log"));
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .unwrap();
        // Sets PR_SET_PDEATHSIG, which would need unsafe code here.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(arguments)
            .envs(environment.iter().map(|(key, value)| (key, value)))
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .kill_on_drop(true);
        // The signal comes when the thread that started the program ends, so a thread of the runtime starts it.
        let child = tokio::spawn(async move { command.spawn() }).await.unwrap();
        let child = child.unwrap_or_else(|error| panic!("setpriv {}: {error}", program.display()));
        Self {
            name: name.to_owned(),
            child,
            log,
        }
    }

    /// Returns all output of this program and of its predecessors with the same name.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap()).into_owned()
    }

    /// Returns the peak memory of the program, in MiB.
    pub fn peak_memory(&self) -> usize {
        let id = self.child.id().expect("it runs");
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.unwrap().trim().strip_suffix(" kB").unwrap();
        let kibibytes: usize = peak.parse().unwrap();
        kibibytes >> 10
    }

    /// Calls `poll` until it returns a value.
    ///
    /// # Panics
    /// If it returns none in time, or if the program ends before.
    pub async fn until<T>(&mut self, what: &str, poll: impl AsyncFn() -> Option<T>) -> T {
        let name = &self.name;
        let log = &self.log;
        let child = &mut self.child;
        tokio::select! {
            value = until(what, poll) => value,
            status = child.wait() => {
                let text = std::fs::read_to_string(log).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                let end = lines[lines.len().saturating_sub(20)..].join("\n");
                panic!("{name} ended ({}):\n{end}", status.unwrap())
            }
        }
    }

    /// Waits until the program, named `what`, accepts connections at this port of 127.0.0.1.
    pub(crate) async fn until_listening(&mut self, what: &str, port: u16) {
        let connect = async || TcpStream::connect(("127.0.0.1", port)).await.ok().map(drop);
        self.until(&format!("{what} listens"), connect).await;
    }

    /// Sends a signal, named without SIG.
    pub async fn signal(&self, name: &str) {
        let process = self.child.id().expect("a process that runs").to_string();
        let sent = Command::new("sh")
            .args(["-c", r#"kill -s "$0" "$1""#, name, &process])
            .status()
            .await;
        assert!(sent.unwrap().success());
    }

    /// Waits until the program ends.
    pub async fn ended(&mut self) {
        soon(&format!("the end of {}", self.name), self.child.wait())
            .await
            .unwrap();
    }

    /// Kills the program with SIGKILL, and waits until it has ended.
    pub async fn kill(&mut self) {
        soon(&format!("the end of {}", self.name), self.child.kill())
            .await
            .unwrap();
    }
}

/// Waits until a port is free and locked. Other runs leave the port alone as long as the returned file lives.
pub(crate) async fn fixed_port(port: u16) -> File {
    let lock = lock_of(port);
    let what = format!("port {port} is free, at which the program listens and at no other one");
    let is_free = || lock.try_lock().is_ok() && TcpListener::bind(("0.0.0.0", port)).is_ok();
    until(&what, async || is_free().then_some(())).await;
    lock
}

/// Returns the file that users of a port lock.
fn lock_of(port: u16) -> File {
    let directory = std::env::temp_dir().join("tolerarch-e2e-ports");
    fs::create_dir_all(&directory).unwrap();
    File::create(directory.join(port.to_string())).unwrap()
}

/// Returns a port of 127.0.0.1 that is free, and that no other run takes while this one lasts. The port is below those that
/// the kernel gives to clients, so it stays free.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    static LOCKS: Mutex<Vec<File>> = Mutex::new(Vec::new());
    loop {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        // Other runs on the same machine begin with other ports.
        let port = 10_000 + (std::process::id() * 37 + next) % 20_000;
        let port = u16::try_from(port).expect("below 30000");
        let lock = lock_of(port);
        if lock.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            LOCKS.lock().unwrap().push(lock);
            return port;
        }
    }
}
