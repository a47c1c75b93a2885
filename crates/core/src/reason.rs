//! The closed list of reasons: one enum for the log field, the metric label, the audit annotation and the command line.
//!
//! Where the reasons are set:
//!
//! - `pod.rs`: Pods that are skipped; `decision.rs`: decisions without images
//! - `decision/facts.rs`: decisions by pools and images
//! - `engine/decide/template.rs`: templates; `engine/decide.rs`: owners that recreate their Pods
//! - `webhook/admission.rs`: profiles, memory and internal errors
//! - `engine/decide/lookup.rs`: images that are unknown before any lookup; `images/resolver.rs` and below: failed lookups

use serde::{Serialize, Serializer};

macro_rules! reasons {
    (
        $($(#[$doc:meta])* $reason:ident => $name:literal),*;
        Unknown { $($(#[$why:meta])* $error:ident => $unknown:literal,)* }
    ) => {
        /// Outcome for a Pod, and its cause. Users match on the names: add a name, never change one.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[$doc])* $reason,)*
            /// The platforms of an image are unknown.
            Unknown(LookupError),
        }

        /// Reason why the platforms of an image are unknown. Unknown never means "the image does not run there".
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum LookupError {
            $($(#[$why])* $error,)*
        }

        impl Reason {
            /// All reasons, in their order.
            pub const ALL: &'static [Self] =
                &[$(Self::$reason,)* $(Self::Unknown(LookupError::$error),)*];

            /// Returns the name in logs, metrics and annotations.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$reason => $name,)*
                    $(Self::Unknown(LookupError::$error) => $unknown,)*
                }
            }
        }
    };
}

reasons! {
    /// The Pod got the tolerations of at least one pool.
    Tolerated => "tolerated",
    /// A requirement or a preference for nodes was added, and no toleration.
    Placed => "placed",
    /// The Pod already tolerates every pool on which its images run.
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
    /// Not the creation of a Pod: another kind, operation or subresource. Or a template that is not decided on, cannot be
    /// compared with its former version, or has no managed additions to keep.
    NotApplicable => "not-applicable",
    /// An image lacks a platform of every pool.
    PlatformMissing => "platform-missing",
    /// An image has failed on a platform of every pool, although its manifest includes the platform.
    FailedThere => "failed-there",
    /// The Pod's controller deletes changed Pods and creates them again.
    OwnerRecreates => "owner-recreates",
    /// The images share no platform of the cluster.
    NoCommonPlatform => "no-common-platform",
    /// Managed additions would make the Pod, or its annotations, larger than the API server allows.
    NoRoom => "no-room",
    /// The Pod could not be read.
    Malformed => "malformed",
    /// `mode: observe`: the Pod would have been changed.
    Observed => "observed",
    /// The images no longer support additions of an earlier pass, which were removed.
    Retracted => "retracted",
    /// The pools for which the Pod is eligible are not open to its workload yet.
    NotInShare => "not-in-share",
    /// The Pod itself names a node label by which the pools are selected.
    OwnSelector => "own-selector",
    /// The path of the review names a profile that does not exist.
    ProfileUnknown => "profile-unknown";
    Unknown {
        /// An image reference is empty or malformed.
        Invalid => "image-invalid",
        /// `imagePullPolicy: Never`: the node uses the image that is already there, so the registry does not matter.
        PullNever => "pull-never",
        /// The Pod names more different images than tolerarch looks up for one Pod.
        TooMany => "too-many-images",
        NotFound => "not-found",
        /// The registry or its token server denies access.
        Denied => "denied",
        /// The registry limits the rate of requests: status 429, or another with that meaning.
        Throttled => "throttled",
        /// The lookup took longer than `lookup.timeout`.
        Timeout => "timeout",
        /// The Pod's time budget ended; the lookup continues.
        BudgetExceeded => "budget-exceeded",
        /// No connection, a broken one, or a status such as 500.
        Unreachable => "unreachable",
        /// The response is not a manifest that a container runtime would accept.
        BadManifest => "bad-manifest",
        /// `registries.allow` and `registries.deny` exclude the registry.
        NotAllowed => "registry-not-allowed",
        /// The address guard refuses every address of the host.
        AddressNotAllowed => "address-not-allowed",
        /// The registry or the repository keeps failing, so its circuit is open.
        CircuitOpen => "circuit-open",
        /// Too many lookups are under way.
        Overloaded => "overloaded",
        Internal => "internal",
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_labels() {
        let mut names: Vec<&str> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(
            serde_json::to_value(Reason::ALL).unwrap(),
            serde_json::json!(names)
        );
        assert!(
            names
                .iter()
                .all(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'))
        );
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Reason::ALL.len());
    }

    #[test]
    fn documentation_lists_every_reason() {
        let page = include_str!("../../../docs/troubleshooting.md");
        let table = page
            .split("| reason | meaning |")
            .nth(1)
            .unwrap()
            .split("\n\n")
            .next()
            .unwrap();
        for reason in Reason::ALL {
            assert!(
                table.contains(&format!("`{reason}`")),
                "{reason} is not in docs/troubleshooting.md"
            );
        }
    }
}
