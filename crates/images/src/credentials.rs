//! Chooses the credentials to try for an image, and their order. They are those of kubelet's keyring on the node, and
//! no others. Order: the Pod's pull secrets, docker config files, the directory, kubelet's plugins, and anonymous
//! access where the image is not private. A source that fails gives no credential; it never fails the lookup. A
//! credential appears in no log, error, label or `Debug`; a [`CredentialId`] stands for it.

mod candidate;
mod credential;
mod docker;
mod files;
#[cfg(any(test, feature = "testing"))]
pub mod fuzzing;
mod helper;
mod pattern;
mod process;
mod program;
mod provider;
mod pull_secrets;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

pub use candidate::CredentialCandidate;
pub(crate) use candidate::CredentialOwner;
pub(crate) use credential::hash_parts;
pub use credential::{Credential, CredentialId, Sensitive};
pub use files::{
    CredentialMetrics, CredentialSettings, CredentialSource, ProviderSettings, SourceFault,
};
pub use pattern::{ImagePattern, PatternError};
pub(crate) use program::Busy;

use files::Files;
use pull_secrets::{PullSecret, PullSecrets};
use tolerarch_core::image::ImageRef;
use tolerarch_kubernetes::cluster::{Caller, Cluster, ConnectError};
use tolerarch_support::environment::Environment;

/// Maximum number of candidates of one image that come from pull secrets.
const PULL_SECRET_CANDIDATES: usize = 8;
/// Maximum number of candidates of one image from all sources.
const CANDIDATES: usize = 16;

/// All sources of credentials, as loaded. Cheap to clone. The default is anonymous access.
#[derive(Clone, Default)]
pub struct Credentials {
    sources: Option<Arc<Sources>>,
}

impl Credentials {
    /// Reads all files. Must be called within the runtime: pull secrets are read through a separate client.
    ///
    /// - `private`: images that are never looked up without a credential (`registries.private`).
    /// - `caller`: on whose behalf pull secrets are read. A person who has no cluster gets none.
    /// - `before`: the credentials in use. A faulty file keeps its content there, unless the file is gone;
    ///   [`Credentials::faults`] has each of them.
    ///
    /// Fails only if a service reads pull secrets and cannot reach the cluster.
    pub fn load(
        settings: &CredentialSettings,
        private: Vec<ImagePattern>,
        caller: Caller,
        environment: &Environment,
        before: Option<&Self>,
    ) -> Result<Self, ConnectError> {
        if *settings == CredentialSettings::default() && private.is_empty() {
            return Ok(Self::default());
        }
        let files_before = before.and_then(Self::files);
        let files = Files::load(settings, environment, files_before);
        let mut pull_secrets = None;
        if settings.pull_secrets {
            pull_secrets = PullSecrets::of(caller, Cluster::of(caller, environment))?;
        }
        Ok(Self {
            sources: Some(Arc::new(Sources {
                pull_secrets,
                files,
                private,
            })),
        })
    }

    fn files(&self) -> Option<&Files> {
        self.sources.as_ref().map(|sources| &sources.files)
    }

    pub fn faults(&self) -> &[SourceFault] {
        match self.files() {
            Some(files) => &files.faults,
            None => &[],
        }
    }

    /// Returns the faults that a load would have now: a program may have been installed, or a file may be readable
    /// again.
    pub fn faults_now(
        &self,
        settings: &CredentialSettings,
        environment: &Environment,
    ) -> Vec<SourceFault> {
        Files::load(settings, environment, self.files()).faults
    }

    pub fn is_configured(&self) -> bool {
        self.sources.is_some()
    }

    /// Returns the credentials for a Pod of `namespace` that names `pull_secrets`. The API server has merged those of
    /// the service account into them. The caller must bound their number. Waits at most half a second for uncached
    /// secrets, and leaves out secrets that cannot be read. Without pull secrets, neither waits nor allocates.
    pub async fn keyring<'n>(
        &self,
        namespace: &str,
        pull_secrets: impl IntoIterator<Item = &'n str>,
    ) -> Keyring {
        let mut keyring = self.shared_keyring();
        if let Some(sources) = &self.sources
            && let Some(source) = &sources.pull_secrets
        {
            keyring.pull_secrets = source.read(namespace, pull_secrets.into_iter()).await;
        }
        keyring
    }

    pub fn reads_pull_secrets(&self) -> bool {
        match &self.sources {
            Some(sources) => sources.pull_secrets.is_some(),
            None => false,
        }
    }

    /// Returns the operator's credentials, which every Pod may use.
    pub fn shared_keyring(&self) -> Keyring {
        Keyring {
            pull_secrets: Vec::new(),
            sources: self.sources.clone(),
        }
    }

    /// Returns the candidates of files and helpers for a mirror, which is named by `host` or `host:port`.
    pub fn of_host(&self, host: &str) -> Vec<CredentialCandidate> {
        let Some(sources) = &self.sources else {
            return Vec::new();
        };
        distinct(sources.of_files(host), CANDIDATES).collect()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.sources.is_some() {
            "[credentials]"
        } else {
            "anonymous"
        })
    }
}

