//! The workloads to which a pool is open while it is rolled out to a share of them.

use sha2::{Digest, Sha256};

/// The position of a workload, from 0 to 99, in the order in which a growing share includes workloads. All Pods of a
/// workload have the same rank, on every replica, across rollouts and across versions of tolerarch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(u8);

impl Rank {
    /// The rank within every share except an empty one.
    pub const FIRST: Self = Self(0);

    pub(super) fn of(namespace: &str, kind: &str, name: &str) -> Self {
        // A file may leave out the namespace, for which kubectl would send the default.
        let namespace = if namespace.is_empty() {
            "default"
        } else {
            namespace
        };
        let hash = Sha256::digest([namespace, kind, name].join("\0"));
        let mut number: u64 = 0;
        for &byte in hash.iter().take(8) {
            number = number << 8 | u64::from(byte);
        }
        Self((number % 100) as u8)
    }

    /// Returns whether a share of the workloads, in percent, includes this workload.
    pub(super) fn is_within(self, share: u8) -> bool {
        self.0 < share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_grows_by_its_percentage_and_keeps_its_workloads() {
        let ranks: Vec<Rank> = (0..10_000)
            .map(|at| Rank::of("shop", "ReplicaSet", &format!("web-{at}")))
            .collect();
        let members = |share| -> Vec<bool> {
            let members = ranks.iter().map(|rank| rank.is_within(share));
            members.collect()
        };
        let mut before = members(0);
        assert!(before.iter().all(|is_member| !is_member));
        for share in 1..=100 {
            let now = members(share);
            let mut pairs = before.iter().zip(&now);
            assert!(pairs.all(|(before, now)| before <= now), "{share}");
            let count = now.iter().filter(|is_member| **is_member).count();
            assert!(
                count.abs_diff(usize::from(share) * 100) < 250,
                "{count} of {share} percent"
            );
            before = now;
        }
        assert!(before.iter().all(|is_member| *is_member));
    }

    #[test]
    fn rank_never_changes() {
        assert_eq!(Rank::of("shop", "ReplicaSet", "web"), Rank(42));
        assert_eq!(Rank::of("", "Pod", "a"), Rank::of("default", "Pod", "a"));
        assert_ne!(Rank::of("ab", "c", "d"), Rank::of("a", "bc", "d"));
    }
}
