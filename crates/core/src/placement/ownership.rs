//! The managed additions to a Pod, recognised by the Pod's annotations.

use std::collections::{BTreeMap, BTreeSet};

use crate::pod::{POOLS_KEY, PREFERRED_KEY, Pod, REQUIRED_KEY, Toleration};
use crate::policy::Pool;

/// Managed additions of an earlier pass.
#[derive(Debug)]
pub struct Ownership<'p> {
    /// The annotation's list of opened pools, as text.
    pub(super) pools: &'p str,
    /// Indices of these pools' tolerations in the Pod's list, ascending. All other tolerations are the user's.
    pub(super) tolerations: Vec<usize>,
    /// Labels of these pools' nodes, which the Pod's node selector may have.
    pub(super) labels: BTreeMap<String, String>,
    /// The annotation's list of managed requirements, as text.
    pub(super) required: &'p str,
    /// The annotation's list of managed preferences, as text.
    pub(super) preferred: &'p str,
    /// Additions that stay while an image is unknown, as far as the known images allow them; `None` for a Pod, which loses
    /// its additions.
    pub(super) lasting: Option<Lasting<'p>>,
}

/// Additions whose removal would cause a rollout.
#[derive(Debug)]
pub(super) struct Lasting<'p> {
    /// List of opened pools, as text.
    pub(super) pools: &'p str,
    /// List of managed requirements, as text.
    pub(super) required: &'p str,
    /// List of managed preferences, as text.
    pub(super) preferred: &'p str,
    /// Whether the node selector, rather than the affinity, has the managed architecture; `None` if neither has a managed
    /// constraint.
    pub(super) is_selected: Option<bool>,
}

impl<'p> Ownership<'p> {
    /// Reads the additions for `pools` from the Pod.
    pub fn of(pod: &'p Pod<'_>, pools: &[Pool]) -> Self {
        let opened = Self::opened(pod, pools);
        Self {
            pools: pod.annotation(POOLS_KEY),
            tolerations: managed_tolerations(pod, &opened, |_| 0),
            labels: labels_of(&opened),
            required: pod.annotation(REQUIRED_KEY),
            preferred: pod.annotation(PREFERRED_KEY),
            lasting: None,
        }
    }

    /// Returns the pools that the Pod's annotation names as opened.
    pub fn opened<'a>(pod: &Pod<'_>, pools: &'a [Pool]) -> Vec<&'a Pool> {
        let annotation = pod.annotation(POOLS_KEY);
        let mut opened = Vec::new();
        for pool in pools {
            if names(annotation).any(|name| name == pool.name) {
                opened.push(pool);
            }
        }
        opened
    }

    /// Returns whether the Pod's annotation names any pool as opened.
    pub fn is_claimed(pod: &Pod<'_>) -> bool {
        has_names(pod.annotation(POOLS_KEY))
    }

    /// Returns whether additions stay while an image is unknown.
    pub(crate) fn is_lasting(&self) -> bool {
        self.lasting.is_some()
    }

    /// Returns whether the pool's tolerations stay while an image is unknown.
    pub(super) fn is_lasting_for(&self, pool: &Pool) -> bool {
        names(self.lasting_pools()).any(|name| name == pool.name)
    }

    fn lasting_pools(&self) -> &'p str {
        match &self.lasting {
            Some(lasting) => lasting.pools,
            None => "",
        }
    }

    /// Returns the edit after which the annotation names these pools; `None` if it already does. Pools that are only in
    /// another version of the configuration stay named, as their tolerations are unknown here.
    pub fn record(&self, pools: &[Pool], opened: &[&Pool]) -> Option<(&'static str, String)> {
        // The annotation is untrusted input and may be long.
        let mut listed = BTreeSet::new();
        let mut after = Vec::new();
        for name in names(self.pools).chain(names(self.lasting_pools())) {
            let is_configured = pools.iter().any(|pool| pool.name == name);
            if !is_configured && listed.insert(name) {
                after.push(name);
            }
        }
        for pool in opened {
            if listed.insert(&pool.name) {
                after.push(&pool.name);
            }
        }
        let before: BTreeSet<&str> = names(self.pools).collect();
        if before == listed {
            return None;
        }
        Some((POOLS_KEY, after.join(",")))
    }
}

/// Returns the indices of the opened pools' tolerations in the Pod's list, ascending. `users` returns how many
/// tolerations equal to the given one are the user's.
pub(super) fn managed_tolerations(
    pod: &Pod<'_>,
    opened: &[&Pool],
    users: impl Fn(&Toleration<'_>) -> usize,
) -> Vec<usize> {
    let mut indices = Vec::new();
    // A list that the owner has set by server-side apply is the user's.
    if pod.applied.tolerations {
        return indices;
    }
    for toleration in distinct(opened.iter().copied()) {
        let present = pod.tolerations();
        // The last of equal tolerations is managed: it was appended.
        let Some(index) = present.iter().rposition(|other| other.same(toleration)) else {
            continue;
        };
        if count(pod, toleration) > users(toleration) {
            indices.push(index);
        }
    }
    indices.sort_unstable();
    indices
}

/// Returns the labels of these pools' nodes.
pub(super) fn labels_of(opened: &[&Pool]) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for pool in opened {
        labels.extend(pool.select.clone());
    }
    labels
}

/// Returns how many tolerations of the Pod equal this one.
pub(super) fn count(pod: &Pod<'_>, toleration: &Toleration<'_>) -> usize {
    let tolerations = pod.tolerations().iter();
    tolerations.filter(|other| other.same(toleration)).count()
}

/// Returns the comma-separated names in a managed annotation.
pub(super) fn names(annotation: &str) -> impl Iterator<Item = &str> {
    let parts = annotation.split(',').map(str::trim);
    parts.filter(|name| !name.is_empty())
}

pub(super) fn has_names(annotation: &str) -> bool {
    names(annotation).next().is_some()
}

/// Returns the tolerations of these pools, each once.
pub fn distinct<'a>(pools: impl Iterator<Item = &'a Pool>) -> Vec<&'a Toleration<'static>> {
    let mut all: Vec<&Toleration<'static>> = Vec::new();
    for toleration in pools.flat_map(|pool| &pool.tolerations) {
        if !all.iter().any(|other| other.same(toleration)) {
            all.push(toleration);
        }
    }
    all
}
