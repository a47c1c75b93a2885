//! The images of the scenarios: some are only looked up, some run on nodes.

use serde_json::{Value, json};
use testregistry::{OCI_CONFIG, OCI_INDEX, OCI_MANIFEST, sha256};

use crate::distribution::Push;
use crate::programs::{self, MARKED, PROGRAM};

/// The repository of the images that are only looked up.
const REPO: &str = "team/app";

/// Tags, and the platforms of the index of each.
const INDEXES: [(&str, &[&str]); 4] = [
    ("multi", &["linux/amd64", "linux/arm64"]),
    ("sidecar", &["linux/amd64", "linux/arm64/v8", "linux/s390x"]),
    ("amd64", &["linux/amd64"]),
    ("arm64", &["linux/arm64"]),
];
/// Tags of images without an index, and the platform of each.
const SINGLES: [(&str, &str); 2] = [("single", "linux/amd64"), ("single-arm64", "linux/arm64")];
/// The tag of an index for amd64 with an attestation, as buildx pushes it.
const ATTESTED: &str = "attested";

/// An image that nodes run.
struct Runnable {
    tag: &'static str,
    is_index: bool,
    /// The platforms of the index or of the one image, and the build of the program for each.
    platforms: &'static [(&'static str, &'static str)],
}

const PROGRAMS: [Runnable; 6] = [
    Runnable {
        tag: "multi",
        is_index: true,
        platforms: &[("linux/amd64", "amd64"), ("linux/arm64", MARKED)],
    },
    Runnable {
        tag: "amd64",
        is_index: true,
        platforms: &[("linux/amd64", "amd64")],
    },
    Runnable {
        tag: "arm64",
        is_index: true,
        platforms: &[("linux/arm64", MARKED)],
    },
    // As pushed by `docker build` on a machine of the other architecture.
    Runnable {
        tag: "single-arm64",
        is_index: false,
        platforms: &[("linux/arm64", "arm64")],
    },
    // Declares both architectures, and has the program of one.
    Runnable {
        tag: "lies",
        is_index: true,
        platforms: &[("linux/amd64", "arm64"), ("linux/arm64", "arm64")],
    },
    // The same with another digest.
    Runnable {
        tag: "lies-too",
        is_index: true,
        platforms: &[("linux/amd64", "arm64"), ("linux/arm64", "arm64")],
    },
];
/// The repository of the images that nodes run.
const RUNNABLE: &str = "team/program";

/// The references of the images in one registry.
#[derive(Clone, Debug)]
pub struct Images {
    /// The address of the registry, as Pods name it.
    pub registry: String,
    digest: String,
}

impl Images {
    /// Pushes the images that are only looked up. `registry` is the address that Pods use.
    pub(crate) async fn push(to: &Push, registry: &str) -> Self {
        let mut digest = String::new();
        for (tag, platforms) in INDEXES {
            let pushed = Self::push_index(to, tag, platforms).await;
            if tag == "multi" {
                digest = pushed["digest"].as_str().expect("a digest").to_owned();
            }
        }
        for (tag, name) in SINGLES {
            image(to, name, Some(tag)).await;
        }
        Self::push_attested(to).await;
        Self {
            registry: registry.to_owned(),
            digest,
        }
    }

