//! References and platforms of images. Pure, without I/O. Both are read as containerd reads them, because containerd (or
//! CRI-O, which reads them alike) pulls the image in the end.

mod choice;
mod host;
mod name_pattern;
mod platform;
mod reference;
mod tag;

use std::time::SystemTime;

use serde::{Serialize, Serializer};

pub use choice::Preference;
pub use host::{
    DOCKER_HUB, DOCKER_HUB_ENDPOINT, DOCKER_HUB_INDEX, canonical_host, canonical_name,
    is_docker_hub,
};
pub use name_pattern::{NamePattern, ParsePatternError, glob_matches};
pub use platform::{ParsePlatformError, Platform, PlatformSet, Support};
pub use reference::{ImageRef, ReferenceError, is_digest, is_tag};
pub use tag::newer_tags;

pub use crate::reason::LookupError;

/// Evidence that an image failed on nodes of these platforms, although its manifest includes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Failure {
    pub platforms: PlatformSet,
    #[serde(serialize_with = "write_time")]
    pub since: SystemTime,
}

fn write_time<S: Serializer>(time: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&humantime::format_rfc3339_seconds(*time))
}
