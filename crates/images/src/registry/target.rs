//! Servers to which the requests of a lookup go: the registry's own, or the target of a redirect.

use std::sync::atomic::{AtomicBool, Ordering};

/// Server that a request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Server that the image or the operator names, or its token server. Credentials go to no other server.
    Registry,
    /// Server at another origin, which the registry chose. It gets neither a credential nor a configured header.
    RedirectTarget,
}

/// Target that a lookup has reached. The caller holds it, so it survives a timeout that drops the lookup's future.
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
