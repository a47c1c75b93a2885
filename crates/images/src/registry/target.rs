//! Servers that the requests of a lookup go to: the registry's own, or one that a redirect leads to.

use std::sync::atomic::{AtomicBool, Ordering};

/// Server that a request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Server that the image or the operator names, or its token server: credentials go to no other.
    Registry,
    /// Server at another origin, which the registry chose: gets neither a credential nor a configured header.
    RedirectTarget,
}

/// Target that a lookup has reached, which outlives the lookup's future: a timeout drops that.
#[derive(Debug, Default)]
pub(crate) struct ReachedTarget {
    is_redirected: AtomicBool,
}

impl ReachedTarget {
    pub(crate) fn get(&self) -> Target {
        if self.is_redirected.load(Ordering::Relaxed) {
            Target::RedirectTarget
        } else {
            Target::Registry
        }
    }

    /// Records that the image's own registry has redirected a request to another origin.
    pub(super) fn redirected(&self) {
        self.is_redirected.store(true, Ordering::Relaxed);
    }
}