    /// Pushes an index for amd64 as buildx does: with the image, and with an attestation of its provenance.
    async fn push_attested(to: &Push) {
        let mut entry = image(to, "linux/amd64", None).await;
        let mut attestation = image(to, "unknown/unknown", None).await;
        attestation["annotations"] = json!({
            "vnd.docker.reference.digest": entry["digest"],
            "vnd.docker.reference.type": "attestation-manifest",
        });
        attestation["platform"] = platform("unknown/unknown");
        entry["platform"] = platform("linux/amd64");
        let entries = [entry, attestation];
        let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries});
        to.manifest(REPO, &index, Some(ATTESTED)).await;
    }

    /// Pushes an index of these platforms by a tag, which it may replace. Returns the descriptor.
    pub(crate) async fn push_index(to: &Push, tag: &str, platforms: &[&str]) -> Value {
        let mut entries = Vec::new();
        for name in platforms {
            let mut entry = image(to, name, None).await;
            entry["platform"] = platform(name);
            entries.push(entry);
        }
        let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries});
        to.manifest(REPO, &index, Some(tag)).await
    }

    /// Returns the reference of an image by its tag:
    ///
    /// - `multi` and `sidecar`: indexes for both architectures
    /// - `amd64` and `arm64`: indexes for one architecture
    /// - `attested`: an index for amd64 with an attestation
    /// - `single` and `single-arm64`: images without an index
    pub fn tag(&self, tag: &str) -> String {
        format!("{}/{REPO}:{tag}", self.registry)
    }

    /// Pushes the images that nodes run.
    pub(crate) async fn push_programs(to: &Push) {
        for Runnable {
            tag,
            is_index,
            platforms,
        } in PROGRAMS
        {
            let mut entries = Vec::new();
            for (name, architecture) in platforms {
                let layer = programs::layer(architecture).await;
                let manifest = program(to, name, layer, tag).await;
                let pushed_as = (!is_index).then_some(tag);
                let mut entry = to.manifest(RUNNABLE, &manifest, pushed_as).await;
                entry["platform"] = platform(name);
                entries.push(entry);
            }
            if is_index {
                let index =
                    json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries});
                to.manifest(RUNNABLE, &index, Some(tag)).await;
            }
        }
    }

    /// Returns the reference of an image that nodes run, by its tag. The program waits for a signal.
    ///
    /// - `multi`, `amd64` and `arm64`: indexes with the right programs
    /// - `single-arm64`: an image without an index
    /// - `lies` and `lies-too`: indexes whose images for amd64 have a program for arm64
    pub fn program(&self, tag: &str) -> String {
        format!("{}/{RUNNABLE}:{tag}", self.registry)
    }

    /// Returns the same images in another registry.
    #[must_use]
    pub fn in_registry(&self, registry: &str) -> Self {
        Self {
            registry: registry.to_owned(),
            ..self.clone()
        }
    }

    /// Returns the reference of the image `multi` by its digest.
    pub fn digest(&self) -> String {
        format!("{}/{REPO}@{}", self.registry, self.digest)
    }
}

/// Pushes the config and the layer of an image. Returns the manifest, which differs for each tag: a runtime names an image
/// by any index that contains it.
async fn program(to: &Push, name: &str, layer: Vec<u8>, tag: &str) -> Value {
    let mut config = platform(name);
    let labels = json!({"tag": tag});
    config["config"] =
        json!({"Entrypoint": [format!("/{PROGRAM}")], "User": "65532", "Labels": labels});
    config["rootfs"] = json!({"type": "layers", "diff_ids": [sha256(&layer)]});
    let config = to.blob(RUNNABLE, config.to_string(), OCI_CONFIG).await;
    let layer = to
        .blob(RUNNABLE, layer, "application/vnd.oci.image.layer.v1.tar")
        .await;
    json!({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": [layer]})
}

async fn image(to: &Push, name: &str, tag: Option<&str>) -> Value {
    let mut config = platform(name);
    config["rootfs"] = json!({"type": "layers", "diff_ids": []});
    let config = to.blob(REPO, config.to_string(), OCI_CONFIG).await;
    let layer = to
        .blob(
            REPO,
            "a layer",
            "application/vnd.oci.image.layer.v1.tar+gzip",
        )
        .await;
    let manifest =
        json!({"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": [layer]});
    to.manifest(REPO, &manifest, tag).await
}

fn platform(name: &str) -> Value {
    let parts: Vec<&str> = name.split('/').collect();
    let mut platform = json!({"os": parts[0], "architecture": parts[1]});
    if let Some(variant) = parts.get(2) {
        platform["variant"] = json!(variant);
    }
    platform
}
