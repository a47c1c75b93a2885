//! The degree to which the images of a Pod support the platforms of the pools.

use crate::decide::Examined;
use tolerarch_core::reason::{LookupError, Reason};

/// The degree to which the images of a Pod support the platforms of the pools. The coverage of a workload is the first
/// variant, in this order, that one of its Pods has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Coverage {
    /// An image lacks a platform.
    Partial,
    /// The platforms of an image are unknown, and no image certainly lacks one.
    Unknown,
    /// Every image runs on all platforms of a pool.
    All,
    /// The Pod is not decided on: it belongs to a DaemonSet, is opted out, or the like.
    Skipped,
}

impl Coverage {
    /// All variants, in the order of reports.
    pub const ALL: [Self; 4] = [Self::All, Self::Partial, Self::Unknown, Self::Skipped];

    /// Returns the coverage of a Pod's images, and the reason: that of the decision, or why an image is a blocker.
    pub fn of(examined: &Examined) -> (Self, Reason) {
        let Examined {
            reason,
            skipped,
            blockers,
            ..
        } = examined;
        if let Some(reason) = *skipped {
            return (Self::Skipped, reason);
        }
        for blocker in blockers {
            if blocker.cause.lacks().is_some() {
                return (Self::Partial, blocker.reason());
            }
        }
        if let Some(unknown) = blockers.first() {
            return (Self::Unknown, unknown.reason());
        }
        if *reason == Reason::Unknown(LookupError::Internal) {
            return (Self::Unknown, *reason);
        }
        (Self::All, *reason)
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
