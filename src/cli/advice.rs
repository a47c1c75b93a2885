//! Advice for each reason why an image's platforms are unknown.

use tolerarch_core::reason::{LookupError, Reason};

/// Namespaces that the webhook configuration in the shipped manifests excludes.
pub(super) const EXCLUDED: [&str; 2] = ["kube-system", "tolerarch"];

/// Returns a hint if lookups failed for `count` objects that name pull secrets, which are not read.
pub(super) fn unread_pull_secrets(count: usize, of: &str) -> Option<String> {
    (count > 0).then(|| {
        format!(
            "{count} of {of} name imagePullSecrets, which are not read; \
             set credentials.pullSecrets, or TOLERARCH_CREDENTIALS__PULL_SECRETS=true"
        )
    })
}

/// Returns one sentence for each reason of a failed lookup; `None` for all other reasons.
pub(super) fn fix(reason: Reason) -> Option<&'static str> {
    let Reason::Unknown(error) = reason else {
        return None;
    };
    Some(match error {
        LookupError::Invalid => "correct the name of the image",
        LookupError::PullNever => {
            "nodes never pull it and use the image they have: say in overrides where it runs"
        }
        LookupError::NotFound => {
            "push the image, or correct its name; registries also say this of images that need credentials"
        }
        LookupError::Denied => {
            "give credentials that may read it: credentials.dockerConfigs, pullSecrets, directory or providers"
        }
        LookupError::Throttled => {
            "wait, give credentials for a higher limit, or name a mirror in registries.hosts"
        }
        LookupError::Timeout => "see why the registry is slow, or raise lookup.timeout",
        LookupError::BudgetExceeded => "the lookup did not end in time: try again",
        LookupError::Unreachable => {
            "check its name, the network and TLS, or name a mirror in registries.hosts"
        }
        LookupError::BadManifest => {
            "see with tolerarch inspect what the registry answers; overrides can say where it runs"
        }
        LookupError::NotAllowed => {
            "allow the registry in registries, or say in overrides where its images run"
        }
        LookupError::AddressNotAllowed => "allow the registry's address in network.allow",
        LookupError::CircuitOpen => {
            "the registry kept failing, so requests to it are suspended: try again later"
        }
        LookupError::Overloaded => "try again, or raise lookup.concurrency",
        LookupError::TooMany => {
            "the Pod has too many images to look up: say in overrides where some of them run"
        }
        LookupError::Internal => "see docs/troubleshooting.md",
    })
}

/// Explains a placeholder, which another webhook replaces with a real image in the Pod. A registry's answer would
/// mislead: nobody has pushed an image of that name, and no password would help.
pub(super) fn placeholder(image: &str) -> Option<&'static str> {
    // https://istio.io/latest/docs/reference/config/analysis/ist0146/
    (image == "auto").then_some(
        "a placeholder that another webhook replaces (Istio's injector) when the Pod is created",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excluded_namespaces_match_the_manifests() {
        let manifest = include_str!("../../manifests/mutatingwebhookconfiguration.yaml");
        let list = manifest
            .split("kubernetes.io/metadata.name")
            .nth(1)
            .unwrap();
        let list = list.split('[').nth(1).unwrap().split(']').next().unwrap();
        let mut names: Vec<&str> = list
            .split(',')
            .map(|name| name.trim().trim_matches('"'))
            .collect();
        names.sort_unstable();
        assert_eq!(names, EXCLUDED);
    }
}
