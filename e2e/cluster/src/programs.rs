//! What is built before it can be run. Both compilers keep what has not changed.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tokio::process::Command;

/// Another Kubernetes than that of `controlplane/go.mod`, for instance `1.31`: that of `controlplane/kubernetes-1.31.mod`.
const KUBERNETES: &str = "E2E_KUBERNETES";

/// Where a layer has the program of `program.go`.
pub(crate) const PROGRAM: &str = "program";

/// The repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(Path::parent).expect("e2e/cluster is two deep")
}

/// etcd, the parts of the control plane, and kubectl, by the first argument.
pub(crate) async fn control_plane() -> PathBuf {
    let other = std::env::var(KUBERNETES).ok();
    let (name, module_file) = match &other {
        Some(other) => (format!("controlplane-{other}"), format!("kubernetes-{other}.mod")),
        None => ("controlplane".to_owned(), "go.mod".to_owned()),
    };
    let module = repository().join("e2e/controlplane").join(&module_file);
    let module = std::fs::read_to_string(&module)
        .unwrap_or_else(|error| panic!("{KUBERNETES}: {}: {error}", module.display()));
    let version = module.lines().find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "));
    let version = version.expect("a version of Kubernetes");
    let mut parts = version.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let package = "k8s.io/component-base/version";
    let flags = format!(
        "-s -w -X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
    );
    go(&name, ".", &module_file, &flags).await
}

/// The controller that plays the kubelets of fake nodes.
pub(crate) async fn kwok() -> PathBuf {
    go("kwok", "sigs.k8s.io/kwok/cmd/kwok", "go.mod", "-s -w").await
}

/// Karpenter with its provider for tests.
pub(crate) async fn karpenter() -> PathBuf {
    go("karpenter", "sigs.k8s.io/karpenter/kwok", "go.mod", "-s -w").await
}

/// helm, at the version of `manifests/go.mod`.
pub(crate) async fn helm() -> PathBuf {
    let mut command = Command::new("go");
    command.current_dir(repository().join("e2e/manifests")).args(["tool", "-n", "helm"]);
    PathBuf::from(output(command).await.trim())
}

/// The directory of a Go module that belongs to one of those here; it is downloaded if need be.
pub(crate) async fn go_module(within: &str, module: &str) -> PathBuf {
    let within = repository().join("e2e").join(within);
    let mut command = Command::new("go");
    command.current_dir(within).args(["mod", "download", "-json", module]);
    let module: serde_json::Value = serde_json::from_str(&output(command).await).expect("go answers in JSON");
    PathBuf::from(module["Dir"].as_str().expect("go names the directory"))
}

/// tolerarch: the program that `E2E_TOLERARCH` names, or this repository's.
pub(crate) async fn tolerarch() -> PathBuf {
    if let Some(program) = std::env::var_os("E2E_TOLERARCH") {
        return std::fs::canonicalize(program).expect("E2E_TOLERARCH names a program");
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(repository()).args([
        "build",
        "--locked",
        "--package=tolerarch",
        "--bin=tolerarch",
        "--message-format=json",
    ]);
    let messages = output(command).await;
    let artifact = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find_map(|message| message["executable"].as_str().map(PathBuf::from));
    artifact.expect("cargo names what it built")
}

/// The program of `program.go` for this machine.
pub(crate) async fn program() -> PathBuf {
    build_program(if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }).await.join(PROGRAM)
}

/// A layer with the program of `program.go` for this architecture: a tar of one file.
pub(crate) async fn layer(architecture: &str) -> Vec<u8> {
    let directory = build_program(architecture).await;
    let mut tar = Command::new("tar");
    tar.args(["--owner=0", "--group=0", "--mtime=@0", "-C"]).arg(directory).args(["-c", PROGRAM]);
    let packed = tar.output().await.expect("tar");
    assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
    packed.stdout
}

/// Gives the directory that has it.
async fn build_program(architecture: &str) -> PathBuf {
    let directory = repository().join("target/e2e/program").join(architecture);
    let mut build = Command::new("go");
    build.current_dir(repository().join("e2e/cluster")).env("CGO_ENABLED", "0").env("GOARCH", architecture);
    build
        .args(["build", "-trimpath", "-ldflags", "-s -w", "-o"])
        .arg(directory.join(PROGRAM))
        .arg("program.go");
    output(build).await;
    directory
}

async fn go(name: &str, package: &str, module_file: &str, flags: &str) -> PathBuf {
    let program = repository().join("target/e2e").join(name);
    let mut command = Command::new("go");
    command.current_dir(repository().join("e2e/controlplane")).env("CGO_ENABLED", "0");
    let module_file = format!("-modfile={module_file}");
    command.args(["build", &module_file, "-trimpath", "-ldflags", flags, "-o"]).arg(&program).arg(package);
    output(command).await;
    program
}

async fn output(mut command: Command) -> String {
    let output = command.kill_on_drop(true).output().await;
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}
