//! Additions of tolerarch to a Pod, known by the Pod's annotations. Only this module uses that of the pools.

use std::collections::HashSet;

use crate::pod::{POOLS_KEY, Pod, Toleration};
use crate::policy::Pool;

/// Additions of an earlier pass to a Pod.
#[derive(Debug)]
pub struct Ownership<'p> {
    /// The annotation's list of opened pools, as text.
    pools: &'p str,
    /// The list of the template before an update; empty if there was none.
    pools_before: &'p str,
    /// Places of these pools' tolerations in the Pod's list, ascending. All other tolerations are the user's.
    pub(super) tolerations: Vec<usize>,
}

impl<'p> Ownership<'p> {
    /// Reads the additions for `pools`. `before` is the template before an update: what was managed there still is,
    /// even if the annotation is gone, and what was the user's still is the user's.
    pub fn of(pod: &'p Pod<'_>, before: Option<&'p Pod<'_>>, pools: &[Pool]) -> Self {
        let written = pod.annotation(POOLS_KEY);
        let pools_before = before.map_or("", |before| before.annotation(POOLS_KEY));
        let opened_before = before.map_or_else(Vec::new, |before| Self::opened(before, pools));
        let count = |pod: &Pod<'_>, own: &Toleration<'_>| {
            pod.tolerations()
                .iter()
                .filter(|there| there.same(own))
                .count()
        };
        // Of equal tolerations the last is managed: it was appended.
        let place = |own: &&Toleration<'_>| {
            let place = pod
                .tolerations()
                .iter()
                .rposition(|there| there.same(own))?;
            // A template whose annotation names no pool counts as new: none of its tolerations is the user's.
            let mut managed_before = opened_before.iter().flat_map(|pool| &pool.tolerations);
            let before = before.filter(|_| managed_before.any(|other| other.same(own)));
            let users = before.map_or(0, |before| count(before, own).saturating_sub(1));
            (count(pod, own) > users).then_some(place)
        };
        let opened = Self::opened(pod, pools)
            .into_iter()
            .chain(opened_before.iter().copied());
        let own = distinct(opened.filter(|_| !pod.applied.tolerations));
        let mut tolerations: Vec<usize> = own.iter().filter_map(place).collect();
        tolerations.sort_unstable();
        Self {
            pools: written,
            pools_before,
            tolerations,
        }
    }

    /// Returns the pools that the Pod's annotation names as opened.
    pub fn opened<'a>(pod: &Pod<'_>, pools: &'a [Pool]) -> Vec<&'a Pool> {
        let written = pod.annotation(POOLS_KEY);
        pools
            .iter()
            .filter(|pool| names(written).any(|name| name == pool.name))
            .collect()
    }

    /// Returns whether the Pod's annotation names any pool as opened.
    pub fn is_claimed(pod: &Pod<'_>) -> bool {
        names(pod.annotation(POOLS_KEY)).next().is_some()
    }

    pub(super) fn was_open(&self, pool: &Pool) -> bool {
        names(self.pools_before).any(|name| name == pool.name)
    }

    /// Edits the annotation to name these pools; `None` if it does already. Pools that only another version of the
    /// configuration knows stay named, as the tolerations that were added for them are unknown here.
    pub fn record(&self, pools: &[Pool], opened: &[&Pool]) -> Option<(&'static str, String)> {
        let all = names(self.pools).chain(names(self.pools_before));
        let others = all.filter(|name| !pools.iter().any(|pool| pool.name == *name));
        // The annotation is untrusted input and may be long.
        let mut named = HashSet::new();
        let after = others.chain(opened.iter().map(|pool| pool.name.as_str()));
        let after: Vec<&str> = after.filter(|name| named.insert(*name)).collect();
        (names(self.pools).collect::<HashSet<_>>() != named).then(|| (POOLS_KEY, after.join(",")))
    }
}

/// Returns the parts of a managed annotation.
pub(super) fn names(written: &str) -> impl Iterator<Item = &str> {
    written
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
}

pub fn distinct<'a>(pools: impl Iterator<Item = &'a Pool>) -> Vec<&'a Toleration<'static>> {
    let mut all: Vec<&Toleration<'static>> = Vec::new();
    for own in pools.flat_map(|pool| &pool.tolerations) {
        if !all.iter().any(|other| other.same(own)) {
            all.push(own);
        }
    }
    all
}
