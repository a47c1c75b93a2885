//! A `tolerarch serve` under test, or a `tolerarch controller`: a configuration, a process, what it writes, and clients of both its ports.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use serde_json::{Value, json};
use tempfile::TempDir;
use testregistry::{Leaf, Pki, Registry};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;

use crate::support::https::{Client, NAME};
use crate::support::review::{Verdict, post, review};
use crate::support::soon;

/// A running program. It is killed when it is dropped.
pub(crate) struct Program {
    child: Child,
    output: Output,
    /// The webhook's port.
    pub(crate) webhook: Client,
    /// The port of metrics and probes.
    pub(crate) admin: Client,
    /// The authority of its certificate.
    pub(crate) pki: Arc<Pki>,
    /// Where it finds its certificate.
    pub(crate) mount: Mount,
    /// What holds for all tests.
    base: Value,
    directory: TempDir,
}

impl Program {
    /// Starts it with this registry, and with `settings` over a configuration for tests.
    pub(crate) async fn start(registry: &Registry, settings: Value) -> Self {
        Self::start_with(registry, settings, &[]).await
    }

    /// The same, with these variables in its environment.
    pub(crate) async fn start_with(
        registry: &Registry,
        settings: Value,
        environment: &[(&str, &str)],
    ) -> Self {
        let program = [env!("CARGO_BIN_EXE_tolerarch")];
        Self::run(
            &program,
            "serve",
            "serving",
            registry,
            settings,
            environment,
        )
        .await
    }

    /// Starts the controller, which has no webhook.
    pub(crate) async fn controller(
        registry: &Registry,
        settings: Value,
        environment: &[(&str, &str)],
    ) -> Self {
        let program = [env!("CARGO_BIN_EXE_tolerarch")];
        Self::run(
            &program,
            "controller",
            "controlling",
            registry,
            settings,
            environment,
        )
        .await
    }

    /// Starts it as a webhook, by this command and its first arguments.
    pub(crate) async fn start_by(launcher: &[&str], registry: &Registry, settings: Value) -> Self {
        Self::run(launcher, "serve", "serving", registry, settings, &[]).await
    }

    /// Starts this command of the program that the launcher starts, and waits until it logs this message.
    async fn run(
        launcher: &[&str],
        command: &str,
        message: &str,
        registry: &Registry,
        settings: Value,
        environment: &[(&str, &str)],
    ) -> Self {
        let pki = registry.pki();
        let directory = tempfile::tempdir().unwrap();
        let mount = Mount::new(&pki.leaf(&[NAME]));
        let ca = directory.path().join("ca.crt");
        fs::write(&ca, pki.ca_pem()).unwrap();
        let base = json!({
            "server": {
                "listen": "127.0.0.1:0",
                "certFile": mount.certificate(),
                "keyFile": mount.key(),
                "drain": "1ms",
            },
            "admin": {"listen": "127.0.0.1:0"},
            "registries": {"hosts": {registry.address(): {"caFile": ca}}},
            "network": {"allow": ["127.0.0.0/8"]},
            // Neither ends a lookup because the machine is busy.
            "lookup": {"budget": "25s", "timeout": "60s"},
        });
        let file = directory.path().join("config.yaml");
        symlink("..data/config.yaml", &file).unwrap();
        configure(directory.path(), &base, &settings);
        let (child, output) = spawn(
            launcher,
            &[command, "--config", file.to_str().unwrap()],
            environment,
        );
        let started = output.line(message).await;
        let address = |port: &str| {
            started[port]
                .as_str()
                .map(|address| address.parse().unwrap())
        };
        let admin = address("admin").unwrap();
        let webhook = Client::secure(address("listen").unwrap_or(admin), &pki);
        let admin = Client::plain(admin);
        Self {
            child,
            output,
            webhook,
            admin,
            pki,
            mount,
            base,
            directory,
        }
    }

    /// Puts another configuration in place: these settings over the one for tests.
    pub(crate) fn configure(&self, settings: Value) {
        configure(self.directory.path(), &self.base, &settings);
    }

    /// The file of its configuration.
    pub(crate) fn config(&self) -> PathBuf {
        self.directory.path().join("config.yaml")
    }

    /// Writes a file beside the configuration.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.directory.path().join(name), text).unwrap();
    }

    /// Sends the review of a Pod on a new connection.
    pub(crate) async fn review(&self, pod: &Value) -> Verdict {
        self.review_at("/mutate?timeout=30s", pod).await
    }

    /// Sends the review of a Pod to this path on a new connection.
    pub(crate) async fn review_at(&self, path: &str, pod: &Value) -> Verdict {
        let verdict = Verdict::of(&self.webhook.ask(&post(path, &review("u-1", pod))).await);
        assert_eq!(verdict.uid, "u-1");
        verdict
    }

    /// All metrics.
    pub(crate) async fn metrics(&self) -> String {
        let answer = self.admin.get("/metrics").await;
        assert_eq!(answer.status, 200);
        answer.text()
    }

    /// The value of one metric, by its name with labels.
    pub(crate) async fn metric(&self, name: &str) -> String {
        let metrics = self.metrics().await;
        let value = metrics
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value
            .unwrap_or_else(|| panic!("no {name} in\n{metrics}"))
            .to_owned()
    }

    /// Waits for a log line with this message.
    pub(crate) async fn logged(&self, message: &str) -> Value {
        self.output.line(message).await
    }

    /// Leaves the log where it is from now on, up to what the pipe holds.
    pub(crate) fn stop_reading_the_log(&self) {
        self.output.reading.send_replace(false);
    }

    /// Sends a signal, by its name without SIG.
    pub(crate) async fn signal(&self, name: &str) {
        let process = self.child.id().expect("a process that runs").to_string();
        let sent = Command::new("sh")
            .args(["-c", r#"kill -s "$0" "$1""#, name, &process])
            .status()
            .await;
        assert!(sent.unwrap().success());
    }

    /// Allows it this number of open files from now on; `None` for as many as the test may have.
    pub(crate) fn allow_files(&self, number: Option<u64>) {
        let process = i32::try_from(self.child.id().expect("a process that runs")).unwrap();
        let own = getrlimit(Resource::Nofile);
        let limit = Rlimit {
            current: number.or(own.current),
            ..own
        };
        prlimit(Pid::from_raw(process), Resource::Nofile, limit).unwrap();
    }

    /// The most memory that it has taken so far, in MiB.
    pub(crate) fn peak_memory(&self) -> u64 {
        let process = self.child.id().expect("a process that runs");
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let peak = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        peak.expect("VmHWM").parse::<u64>().unwrap() >> 10
    }

    /// Waits for its end.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        soon("the end of the process", self.child.wait())
            .await
            .unwrap()
    }

    /// Ends it, and gives all that it wrote.
    pub(crate) async fn written(mut self) -> String {
        self.signal("TERM").await;
        assert_eq!(self.ended().await.code(), Some(0));
        self.output.complete().await;
        self.output.all()
    }
}

