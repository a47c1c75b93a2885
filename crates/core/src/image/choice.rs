//! The entry of an index that a node chooses, as containerd does (`images.Manifest` in `core/images/image.go`). A node takes
//! the best match in its order of preference, and the first of equal matches. An entry without a platform comes last. A
//! node pulls only the entry that it has chosen.

use super::PlatformSet;
use super::platform::{KNOWN, NODES, Platform};

/// The preference of each node for an entry of an index: the entry's rank in containerd/platforms (`platformVector`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preference([u8; KNOWN]);

impl Preference {
    /// An entry that no node chooses.
    pub const NEVER: Self = Self([u8::MAX; KNOWN]);
    /// An entry without a platform: a node chooses it only if no other entry matches.
    pub const LAST: Self = Self([u8::MAX - 1; KNOWN]);

    pub fn of(platform: &Platform<'_>) -> Self {
        let mut ranks = Self::NEVER.0;
        for (rank, node) in ranks.iter_mut().zip(&NODES) {
            if let Some(rank_of_node) = node.rank_of(platform) {
                *rank = rank_of_node;
            }
        }
        Self(ranks)
    }

    /// Returns the nodes among `within` that would choose the entry if it were the only one.
    pub fn takers(self, within: PlatformSet) -> PlatformSet {
        within.filter(|node| self.0[node] != u8::MAX)
    }

    /// Returns for each entry the nodes among `within` that choose the entry.
    pub fn choose(entries: &[Self], within: PlatformSet) -> Vec<PlatformSet> {
        let mut nodes_by_entry = vec![PlatformSet::EMPTY; entries.len()];
        for node in 0..KNOWN {
            let mut best = None;
            let mut best_rank = u8::MAX;
            for (index, entry) in entries.iter().enumerate() {
                if entry.0[node] < best_rank {
                    best = Some(index);
                    best_rank = entry.0[node];
                }
            }
            if let Some(index) = best {
                nodes_by_entry[index] |= within.filter(|other| other == node);
            }
        }
        nodes_by_entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(entries: &[&str]) -> Vec<String> {
        let preference = |text: &&str| {
            if text.is_empty() {
                return Preference::LAST;
            }
            let mut parts = text.split('/');
            let mut next = || parts.next().unwrap_or_default();
            let [os, architecture, variant] = [next(), next(), next()];
            Preference::of(&Platform::new(os, architecture, variant))
        };
        let entries: Vec<Preference> = entries.iter().map(preference).collect();
        let within = crate::testing::platforms(&[
            "linux/amd64",
            "linux/arm64",
            "linux/arm/v6",
            "linux/arm/v7",
            "linux/s390x",
        ]);
        let sets = Preference::choose(&entries, within);
        sets.iter().map(PlatformSet::to_string).collect()
    }

    #[test]
    fn node_chooses_the_first_of_its_best_entries() {
        let all = "linux/amd64, linux/arm64, linux/arm/v6, linux/arm/v7, linux/s390x";
        for (entries, expected) in [
            (
                &["linux/amd64", "linux/amd64"][..],
                &["linux/amd64", "none"][..],
            ),
            (
                &["", "linux/amd64"],
                &[
                    "linux/arm64, linux/arm/v6, linux/arm/v7, linux/s390x",
                    "linux/amd64",
                ],
            ),
            (&["", ""], &[all, "none"]),
            (&["linux/386", "linux/amd64"], &["none", "linux/amd64"]),
            (&["linux/386"], &["linux/amd64"]),
            (
                &["linux/arm/v6", "linux/arm/v7"],
                &["linux/arm/v6", "linux/arm64, linux/arm/v7"],
            ),
            (
                &["linux/arm/v8", "linux/arm/v5"],
                &["linux/arm64", "linux/arm/v6, linux/arm/v7"],
            ),
            (
                &[
                    "linux/arm64/v9",
                    "linux/amd64/v2",
                    "windows/amd64",
                    "unknown/unknown",
                ],
                &["none"; 4],
            ),
            (&[], &[]),
        ] {
            assert_eq!(choose(entries), expected, "{entries:?}");
        }
    }
}
