//! The image that the Dockerfile describes, built without a container engine, for the architecture of this machine.
//!
//! Debian's packages stand in for the base image, which is made of the same packages. The program runs in the image as in a
//! cluster: as another user, with a read-only root. The test also checks what `inspect` prints about the image.
//!
//! ```sh
//! E2E_TOLERARCH=target/release/tolerarch cargo test --test binary -- --ignored --nocapture image::
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testregistry::{OCI_INDEX, OCI_MANIFEST, Registry, Repo};
use tokio::process::Command;

use super::program::Program;
use crate::support::review::pod;
use crate::support::soon;

/// The base image of the Dockerfile, and the Debian 12 packages in it.
const BASE: &str = "gcr.io/distroless/base-nossl-debian12:nonroot";
const PACKAGES: [&str; 5] = [
    "base-files",
    "netbase",
    "tzdata",
    "libc6",
    "ca-certificates",
];
/// ID of the base image's user `nonroot`.
const USER: &str = "65532";
const PROGRAM: &str = "/usr/local/bin/tolerarch";
const LIBRARY: &str = "/usr/lib/libgcc_s.so.1";
/// Maximum number of bytes that a node pulls.
const MAX_PULL: usize = 17_000_000;

#[tokio::test]
#[ignore = "needs a release build, named by E2E_TOLERARCH, bubblewrap and Debian 12"]
async fn image_is_small_and_runs_without_other_files() {
    let environment = tolerarch_support::environment::Environment::of_process();
    let binary = Path::new(environment.get("E2E_TOLERARCH").expect("E2E_TOLERARCH"));
    let directory = tempfile::tempdir().unwrap();
    let layers = [
        base_layer(directory.path()).await,
        program_layer(directory.path(), binary).await,
    ];
    let root = directory.path().join("root");
    fs::create_dir(&root).unwrap();
    for layer in &layers {
        run(Command::new("tar")
            .arg("-C")
            .arg(&root)
            .arg("-xf")
            .arg(layer))
        .await;
    }
    let image = Image::of(&layers).await;
    let written = fs::metadata(binary).unwrap().len();
    let added = image.blobs[1].0.len();
    let pulled: usize = image.blobs.iter().map(|(bytes, _)| bytes.len()).sum();
    println!(
        "image: {pulled} bytes to pull, {added} of them on top of the base; the program: {written} bytes"
    );
    assert!(pulled < MAX_PULL, "{pulled} bytes");
    image.write_layout(&directory.path().join("layout"));
    let registry = Registry::start().await;
    let repo = registry.repo("tolerarch/tolerarch");
    push(&directory.path().join("layout"), &repo);

    // Configurations and certificates of tests are in the directory for temporary files.
    let [temporary, root] = [std::env::temp_dir(), root].map(|path| path.display().to_string());
    let launcher = [
        "bwrap",
        "--die-with-parent",
        "--unshare-user",
        "--unshare-ipc",
        "--uid",
        USER,
        "--gid",
        USER,
        "--ro-bind",
        &root,
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--ro-bind",
        &temporary,
        &temporary,
        PROGRAM,
    ];
    let platform = format!("linux/{}", architecture());
    let pool = json!({"name": "own", "platforms": [platform], "tolerations": [{"key": "own", "operator": "Exists"}]});
    let program = Program::start_by(&launcher, &registry, json!({"pools": [pool]})).await;
    let image = repo.reference("v1");
    let verdict = program.review(&pod(&[&image])).await;
    assert_eq!(verdict.reason, "tolerated");

    let config = program.config_file();
    let inspect = [
        "inspect",
        &image,
        "-o",
        "json",
        "--config",
        config.to_str().unwrap(),
    ];
    let inspected = run(Command::new(launcher[0]).args(&launcher[1..]).args(inspect)).await;
    let inspected: Value = serde_json::from_str(&inspected).unwrap();
    assert_eq!(
        inspected["images"][0]["platforms"],
        json!([platform]),
        "{inspected:#}"
    );
}

/// Blobs of an image for this machine's architecture, with their media types: layers, configuration and manifest.
struct Image {
    blobs: Vec<(Vec<u8>, &'static str)>,
}

impl Image {
    async fn of(layers: &[PathBuf]) -> Self {
        let mut blobs = Vec::new();
        let mut contents = Vec::new();
        for layer in layers {
            contents.push(digest(&fs::read(layer).unwrap()));
            run(Command::new("gzip")
                .args(["--no-name", "--keep"])
                .arg(layer))
            .await;
            let compressed = fs::read(layer.with_extension("tar.gz")).unwrap();
            blobs.push((compressed, "application/vnd.oci.image.layer.v1.tar+gzip"));
        }
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {"User": format!("{USER}:{USER}"), "Entrypoint": [PROGRAM]},
            "rootfs": {"type": "layers", "diff_ids": contents},
        });
        let layers: Vec<Value> = blobs.iter().map(descriptor).collect();
        blobs.push((
            config.to_string().into(),
            "application/vnd.oci.image.config.v1+json",
        ));
        let manifest = json!({"schemaVersion": 2, "mediaType": OCI_MANIFEST,
            "config": blobs.last().map(descriptor), "layers": layers});
        blobs.push((manifest.to_string().into(), OCI_MANIFEST));
        Self { blobs }
    }

    /// Writes the image as an OCI image layout.
    fn write_layout(&self, layout: &Path) {
        fs::create_dir_all(layout.join("blobs/sha256")).unwrap();
        fs::write(
            layout.join("oci-layout"),
            r#"{"imageLayoutVersion": "1.0.0"}"#,
        )
        .unwrap();
        for (bytes, _) in &self.blobs {
            fs::write(blob(layout, &digest(bytes)), bytes).unwrap();
        }
        let mut manifest = self.blobs.last().map(descriptor).unwrap();
        manifest["platform"] = json!({"os": "linux", "architecture": architecture()});
        let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [manifest]});
        fs::write(layout.join("index.json"), index.to_string()).unwrap();
    }
}

