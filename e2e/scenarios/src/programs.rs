//! What is built before it can be run. Both compilers keep what has not changed.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tokio::process::Command;

/// The program to test, where it is not that of this repository.
const TOLERARCH: &str = "E2E_TOLERARCH";

/// Where the source of the cluster-autoscaler is, or its program: it is no module that the Go proxy has.
const CLUSTER_AUTOSCALER: &str = "E2E_CLUSTER_AUTOSCALER";

/// Where the sources of other tools are, a folder for each: they are no modules that the Go proxy has.
const PEERS: &str = "E2E_PEERS";

/// Whether the controllers of `workloads/build` are built, which takes minutes and gigabytes.
const WORKLOADS: &str = "E2E_WORKLOADS";

/// The minor version of an older control plane, see `controlplane/build`.
const KUBERNETES: &str = "E2E_KUBERNETES";

/// The minor version of an older Karpenter, see `controlplane/build`.
const KARPENTER: &str = "E2E_KARPENTER";

/// Where a layer has the program of `program.go`.
pub(crate) const PROGRAM: &str = "program";

/// The build for arm64 with the mark by which `kind/offline/engine` has it emulated. Others die where no node is of their
/// architecture, which scenarios need.
pub(crate) const MARKED: &str = "arm64-marked";

/// The repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .and_then(Path::parent)
        .expect("e2e/scenarios is two deep")
}

/// etcd, the parts of the control plane, and kubectl, by the first argument.
pub(crate) async fn control_plane() -> PathBuf {
    go("controlplane").await
}

/// The controller that plays the kubelets of fake nodes.
pub(crate) async fn kwok() -> PathBuf {
    go("kwok").await
}

/// Karpenter with its provider for tests.
pub(crate) async fn karpenter() -> PathBuf {
    go("karpenter").await
}

/// The directory with the source of [`karpenter`].
pub(crate) async fn karpenter_source() -> PathBuf {
    let module_file = match variable(KARPENTER) {
        Some(version) => format!("karpenter-{version}.mod"),
        None => "go.mod".to_owned(),
    };
    module_directory("controlplane", &module_file, "sigs.k8s.io/karpenter").await
}

/// Whether the cluster-autoscaler can be built or is built, and the control plane is the newest one: the autoscaler waits for kinds that
/// older ones do not serve.
pub(crate) fn has_cluster_autoscaler() -> bool {
    variable(CLUSTER_AUTOSCALER).is_some() && variable(KUBERNETES).is_none()
}

/// A variable of the environment that is not empty.
fn variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok()?;
    (!value.is_empty()).then_some(value)
}

/// The cluster-autoscaler with its provider for tests.
pub(crate) async fn cluster_autoscaler() -> PathBuf {
    go("autoscaler").await
}

/// Why another tool cannot be built, if it cannot.
pub(crate) fn missing_peer(name: &str) -> Option<String> {
    let Some(peers) = variable(PEERS) else {
        return Some(format!("{PEERS} names no folder"));
    };
    let source = Path::new(&peers).join(name);
    let is_there = source.join("go.mod").is_file();
    (!is_there).then(|| format!("{} has no source of it", source.display()))
}

/// The webhook of another tool.
pub(crate) async fn peer(name: &str) -> PathBuf {
    go(&format!("peer:{name}")).await
}

/// Why the controllers of other kinds of workloads are not built, if they are not.
pub(crate) fn missing_workloads() -> Option<String> {
    if variable(WORKLOADS).is_none() {
        return Some(format!("{WORKLOADS} is not set"));
    }
    // One Kubernetes is enough for them.
    variable(KUBERNETES).map(|version| format!("the control plane is the one of {version}"))
}

/// One of the controllers that `workloads/build` builds.
pub(crate) async fn workload_controller(name: &str) -> PathBuf {
    let mut command = Command::new(repository().join("e2e/scenarios/workloads/build"));
    command.arg(name);
    PathBuf::from(output(command).await.trim())
}

/// The directory of a module of `workloads`.
pub(crate) async fn workload_module(module_file: &str, module: &str) -> PathBuf {
    module_directory("workloads", module_file, module).await
}

/// helm, at the version of `manifests/go.mod`.
pub(crate) async fn helm() -> PathBuf {
    let mut command = Command::new("go");
    command
        .current_dir(repository().join("e2e/manifests"))
        .args(["tool", "-n", "helm"]);
    PathBuf::from(output(command).await.trim())
}

/// The directory of a Go module that belongs to one of those here; it is downloaded if need be.
pub(crate) async fn go_module(within: &str, module: &str) -> PathBuf {
    module_directory(within, "go.mod", module).await
}

