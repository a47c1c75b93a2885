//! Limits on untrusted input. A pull secret belongs to a tenant; the operator's files may be larger.

use tokio::time::Duration;

/// A limit on one property of a Secret, and the message for one that exceeds it.
pub(super) struct Limit {
    pub(super) max: usize,
    message: &'static str,
}

impl Limit {
    pub(super) fn check(&self, given: usize) -> Result<(), &'static str> {
        if given <= self.max { Ok(()) } else { Err(self.message) }
    }
}

/// Bytes of docker's format. Real ones have a few hundred.
pub(super) const DATA: Limit = Limit { max: 128 << 10, message: "its data has more than 128 KiB" };
/// Registries in it.
pub(super) const ENTRIES: Limit = Limit { max: 64, message: "it has more than 64 entries" };
/// Bytes of a registry's name.
pub(super) const KEY: Limit =
    Limit { max: 512, message: "one of its entries has a name of more than 512 bytes" };
/// Bytes of a user, a password or a token.
pub(super) const WORD: Limit =
    Limit { max: 16 << 10, message: "one of its users, passwords or tokens has more than 16 KiB" };

/// Bytes of a host with wildcards: comparing takes up to 63 times as many steps.
pub(super) const GLOB: Limit =
    Limit { max: 128, message: "one of its entries has wildcards in a host of more than 128 bytes" };

/// Entries of all secrets of one Pod: each is matched against each of its images.
pub(super) const ENTRIES_OF_POD: usize = 256;
/// Those among them with wildcards, of which real ones have one or two for each cloud.
pub(super) const GLOBS_OF_POD: usize = 16;
/// Credential candidates for one image that come from pull secrets.
pub(super) const PULLED: usize = 8;
/// Credential candidates for one image from all sources.
pub(super) const CANDIDATES: usize = 16;

/// Bytes of all cached pull secrets.
pub(super) const CACHED: u64 = 16 << 20;
/// Pull secrets that are read at a time, and that wait for it; one namespace gets 6 and 64 of them (`concurrency`).
pub(super) const READS: usize = 16;
pub(super) const READS_WAITING: usize = 256;

/// How often expired values are dropped.
pub(super) const SWEEP: Duration = Duration::from_secs(60);
