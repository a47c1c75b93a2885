//! A process of `tolerarch serve` or `tolerarch controller`, with its configuration, its output, and clients for both its ports.

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

/// A running program, which is killed on drop.
pub(crate) struct Program {
    child: Child,
    output: Output,
    /// Client of the webhook's port.
    pub(crate) webhook: Client,
    /// Client of the port with metrics and probes.
    pub(crate) admin: Client,
    /// Authority that issued its certificate.
    pub(crate) pki: Arc<Pki>,
    /// Directory with its certificate.
    pub(crate) mount: Mount,
    /// Configuration that all tests share.
    base: Value,
    directory: TempDir,
}

impl Program {
    /// Starts a webhook that trusts this registry, with `settings` merged into the configuration for tests.
    pub(crate) async fn start(registry: &Registry, settings: Value) -> Self {
        Self::start_with(registry, settings, &[]).await
    }

    /// Does the same with additional environment variables.
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

    /// Starts a controller. It has no webhook port.
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

    /// Starts a webhook by a launcher: a command with its first arguments.
    pub(crate) async fn start_by(launcher: &[&str], registry: &Registry, settings: Value) -> Self {
        Self::run(launcher, "serve", "serving", registry, settings, &[]).await
    }

    /// Starts `command` of the program by the launcher, and waits until it logs `message`.
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
            // Long enough that a lookup does not end because the machine is busy.
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

    /// Replaces the configuration by the one for tests with `settings` merged into it.
    pub(crate) fn configure(&self, settings: Value) {
        configure(self.directory.path(), &self.base, &settings);
    }

    /// Returns the path of the configuration file.
    pub(crate) fn config_file(&self) -> PathBuf {
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
        let verdict = Verdict::of(
            &self
                .webhook
                .exchange(&post(path, &review("u-1", pod)))
                .await,
        );
        assert_eq!(verdict.uid, "u-1");
        verdict
    }

    /// Returns all metrics.
    pub(crate) async fn metrics(&self) -> String {
        let answer = self.admin.get("/metrics").await;
        assert_eq!(answer.status, 200);
        answer.text()
    }

    /// Returns the value of a metric, by its name with labels.
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

    /// Stops reading the log, so that the pipe fills up.
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

    /// Sets the limit of open files. `None` restores the limit that the test process has.
    pub(crate) fn limit_open_files(&self, number: Option<u64>) {
        let process = i32::try_from(self.child.id().expect("a process that runs")).unwrap();
        let test_limit = getrlimit(Resource::Nofile);
        let limit = Rlimit {
            current: number.or(test_limit.current),
            ..test_limit
        };
        prlimit(Pid::from_raw(process), Resource::Nofile, limit).unwrap();
    }

    /// Returns the maximum memory that the process has taken so far, in MiB.
    pub(crate) fn peak_memory(&self) -> u64 {
        let process = self.child.id().expect("a process that runs");
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let peak = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
        peak.expect("VmHWM").parse::<u64>().unwrap() >> 10
    }

    /// Waits for the end of the process.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        soon("the end of the process", self.child.wait())
            .await
            .unwrap()
    }

    /// Ends the process, and returns all its output.
    pub(crate) async fn written(mut self) -> String {
        self.signal("TERM").await;
        assert_eq!(self.ended().await.code(), Some(0));
        self.output.complete().await;
        self.output.all()
    }
}

/// Writes a configuration and replaces the old one at once, as kubelet does.
fn configure(root: &Path, base: &Value, settings: &Value) {
    let mut config = base.clone();
    json_patch::merge(&mut config, settings);
    // JSON is YAML.
    swap(root, |new| {
        fs::write(new.join("config.yaml"), config.to_string()).unwrap();
    });
}

/// Lets `write` fill a new directory, then points the link `..data` to it.
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

/// A Secret volume as kubelet lays it out (`AtomicWriter`): the files are links into a directory that is replaced as a whole.
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

    /// Replaces certificate and key at once.
    pub(crate) fn swap(&self, leaf: &Leaf) {
        swap(self.0.path(), |new| leaf.write(new).unwrap());
    }
}

/// Runs the program to its end, and returns its exit status and all its output.
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

/// Output of a process so far. The channels close at the end of the output.
struct Output {
    stdout: watch::Receiver<String>,
    stderr: watch::Receiver<String>,
    reading: watch::Sender<bool>,
}

impl Output {
    /// Waits for the first log line with this message.
    async fn line(&self, message: &str) -> Value {
        let find = |text: &String| {
            text.lines()
                .filter_map(|line| serde_json::from_str(line).ok())
                .find(|line: &Value| line["message"] == message)
        };
        let mut stdout = self.stdout.clone();
        let line = soon(message, stdout.wait_for(|text| find(text).is_some()))
            .await
            .map(|text| find(&text));
        line.unwrap_or_else(|_| panic!("the process ended without {message:?}:\n{}", self.all()))
            .unwrap()
    }

    /// Waits for the end of both streams.
    async fn complete(&self) {
        for stream in [&self.stdout, &self.stderr] {
            // The condition is never true, so the wait ends with an error when the channel closes.
            let _ = soon("the end of the output", stream.clone().wait_for(|_| false)).await;
        }
    }

    fn all(&self) -> String {
        format!("{}{}", *self.stdout.borrow(), *self.stderr.borrow())
    }
}

/// Reads lines to the end, or until `reading` becomes false.
fn collect(
    stream: impl AsyncRead + Send + Unpin + 'static,
    mut reading: watch::Receiver<bool>,
) -> watch::Receiver<String> {
    let (sender, receiver) = watch::channel(String::new());
    tokio::spawn(async move {
        let mut lines = BufReader::new(stream).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            sender.send_modify(|text| *text += &(line + "\n"));
            // Fails if the sender is gone.
            let _ = reading.wait_for(|reading| *reading).await;
        }
    });
    receiver
}
