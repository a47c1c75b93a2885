//! Makes the images by current tools, once for all tests of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use serde_json::Value;
use tokio::process::Command;
use tokio::sync::OnceCell;

use super::depot::{Depot, Image, NODES, REPO};
use super::servers::Server;
use super::tools::{are_installed, command, run, tool};

const TOOLS: [&str; 9] = [
    "registry",
    "crane",
    "ko",
    "regctl",
    "oras",
    "buildah",
    "skopeo",
    "openssl",
    "containerd-platforms",
];

impl Depot {
    /// Returns the depot of this run. If a tool is not installed, prints that and returns `None`.
    pub(crate) async fn get() -> Option<&'static Self> {
        static DEPOT: OnceCell<Option<Depot>> = OnceCell::const_new();
        DEPOT.get_or_init(Self::make).await.as_ref()
    }

    async fn make() -> Option<Self> {
        if !are_installed(&TOOLS) {
            return None;
        }
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("zoo");
        if directory.exists() {
            fs::remove_dir_all(&directory).unwrap();
        }
        let (content, home) = (directory.join("content"), directory.join("home"));
        fs::create_dir_all(&home).unwrap();
        fs::write(home.join("auth.json"), "{}").unwrap();
        let registry = Server::open("registry", &content, &home).await;
        push(&home, &registry.address).await;
        let mut depot = Self {
            content,
            home,
            images: Vec::new(),
        };
        depot.images = depot.inspect_images(&registry.address).await;
        assert!(depot.images.len() >= 12, "{}", depot.images.len());
        Some(depot)
    }

    /// Returns the images, with the answers of crane and containerd.
    async fn inspect_images(&self, address: &str) -> Vec<Image> {
        let repo = format!("{address}/{REPO}");
        let mut images = Vec::new();
        for tag in tool(&self.home, "crane", &["ls", &repo]).await.lines() {
            let name = format!("{repo}:{tag}");
            let digest = tool(&self.home, "crane", &["digest", &name])
                .await
                .trim()
                .to_owned();
            let crane = self.crane(&name).await;
            images.push(Image {
                tag: tag.to_owned(),
                digest,
                crane,
                containerd: BTreeSet::new(),
            });
        }
        let digests = images.iter().map(|image| image.digest.as_str());
        let arguments: Vec<&str> = [self.content.to_str().unwrap(), NODES]
            .into_iter()
            .chain(digests)
            .collect();
        let json = tool(&self.home, "containerd-platforms", &arguments).await;
        let platforms: BTreeMap<String, BTreeSet<String>> = serde_json::from_str(&json).unwrap();
        for image in &mut images {
            image.containerd = platforms.get(&image.digest).cloned().unwrap_or_default();
        }
        images
    }

    /// Returns the platforms of an image as crane reads them.
    async fn crane(&self, name: &str) -> BTreeSet<String> {
        let manifest = tool(&self.home, "crane", &["manifest", name]).await;
        let manifest: Value = serde_json::from_str(&manifest).unwrap();
        let platform = |of: &Value| {
            Some(format!(
                "{}/{}",
                of["os"].as_str()?,
                of["architecture"].as_str()?
            ))
        };
        if let Some(entries) = manifest["manifests"].as_array() {
            return entries
                .iter()
                .filter_map(|entry| platform(&entry["platform"]))
                .collect();
        }
        let config = tool(&self.home, "crane", &["config", name]).await;
        platform(&serde_json::from_str(&config).unwrap())
            .into_iter()
            .collect()
    }
}

