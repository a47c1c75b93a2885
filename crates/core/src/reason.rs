//! The closed list of reasons: one enum for the log field, the metric label, the audit annotation and the command line.
//!
//! Where each comes from: Pods that are skipped, `pod.rs`, and what needs no images, `decision.rs`; what follows from pools
//! and images, the table in `decision/facts.rs`; templates, `engine/decide/template.rs`; owners that recreate their
//! Pods, `engine/decide.rs`; profiles, memory and internal errors, `webhook/admission.rs`. Lookups give the reasons of
//! unknown images: `images/resolver.rs` and below, and before any lookup `engine/decide/lookup.rs`.

use serde::{Serialize, Serializer};

macro_rules! reasons {
    (
        $($(#[$doc:meta])* $reason:ident => $name:literal),*;
        Unknown { $($(#[$why:meta])* $error:ident => $unknown:literal,)* }
    ) => {
        /// Outcome for a Pod, and its cause. The names are a contract: add, never rename.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[$doc])* $reason,)*
            /// It is unknown where an image runs.
            Unknown(LookupError),
        }

        /// Reason why it is unknown where an image runs; never the same as "the image does not run there".
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
    /// Not the creation of a Pod: another kind, operation or subresource; or a template that is not decided on, cannot be
    /// compared with its former version, or has nothing to keep.
    NotApplicable => "not-applicable",
    /// An image lacks a platform of every pool.
    PlatformMissing => "platform-missing",
    /// An image has failed on a platform of every pool, whatever its manifest says.
    FailedThere => "failed-there",
    /// The Pod's controller deletes changed Pods and creates them again.
    OwnerRecreates => "owner-recreates",
    /// The images share no platform of the cluster.
    NoCommonPlatform => "no-common-platform",
    /// Managed additions would make the Pod larger than the API server allows: its annotations, or the whole of it.
    NoRoom => "no-room",
    /// The Pod could not be read.
    Malformed => "malformed",
    /// `mode: observe`: the Pod would have been changed.
    Observed => "observed",
    /// Support is gone since an earlier pass; the additions of that pass were removed.
    Retracted => "retracted",
    /// The pools that the Pod could use are not open to its workload yet.
    NotInShare => "not-in-share",
    /// The Pod itself says which nodes it wants by a label that the pools select.
    OwnSelector => "own-selector",
    /// The path of the review names a profile that does not exist.
    ProfileUnknown => "profile-unknown";
    Unknown {
        /// An image reference is empty or malformed.
        Invalid => "image-invalid",
        /// `imagePullPolicy: Never`: the node uses the image that it has, whatever the registry says.
        PullNever => "pull-never",
        /// The Pod names more different images than tolerarch looks up for one Pod.
        TooMany => "too-many-images",
        NotFound => "not-found",
        /// The registry or its token server denies access.
        Denied => "denied",
        /// The registry limits requests: 429, or another status that means the same.
        Throttled => "throttled",
        /// The lookup took longer than `lookup.timeout`.
        Timeout => "timeout",
        /// The Pod's budget ended; the lookup continues.
        BudgetExceeded => "budget-exceeded",
        /// No connection, a broken one, or a status such as 500.
        Unreachable => "unreachable",
        /// The response is no manifest that a container runtime would accept.
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
    fn names_are_labels_and_differ() {
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
    fn the_documentation_has_every_reason() {
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
