//! The closed list of reasons: one enum for the log field, the metric label, the audit annotation and the command line.

use serde::Serialize;

use crate::image::LookupError;

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident => $name:literal $(for $error:ident)?,)*) => {
        /// Outcome for a Pod, and its cause. The names are a contract: add, never rename.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        pub enum Reason {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)*
        }

        impl Reason {
            /// All reasons, in their order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns the name in logs, metrics and annotations.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }

        impl From<LookupError> for Reason {
            fn from(unknown: LookupError) -> Self {
                match unknown {
                    $($(LookupError::$error => Self::$variant,)?)*
                }
            }
        }
    };
}

reasons! {
    /// At least one pool was opened to the Pod.
    Tolerated => "tolerated",
    /// A requirement or a preference for nodes was added, and no toleration.
    Placed => "placed",
    /// The Pod tolerates every pool that its images can run on.
    AlreadyTolerated => "already-tolerated",
    /// `tolerarch.io/mode: "off"` as a label or annotation of the Pod.
    OptedOut => "opted-out",
    /// The mirror of a static Pod in the API server.
    MirrorPod => "mirror-pod",
    /// `spec.nodeName` is set: no scheduler will look at tolerations.
    NodeAssigned => "node-assigned",
    /// Owned by a DaemonSet, whose controller chooses the nodes from its template.
    DaemonSet => "daemonset",
    Windows => "windows",
    /// Not the creation of a Pod: another kind, operation or subresource.
    NotApplicable => "not-applicable",
    /// An image lacks a platform of every pool.
    PlatformMissing => "platform-missing",
    /// An image has failed on a platform of every pool, whatever its manifest says.
    FailedThere => "failed-there",
    /// The Pod's controller deletes changed Pods and creates them again.
    OwnerRecreates => "owner-recreates",
    /// The images share no platform of the cluster.
    NoCommonPlatform => "no-common-platform",
    /// An image reference is empty or malformed.
    ImageInvalid => "image-invalid" for Invalid,
    /// An image is never pulled, so the registry does not know which one the node has.
    PullNever => "pull-never" for PullNever,
    NotFound => "not-found" for NotFound,
    Denied => "denied" for Denied,
    Throttled => "throttled" for Throttled,
    Timeout => "timeout" for Timeout,
    /// The Pod could not wait any longer for a lookup; the lookup continues.
    BudgetExceeded => "budget-exceeded" for BudgetExceeded,
    /// No connection to the registry, or an invalid response.
    Unreachable => "unreachable" for Unreachable,
    /// The registry's response is no manifest of an image.
    BadManifest => "bad-manifest" for BadManifest,
    /// `registries.allow` and `registries.deny` exclude the registry.
    RegistryNotAllowed => "registry-not-allowed" for NotAllowed,
    /// The registry resolves to forbidden addresses only.
    AddressNotAllowed => "address-not-allowed" for AddressNotAllowed,
    /// The registry keeps failing; its circuit is open.
    CircuitOpen => "circuit-open" for CircuitOpen,
    /// Too many lookups are under way.
    Overloaded => "overloaded" for Overloaded,
    /// More different images than tolerarch looks up for one Pod.
    TooManyImages => "too-many-images" for TooMany,
    /// Managed additions would make the Pod larger than the API server allows: its annotations, or the whole of it.
    NoRoom => "no-room",
    /// The Pod could not be read.
    Malformed => "malformed",
    Internal => "internal" for Internal,
    /// `mode: observe`: the Pod would have been changed.
    Observed => "observed",
    /// Support is gone since an earlier pass; the additions of that pass were removed.
    Retracted => "retracted",
    /// The pools that the Pod could use are not open to its workload yet.
    NotInShare => "not-in-share",
    /// The path of the review names a profile that does not exist.
    ProfileUnknown => "profile-unknown",
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels_and_differ() {
        let mut names: Vec<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(serde_json::to_value(Reason::ALL).unwrap(), serde_json::json!(names));
        assert!(names.iter().all(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Reason::ALL.len());
    }

    #[test]
    fn the_documentation_has_every_reason() {
        let page = include_str!("../../../docs/troubleshooting.md");
        let table = page.split("| reason | meaning |").nth(1).unwrap().split("\n\n").next().unwrap();
        for reason in Reason::ALL {
            assert!(table.contains(&format!("`{reason}`")), "{reason} is not in docs/troubleshooting.md");
        }
    }
}
