//! One request of the distribution API, below an image's repository.

use crate::registry::metrics::RequestKind;

pub(in crate::registry) struct ApiRequest {
    pub(super) kind: RequestKind,
    pub(super) path: String,
    /// Whether it asks where a tag points, which not every mirror is trusted to know.
    pub(in crate::registry) by_tag: bool,
}

impl ApiRequest {
    pub(in crate::registry) fn head(target: &str) -> Self {
        Self { kind: RequestKind::Head, ..Self::manifest(target) }
    }

    pub(in crate::registry) fn manifest(target: &str) -> Self {
        let (path, by_tag) = (format!("manifests/{target}"), !target.contains(':'));
        Self { kind: RequestKind::Manifest, path, by_tag }
    }

    pub(in crate::registry) fn config(digest: &str) -> Self {
        Self { kind: RequestKind::Config, path: format!("blobs/{digest}"), by_tag: false }
    }
}
