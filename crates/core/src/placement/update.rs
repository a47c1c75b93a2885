//! The update of a template: its former version says, too, which additions are managed, as an update may drop the
//! annotations or the lists. The rest of placement knows what is managed and what lasts, and no former version.

use super::ownership::{Lasting, Ownership, count, has_names, labels_of, managed_tolerations};
use super::steering;
use crate::pod::{POOLS_KEY, PREFERRED_KEY, Pod, REQUIRED_KEY, Toleration};
use crate::policy::Policy;

impl<'p> Ownership<'p> {
    /// Reads the additions in `pod` by `before` as well: what was managed there still is, even if the annotation is
    /// gone, and what was the user's still is the user's. Additions of `before` stay while an image is unknown.
    pub fn of_update(pod: &'p Pod<'_>, before: &'p Pod<'_>, policy: &Policy) -> Self {
        let opened_before = Self::opened(before, &policy.pools);
        let users = |toleration: &Toleration<'_>| {
            let mut managed = opened_before.iter().flat_map(|pool| &pool.tolerations);
            // Where the former annotation does not name the pool, no equal toleration is reserved for the user.
            if managed.any(|other| other.same(toleration)) {
                count(before, toleration).saturating_sub(1)
            } else {
                0
            }
        };
        let mut opened = Self::opened(pod, &policy.pools);
        opened.extend_from_slice(&opened_before);
        let recorded = |key| {
            let annotation = pod.annotation(key);
            if has_names(annotation) {
                annotation
            } else {
                before.annotation(key)
            }
        };
        Self {
            pools: pod.annotation(POOLS_KEY),
            tolerations: managed_tolerations(pod, &opened, users),
            labels: labels_of(&opened),
            required: recorded(REQUIRED_KEY),
            preferred: recorded(PREFERRED_KEY),
            lasting: Some(Lasting {
                pools: before.annotation(POOLS_KEY),
                required: before.annotation(REQUIRED_KEY),
                preferred: before.annotation(PREFERRED_KEY),
                is_selected: steering::is_selected(before, &policy.placement),
            }),
        }
    }
}