/// Credentials that one Pod may use. Cheap to clone; the default is anonymous access.
#[derive(Clone, Default)]
pub struct Keyring {
    pull_secrets: Vec<PullSecret>,
    sources: Option<Arc<Sources>>,
}

static ANONYMOUS: [CredentialCandidate; 1] = [CredentialCandidate::anonymous()];

impl Keyring {
    /// Returns the candidates in order, bounded and each once. Empty if the image is private and has no credential.
    pub fn candidates(&self, image: &ImageRef) -> Cow<'static, [CredentialCandidate]> {
        let Some(sources) = &self.sources else {
            return Cow::Borrowed(&ANONYMOUS);
        };
        let name = image.name();
        let keyrings = self.pull_secrets.iter().map(|secret| &*secret.keyring);
        let of_pod = pattern::lookup(keyrings, name).into_iter().cloned();
        let is_private = sources.private.iter().any(|pattern| pattern.matches(name));
        let anonymous = (!is_private).then(CredentialCandidate::anonymous);
        // The limits leave room for the operator's candidates after the Pod's, and for anonymous access after both.
        let with_credential = distinct(of_pod, PULL_SECRET_CANDIDATES)
            .chain(sources.of_files(name))
            .chain(sources.of_plugins(name));
        let all = distinct(with_credential, CANDIDATES - 1).chain(anonymous);
        Cow::Owned(all.collect())
    }

    /// Returns the reason why a pull secret gives no credential for the image, for each such secret of the Pod. A
    /// reason contains nothing of the secret's content.
    pub fn unused_pull_secrets(&self, image: &ImageRef) -> Vec<String> {
        self.pull_secrets
            .iter()
            .filter_map(|secret| secret.unused(image))
            .collect()
    }
}

/// Returns the first `limit` candidates whose credentials differ.
fn distinct(
    candidates: impl IntoIterator<Item = CredentialCandidate>,
    limit: usize,
) -> impl Iterator<Item = CredentialCandidate> {
    let mut ids = HashSet::new();
    candidates
        .into_iter()
        .filter(move |candidate| ids.insert(candidate.credential_id()))
        .take(limit)
}

struct Sources {
    pull_secrets: Option<Arc<PullSecrets>>,
    files: Files,
    private: Vec<ImagePattern>,
}

impl Sources {
    /// Returns the candidates of files for a name, which is `host/repository` or a mere host.
    fn of_files(&self, name: &str) -> Vec<CredentialCandidate> {
        let host = name.split('/').next().unwrap_or_default();
        let program = |helper| CredentialCandidate::program(helper, host);
        let entries = |source| {
            let keyrings = self.files.of(source).map(|file| &file.keyring);
            pattern::lookup(keyrings, name).into_iter().cloned()
        };
        let configs = self.files.of(CredentialSource::DockerConfigs);
        let helper_keyrings = configs.clone().map(|config| &config.helpers);
        let helpers = pattern::lookup(helper_keyrings, name);
        let stores = configs.filter_map(|config| config.store.as_ref());
        // A helper precedes the entries of the same files: docker uses the helper alone.
        let mut candidates: Vec<_> = helpers.into_iter().map(program).collect();
        candidates.extend(entries(CredentialSource::DockerConfigs));
        candidates.extend(stores.map(program));
        candidates.extend(entries(CredentialSource::Directory));
        candidates
    }

    /// Returns the candidates of plugins for an image (`host/repository`).
    fn of_plugins(&self, image: &str) -> impl Iterator<Item = CredentialCandidate> {
        let files = self.files.of(CredentialSource::Providers);
        let plugins = files.flat_map(|file| &file.plugins);
        plugins
            .filter(move |(images, _)| images.iter().any(|pattern| pattern.matches(image)))
            .map(move |(_, plugin)| CredentialCandidate::program(plugin, image))
    }
}

#[cfg(test)]
mod tests;