/// Pushes the images, each by the tool that is made for it.
async fn push(home: &Path, address: &str) {
    let repo = format!("{address}/{REPO}");
    let to = |tag: &str| format!("{repo}:{tag}");
    let (amd64, arm64, both) = (to("single-amd64"), to("single-arm64"), to("crane"));
    fs::write(home.join("hello"), "hello").unwrap();
    run(Command::new("tar")
        .args(["-cf", "layer.tar", "hello"])
        .current_dir(home))
    .await;
    let layer = home.join("layer.tar").display().to_string();
    for (platform, image) in [("linux/amd64", &amd64), ("linux/arm64", &arm64)] {
        tool(home, "crane", &["append", "-f", &layer, "-t", image]).await;
        tool(
            home,
            "crane",
            &["mutate", "--set-platform", platform, image, "-t", image],
        )
        .await;
    }
    // Indexes with `artifactType` in each entry.
    tool(
        home,
        "crane",
        &["index", "append", "-m", &amd64, "-m", &arm64, "-t", &both],
    )
    .await;
    let docker = to("crane-docker");
    let append = [
        "index",
        "append",
        "--docker-empty-base",
        "-m",
        &amd64,
        "-m",
        &arm64,
        "-t",
        &docker,
    ];
    tool(home, "crane", &append).await;
    tool(
        home,
        "crane",
        &["index", "append", "-m", &amd64, "-t", &to("crane-one")],
    )
    .await;

    let plain = format!("reg={address},tls=disabled");
    let regctl = async |arguments: &[&str]| {
        let all_arguments: Vec<&str> = ["--host", &plain]
            .iter()
            .chain(arguments)
            .copied()
            .collect();
        tool(home, "regctl", &all_arguments).await;
    };
    regctl(&[
        "image",
        "mod",
        &docker,
        "--to-oci",
        "--create",
        &to("regctl-oci"),
    ])
    .await;
    regctl(&[
        "index",
        "create",
        &to("regctl-index"),
        "--ref",
        &amd64,
        "--ref",
        &arm64,
    ])
    .await;

    let oras = async |arguments: &[&str]| {
        run(command("oras", home).current_dir(home).args(arguments)).await
    };
    let artifact = "application/vnd.example.sbom.v1+json";
    oras(&[
        "push",
        "--plain-http",
        "--artifact-type",
        artifact,
        &to("oras-artifact"),
        "hello",
    ])
    .await;
    // This also pushes the tag `sha256-…`, an index of the artifacts that refer to the image.
    let by_tag = ["--distribution-spec", "v1.1-referrers-tag"];
    let attach = [
        "attach",
        "--plain-http",
        "--artifact-type",
        artifact,
        by_tag[0],
        by_tag[1],
        &both,
        "hello",
    ];
    oras(&attach).await;
    let index = to("oras-index");
    oras(&[
        "manifest",
        "index",
        "create",
        "--plain-http",
        &index,
        "single-amd64",
        "single-arm64",
    ])
    .await;

    let buildah = async |arguments: &[&str]| {
        let mut command = command("buildah", home);
        let (root, run_root) = (home.join("buildah"), home.join("buildah-run"));
        command
            .args(["--storage-driver", "vfs", "--root"])
            .arg(root)
            .arg("--runroot")
            .arg(run_root);
        run(command.args(arguments)).await;
    };
    buildah(&["manifest", "create", "both"]).await;
    for image in [&amd64, &arm64] {
        buildah(&[
            "manifest",
            "add",
            "--tls-verify=false",
            "both",
            &format!("docker://{image}"),
        ])
        .await;
    }
    for format in ["oci", "v2s2"] {
        let pushed = format!("docker://{}", to(&format!("buildah-{format}")));
        let push = [
            "manifest",
            "push",
            "-q",
            "--tls-verify=false",
            "--all",
            "--format",
            format,
            "both",
            &pushed,
        ];
        buildah(&push).await;
    }

    let from = format!("docker://{both}");
    for format in ["oci", "v2s2"] {
        let copied = format!("docker://{}", to(&format!("skopeo-{format}")));
        let flags = [
            "copy",
            "-q",
            "--all",
            "--src-tls-verify=false",
            "--dest-tls-verify=false",
            "--format",
        ];
        let all_arguments: Vec<&str> = flags
            .into_iter()
            .chain([format, from.as_str(), copied.as_str()])
            .collect();
        tool(home, "skopeo", &all_arguments).await;
    }

    let mut ko = command("ko", home);
    ko.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/zoo"));
    ko.env("KO_DOCKER_REPO", &repo)
        .env("KO_DEFAULTBASEIMAGE", &both);
    let flags = [
        "build",
        "--bare",
        "--tags=ko",
        "--sbom=none",
        "--platform=linux/amd64,linux/arm64",
        "./app",
    ];
    run(ko.args(flags)).await;
}
