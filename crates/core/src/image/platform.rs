//! Platforms, and how nodes choose among them: containerd/platforms `compare.go`, `database.go`, `defaults_unix.go`.

use std::fmt;
use std::str::FromStr;

use bitflags::bitflags;
use serde::{Serialize, Serializer};

use super::LookupError;

/// The platforms that nodes of a pool can have. The index in the list is the bit in a [`PlatformSet`]. An image counts for
/// a node only if it is for the node's own platform; 32-bit fallbacks (386 on amd64, arm on arm64) do not count.
pub(super) static NODES: [Platform<'static>; KNOWN] = [
    Platform::linux("amd64", ""),
    Platform::linux("arm64", ""),
    Platform::linux("arm", "v5"),
    Platform::linux("arm", "v6"),
    Platform::linux("arm", "v7"),
    Platform::linux("386", ""),
    Platform::linux("loong64", ""),
    Platform::linux("mips64le", ""),
    Platform::linux("ppc64le", ""),
    Platform::linux("riscv64", ""),
    Platform::linux("s390x", ""),
    Platform::linux("mips64", ""),
];

pub(super) const KNOWN: usize = 12;

/// A normalised platform: `linux/x86_64` of a manifest or a configuration becomes `linux/amd64`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Platform<'a> {
    pub(super) os: Text<'a>,
    pub(super) architecture: Text<'a>,
    pub(super) variant: Text<'a>,
}

type Text<'a> = std::borrow::Cow<'a, str>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParsePlatformError {
    #[error("a platform is os/architecture, for example linux/arm64")]
    Form,
    #[error("unknown platform; the known platforms are {}", PlatformSet::ALL)]
    Unknown,
}

impl<'a> Platform<'a> {
    const fn linux(architecture: &'a str, variant: &'a str) -> Self {
        Self {
            os: Text::Borrowed("linux"),
            architecture: Text::Borrowed(architecture),
            variant: Text::Borrowed(variant),
        }
    }

    /// Normalises case, aliases of architectures and default variants as containerd's `Normalize` does. An empty OS becomes
    /// linux.
    pub fn new(os: &'a str, architecture: &'a str, variant: &'a str) -> Self {
        let mut os = lower(os);
        if os.is_empty() {
            os = "linux".into();
        } else if os == "macos" {
            os = "darwin".into();
        }
        let architecture = lower(architecture);
        let variant = lower(variant);
        let (architecture, variant): (Text<'a>, Text<'a>) = match (&*architecture, &*variant) {
            ("i386", _) => ("386".into(), "".into()),
            ("amd64" | "x86_64" | "x86-64", "v1") => ("amd64".into(), "".into()),
            ("x86_64" | "x86-64", _) => ("amd64".into(), variant),
            ("arm64" | "aarch64", "8" | "v8" | "v8.0") => ("arm64".into(), "".into()),
            ("arm64" | "aarch64", "9" | "9.0" | "v9.0") => ("arm64".into(), "v9".into()),
            ("aarch64", _) => ("arm64".into(), variant),
            ("armhf", _) => ("arm".into(), "v7".into()),
            ("armel", _) => ("arm".into(), "v6".into()),
            ("arm", "" | "7") => ("arm".into(), "v7".into()),
            ("arm", "5" | "6" | "8") => ("arm".into(), format!("v{variant}").into()),
            _ => (architecture, variant),
        };
        Self {
            os,
            architecture,
            variant,
        }
    }

    /// Returns the rank of `other` in the preferences of this node, with the 32-bit fallbacks of 64-bit nodes. The best
    /// rank is 0; `None` if the node does not run the platform.
    pub(super) fn rank_of(&self, other: &Platform<'_>) -> Option<u8> {
        if self.os != other.os {
            return None;
        }
        match (&*self.architecture, &*other.architecture) {
            ("arm", "arm") => {
                let version = self.arm_version()?;
                version.checked_sub(other.arm_version()?)
            }
            ("arm64", "arm") => Some(1 + 8 - other.arm_version()?),
            ("amd64", "386") if other.variant.is_empty() => Some(1),
            _ if self == other => Some(0),
            _ => None,
        }
    }

    fn arm_version(&self) -> Option<u8> {
        match &*self.variant {
            "v5" => Some(5),
            "v6" => Some(6),
            "v7" => Some(7),
            "v8" => Some(8),
            _ => None,
        }
    }

    /// Returns whether the platform is `unknown/unknown`, as of an attestation.
    pub fn is_unknown(&self) -> bool {
        self.os == "unknown" || self.architecture == "unknown"
    }
}

fn lower(text: &str) -> Text<'_> {
    if text.bytes().any(|b| b.is_ascii_uppercase()) {
        text.to_ascii_lowercase().into()
    } else {
        text.into()
    }
}

