//! Value types of images: references and platforms. Pure, without I/O. Both follow containerd, because containerd (or
//! CRI-O, which reads alike) pulls the image in the end.

mod choice;
mod host;
mod name_pattern;
mod platform;
mod reference;

use std::time::SystemTime;

use serde::{Serialize, Serializer};

pub use choice::Preference;
pub use host::{
    DOCKER_HUB, DOCKER_HUB_ENDPOINT, DOCKER_HUB_INDEX, canonical_host, canonical_name, is_docker_hub,
};
pub use name_pattern::{NamePattern, ParsePatternError, glob_matches};
pub use platform::{ParsePlatformError, Platform, PlatformSet, Support};
pub use reference::{ImageRef, ReferenceError, is_digest};

/// Evidence that an image failed on nodes of these platforms, whatever its manifest says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Failure {
    pub platforms: PlatformSet,
    #[serde(serialize_with = "write_time")]
    pub since: SystemTime,
}

fn write_time<S: Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&humantime::format_rfc3339_seconds(*time))
}

/// Reason why it is unknown where an image runs; never the same as "the image does not run there".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LookupError {
    Invalid,
    /// `imagePullPolicy: Never`: the node uses the image that it has, whatever the registry says.
    PullNever,
    /// The Pod names more different images than tolerarch looks up for one Pod.
    TooMany,
    NotFound,
    /// The registry or its token server denies access.
    Denied,
    /// The registry limits requests: 429, or another status that means the same.
    Throttled,
    /// The lookup took longer than `lookup.timeout`.
    Timeout,
    /// The Pod's budget ended; the lookup continues.
    BudgetExceeded,
    /// No connection, a broken one, or a status such as 500.
    Unreachable,
    /// The response is no manifest that a container runtime would accept.
    BadManifest,
    NotAllowed,
    /// The address guard refuses every address of the host.
    AddressNotAllowed,
    /// The registry or the repository keeps failing, so its circuit is open.
    CircuitOpen,
    Overloaded,
    Internal,
}
