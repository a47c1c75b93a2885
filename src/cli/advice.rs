//! What people can do where it is not known on which platforms an image runs.

use tolerarch_core::reason::Reason;

/// Namespaces that the webhook configuration of the shipped manifests excludes.
pub(super) const EXCLUDED: [&str; 2] = ["kube-system", "tolerarch"];

/// One sentence for each reason that the lookup of an image can have.
pub(super) fn fix(reason: Reason) -> &'static str {
    match reason {
        Reason::ImageInvalid => "correct the name of the image",
        Reason::PullNever => "nodes use what they have: say in overrides where it runs",
        Reason::NotFound => {
            "push the image, or correct its name; registries also say this of images that need credentials"
        }
        Reason::Denied => {
            "give credentials that may read it: credentials.dockerConfigs, pullSecrets, directory or providers"
        }
        Reason::Throttled => {
            "wait, give credentials for a higher limit, or name a mirror in registries.hosts"
        }
        Reason::Timeout => "see why the registry is slow, or raise lookup.timeout",
        Reason::BudgetExceeded => "it was not waited for: ask again",
        Reason::Unreachable => {
            "see that this machine reaches the registry and trusts it, or name a mirror in registries.hosts"
        }
        Reason::BadManifest => {
            "see by tolerarch inspect what the registry answers; overrides can say where it runs"
        }
        Reason::RegistryNotAllowed => {
            "allow the registry in registries, or say in overrides where its images run"
        }
        Reason::AddressNotAllowed => "allow the registry's address in network.allow",
        Reason::CircuitOpen => "the registry kept failing and was not asked any more: ask again later",
        Reason::Overloaded => "ask again, or raise lookup.concurrency",
        Reason::TooManyImages => {
            "say in overrides where images of this Pod run: it has too many to be asked for"
        }
        _ => "see docs/troubleshooting.md",
    }
}

#[cfg(test)]
mod tests {
    use super::super::session::FailOn;
    use super::*;

    #[test]
    fn every_reason_of_an_unknown_image_has_advice() {
        let unknown = Reason::ALL.iter().filter(|reason| FailOn::of(**reason) == [FailOn::Unknown]);
        for reason in unknown.filter(|reason| **reason != Reason::Internal) {
            assert!(!fix(*reason).contains("troubleshooting"), "{reason}");
        }
    }

    #[test]
    fn the_excluded_namespaces_are_those_of_the_manifests() {
        let manifest = include_str!("../../manifests/mutatingwebhookconfiguration.yaml");
        let list = manifest.split("kubernetes.io/metadata.name").nth(1).unwrap();
        let list = list.split('[').nth(1).unwrap().split(']').next().unwrap();
        let mut names: Vec<&str> = list.split(',').map(|name| name.trim().trim_matches('"')).collect();
        names.sort_unstable();
        assert_eq!(names, EXCLUDED);
    }
}
