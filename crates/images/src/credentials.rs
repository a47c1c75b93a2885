//! Chooses the credentials to try for an image, and their order: those of kubelet's keyring on the node, and no others.
//! Order: the Pod's pull secrets, docker config files, the directory, kubelet's plugins, and anonymous access where the
//! image is not private. A source that fails is one credential less, never a failure. A credential appears in no log,
//! error, label or `Debug`; a [`CredentialId`] stands for it.

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
const PULLED: usize = 8;
/// Maximum number of candidates of one image from all sources.
const CANDIDATES: usize = 16;

/// All sources of credentials, as loaded. Cheap to clone. The default is anonymous access.
#[derive(Clone, Default)]
pub struct Credentials {
    sources: Option<Arc<Sources>>,
}

impl Credentials {
    /// Reads all files. Must be called within the runtime: pull secrets are read through a separate client. `private`
    /// are images that are never looked up without a credential (`registries.private`). Pull secrets are read on behalf
    /// of `caller`; a person without a cluster goes on without them. A faulty file, one of [`Credentials::faults`],
    /// keeps what `before` had of it, unless the file is gone. Fails only if a
    /// service reads pull secrets and cannot reach the cluster.
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
        let before = before.and_then(|before| before.sources.as_deref());
        let files = Files::load(settings, environment, before.map(|before| &before.files));
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

    pub fn faults(&self) -> &[SourceFault] {
        self.sources
            .as_ref()
            .map_or(&[], |sources| &sources.files.faults)
    }

    /// Returns the faults that a load would have now: a program may have been installed, or a file be readable again.
    pub fn faults_now(
        &self,
        settings: &CredentialSettings,
        environment: &Environment,
    ) -> Vec<SourceFault> {
        let before = self.sources.as_ref().map(|sources| &sources.files);
        Files::load(settings, environment, before).faults
    }

    pub fn is_configured(&self) -> bool {
        self.sources.is_some()
    }

    /// Returns the credentials for a Pod of this namespace that names these pull secrets (its service account's
    /// included: the API server has merged them); the caller must bound their number. Waits half a second at most for
    /// uncached secrets, and leaves out those that cannot be read. Without pull secrets, neither waits nor allocates.
    pub async fn keyring<'n>(
        &self,
        namespace: &str,
        pull_secrets: impl IntoIterator<Item = &'n str>,
    ) -> Keyring {
        let mut keyring = self.shared_keyring();
        if let Some(sources) = &self.sources
            && let Some(source) = &sources.pull_secrets
        {
            keyring.pulled = source.read(namespace, pull_secrets.into_iter()).await;
        }
        keyring
    }

    pub fn reads_pull_secrets(&self) -> bool {
        self.sources
            .as_ref()
            .is_some_and(|sources| sources.pull_secrets.is_some())
    }

    /// Returns the operator's credentials, which every Pod may use.
    pub fn shared_keyring(&self) -> Keyring {
        Keyring {
            pulled: Vec::new(),
            sources: self.sources.clone(),
        }
    }

    /// Returns a mirror's candidates, by `host` or `host:port`, from files and helpers.
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
    pulled: Vec<PullSecret>,
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
        let keyrings = self.pulled.iter().map(|secret| &*secret.keyring);
        let pulled = pattern::lookup(keyrings, name);
        let is_private = sources.private.iter().any(|pattern| pattern.matches(name));
        let anonymous = (!is_private).then(CredentialCandidate::anonymous);
        // Leaves room for the operator's candidates after the Pod's, and for anonymous access after both.
        let all = distinct(pulled.into_iter().cloned(), PULLED)
            .chain(sources.of_files(name))
            .chain(sources.of_plugins(name));
        Cow::Owned(distinct(all, CANDIDATES - 1).chain(anonymous).collect())
    }

    /// Says of each of the Pod's pull secrets that gives no credential for the image why, without anything of its
    /// content.
    pub fn unused_pull_secrets(&self, image: &ImageRef) -> Vec<String> {
        self.pulled
            .iter()
            .filter_map(|secret| secret.unused(image))
            .collect()
    }
}

fn distinct(
    candidates: impl IntoIterator<Item = CredentialCandidate>,
    most: usize,
) -> impl Iterator<Item = CredentialCandidate> {
    let mut ids = HashSet::new();
    candidates
        .into_iter()
        .filter(move |candidate| ids.insert(candidate.credential_id()))
        .take(most)
}

struct Sources {
    pull_secrets: Option<Arc<PullSecrets>>,
    files: Files,
    private: Vec<ImagePattern>,
}

impl Sources {
    /// Returns the candidates of files for a name: `host/repository`, or a mere host.
    fn of_files(&self, name: &str) -> Vec<CredentialCandidate> {
        let host = name.split('/').next().unwrap_or_default();
        let program = |helper| CredentialCandidate::program(helper, host);
        let held = |source| {
            let keyrings = self.files.of(source).map(|file| &file.keyring);
            pattern::lookup(keyrings, name).into_iter().cloned()
        };
        let configs = self.files.of(CredentialSource::DockerConfigs);
        // A helper precedes the entries of the same files: docker uses the helper alone.
        let helpers = pattern::lookup(configs.clone().map(|config| &config.helpers), name);
        let stores = configs.filter_map(|config| config.store.as_ref());
        let mut candidates: Vec<_> = helpers.into_iter().map(program).collect();
        candidates.extend(held(CredentialSource::DockerConfigs));
        candidates.extend(stores.map(program));
        candidates.extend(held(CredentialSource::Directory));
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
