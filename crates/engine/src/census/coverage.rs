//! How much of the pools the images of a Pod cover.

use std::collections::BTreeMap;

/// Where the images of a Pod run, by the platforms of the pools. A workload counts by the first of this order that one of
/// its Pods has.
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
    /// In the order of reports.
    pub const ALL: [Self; 4] = [Self::All, Self::Partial, Self::Unknown, Self::Skipped];

    /// A default for each.
    pub(super) fn each<T: Default>() -> BTreeMap<Self, T> {
        Self::ALL.map(|coverage| (coverage, T::default())).into()
    }

    /// Its name in metrics and in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Partial => "partial",
            Self::Unknown => "unknown",
            Self::Skipped => "skipped",
        }
    }
}
