//! The configuration of credentials, and its errors.

use std::path::PathBuf;

use tolerarch_kubernetes::cluster::ConnectError;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CredentialSettings {
    /// True if the pull secrets of Pods are read through the Kubernetes API.
    pub pull_secrets: bool,
    /// Files in the format of docker's `config.json`.
    pub docker_configs: Vec<PathBuf>,
    /// Directory with one TOML file for each registry.
    pub directory: Option<PathBuf>,
    pub providers: ProviderSettings,
}

impl CredentialSettings {
    /// Returns the keys of the sources that are configured.
    pub fn sources(&self) -> Vec<&'static str> {
        let Self { pull_secrets, docker_configs, directory, providers } = self;
        let all = [
            ("pullSecrets", *pull_secrets),
            ("dockerConfigs", !docker_configs.is_empty()),
            ("directory", directory.is_some()),
            ("providers", providers.config.is_some()),
        ];
        all.into_iter().filter(|(_, configured)| *configured).map(|(name, _)| name).collect()
    }
}

/// Kubelet's `--image-credential-provider-config` and `--image-credential-provider-bin-dir`: both, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderSettings {
    /// File with the `CredentialProviderConfig`.
    pub config: Option<PathBuf>,
    pub bin_dir: Option<PathBuf>,
}

/// Pull secrets are to be read, and no API server can be reached. Faulty files are [`SourceFault`](super::SourceFault)s.
#[derive(Debug, thiserror::Error)]
#[error("credentials.pullSecrets: {0}")]
pub struct CredentialsError(pub(super) ConnectError);
