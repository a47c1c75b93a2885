//! How far the images of a Pod support the platforms of the pools.

use crate::decide::Examined;
use tolerarch_core::reason::{LookupError, Reason};

/// Share of the pools' platforms that the images of a Pod cover. A workload counts by the first variant in this order
/// that one of its Pods has.
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

    /// Returns the coverage of a Pod's images, and its reason: the outcome today, for an unknown image why it is unknown.
    pub fn of(
        Examined {
            reason,
            skipped,
            blockers,
            ..
        }: &Examined,
    ) -> (Self, Reason) {
        let lacking = blockers.iter().find(|it| it.cause.lacks().is_some());
        match (skipped, lacking, blockers.first()) {
            (Some(reason), ..) => (Self::Skipped, *reason),
            (None, Some(lacking), _) => (Self::Partial, lacking.reason()),
            (None, None, Some(unknown)) => (Self::Unknown, unknown.reason()),
            (None, None, None) if *reason == Reason::Unknown(LookupError::Internal) => {
                (Self::Unknown, *reason)
            }
            (None, None, None) => (Self::All, *reason),
        }
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
