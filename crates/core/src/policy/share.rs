//! Workloads to which a pool is open while it is rolled out to a share of them.

use sha2::{Digest, Sha256};

/// The place of a workload in the order in which a growing share takes workloads in: 0 to 99. Stays the same for all
/// Pods of the workload, on every replica, from one rollout to the next and from one version of tolerarch to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(u8);

impl Rank {
    /// The rank within every share but an empty one.
    pub const FIRST: Self = Self(0);

    pub(super) fn of(namespace: &str, kind: &str, name: &str) -> Self {
        // A file may leave out the namespace that kubectl would fill in.
        let namespace = if namespace.is_empty() {
            "default"
        } else {
            namespace
        };
        let hash = Sha256::digest([namespace, kind, name].join("\0"));
        let number = hash
            .iter()
            .take(8)
            .fold(0, |number, &byte| number << 8 | u64::from(byte));
        Self((number % 100) as u8)
    }

    /// Returns whether a pool that is open to this share of the workloads, in percent, is open to this one.
    pub(super) fn is_within(self, share: u8) -> bool {
        self.0 < share
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_higher_share_only_adds_and_takes_what_it_says() {
        let ranks: Vec<Rank> = (0..10_000)
            .map(|at| Rank::of("shop", "ReplicaSet", &format!("web-{at}")))
            .collect();
        let taken = |share| {
            ranks
                .iter()
                .map(|rank| rank.is_within(share))
                .collect::<Vec<bool>>()
        };
        let mut before = taken(0);
        assert!(before.iter().all(|taken| !taken));
        for share in 1..=100 {
            let now = taken(share);
            assert!(
                before.iter().zip(&now).all(|(before, now)| before <= now),
                "{share}"
            );
            let count = now.iter().filter(|taken| **taken).count();
            assert!(
                count.abs_diff(usize::from(share) * 100) < 250,
                "{count} of {share} percent"
            );
            before = now;
        }
        assert!(before.iter().all(|taken| *taken));
    }

    #[test]
    fn a_rank_never_changes() {
        assert_eq!(Rank::of("shop", "ReplicaSet", "web"), Rank(42));
        assert_eq!(Rank::of("", "Pod", "a"), Rank::of("default", "Pod", "a"));
        assert_ne!(Rank::of("ab", "c", "d"), Rank::of("a", "bc", "d"));
    }
}