/// Pushes everything that the index of a layout names.
fn push(layout: &Path, repo: &Repo) {
    let read = |descriptor: &Value| {
        fs::read(blob(layout, descriptor["digest"].as_str().unwrap())).unwrap()
    };
    let index = fs::read(layout.join("index.json")).unwrap();
    let parsed: Value = serde_json::from_slice(&index).unwrap();
    for entry in parsed["manifests"].as_array().unwrap() {
        let manifest = read(entry);
        let parsed: Value = serde_json::from_slice(&manifest).unwrap();
        for descriptor in parsed["layers"]
            .as_array()
            .unwrap()
            .iter()
            .chain([&parsed["config"]])
        {
            let pushed = repo.blob(read(descriptor), descriptor["mediaType"].as_str().unwrap());
            assert_eq!(&pushed, descriptor);
        }
        repo.manifest(manifest, OCI_MANIFEST, None);
    }
    repo.manifest(index, OCI_INDEX, Some("v1"));
}

fn blob(layout: &Path, digest: &str) -> PathBuf {
    layout.join("blobs").join(digest.replace(':', "/"))
}

fn descriptor((bytes, media_type): &(Vec<u8>, &'static str)) -> Value {
    json!({"mediaType": media_type, "digest": digest(bytes), "size": bytes.len()})
}

fn digest(bytes: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    let hex: String = digest
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("sha256:{hex}")
}

/// Returns the architecture of this machine by the name that images use.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Runs a program that has to succeed, and returns its standard output.
async fn run(command: &mut Command) -> String {
    let output = soon("the end of a program", command.kill_on_drop(true).output())
        .await
        .unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Makes the layer of the base image: the files of the packages, without their documentation.
async fn base_layer(directory: &Path) -> PathBuf {
    let installed_paths = run(Command::new("dpkg").arg("-L").args(PACKAGES)).await;
    let is_left_out = |path: &str| {
        ["/usr/share/doc", "/usr/share/man", "/usr/share/lintian"]
            .iter()
            .any(|part| path.starts_with(part))
    };
    // /lib and the like are links here, and directories in the base image.
    let is_file =
        |path: &&str| fs::metadata(path).is_ok_and(|file| !file.is_dir()) && !is_left_out(path);
    let files: Vec<&str> = installed_paths.lines().filter(is_file).collect();
    let list = directory.join("files");
    fs::write(&list, files.join("\n")).unwrap();
    let extra_files = directory.join("base");
    for folder in ["etc/ssl/certs", "home/nonroot", "tmp", "proc", "dev"] {
        fs::create_dir_all(extra_files.join(folder)).unwrap();
    }
    fs::copy(
        "/etc/ssl/certs/ca-certificates.crt",
        extra_files.join("etc/ssl/certs/ca-certificates.crt"),
    )
    .unwrap();
    fs::write(
        extra_files.join("etc/passwd"),
        format!("nonroot:x:{USER}:{USER}:nonroot:/home/nonroot:/sbin/nologin\n"),
    )
    .unwrap();
    fs::write(extra_files.join("etc/nsswitch.conf"), "hosts: files dns\n").unwrap();
    let layer = directory.join("base.tar");
    let mut tar = Command::new("tar");
    tar.args(["--owner=0", "--group=0", "-cf"]).arg(&layer);
    tar.args(["-C", "/", "--files-from"])
        .arg(&list)
        .arg("-C")
        .arg(&extra_files)
        .arg(".");
    run(&mut tar).await;
    layer
}

/// Makes the layer that the Dockerfile adds.
async fn program_layer(directory: &Path, binary: &Path) -> PathBuf {
    let dockerfile =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Dockerfile")).unwrap();
    for line in [
        format!("FROM {BASE}"),
        format!("COPY --from=build /tolerarch {PROGRAM}"),
        format!("COPY --from=build /libgcc_s.so.1 {LIBRARY}"),
        format!("USER {USER}:{USER}"),
        format!("ENTRYPOINT [\"{PROGRAM}\"]"),
    ] {
        assert!(
            dockerfile.lines().any(|other| other == line),
            "the Dockerfile has no {line}"
        );
    }
    let top = directory.join("top");
    let path_in_layer = |path: &str| top.join(path.trim_start_matches('/'));
    for path in [PROGRAM, LIBRARY] {
        fs::create_dir_all(path_in_layer(path).parent().unwrap()).unwrap();
    }
    fs::copy(binary, path_in_layer(PROGRAM)).unwrap();
    let library = run(Command::new("cc").arg("-print-file-name=libgcc_s.so.1")).await;
    fs::copy(library.trim(), path_in_layer(LIBRARY)).unwrap();
    let layer = directory.join("top.tar");
    run(Command::new("tar")
        .args(["--owner=0", "--group=0", "-cf"])
        .arg(&layer)
        .arg("-C")
        .arg(&top)
        .arg("usr"))
    .await;
    layer
}
