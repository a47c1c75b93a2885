//! Edits of a Pod, and the limits on its size: the API server would refuse one that managed additions make too large.

use std::collections::BTreeMap;

use crate::pod::{Kept, Pod, REASON_KEY, Toleration};
use crate::policy::Pool;

/// Maximum bytes of all annotations, keys and values (`TotalAnnotationSizeLimitB` of k8s.io/apimachinery).
pub const ANNOTATION_BYTES: usize = 256 << 10;
/// Maximum bytes of a Pod as it is stored. etcd takes requests of 1.5 MiB (`--max-request-bytes`); 16 KiB of them are
/// kept for what surrounds the Pod there, for what the API server fills in and webhooks after this one add, and for
/// encryption at rest. An API request may have 3 MiB and binds less.
pub(super) const OBJECT: usize = (1536 - 16) << 10;
/// Bytes of a toleration or an annotation beside its texts: names of members, quotes, tags.
const OVERHEAD: usize = 128;

#[derive(Debug, Default)]
pub struct Placement<'a> {
    /// The pools that are open to the Pod by managed additions after this pass.
    pub opened: Vec<&'a Pool>,
    /// Set if the images open a pool to the Pod, whether additions are needed for it or not.
    pub is_open: bool,
    /// The first pool that only the node labels that the Pod itself names keep closed.
    pub contradicted: Option<&'a Pool>,
    /// Set if a managed addition steers the Pod after this pass.
    pub is_steered: bool,
    /// Set if the Pod would be steered if its images had a platform in common.
    pub is_nowhere: bool,
    pub edits: Edits<'a>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Edits<'a> {
    /// Places in the Pod's list of tolerations, ascending: additions of an earlier pass that no longer hold.
    pub remove: Vec<usize>,
    pub add: Vec<&'a Toleration<'static>>,
    /// Members of the Pod's spec that are replaced as a whole, as JSON; `null` removes the member.
    pub spec: BTreeMap<&'static str, String>,
    /// Set if a member is replaced to add something that steers the Pod, rather than only to remove it.
    pub steers: bool,
    /// Set if the Pod newly selects the nodes of a pool that is opened.
    pub selects: bool,
    /// Annotations to set, or to remove where the text is empty.
    pub annotations: BTreeMap<&'static str, String>,
}

impl Edits<'_> {
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty()
            && self.add.is_empty()
            && self.spec.is_empty()
            && self.annotations.is_empty()
    }

    /// Returns whether the edits do more than append: they remove tolerations, or replace a member of the spec.
    pub(crate) fn changes_existing(&self) -> bool {
        !self.remove.is_empty() || !self.spec.is_empty()
    }

    /// Sets the annotation with the reason to a text, or removes it if the text is empty. Leaves the annotation out if
    /// there is no room for it beside the other edits. Returns false only if the annotation was the sole edit and has no
    /// room.
    pub(crate) fn explain(&mut self, pod: &Pod<'_>, text: String) -> bool {
        // An empty annotation is removed, too.
        let is_wanted = !text.is_empty();
        if pod.has_annotation(REASON_KEY) == is_wanted && pod.annotation(REASON_KEY) == text {
            return true;
        }
        let is_alone = self.is_empty();
        self.annotations.insert(REASON_KEY, text);
        if self.fit(pod) {
            return true;
        }
        self.annotations.remove(REASON_KEY);
        !is_alone
    }

    /// Returns whether the API server still stores the Pod with the additions, for certain. Removals always fit. A Pod
    /// that is too large by itself gets nothing either: only etcd knows for certain that it is.
    pub fn fit(&self, pod: &Pod<'_>) -> bool {
        let mut count = self.add.len();
        let mut written = 0;
        let mut explains = false;
        for (key, value) in &self.annotations {
            if !value.is_empty() {
                count += 1;
                written += key.len() + value.len();
                explains |= *key == REASON_KEY;
            }
        }
        if written > 0 && pod.annotation_bytes() + written > ANNOTATION_BYTES {
            return false;
        }
        // Removals alone shorten the Pod; only an explanation can lengthen it.
        if self.add.is_empty() && !self.steers && !self.remove.is_empty() && !explains {
            return true;
        }
        // JSON is longer than the stored form.
        let steering: usize = if self.steers {
            self.spec.values().map(String::len).sum()
        } else {
            0
        };
        if count == 0 && steering == 0 {
            // Nothing is added.
            return true;
        }
        let tolerations: usize = self.add.iter().map(|it| it.held()).sum();
        let added = tolerations + steering + written + count * OVERHEAD;
        pod.bytes.saturating_add(added) <= OBJECT
    }
}
