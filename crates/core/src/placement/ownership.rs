//! Additions of tolerarch to a Pod, known by the Pod's annotations.

use std::collections::{BTreeMap, BTreeSet};

use crate::pod::{POOLS_KEY, PREFERRED_KEY, Pod, REQUIRED_KEY, Toleration};
use crate::policy::Pool;

/// Managed additions of an earlier pass.
#[derive(Debug)]
pub struct Ownership<'p> {
    /// The annotation's list of opened pools, as text.
    pub(super) pools: &'p str,
    /// Places of these pools' tolerations in the Pod's list, ascending. All other tolerations are the user's.
    pub(super) tolerations: Vec<usize>,
    /// Labels of these pools' nodes that the Pod may select.
    pub(super) labels: BTreeMap<String, String>,
    /// The annotation's list of managed requirements, as text.
    pub(super) required: &'p str,
    /// The annotation's list of managed preferences, as text.
    pub(super) preferred: &'p str,
    /// Additions that stay while an image is unknown, as far as the known images do not contradict them; `None` for a
    /// Pod, which loses them.
    pub(super) lasting: Option<Lasting<'p>>,
}

/// Additions that a rollout would be needed to remove.
#[derive(Debug)]
pub(super) struct Lasting<'p> {
    /// List of opened pools, as text.
    pub(super) pools: &'p str,
    /// List of managed requirements, as text.
    pub(super) required: &'p str,
    /// List of managed preferences, as text.
    pub(super) preferred: &'p str,
    /// Whether the node selector, rather than the affinity, has the managed architecture; `None` if neither has anything
    /// managed.
    pub(super) is_selected: Option<bool>,
}

impl<'p> Ownership<'p> {
    /// Reads the additions for `pools`.
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
        let is_named = |pool: &&Pool| names(annotation).any(|name| name == pool.name);
        pools.iter().filter(is_named).collect()
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

    /// Edits the annotation to name these pools; `None` if it does already. Pools that only another version of the
    /// configuration knows stay named, as the tolerations that were added for them are unknown here.
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
        (before != listed).then(|| (POOLS_KEY, after.join(",")))
    }
}

/// Returns the places of the opened pools' tolerations in the Pod's list, ascending. `users` counts how many
/// tolerations equal to a pool's are the user's.
pub(super) fn managed_tolerations(
    pod: &Pod<'_>,
    opened: &[&Pool],
    users: impl Fn(&Toleration<'_>) -> usize,
) -> Vec<usize> {
    let mut places = Vec::new();
    // What the owner has set by server-side apply is the user's.
    if pod.applied.tolerations {
        return places;
    }
    for toleration in distinct(opened.iter().copied()) {
        let present = pod.tolerations();
        // Of equal tolerations the last is managed: it was appended.
        let Some(place) = present.iter().rposition(|other| other.same(toleration)) else {
            continue;
        };
        if count(pod, toleration) > users(toleration) {
            places.push(place);
        }
    }
    places.sort_unstable();
    places
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

/// Returns the parts of a managed annotation.
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