impl fmt::Display for Platform<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        if !self.variant.is_empty() {
            write!(f, "/{}", self.variant)?;
        }
        Ok(())
    }
}

bitflags! {
    /// A set of platforms of nodes, with a bit for each known platform. Platforms that no known node has (windows, wasm,
    /// amd64/v3) have no bit, so a set takes four bytes for an index of any length.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PlatformSet: u32 {
        const ALL = (1 << KNOWN) - 1;
        const AMD64_AND_ARM64 = 0b11;
    }
}

impl PlatformSet {
    pub const EMPTY: Self = Self::empty();

    /// Returns the nodes that run an image for `platform`: nodes of this very platform, and arm nodes of a later variant.
    pub fn serving(platform: &Platform<'_>) -> Self {
        Self::of(|node| {
            node.architecture == platform.architecture && node.rank_of(platform).is_some()
        })
    }

    fn of(is_member: impl Fn(&Platform<'_>) -> bool) -> Self {
        Self::ALL.filter(|bit| is_member(&NODES[bit]))
    }

    fn platforms(self) -> impl Iterator<Item = &'static Platform<'static>> {
        let bits = (0..KNOWN).filter(move |bit| self.has_bit(*bit));
        bits.map(|bit| &NODES[bit])
    }

    fn has_bit(self, bit: usize) -> bool {
        self.bits() & (1 << bit) != 0
    }

    /// Returns the platforms of the set for whose index in [`NODES`] `is_member` holds.
    pub(super) fn filter(self, is_member: impl Fn(usize) -> bool) -> Self {
        let mut bits = 0;
        for bit in 0..KNOWN {
            if self.has_bit(bit) && is_member(bit) {
                bits |= 1 << bit;
            }
        }
        Self::from_bits_retain(bits)
    }

    /// Returns the set without all platforms of architectures that `other` has a platform of.
    #[must_use]
    pub(crate) fn without_architectures_of(self, other: Self) -> Self {
        self.filter(|bit| {
            let architecture = Self::of_architecture(&NODES[bit].architecture);
            !architecture.intersects(other)
        })
    }

    /// Returns the architectures of the set, named as in the labels of nodes, sorted, and each once.
    pub fn architectures(self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for platform in self.platforms() {
            names.push(&*platform.architecture);
        }
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns all platforms of an architecture, named as in the labels of nodes; empty if no known node has it.
    pub fn of_architecture(name: &str) -> Self {
        Self::of(|platform| platform.architecture == name)
    }

    /// Returns all platforms of a platform's architecture; empty unless the OS is linux.
    pub fn of_architecture_of(platform: &Platform<'_>) -> Self {
        if platform.os == "linux" {
            Self::of_architecture(&platform.architecture)
        } else {
            Self::EMPTY
        }
    }

    pub fn names(self) -> impl Iterator<Item = String> {
        self.platforms().map(ToString::to_string)
    }
}

/// Parses one platform of nodes, as a pool names it, into a set with only this platform.
impl FromStr for PlatformSet {
    type Err = ParsePlatformError;

    fn from_str(text: &str) -> Result<Self, ParsePlatformError> {
        let parts: Vec<&str> = text.split('/').collect();
        let platform = match *parts {
            _ if parts.contains(&"") => return Err(ParsePlatformError::Form),
            [os, architecture] => Platform::new(os, architecture, ""),
            [os, architecture, variant] => Platform::new(os, architecture, variant),
            _ => return Err(ParsePlatformError::Form),
        };
        let set = Self::of(|node| *node == platform);
        if set.is_empty() {
            return Err(ParsePlatformError::Unknown);
        }
        Ok(set)
    }
}

impl Serialize for PlatformSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.names())
    }
}

/// Writes the names, comma-separated, in the order of `NODES`; `none` for the empty set.
impl fmt::Display for PlatformSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let names: Vec<String> = self.names().collect();
        f.write_str(&names.join(", "))
    }
}

/// The platforms on which an image runs, and on which a volume of the image can be mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Support {
    /// An index or manifest list: a node pulls the entry for its own platform, and fails if there is none.
    Index(PlatformSet),
    /// A single manifest: any node pulls it and can mount it as a volume, but it *runs* only on these platforms.
    Single(PlatformSet),
    /// A single manifest whose config is no image config (a Helm chart, a signature): its platforms are unknown.
    Artifact,
    /// An index for which the lookup of the entries for `unknown` failed.
    Partial {
        runs: PlatformSet,
        unknown: PlatformSet,
        why: LookupError,
    },
}

impl Support {
    /// Returns the nodes on which containers of the image run; `None` if unknown.
    pub fn runs_on(self) -> Option<PlatformSet> {
        match self {
            Self::Index(set) | Self::Single(set) => Some(set),
            Self::Artifact | Self::Partial { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;
