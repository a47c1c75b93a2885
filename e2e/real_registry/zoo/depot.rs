//! Images of many tools, in the directory of a registry. The module `making` makes them.

use std::collections::BTreeSet;
use std::path::PathBuf;

/// Repository of all images. A front like that of registry.k8s.io redirects requests for `zoo` to this repository.
pub(crate) const REPO: &str = "artifacts-prod/images/zoo";

/// Platforms for which containerd's library looks for an image.
pub(crate) const NODES: &str = "linux/amd64,linux/arm64";

/// The directory with its images.
pub(crate) struct Depot {
    /// Root directory of distribution's storage.
    pub(crate) content: PathBuf,
    /// Home directory for tools, without credentials.
    pub(crate) home: PathBuf,
    pub(crate) images: Vec<Image>,
}

/// An image, with the answers of other tools.
pub(crate) struct Image {
    pub(crate) tag: String,
    pub(crate) digest: String,
    /// Platforms in the manifest or config that crane reads.
    pub(crate) crane: BTreeSet<String>,
    /// Platforms of [`NODES`] for which containerd finds an image.
    pub(crate) containerd: BTreeSet<String>,
}
