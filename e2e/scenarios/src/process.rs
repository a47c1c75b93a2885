//! A program that runs beside the scenarios.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::process::{Child, Command};

use crate::wait::{soon, until};

/// A running program. It is killed when it is dropped, and by the kernel when this process ends in whatever way.
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program; what it writes goes to `<name>.log` in this directory, after what is there already.
    pub async fn start(name: &str, program: &Path, arguments: &[String], directory: &Path) -> Self {
        Self::start_with(name, program, arguments, &[], directory).await
    }

    /// Starts a program with these variables in its environment.
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
        // PR_SET_PDEATHSIG, without the unsafe code that it takes to set it here.
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
        // The signal comes when the thread that started the program ends. Those of the runtime live as long as it.
        let child = tokio::spawn(async move { command.spawn() }).await.unwrap();
        let child = child.unwrap_or_else(|error| panic!("setpriv {}: {error}", program.display()));
        Self {
            name: name.to_owned(),
            child,
            log,
        }
    }

    /// All that it and its predecessors of the same name have written.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap()).into_owned()
    }

    /// The most memory that it has taken so far, in MiB.
    pub fn peak_memory(&self) -> usize {
        let id = self.child.id().expect("it runs");
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.parse::<usize>().ok())
            .unwrap()
            >> 10
    }

    /// Asks until there is an answer.
    ///
    /// # Panics
    /// If there is none in time, or if the program ends before.
    pub async fn until<T>(&mut self, what: &str, ask: impl AsyncFn() -> Option<T>) -> T {
        let name = &self.name;
        let log = &self.log;
        let child = &mut self.child;
        tokio::select! {
            answer = until(what, ask) => answer,
            status = child.wait() => {
                let text = std::fs::read_to_string(log).unwrap_or_default();
                let end: Vec<&str> = text.lines().rev().take(20).collect();
                panic!("{name} ended ({}):\n{}", status.unwrap(), end.into_iter().rev().collect::<Vec<_>>().join("\n"))
            }
        }
    }

    /// Sends a signal, by its name without SIG.
    pub async fn signal(&self, name: &str) {
        let process = self.child.id().expect("a process that runs").to_string();
        let sent = Command::new("sh")
            .args(["-c", r#"kill -s "$0" "$1""#, name, &process])
            .status()
            .await;
        assert!(sent.unwrap().success());
    }

    /// Waits for its end.
    pub async fn ended(&mut self) {
        soon(&format!("the end of {}", self.name), self.child.wait())
            .await
            .unwrap();
    }

    /// Kills it with -9, and waits until it is gone.
    pub async fn kill(&mut self) {
        soon(&format!("the end of {}", self.name), self.child.kill())
            .await
            .unwrap();
    }
}

/// Waits until this port is free, as no other run takes it, and keeps it from them as long as the file lives.
pub(crate) async fn fixed_port(port: u16) -> File {
    let lock = lock_of(port);
    let what = format!("port {port} is free, at which the program listens and at no other one");
    let is_free = || lock.try_lock().is_ok() && TcpListener::bind(("0.0.0.0", port)).is_ok();
    until(&what, async || is_free().then_some(())).await;
    lock
}

/// What is locked by those who use a port.
fn lock_of(port: u16) -> File {
    let directory = std::env::temp_dir().join("tolerarch-e2e-ports");
    fs::create_dir_all(&directory).unwrap();
    File::create(directory.join(port.to_string())).unwrap()
}

/// A port of 127.0.0.1 that is free now, and that no other run takes as long as this one lasts. Below those that the kernel gives to
/// clients, so that it stays so.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    static TAKEN: Mutex<Vec<File>> = Mutex::new(Vec::new());
    loop {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        // Other runs on the same machine start elsewhere.
        let port = 10_000 + (std::process::id() * 37 + next) % 20_000;
        let port = u16::try_from(port).expect("below 30000");
        let lock = lock_of(port);
        if lock.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            TAKEN.lock().unwrap().push(lock);
            return port;
        }
    }
}