/// Writes a configuration, which is swapped as a whole, as the kubelet does it.
fn configure(root: &Path, base: &Value, settings: &Value) {
    let mut config = base.clone();
    json_patch::merge(&mut config, settings);
    // JSON is YAML.
    swap(root, |new| {
        fs::write(new.join("config.yaml"), config.to_string()).unwrap();
    });
}

/// Puts a new directory with what `write` writes behind `..data` at once.
fn swap(root: &Path, write: impl FnOnce(&Path)) {
    let old = fs::read_link(root.join("..data")).ok();
    let new = tempfile::Builder::new()
        .prefix("..")
        .tempdir_in(root)
        .unwrap()
        .keep();
    write(&new);
    symlink(new.file_name().unwrap(), root.join("..data_tmp")).unwrap();
    fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    if let Some(old) = old {
        fs::remove_dir_all(root.join(old)).unwrap();
    }
}

/// A Secret volume as the kubelet lays it out (`AtomicWriter`): the files are links into a directory that is swapped
/// as a whole.
pub(crate) struct Mount(TempDir);

impl Mount {
    pub(crate) fn new(leaf: &Leaf) -> Self {
        let mount = Self(tempfile::tempdir().unwrap());
        mount.swap(leaf);
        symlink("..data/tls.crt", mount.certificate()).unwrap();
        symlink("..data/tls.key", mount.key()).unwrap();
        mount
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.0.path().join("tls.crt")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.0.path().join("tls.key")
    }

    /// Puts another pair in place at once.
    pub(crate) fn swap(&self, leaf: &Leaf) {
        swap(self.0.path(), |new| leaf.write(new).unwrap());
    }
}

/// Runs the program to its end: status, and all that it wrote.
pub(crate) async fn run(arguments: &[&str]) -> (Option<i32>, String) {
    let (mut child, output) = spawn(&[env!("CARGO_BIN_EXE_tolerarch")], arguments, &[]);
    let status = soon("the end of the process", child.wait()).await.unwrap();
    output.complete().await;
    (status.code(), output.all())
}

fn spawn(launcher: &[&str], arguments: &[&str], environment: &[(&str, &str)]) -> (Child, Output) {
    let mut child = Command::new(launcher[0])
        .args(&launcher[1..])
        .args(arguments)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let reading = watch::Sender::new(true);
    let stdout = collect(child.stdout.take().unwrap(), reading.subscribe());
    let stderr = collect(child.stderr.take().unwrap(), reading.subscribe());
    (
        child,
        Output {
            stdout,
            stderr,
            reading,
        },
    )
}

/// What a process has written so far. The channels break when it has written all.
struct Output {
    stdout: watch::Receiver<String>,
    stderr: watch::Receiver<String>,
    reading: watch::Sender<bool>,
}

impl Output {
    /// The first log line with this message.
    async fn line(&self, message: &str) -> Value {
        let find = |text: &String| {
            text.lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .find(|line: &Value| line["message"] == message)
        };
        let mut stdout = self.stdout.clone();
        let found = soon(message, stdout.wait_for(|text| find(text).is_some()))
            .await
            .map(|text| find(&text));
        found
            .unwrap_or_else(|_| panic!("the process ended without {message:?}:\n{}", self.all()))
            .unwrap()
    }

    async fn complete(&self) {
        for stream in [&self.stdout, &self.stderr] {
            // Ends with an error, as nothing is ever what is waited for.
            let _ = soon("the end of the output", stream.clone().wait_for(|_| false)).await;
        }
    }

    fn all(&self) -> String {
        format!("{}{}", *self.stdout.borrow(), *self.stderr.borrow())
    }
}

/// Reads lines to the end, or until the reading stops.
fn collect(
    stream: impl AsyncRead + Send + Unpin + 'static,
    mut reading: watch::Receiver<bool>,
) -> watch::Receiver<String> {
    let (sender, receiver) = watch::channel(String::new());
    tokio::spawn(async move {
        let mut lines = BufReader::new(stream).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            sender.send_modify(|text| *text += &(line + "\n"));
            // Fails when the receiver is gone.
            let _ = reading.wait_for(|reading| *reading).await;
        }
    });
    receiver
}
