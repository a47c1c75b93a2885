//! The programs that the scenarios build and run. Both compilers rebuild only what has changed.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tokio::process::Command;

/// Names the program to test, if it is not the one of this repository.
const TOLERARCH: &str = "E2E_TOLERARCH";

/// Names the source of the cluster-autoscaler, or its program. The Go proxy does not have it.
const CLUSTER_AUTOSCALER: &str = "E2E_CLUSTER_AUTOSCALER";

/// Names the folder with the sources of other tools, a folder for each. The Go proxy does not have them.
const PEERS: &str = "E2E_PEERS";

/// Set if the controllers of `workloads/build` are to be built, which takes minutes and gigabytes.
const WORKLOADS: &str = "E2E_WORKLOADS";

/// Names the minor version of an older control plane, see `controlplane/build`.
const KUBERNETES: &str = "E2E_KUBERNETES";

/// Names the minor version of an older Karpenter, see `controlplane/build`.
const KARPENTER: &str = "E2E_KARPENTER";

/// The file name of the program of `program.go` in a layer.
pub(crate) const PROGRAM: &str = "program";

/// The build for arm64 with a mark, by which `kind/offline/engine` emulates it. Unmarked builds must fail on other
/// architectures.
pub(crate) const MARKED: &str = "arm64-marked";

/// The repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .and_then(Path::parent)
        .expect("e2e/scenarios is two deep")
}

/// Builds the program of etcd, the control plane and kubectl; its first argument chooses one.
pub(crate) async fn control_plane() -> PathBuf {
    go("controlplane").await
}

/// Builds kwok, which plays the kubelets of fake nodes.
pub(crate) async fn kwok() -> PathBuf {
    go("kwok").await
}

/// Builds Karpenter with its provider for tests.
pub(crate) async fn karpenter() -> PathBuf {
    go("karpenter").await
}

/// Returns the directory with the source of [`karpenter`].
pub(crate) async fn karpenter_source() -> PathBuf {
    let module_file = match variable(KARPENTER) {
        Some(version) => format!("karpenter-{version}.mod"),
        None => "go.mod".to_owned(),
    };
    module_directory(
        "scenarios/controlplane",
        &module_file,
        "sigs.k8s.io/karpenter",
    )
    .await
}

/// Whether the cluster-autoscaler is available and the control plane is the newest one: the autoscaler waits for kinds
/// that older ones do not serve.
pub(crate) fn has_cluster_autoscaler() -> bool {
    variable(CLUSTER_AUTOSCALER).is_some() && variable(KUBERNETES).is_none()
}

/// Returns a variable of the environment, unless it is empty.
fn variable(name: &str) -> Option<String> {
    let value = std::env::var(name).ok()?;
    (!value.is_empty()).then_some(value)
}

/// Builds the cluster-autoscaler with its provider for tests.
pub(crate) async fn cluster_autoscaler() -> PathBuf {
    go("autoscaler").await
}

/// Returns why another tool cannot be built; `None` if it can.
pub(crate) fn missing_peer(name: &str) -> Option<String> {
    let Some(peers) = variable(PEERS) else {
        return Some(format!("{PEERS} names no folder"));
    };
    let source = Path::new(&peers).join(name);
    if source.join("go.mod").is_file() {
        return None;
    }
    Some(format!("{} has no source of it", source.display()))
}

/// Builds another tool.
pub(crate) async fn peer(name: &str) -> PathBuf {
    go(&format!("peer:{name}")).await
}

/// Returns why the controllers of other workloads are not built; `None` if they are.
pub(crate) fn missing_workloads() -> Option<String> {
    if variable(WORKLOADS).is_none() {
        return Some(format!("{WORKLOADS} is not set"));
    }
    // Their scenarios run on the newest Kubernetes only.
    variable(KUBERNETES).map(|version| format!("the control plane is the one of {version}"))
}

/// Builds a controller by `workloads/build`.
pub(crate) async fn workload_controller(name: &str) -> PathBuf {
    let mut command = Command::new(repository().join("e2e/scenarios/workloads/build"));
    command.arg(name);
    PathBuf::from(output(command).await.trim())
}

/// Returns the directory of a module that `workloads` requires.
pub(crate) async fn workload_module(module_file: &str, module: &str) -> PathBuf {
    module_directory("scenarios/workloads", module_file, module).await
}

/// Builds helm, at the version of `manifests/go.mod`.
pub(crate) async fn helm() -> PathBuf {
    let mut command = Command::new("go");
    command
        .current_dir(repository().join("e2e/manifests"))
        .args(["tool", "-n", "helm"]);
    PathBuf::from(output(command).await.trim())
}

/// Returns the directory of a Go module that a module of the scenarios requires, and downloads it if necessary.
pub(crate) async fn go_module(within: &str, module: &str) -> PathBuf {
    module_directory(within, "go.mod", module).await
}

/// Returns the directory of a Go module, at the version that a module file names.
async fn module_directory(within: &str, module_file: &str, module: &str) -> PathBuf {
    let within = repository().join("e2e").join(within);
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

/// Returns the program that `E2E_TOLERARCH` names, or builds this repository's. An up-to-date program is not built again:
/// `cargo build` and `cargo test` use different features, and each would compile the dependencies.
pub(crate) async fn tolerarch() -> PathBuf {
    if let Some(program) = std::env::var_os(TOLERARCH) {
        return fs::canonicalize(program).expect("E2E_TOLERARCH names a program");
    }
    let program = tolerarch_of_cargo();
    if !is_current(&program) {
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

/// Whether the program to test is a release build, whose measurements are meaningful.
pub fn is_optimized() -> bool {
    let program = std::env::var_os(TOLERARCH).map_or_else(tolerarch_of_cargo, PathBuf::from);
    program
        .parent()
        .is_none_or(|directory| !directory.ends_with("debug"))
}

/// Returns where cargo puts the program: in the directory above this program's.
fn tolerarch_of_cargo() -> PathBuf {
    let this = std::env::current_exe().expect("a program");
    this.parent()
        .and_then(Path::parent)
        .expect("target/debug/deps")
        .join("tolerarch")
}

/// Whether a program is newer than the lock file and all its sources, which cargo lists beside the program.
fn is_current(program: &Path) -> bool {
    let Some(built) = modified(program) else {
        return false;
    };
    let listed = fs::read_to_string(program.with_extension("d")).unwrap_or_default();
    let Some((_, sources)) = listed.split_once(": ") else {
        return false;
    };
    let lock = repository().join("Cargo.lock");
    let mut files: Vec<&Path> = sources.split_whitespace().map(Path::new).collect();
    files.push(&lock);
    files
        .into_iter()
        .all(|file| modified(file).is_some_and(|modified| modified <= built))
}

fn modified(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).ok()?.modified().ok()
}

/// Builds the program of `program.go` for this machine.
pub(crate) async fn program() -> PathBuf {
    let architecture = if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "amd64"
    };
    build_program(architecture).await.join(PROGRAM)
}

/// Returns a layer with a build of `program.go`: a tar with one file.
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

/// Builds `program.go` for an architecture, or as [`MARKED`]. Returns the directory of the program.
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
        // The last byte of e_ident is padding.
        file.write_all_at(b"T", 15).expect("a mark");
    }
    directory
}

/// Builds a program by `controlplane/build`.
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
