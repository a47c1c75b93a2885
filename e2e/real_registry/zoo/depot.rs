//! Images of many tools, in the directory of a registry. `making` makes them.

use std::collections::BTreeSet;
use std::path::PathBuf;

/// The repository of all images. It lies where a front like that of registry.k8s.io sends clients for `zoo`.
pub(crate) const REPO: &str = "artifacts-prod/images/zoo";

/// The nodes that containerd's library is asked about.
pub(crate) const NODES: &str = "linux/amd64,linux/arm64";

/// The images, as they lie there.
pub(crate) struct Depot {
    /// What distribution has in its directory.
    pub(crate) content: PathBuf,
    /// Where tools find no login.
    pub(crate) home: PathBuf,
    pub(crate) images: Vec<Image>,
}

/// An image, and what others say of it.
pub(crate) struct Image {
    pub(crate) tag: String,
    pub(crate) digest: String,
    /// The platforms in what crane reads.
    pub(crate) crane: BTreeSet<String>,
    /// Of [`NODES`], those for which containerd finds an image.
    pub(crate) containerd: BTreeSet<String>,
}