/// The directory of a Go module, at the version that a module file names.
async fn module_directory(within: &str, module_file: &str, module: &str) -> PathBuf {
    let within = repository().join("e2e/scenarios").join(within);
    let mut command = Command::new("go");
    command
        .current_dir(within)
        .env("GOTOOLCHAIN", "auto")
        .args(["mod", "download", "-json"])
        .arg(format!("-modfile={module_file}"))
        .arg(module);
    let module: serde_json::Value =
        serde_json::from_str(&output(command).await).expect("go answers in JSON");
    PathBuf::from(module["Dir"].as_str().expect("go names the directory"))
}

/// tolerarch: the program that `E2E_TOLERARCH` names, or this repository's, which is built only if it is not up to date: `cargo build`
/// and `cargo test` take other features for it and would each compile its dependencies.
pub(crate) async fn tolerarch() -> PathBuf {
    if let Some(program) = std::env::var_os(TOLERARCH) {
        return fs::canonicalize(program).expect("E2E_TOLERARCH names a program");
    }
    let program = tolerarch_of_cargo();
    if is_current(&program).is_none() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
        let mut command = Command::new(cargo);
        command.current_dir(repository()).args([
            "build",
            "--locked",
            "--package=tolerarch",
            "--bin=tolerarch",
        ]);
        if !cfg!(debug_assertions) {
            command.arg("--release");
        }
        output(command).await;
    }
    program
}

/// Whether numbers of the program to test mean something.
pub fn is_optimized() -> bool {
    let program = std::env::var_os(TOLERARCH).map_or_else(tolerarch_of_cargo, PathBuf::from);
    program
        .parent()
        .is_none_or(|directory| !directory.ends_with("debug"))
}

/// Where cargo puts it: beside the directory of this program.
fn tolerarch_of_cargo() -> PathBuf {
    let own = std::env::current_exe().expect("a program");
    own.parent()
        .and_then(Path::parent)
        .expect("target/debug/deps")
        .join("tolerarch")
}

/// Something if it is newer than all its sources, which cargo lists beside it, and all packages are those that were locked.
fn is_current(program: &Path) -> Option<()> {
    let changed = |file: &Path| -> Option<SystemTime> { fs::metadata(file).ok()?.modified().ok() };
    let built = changed(program)?;
    let listed = fs::read_to_string(program.with_extension("d")).ok()?;
    let (_, sources) = listed.split_once(": ")?;
    let lock = repository().join("Cargo.lock");
    let mut files = sources
        .split_whitespace()
        .map(Path::new)
        .chain([lock.as_path()]);
    files
        .all(|file| changed(file).is_some_and(|changed| changed <= built))
        .then_some(())
}

/// The program of `program.go` for this machine.
pub(crate) async fn program() -> PathBuf {
    build_program(if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "amd64"
    })
    .await
    .join(PROGRAM)
}

/// A layer with a build of `program.go`: a tar of one file.
pub(crate) async fn layer(build: &str) -> Vec<u8> {
    let directory = build_program(build).await;
    let mut tar = Command::new("tar");
    tar.args(["--owner=0", "--group=0", "--mtime=@0", "-C"])
        .arg(directory)
        .args(["-c", PROGRAM]);
    let packed = tar.output().await.expect("tar");
    assert!(
        packed.status.success(),
        "{}",
        String::from_utf8_lossy(&packed.stderr)
    );
    packed.stdout
}

/// Builds it for an architecture, or as [`MARKED`]. Gives the directory that has it.
async fn build_program(build: &str) -> PathBuf {
    let directory = repository().join("target/e2e/program").join(build);
    let program = directory.join(PROGRAM);
    let architecture = if build == MARKED { "arm64" } else { build };
    let mut go = Command::new("go");
    go.current_dir(repository().join("e2e/scenarios"))
        .env("CGO_ENABLED", "0")
        .env("GOARCH", architecture);
    go.args(["build", "-trimpath", "-ldflags", "-s -w", "-o"])
        .arg(&program)
        .arg("program.go");
    output(go).await;
    if build == MARKED {
        let file = fs::OpenOptions::new()
            .write(true)
            .open(program)
            .expect("what was built");
        // The last byte of e_ident, which nothing reads.
        file.write_all_at(b"T", 15).expect("a mark");
    }
    directory
}

/// One of the programs that `controlplane/build` builds.
async fn go(name: &str) -> PathBuf {
    let mut command = Command::new(repository().join("e2e/scenarios/controlplane/build"));
    command.arg(name);
    PathBuf::from(output(command).await.trim())
}

async fn output(mut command: Command) -> String {
    let output = command.kill_on_drop(true).output().await;
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}
