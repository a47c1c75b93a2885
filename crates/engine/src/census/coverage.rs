//! Share of the pools' platforms that the images of a Pod cover.

use std::collections::BTreeMap;

/// Coverage by a Pod's images. A workload counts by the first variant in this order that one of its Pods has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Coverage {
    /// An image lacks a platform.
    Partial,
    /// The platforms of an image are unknown, and no image is known to lack one.
    Unknown,
    /// Every image runs wherever a pool's nodes can be.
    All,
    /// The Pod is not decided on: of a DaemonSet, opted out, or the like.
    Skipped,
}

impl Coverage {
    /// All variants, in the order of reports.
    pub const ALL: [Self; 4] = [Self::All, Self::Partial, Self::Unknown, Self::Skipped];

    pub(super) fn each<T: Default>() -> BTreeMap<Self, T> {
        Self::ALL.map(|coverage| (coverage, T::default())).into()
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Partial => "partial",
            Self::Unknown => "unknown",
            Self::Skipped => "skipped",
        }
    }
}
