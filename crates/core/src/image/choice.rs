//! Choice of a node among the entries of an index, as containerd chooses (`images.Manifest` in `core/images/image.go`):
//! the best match by the node's order of preference, the first of equal matches, and an entry without a platform last.
//! A node pulls the entry that it has chosen; it does not come back for another one.

use super::PlatformSet;
use super::platform::{KNOWN, NODES, Platform};

/// Preference of each node for an entry of an index: its place in the order of containerd/platforms (`platformVector`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preference([u8; KNOWN]);

impl Preference {
    /// An entry that no node takes.
    pub const NEVER: Self = Self([u8::MAX; KNOWN]);
    /// An entry without a platform: any node takes such an entry if it finds no other.
    pub const LAST: Self = Self([u8::MAX - 1; KNOWN]);

    pub fn of(platform: &Platform<'_>) -> Self {
        let mut ranks = Self::NEVER.0;
        for (rank, node) in ranks.iter_mut().zip(&NODES) {
            *rank = node.rank_of(platform).unwrap_or(*rank);
        }
        Self(ranks)
    }

    /// Returns the nodes among `within` that would take the entry if there were no other.
    pub fn takers(self, within: PlatformSet) -> PlatformSet {
        within.filter(|node| self.0[node] != u8::MAX)
    }

    /// Returns for each entry the nodes among `within` that choose the entry.
    pub fn choose(entries: &[Self], within: PlatformSet) -> Vec<PlatformSet> {
        let best = |node: usize| {
            entries
                .iter()
                .enumerate()
                .min_by_key(|(_, entry)| entry.0[node])
        };
        let mut chosen = vec![PlatformSet::EMPTY; entries.len()];
        for node in 0..KNOWN {
            let Some((place, entry)) = best(node) else {
                break;
            };
            let taker = within.filter(|other| other == node && entry.0[node] != u8::MAX);
            chosen[place] = chosen[place].union(taker);
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(entries: &[&str]) -> Vec<String> {
        let preference = |text: &&str| {
            let mut parts = text.split('/');
            let mut next = || parts.next().unwrap_or_default();
            let platform = [next(), next(), next()];
            if text.is_empty() {
                Preference::LAST
            } else {
                Preference::of(&Platform::new(platform[0], platform[1], platform[2]))
            }
        };
        let entries: Vec<Preference> = entries.iter().map(preference).collect();
        let some = [
            "linux/amd64",
            "linux/arm64",
            "linux/arm/v6",
            "linux/arm/v7",
            "linux/s390x",
        ];
        let some = some.iter().fold(PlatformSet::EMPTY, |set, text| {
            set.union(text.parse().unwrap())
        });
        Preference::choose(&entries, some)
            .into_iter()
            .map(|set| set.to_string())
            .collect()
    }

    #[test]
    fn a_node_takes_the_first_of_its_best_entries() {
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
