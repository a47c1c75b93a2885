//! Managed additions in the update of a template. They follow from the template's former version as well, as an update may
//! drop the annotations or the lists. The rest of placement does not need the former version.

use super::ownership::{Lasting, Ownership, count, has_names, labels_of, managed_tolerations};
use super::steering;
use crate::pod::{POOLS_KEY, PREFERRED_KEY, Pod, REQUIRED_KEY, Toleration};
use crate::policy::Policy;

impl<'p> Ownership<'p> {
    /// Reads the additions in `pod`, with the help of its former version `before`. An addition that was managed in
    /// `before` is still managed, even if its annotation is gone; one that was the user's is still the user's. Additions
    /// of `before` stay while an image is unknown.
    pub fn of_update(pod: &'p Pod<'_>, before: &'p Pod<'_>, policy: &Policy) -> Self {
        let opened_before = Self::opened(before, &policy.pools);
        let users = |toleration: &Toleration<'_>| {
            let mut managed = opened_before.iter().flat_map(|pool| &pool.tolerations);
            if !managed.any(|other| other.same(toleration)) {
                // The former annotation does not name the pool, so no equal toleration is reserved for the user.
                return 0;
            }
            count(before, toleration).saturating_sub(1)
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
