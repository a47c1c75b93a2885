//! Everything that is configured, read once, and what of it is for an image.

use std::sync::Arc;

use super::candidate::{CredentialCandidate, Origin, OriginSource};
use super::credential::IdentifiedCredential;
use super::docker_keyring;
use super::file::File;
use super::files::{Files, Helpers};
use super::pattern::ImagePattern;
use super::process::{self, Limits};
use super::pull_secrets::{self, PullSecrets};
use super::settings::{CredentialSettings, CredentialsError};
use tolerarch_kubernetes::cluster::{Caller, Cluster, ConnectError};
use tolerarch_support::environment::Environment;

pub(super) struct Sources {
    pub(super) pull_secrets: Option<Arc<PullSecrets>>,
    pub(super) files: Files,
    private: Vec<ImagePattern>,
}

/// What loading depends on besides the settings.
pub(super) struct LoadContext<'e> {
    /// Its `PATH` is where credential helpers are looked for.
    pub(super) environment: &'e Environment,
    pub(super) limits: Limits,
    pub(super) caller: Caller,
    pub(super) connect: fn(Caller, &Environment) -> Result<Cluster, ConnectError>,
}

impl<'e> LoadContext<'e> {
    pub(super) fn new(caller: Caller, environment: &'e Environment) -> Self {
        Self { environment, limits: Limits::default(), caller, connect: Cluster::of }
    }

    /// The operator's files as they are now. `before` is what is in use.
    pub(super) fn files(&self, settings: &CredentialSettings, before: Option<&Files>) -> Files {
        let directories = process::directories(self.environment.get("PATH"));
        Files::load(settings, &Helpers { directories: &directories, limits: self.limits }, before)
    }

    /// Where pull secrets are read. Commands go on without.
    fn pull_secrets(&self) -> Result<Option<Arc<PullSecrets>>, CredentialsError> {
        match (self.caller, (self.connect)(self.caller, self.environment)) {
            (Caller::Service, cluster) => {
                let cluster = cluster.map_err(CredentialsError::Cluster)?;
                Ok(Some(PullSecrets::new(cluster, pull_secrets::WAIT)))
            }
            // Nothing is admitted here, and a wrong verdict would be worse than a late one.
            (Caller::Person, Ok(cluster)) => Ok(Some(PullSecrets::new(cluster, pull_secrets::WAIT_LONG))),
            (Caller::Person, Err(error)) => {
                tracing::warn!(%error, "credentials.pullSecrets: they are not read here, so images that need them are asked for without");
                Ok(None)
            }
        }
    }
}

impl Sources {
    pub(super) fn load(
        settings: &CredentialSettings,
        private: Vec<ImagePattern>,
        context: &LoadContext<'_>,
        before: Option<&Self>,
    ) -> Result<Self, CredentialsError> {
        if settings.providers.config.is_some() != settings.providers.bin_dir.is_some() {
            return Err(CredentialsError::Providers);
        }
        Ok(Self {
            files: context.files(settings, before.map(|before| &before.files)),
            pull_secrets: if settings.pull_secrets { context.pull_secrets()? } else { None },
            private,
        })
    }

    /// Whether an image is never asked for without a credential.
    pub(super) fn is_private(&self, image: &str) -> bool {
        self.private.iter().any(|pattern| pattern.matches(image))
    }

    /// What the files have for a name: `host/repository`, or a mere host.
    pub(super) fn of_files(&self, name: &str) -> Vec<CredentialCandidate> {
        let host = name.split('/').next().unwrap_or_default();
        let Files { configs, directory, .. } = &self.files;
        let mut candidates = Vec::new();
        // A helper comes before what is in the same files: docker takes the helper's word only.
        let helpers = docker_keyring::lookup(configs.iter().map(|config| ((), &config.helpers)), name);
        candidates
            .extend(helpers.into_iter().map(|(_, _, helper)| CredentialCandidate::helper(helper, host)));
        let held = docker_keyring::lookup(configs.iter().map(|config| (&config.file, &config.keyring)), name);
        candidates.extend(held.into_iter().map(|(file, key, kept)| of_file(file, key, kept)));
        let stores = configs.iter().filter_map(|config| config.store.as_ref());
        candidates.extend(stores.map(|helper| CredentialCandidate::helper(helper, host)));
        let directory = docker_keyring::lookup(std::iter::once(((), &directory.keyring)), name);
        candidates.extend(directory.into_iter().map(|(_, key, (kept, file))| of_file(file, key, kept)));
        candidates
    }

    /// What the plugins may have for an image (`host/repository`).
    pub(super) fn of_plugins(&self, image: &str) -> impl Iterator<Item = CredentialCandidate> {
        let chosen = self.files.plugins.iter().filter(move |plugin| plugin.is_for(image));
        chosen.map(move |plugin| CredentialCandidate::plugin(plugin, image))
    }
}

fn of_file(file: &Arc<File>, key: &ImagePattern, kept: &IdentifiedCredential) -> CredentialCandidate {
    let origin = Origin { key: key.clone(), source: OriginSource::File(Arc::clone(file)) };
    CredentialCandidate::held(kept.clone(), Some(origin))
}
