//! The images of the scenarios.

use serde_json::{Value, json};
use testregistry::{OCI_CONFIG, OCI_INDEX, OCI_MANIFEST};

use crate::distribution::Push;

/// The one repository.
const REPO: &str = "team/app";

/// What each tag holds: an index of these platforms.
const INDEXES: [(&str, &[&str]); 4] = [
    ("multi", &["linux/amd64", "linux/arm64"]),
    ("sidecar", &["linux/amd64", "linux/arm64/v8", "linux/s390x"]),
    ("amd64", &["linux/amd64"]),
    ("arm64", &["linux/arm64"]),
];
/// The tag of an image without an index.
const SINGLE: (&str, &str) = ("single", "linux/amd64");

/// References of the images, as Pods name them.
#[derive(Clone, Debug)]
pub struct Images {
    registry: String,
    digest: String,
}

impl Images {
    /// Pushes them; Pods find them in `registry`.
    pub(crate) async fn push(to: &Push, registry: &str) -> Self {
        let mut multi = None;
        for (tag, platforms) in INDEXES {
            let mut entries = Vec::new();
            for name in platforms {
                let mut entry = image(to, name, None).await;
                entry["platform"] = platform(name);
                entries.push(entry);
            }
            let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": entries});
            let pushed = to.manifest(REPO, &index, Some(tag)).await;
            multi.get_or_insert(pushed);
        }
        let (tag, name) = SINGLE;
        image(to, name, Some(tag)).await;
        let digest = multi.expect("the first is multi")["digest"].as_str().expect("a digest").to_owned();
        Self { registry: registry.to_owned(), digest }
    }

    /// An image by its tag: `multi` and `sidecar` run on both architectures, `amd64` and `arm64` have an index for one,
    /// `single` is an image for amd64 without an index.
    pub fn tag(&self, tag: &str) -> String {
        format!("{}/{REPO}:{tag}", self.registry)
    }

    /// The image `multi` by its digest.
    pub fn digest(&self) -> String {
        format!("{}/{REPO}@{}", self.registry, self.digest)
    }
}

async fn image(to: &Push, name: &str, tag: Option<&str>) -> Value {
    let mut config = platform(name);
    config["rootfs"] = json!({"type": "layers", "diff_ids": []});
    let config = to.blob(REPO, &config.to_string(), OCI_CONFIG).await;
    let layer = to.blob(REPO, "a layer", "application/vnd.oci.image.layer.v1.tar+gzip").await;
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
