//! How much of what strangers wrote is taken: all numbers in one place. A pull secret belongs to a tenant, and may be
//! hostile; the operator's files may be larger.

use tokio::time::Duration;

/// How much of one thing a Secret may have, and what is told of one that has more.
pub(super) struct Most {
    pub(super) most: usize,
    told: &'static str,
}

impl Most {
    /// # Errors
    /// What is told.
    pub(super) fn check(&self, given: usize) -> Result<(), &'static str> {
        if given <= self.most { Ok(()) } else { Err(self.told) }
    }
}

/// Bytes of what docker's format says. Real ones have a few hundred.
pub(super) const DATA: Most = Most { most: 128 << 10, told: "its data has more than 128 KiB" };
/// Registries in it.
pub(super) const ENTRIES: Most = Most { most: 64, told: "it has more than 64 entries" };
/// Bytes of the name of one.
pub(super) const KEY: Most = Most { most: 512, told: "one of its entries has a name of more than 512 bytes" };
/// Bytes of a user, a password or a token.
pub(super) const WORD: Most =
    Most { most: 16 << 10, told: "one of its users, passwords or tokens has more than 16 KiB" };

/// Entries of all secrets of one Pod: each is compared with each of its images, and may be a glob.
pub(super) const ENTRIES_OF_POD: usize = 256;
/// Attempts for one image that come from pull secrets, whatever their number.
pub(super) const PULLED: usize = 8;
/// Attempts for one image from all sources.
pub(super) const ATTEMPTS: usize = 16;

/// Bytes of all pull secrets that are remembered.
pub(super) const REMEMBERED: u64 = 16 << 20;
/// Pull secrets that are read at a time: in all, and of one namespace, so that no tenant has all turns.
pub(super) const READS: usize = 16;
pub(super) const READS_OF_NAMESPACE: usize = 4;
/// Those of one namespace that are read or wait for their turn; further ones are not read.
pub(super) const QUEUE_OF_NAMESPACE: usize = 64;

/// How often what does not count any more is thrown away.
pub(super) const SWEEP: Duration = Duration::from_secs(60);
