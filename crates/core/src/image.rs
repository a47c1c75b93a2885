//! Value types of images: what a Pod names, and on which nodes it runs. Pure, without I/O.
//!
//! Both follow containerd, because containerd (or CRI-O, which reads alike) is what will pull the image in the end.

mod choice;
mod host;
mod name_pattern;
mod platform;
mod reference;

use std::time::SystemTime;

pub use choice::Preference;
pub use host::{
    DOCKER_HUB, DOCKER_HUB_ENDPOINT, DOCKER_HUB_INDEX, canonical_host, canonical_name, is_docker_hub,
};
pub use name_pattern::{NamePattern, ParsePatternError, glob_matches};
pub use platform::{ParsePlatformError, Platform, PlatformSet, Support};
pub use reference::{ImageRef, ReferenceError, is_digest};

/// An image has failed on nodes of these platforms, whatever its manifest says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Failure {
    pub platforms: PlatformSet,
    pub since: SystemTime,
}

/// Why it is unknown where an image runs. Never the same as "it does not run there".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LookupError {
    Invalid,
    /// `imagePullPolicy: Never`: the node uses what it has, whatever the registry says.
    PullNever,
    /// The Pod names more different images than are looked up.
    TooMany,
    NotFound,
    /// The registry or its token server denies access.
    Denied,
    /// The registry limits requests: 429, or another status that means the same.
    Throttled,
    /// The lookup took longer than `lookup.timeout`.
    Timeout,
    /// The Pod's budget ended; the lookup goes on.
    BudgetExceeded,
    /// No connection, a broken one, or a status such as 500.
    Unreachable,
    /// What came back is no manifest that a runtime would accept.
    BadManifest,
    NotAllowed,
    /// The address guard refuses every address of the host.
    AddressNotAllowed,
    /// The registry or the repository keeps failing, so its circuit is open.
    CircuitOpen,
    Overloaded,
    Internal,
}
