//! Settings of a Pod, beside its images, that influence whether the first program of a container starts.

use k8s_openapi::api::core::v1::SeccompProfile;

/// Mount path of the tokens of service accounts in most containers.
const TOKENS: &str = "/var/run/secrets/";

#[derive(Default, serde::Deserialize)]
#[serde(default)]
pub(super) struct Variable {
    pub(super) name: String,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Mount {
    mount_path: String,
}

#[derive(Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Security {
    seccomp_profile: Option<SeccompProfile>,
}

impl Security {
    /// Returns whether the seccomp profile is not one that a tenant may have written, which could fail in any way.
    pub(super) fn is_plain(&self) -> bool {
        self.seccomp_profile.as_ref().is_none_or(|profile| profile.type_ != "Localhost")
    }
}

impl Mount {
    /// Returns whether the mount covers no program, as it is a service account's tokens.
    pub(super) fn is_of_tokens(&self) -> bool {
        self.mount_path.starts_with(TOKENS) && !self.mount_path.contains("..")
    }
}
