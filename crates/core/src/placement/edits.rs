//! Edits of a Pod, and the limits on its size: the API server would refuse one that managed additions make too large.

use std::collections::BTreeMap;

use crate::pod::{Kept, Pod, REASON_KEY, Toleration};
use crate::policy::Pool;

/// Maximal bytes of all annotations, keys and values (`TotalAnnotationSizeLimitB` of k8s.io/apimachinery).
pub const ANNOTATION_BYTES: usize = 256 << 10;
/// Maximal bytes of a Pod as it is stored. etcd takes requests of 1.5 MiB (`--max-request-bytes`); 16 KiB of them are
/// kept for what surrounds the Pod there, for what the API server fills in and webhooks after this one add, and for
/// encryption at rest. An API request may have 3 MiB and binds less.
pub(super) const OBJECT: usize = (1536 - 16) << 10;
/// Bytes of a toleration or an annotation beside its texts: names of members, quotes, tags.
const AROUND: usize = 128;

#[derive(Debug)]
pub struct Placement<'a> {
    /// The pools that are open to the Pod by managed tolerations after this pass.
    pub opened: Vec<&'a Pool>,
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

    /// Returns whether the API server still stores the Pod with the additions, for certain. Removals always fit. A Pod
    /// that is too large by itself gets nothing either: only etcd knows for certain that it is.
    pub fn fit(&self, pod: &Pod<'_>) -> bool {
        let annotations = self
            .annotations
            .iter()
            .filter(|(_, value)| !value.is_empty());
        let written: usize = annotations
            .clone()
            .map(|(key, value)| key.len() + value.len())
            .sum();
        if written > 0 && pod.annotation_bytes() + written > ANNOTATION_BYTES {
            return false;
        }
        // The annotations become shorter than before in this case, except for an explanation.
        let explains = annotations.clone().any(|(key, _)| *key == REASON_KEY);
        if self.add.is_empty() && !self.steers && !self.remove.is_empty() && !explains {
            return true;
        }
        let count = self.add.len() + annotations.count();
        // JSON is longer than the stored form.
        let steering: usize = if self.steers {
            self.spec.values().map(String::len).sum()
        } else {
            0
        };
        let added = self
            .add
            .iter()
            .map(|toleration| toleration.held())
            .sum::<usize>()
            + steering;
        let after = pod.bytes.saturating_add(added + written + count * AROUND);
        count == 0 && steering == 0 || after <= OBJECT
    }
}
