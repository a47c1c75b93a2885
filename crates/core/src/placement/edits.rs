//! Edits of a Pod, and the limits on the Pod's size: the API server would refuse a Pod that the additions make too large.

use std::collections::BTreeMap;

use crate::pod::{Pod, REASON_KEY, Retain, Toleration};
use crate::policy::Pool;

/// Maximum bytes of all annotations, keys and values (`TotalAnnotationSizeLimitB` of k8s.io/apimachinery).
pub const ANNOTATION_BYTES: usize = 256 << 10;
/// Maximum bytes of a Pod as it is stored. A request to etcd may have 1.5 MiB (`--max-request-bytes`). This leaves 16 KiB
/// for the rest of the request, for fields that the API server or later webhooks add, and for encryption at rest. The
/// limit of API requests is higher: 3 MiB.
pub(super) const OBJECT: usize = (1536 - 16) << 10;
/// Bytes of a toleration or an annotation beside its texts: names of members, quotes, tags.
const OVERHEAD: usize = 128;

#[derive(Debug, Default)]
pub struct Placement<'a> {
    /// The pools that are open to the Pod by managed additions after this pass.
    pub opened: Vec<&'a Pool>,
    /// Set if a pool is open to the Pod by its images, whether or not the Pod needs additions for the pool.
    pub is_open: bool,
    /// The first pool that would be open if the Pod itself did not name its node labels.
    pub contradicted: Option<&'a Pool>,
    /// Set if a managed addition steers the Pod after this pass.
    pub is_steered: bool,
    /// Set if the Pod would be steered if its images had a platform in common.
    pub lacks_common_platform: bool,
    pub edits: Edits<'a>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Edits<'a> {
    /// Indices in the Pod's list of tolerations, ascending: additions of an earlier pass that no longer hold.
    pub remove: Vec<usize>,
    pub add: Vec<&'a Toleration<'static>>,
    /// Members of the Pod's spec that are replaced as a whole, as JSON; `null` removes the member.
    pub spec: BTreeMap<&'static str, String>,
    /// Set if a member is replaced to add something that steers the Pod, rather than only to remove it.
    pub steers: bool,
    /// Set if the node selector gets labels of a pool that is opened.
    pub selects: bool,
    /// Annotations to set, or to remove if the text is empty.
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

    /// Sets the annotation with the reason to `text`, or removes the annotation if `text` is empty. Leaves the annotation
    /// out if it does not fit beside the other edits. Returns false only if it was the sole edit and does not fit.
    pub(crate) fn explain(&mut self, pod: &Pod<'_>, text: String) -> bool {
        // An annotation with an empty text is removed, too.
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

    /// Returns whether the API server certainly still stores the Pod with the additions. Removals always fit. Nothing fits
    /// a Pod that is too large by itself: the bound is an estimate, and etcd may take the Pod unchanged.
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
        // Removals shorten the Pod; beside them only the reason can lengthen it.
        let only_removes = self.add.is_empty() && !self.steers && !self.remove.is_empty();
        if only_removes && !explains {
            return true;
        }
        let mut steering = 0;
        if self.steers {
            for json in self.spec.values() {
                // The stored form is shorter.
                steering += json.len();
            }
        }
        if count == 0 && steering == 0 {
            // Nothing is added.
            return true;
        }
        let mut tolerations = 0;
        for toleration in &self.add {
            tolerations += toleration.held_bytes();
        }
        let added = tolerations + steering + written + count * OVERHEAD;
        pod.bytes.saturating_add(added) <= OBJECT
    }
}
