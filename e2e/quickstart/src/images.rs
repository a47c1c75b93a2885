//! The images that the registry holds.

use testregistry::{Entry, Fault, Registry};

const BOTH_PLATFORMS: [&str; 2] = ["linux/amd64", "linux/arm64"];

/// An image in the registry, as the output describes it.
pub(crate) struct Image {
    pub(crate) reference: String,
    pub(crate) kind: &'static str,
    pub(crate) platforms: &'static str,
}

/// Pushes all images. One kind of manifest each, and one repository that never answers.
pub(crate) fn push(registry: &Registry) -> Vec<Image> {
    registry.repo("web").index(Some("1"), BOTH_PLATFORMS);
    registry.repo("tool").docker_list(Some("1"), BOTH_PLATFORMS);
    registry.repo("agent").image("linux/amd64", Some("3"));
    registry.repo("edge").image("linux/arm64", Some("1"));
    push_as_buildkit_does(registry);
    let slow = registry.repo("slow");
    slow.index(Some("1"), BOTH_PLATFORMS);
    slow.fault(Some(Fault::hang()));

    let image = |repository: &str, tag: &str, kind, platforms| Image {
        reference: registry.repo(repository).reference(tag),
        kind,
        platforms,
    };
    vec![
        image("web", "1", "OCI index", "amd64, arm64"),
        image("tool", "1", "Docker manifest list", "amd64, arm64"),
        image("agent", "3", "single manifest", "amd64"),
        image("edge", "1", "single manifest", "arm64"),
        image(
            "api",
            "2",
            "OCI index of BuildKit",
            "amd64, arm64, attestations",
        ),
        image(
            "slow",
            "1",
            "OCI index, but it never answers",
            "amd64, arm64",
        ),
    ]
}

/// Pushes an index that has an attestation manifest for each image beside the image itself.
fn push_as_buildkit_does(registry: &Registry) {
    let repository = registry.repo("api");
    let mut images = Vec::new();
    let mut attestations = Vec::new();
    for platform in BOTH_PLATFORMS {
        let image = repository.entry(platform);
        let digest = image["digest"].as_str().unwrap_or_default();
        attestations.push(Entry::from(repository.attestation(digest)));
        images.push(Entry::from(image));
    }
    images.append(&mut attestations);
    repository.index(Some("2"), images);
}
