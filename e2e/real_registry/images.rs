//! Images of every kind, as BuildKit, Docker, Helm and others push them, with their platforms.

use serde_json::{Value, json};
use testregistry::{
    DOCKER_CONFIG, DOCKER_LIST, DOCKER_MANIFEST, OCI_CONFIG, OCI_INDEX, OCI_MANIFEST,
};
use tolerarch_core::image::{PlatformSet, Support};

use super::distribution::Distribution;

/// An image with its expected platforms and reason.
pub(crate) struct Image {
    pub(crate) tag: &'static str,
    pub(crate) digest: String,
    pub(crate) support: Support,
    /// Reason in the review of a Pod with this image.
    pub(crate) reason: &'static str,
}

/// Returns the set of these platforms.
pub(crate) fn nodes(names: &[&str]) -> PlatformSet {
    names.iter().fold(PlatformSet::EMPTY, |set, name| {
        set.union(name.parse().unwrap())
    })
}

/// Pushes an image of each kind.
pub(crate) async fn push(to: &Distribution) -> Vec<Image> {
    let mut images = Vec::new();
    let mut add = |tag, descriptor: &Value, support, reason| {
        let digest = descriptor["digest"].as_str().unwrap().to_owned();
        images.push(Image {
            tag,
            digest,
            support,
            reason,
        });
    };
    let both = Support::Index(nodes(&["linux/amd64", "linux/arm64"]));
    let amd64 = oci(to, "linux/amd64", None).await;
    let arm64 = oci(to, "linux/arm64/v8", None).await;

    let tag = "buildkit";
    let mut entries = vec![
        entry_for(&amd64, "linux/amd64"),
        entry_for(&arm64, "linux/arm64/v8"),
    ];
    for image in [&amd64, &arm64] {
        entries.push(attestation(to, image).await);
    }
    add(
        tag,
        &index(to, OCI_INDEX, entries, tag).await,
        both,
        "tolerated",
    );

    let tag = "many-platforms";
    let mut entries = Vec::new();
    for platform in [
        "linux/amd64",
        "linux/arm/v7",
        "linux/arm64",
        "linux/s390x",
        "windows/amd64",
        "linux/amd64/v3",
    ] {
        entries.push(entry_for(&oci(to, platform, None).await, platform));
    }
    let many = nodes(&["linux/amd64", "linux/arm/v7", "linux/arm64", "linux/s390x"]);
    add(
        tag,
        &index(to, OCI_INDEX, entries, tag).await,
        Support::Index(many),
        "tolerated",
    );

    let tag = "one-platform";
    let entries = vec![entry_for(&amd64, "linux/amd64")];
    let amd64_only = Support::Index(nodes(&["linux/amd64"]));
    add(
        tag,
        &index(to, OCI_INDEX, entries, tag).await,
        amd64_only,
        "platform-missing",
    );

    let tag = "docker-list";
    let mut entries = Vec::new();
    for platform in ["linux/amd64", "linux/arm64"] {
        entries.push(entry_for(&docker(to, platform, None).await, platform));
    }
    add(
        tag,
        &index(to, DOCKER_LIST, entries, tag).await,
        both,
        "tolerated",
    );

    let tag = "entries-without-platform";
    let entries = vec![amd64.clone(), arm64.clone()];
    let first = Support::Index(nodes(&["linux/amd64"]));
    add(
        tag,
        &index(to, OCI_INDEX, entries, tag).await,
        first,
        "platform-missing",
    );

    let tag = "inner";
    let inner = index(to, OCI_INDEX, vec![entry_for(&arm64, "linux/arm64")], tag).await;
    add(
        tag,
        &inner,
        Support::Index(nodes(&["linux/arm64"])),
        "platform-missing",
    );
    let tag = "nested";
    let entries = vec![entry_for(&amd64, "linux/amd64"), inner];
    add(
        tag,
        &index(to, OCI_INDEX, entries, tag).await,
        both,
        "tolerated",
    );

    let single = |platform| Support::Single(nodes(&[platform]));
    for (tag, platform) in [("oci-amd64", "linux/amd64"), ("oci-arm64", "linux/arm64")] {
        add(
            tag,
            &oci(to, platform, Some(tag)).await,
            single(platform),
            "platform-missing",
        );
    }
    let tag = "docker-amd64";
    add(
        tag,
        &docker(to, "linux/amd64", Some(tag)).await,
        single("linux/amd64"),
        "platform-missing",
    );
    let tag = "windows";
    add(
        tag,
        &oci(to, "windows/amd64", Some(tag)).await,
        Support::Single(PlatformSet::EMPTY),
        "platform-missing",
    );

    let tag = "helm-chart";
    let config = to
        .blob(
            r#"{"name":"chart","version":"1.0.0"}"#,
            "application/vnd.cncf.helm.config.v1+json",
        )
        .await;
    let chart = manifest(to, OCI_MANIFEST, config, Some(tag)).await;
    add(tag, &chart, Support::Artifact, "bad-manifest");
    images
}

async fn oci(to: &Distribution, platform: &str, tag: Option<&str>) -> Value {
    let config = to.blob(&config(platform), OCI_CONFIG).await;
    manifest(to, OCI_MANIFEST, config, tag).await
}

async fn docker(to: &Distribution, platform: &str, tag: Option<&str>) -> Value {
    let config = to.blob(&config(platform), DOCKER_CONFIG).await;
    manifest(to, DOCKER_MANIFEST, config, tag).await
}

/// Pushes the attestation manifest that BuildKit adds for an image.
async fn attestation(to: &Distribution, of: &Value) -> Value {
    let config = to.blob(&config("unknown/unknown"), OCI_CONFIG).await;
    let mut entry = entry_for(
        &manifest(to, OCI_MANIFEST, config, None).await,
        "unknown/unknown",
    );
    entry["annotations"] = json!({
        "vnd.docker.reference.digest": of["digest"],
        "vnd.docker.reference.type": "attestation-manifest",
    });
    entry
}

async fn manifest(to: &Distribution, media_type: &str, config: Value, tag: Option<&str>) -> Value {
    let layer = match media_type {
        DOCKER_MANIFEST => "application/vnd.docker.image.rootfs.diff.tar.gzip",
        _ => "application/vnd.oci.image.layer.v1.tar+gzip",
    };
    let layer = to.blob("a layer", layer).await;
    let manifest =
        json!({"schemaVersion": 2, "mediaType": media_type, "config": config, "layers": [layer]});
    to.manifest(&manifest, tag).await
}

async fn index(to: &Distribution, media_type: &str, entries: Vec<Value>, tag: &str) -> Value {
    let index = json!({"schemaVersion": 2, "mediaType": media_type, "manifests": entries});
    to.manifest(&index, Some(tag)).await
}

/// Returns the descriptor as an index entry for this platform.
fn entry_for(descriptor: &Value, name: &str) -> Value {
    let mut entry = descriptor.clone();
    entry["platform"] = platform(name);
    entry
}

fn config(name: &str) -> String {
    let mut config = platform(name);
    config["rootfs"] = json!({"type": "layers", "diff_ids": []});
    config.to_string()
}

fn platform(name: &str) -> Value {
    let parts: Vec<&str> = name.split('/').collect();
    let mut platform = json!({"os": parts[0], "architecture": parts[1]});
    if let Some(variant) = parts.get(2) {
        platform["variant"] = json!(variant);
    }
    platform
}
