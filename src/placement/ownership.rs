//! What tolerarch added to a Pod, as the Pod itself shows it. The only place that reads and writes our annotations.

use crate::pod::{POOLS_KEY, Pod, Toleration};
use crate::policy::Pool;

/// An annotation that changes.
#[derive(Debug, PartialEq, Eq)]
pub struct AnnotationEdit {
    /// Its key.
    pub key: &'static str,
    /// Its new value; empty where it is removed.
    pub value: String,
}

/// What an earlier pass added to a Pod.
#[derive(Debug)]
pub struct Ownership<'p> {
    /// The pools that it says to have opened, as they are written.
    pools: &'p str,
    /// Places in the Pod's list of tolerations, ascending: those of these pools. All others are the user's.
    tolerations: Vec<usize>,
}

impl<'p> Ownership<'p> {
    /// What the Pod says, under these pools.
    pub fn of(pod: &'p Pod<'_>, pools: &[Pool]) -> Self {
        let written = pod.pools_annotation();
        let named = Self::opened(pod, pools).into_iter();
        let place = |own: &&Toleration<'_>| pod.tolerations().iter().position(|there| there.same(own));
        let mut tolerations: Vec<usize> = distinct(named).iter().filter_map(place).collect();
        tolerations.sort_unstable();
        Self { pools: written, tolerations }
    }

    /// The pools that the Pod says were opened.
    pub fn opened<'a>(pod: &Pod<'_>, pools: &'a [Pool]) -> Vec<&'a Pool> {
        let written = pod.pools_annotation();
        pools.iter().filter(|pool| names(written).any(|name| name == pool.name)).collect()
    }

    /// Whether the Pod says that a pool was opened.
    pub fn is_claimed(pod: &Pod<'_>) -> bool {
        names(pod.pools_annotation()).next().is_some()
    }

    /// Whether the toleration at this place is ours.
    pub fn holds(&self, place: usize) -> bool {
        self.tolerations.contains(&place)
    }

    /// The places of our tolerations, ascending.
    pub fn tolerations(&self) -> &[usize] {
        &self.tolerations
    }

    /// How to write down that these pools are open; `None` where it stands there. Pools that only another version of the
    /// configuration knows stay named: what was added for them cannot be told from here.
    pub fn record(&self, pools: &[Pool], opened: &[&Pool]) -> Option<AnnotationEdit> {
        let before: Vec<&str> = names(self.pools).collect();
        let others = before.iter().copied().filter(|name| !pools.iter().any(|pool| pool.name == *name));
        let after: Vec<&str> = others.chain(opened.iter().map(|pool| pool.name.as_str())).collect();
        // Sorted, as the annotation may be long: it is untrusted input.
        fn sorted<'s>(names: &[&'s str]) -> Vec<&'s str> {
            let mut names = names.to_vec();
            names.sort_unstable();
            names
        }
        let same = before.len() == after.len() && sorted(&before) == sorted(&after);
        (!same).then(|| AnnotationEdit { key: POOLS_KEY, value: after.join(",") })
    }
}

/// The parts of an annotation of ours.
pub(super) fn names(written: &str) -> impl Iterator<Item = &str> {
    written.split(',').map(str::trim).filter(|name| !name.is_empty())
}

/// The tolerations of these pools, each once.
pub fn distinct<'a>(pools: impl Iterator<Item = &'a Pool>) -> Vec<&'a Toleration<'static>> {
    let mut all: Vec<&Toleration<'static>> = Vec::new();
    for own in pools.flat_map(|pool| &pool.tolerations) {
        if !all.iter().any(|other| other.same(own)) {
            all.push(own);
        }
    }
    all
}
