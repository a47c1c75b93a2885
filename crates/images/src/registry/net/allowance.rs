//! Rate limits as registries report them, for callers that leave most of a limit to others, and for reports.

use std::collections::BTreeMap;

use quick_cache::sync::Cache as Bounded;

/// Maximum number of hosts to remember; the least recently used are evicted.
const HOSTS: usize = 256;

/// What the last report of each host leaves, and of how much, by the host's name in metrics.
pub struct Allowances(Bounded<Box<str>, (u32, u32)>);

impl Allowances {
    pub(crate) fn new() -> Self {
        Self(Bounded::new(HOSTS))
    }

    /// Records a report. Without the whole limit in it, the most that the host ever left serves as one.
    pub(crate) fn record(&self, host: &str, left: u32, limit: Option<u32>) {
        let limit = match limit {
            Some(limit) => limit,
            None => self.0.get(host).map_or(left, |(_, most)| most.max(left)),
        };
        self.0.insert(host.into(), (left, limit));
    }

    /// Returns whether no limit of this host is known, or at least three quarters of the limit are left.
    pub fn is_plentiful(&self, host: &str) -> bool {
        self.0
            .get(host)
            .is_none_or(|(left, limit)| u64::from(left) * 4 >= u64::from(limit) * 3)
    }

    /// Returns whether less than a quarter of the limit of this host is left.
    pub fn is_low(&self, host: &str) -> bool {
        self.0
            .get(host)
            .is_some_and(|(left, limit)| u64::from(left) * 4 < u64::from(limit))
    }

    /// Returns the requests that the limit of each host leaves.
    pub fn left(&self) -> BTreeMap<String, u32> {
        self.0
            .iter()
            .map(|(host, (left, _))| (host.into_string(), left))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_of_a_limit_is_three_quarters_of_it_and_little_a_quarter() {
        let allowances = Allowances::new();
        assert!(allowances.is_plentiful("a"), "nothing is known");
        for (left, limit, expected) in [
            (25, Some(100), false),
            (24, Some(100), true),
            (0, Some(0), false),
            (1 << 30, Some(u32::MAX), false),
            ((1 << 30) - 1, Some(u32::MAX), true),
        ] {
            allowances.record("a", left, limit);
            assert_eq!(allowances.is_low("a"), expected, "{left} of {limit:?}");
            assert!(!allowances.is_low("b"));
        }
        for (left, limit, expected) in [
            (75, Some(100), true),
            (74, Some(100), false),
            (0, Some(0), true),
            (u32::MAX, Some(u32::MAX), true),
            (0, Some(u32::MAX), false),
        ] {
            allowances.record("a", left, limit);
            assert_eq!(
                allowances.is_plentiful("a"),
                expected,
                "{left} of {limit:?}"
            );
            assert!(allowances.is_plentiful("b"));
        }
        for (left, expected) in [
            (100, true),
            (80, true),
            (74, false),
            (100, true),
            (74, false),
        ] {
            allowances.record("b", left, None);
            assert_eq!(allowances.is_plentiful("b"), expected, "{left}");
        }
    }
}
