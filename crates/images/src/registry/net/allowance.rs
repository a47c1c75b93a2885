//! Remembers the rate limits that registries report, for reports and for callers that must leave most of a limit to
//! others.

use std::collections::BTreeMap;

use quick_cache::sync::Cache as Bounded;

/// Maximum number of hosts to remember; the least recently used are evicted.
const MAX_HOSTS: usize = 256;

/// Rate limits by host, under the host's name in metrics.
pub struct Allowances(Bounded<Box<str>, Allowance>);

/// Rate limit of one host.
#[derive(Clone, Copy)]
struct Allowance {
    /// Remaining requests according to the last report.
    left: u32,
    limit: u32,
}

impl Allowances {
    pub(crate) fn new() -> Self {
        Self(Bounded::new(MAX_HOSTS))
    }

    /// Records a report. If the report lacks the whole limit, the most that the host ever had left is taken for it.
    pub(crate) fn record(&self, host: &str, left: u32, limit: Option<u32>) {
        let limit = match (limit, self.0.get(host)) {
            (Some(limit), _) => limit,
            (None, Some(recorded)) => recorded.limit.max(left),
            (None, None) => left,
        };
        self.0.insert(host.into(), Allowance { left, limit });
    }

    /// Returns whether at least three quarters of this host's limit are left, or no limit is known.
    pub fn is_plentiful(&self, host: &str) -> bool {
        let Some(Allowance { left, limit }) = self.0.get(host) else {
            return true;
        };
        u64::from(left) * 4 >= u64::from(limit) * 3
    }

    /// Returns whether less than a quarter of this host's limit is left.
    pub fn is_low(&self, host: &str) -> bool {
        let Some(Allowance { left, limit }) = self.0.get(host) else {
            return false;
        };
        u64::from(left) * 4 < u64::from(limit)
    }

    /// Returns the remaining requests of each host.
    pub fn left(&self) -> BTreeMap<String, u32> {
        let mut left = BTreeMap::new();
        for (host, allowance) in self.0.iter() {
            left.insert(host.into_string(), allowance.left);
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_quarters_are_plenty_and_under_a_quarter_is_low() {
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
