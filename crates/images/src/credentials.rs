//! Which credentials to try for an image, and in which order: those that the node would have, as kubelet's keyring
//! chooses them, and no others.
//!
//! The order is: the Pod's pull secrets, docker config files, the directory, kubelet's plugins, and no credential at all
//! where the image is not private. A source that fails is one credential less, never a failure.
//!
//! A credential appears in no log, error, label or `Debug`; a [`CredentialId`] stands for it.

mod candidate;
mod credential;
mod directory;
mod docker;
mod docker_keyring;
mod fault;
mod file;
mod files;
#[cfg(any(test, feature = "testing"))]
pub mod fuzzing;
mod helper;
mod limits;
mod metrics;

mod pattern;
mod process;
mod provider;
mod pull_secrets;

mod settings;
mod sources;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod ttl_cache;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

pub use candidate::CredentialCandidate;
pub use credential::{Credential, CredentialId, Sensitive};
pub use fault::{CredentialSource, FaultCause, SourceFault};
pub use metrics::CredentialMetrics;
pub use pattern::{ImagePattern, PatternError};
pub(crate) use process::Busy;
pub use settings::{CredentialSettings, CredentialsError, ProviderSettings};

use candidate::{Origin, OriginSource};
use pull_secrets::PullSecret;
use sources::{LoadContext, Sources};
use tolerarch_core::image::ImageRef;
use tolerarch_kubernetes::cluster::Caller;
use tolerarch_support::environment::Environment;

/// All sources of credentials, as loaded. Cheap to clone. The default has none: access is anonymous.
#[derive(Clone, Default)]
pub struct Credentials {
    sources: Option<Arc<Sources>>,
}

impl Credentials {
    /// Reads all files. To be called within the runtime, as pull secrets are read through a client of its own.
    ///
    /// `private` are images that are never asked for without a credential (`registries.private`). `caller` is the one on
    /// whose behalf pull secrets are read; a person goes without where that cannot be. What is wrong with a file is one of
    /// [`Credentials::faults`]; what was read of it `before` stays in use, unless it is gone.
    ///
    /// # Errors
    /// The settings themselves are wrong.
    pub fn load(
        settings: &CredentialSettings,
        private: Vec<ImagePattern>,
        caller: Caller,
        environment: &Environment,
        before: Option<&Self>,
    ) -> Result<Self, CredentialsError> {
        Self::load_within(settings, private, &LoadContext::new(caller, environment), before)
    }

    fn load_within(
        settings: &CredentialSettings,
        private: Vec<ImagePattern>,
        context: &LoadContext<'_>,
        before: Option<&Self>,
    ) -> Result<Self, CredentialsError> {
        if *settings == CredentialSettings::default() && private.is_empty() {
            return Ok(Self::default());
        }
        let before = before.and_then(|before| before.sources.as_deref());
        let sources = Sources::load(settings, private, context, before)?;
        Ok(Self { sources: Some(Arc::new(sources)) })
    }

    /// What is wrong with files, directories and programs.
    pub fn faults(&self) -> &[SourceFault] {
        self.sources.as_ref().map_or(&[], |sources| &sources.files.faults)
    }

    /// What would be wrong with them if they were loaded now: a program may be there by now, or a file be readable again.
    pub fn faults_now(
        &self,
        settings: &CredentialSettings,
        caller: Caller,
        environment: &Environment,
    ) -> Vec<SourceFault> {
        let before = self.sources.as_ref().map(|sources| &sources.files);
        LoadContext::new(caller, environment).files(settings, before).faults
    }

    /// Whether there is any source.
    pub fn is_configured(&self) -> bool {
        self.sources.is_some()
    }

    /// The credentials that a Pod of this namespace may use, which names these pull secrets (those of its service account
    /// included: the API server has merged them). The caller must bound their number.
    ///
    /// Waits half a second at most for secrets that are not cached; those that cannot be read are left out. Without pull
    /// secrets it neither waits nor allocates.
    pub async fn keyring<'n>(
        &self,
        namespace: &str,
        pull_secrets: impl IntoIterator<Item = &'n str>,
    ) -> Keyring {
        let keyring = self.shared_keyring();
        let Some(source) = self.sources.as_ref().and_then(|sources| sources.pull_secrets.as_ref()) else {
            return keyring;
        };
        let pulled = source.read(namespace, pull_secrets.into_iter()).await;
        Keyring { pulled, ..keyring }
    }

    /// Whether Pods' pull secrets are read at all.
    pub fn reads_pull_secrets(&self) -> bool {
        self.sources.as_ref().is_some_and(|sources| sources.pull_secrets.is_some())
    }

    /// The operator's credentials, which every Pod may use.
    pub fn shared_keyring(&self) -> Keyring {
        Keyring { pulled: Vec::new(), sources: self.sources.clone() }
    }

    /// The operator's credentials for a mirror, by `host` or `host:port`: from files and credential helpers only, as a
    /// Pod's own are for the registry that its image names.
    pub fn of_host(&self, host: &str) -> Vec<CredentialCandidate> {
        let of_files = self.sources.as_ref().map(|sources| sources.of_files(host));
        distinct(of_files.into_iter().flatten(), limits::CANDIDATES)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.sources.is_some() { "[credentials]" } else { "anonymous" })
    }
}

/// The credentials that one Pod may use. Cheap to clone; the default is anonymous access.
#[derive(Clone, Default)]
pub struct Keyring {
    pulled: Vec<PullSecret>,
    sources: Option<Arc<Sources>>,
}

static ANONYMOUS: [CredentialCandidate; 1] = [CredentialCandidate::anonymous()];

impl Keyring {
    /// The candidates for this image in the order in which to try them, each once, and of too many the first ones.
    /// None, if the image is private and has no credential.
    pub fn candidates(&self, image: &ImageRef) -> Cow<'static, [CredentialCandidate]> {
        let Some(sources) = &self.sources else { return Cow::Borrowed(&ANONYMOUS) };
        let name = image.name();
        let pulled =
            docker_keyring::lookup(self.pulled.iter().map(|secret| (secret, &*secret.keyring)), name);
        let pulled = pulled.into_iter().map(|(secret, key, kept)| {
            let origin = Origin { key: key.clone(), source: OriginSource::Secret(secret.clone()) };
            CredentialCandidate::held(kept.clone(), Some(origin))
        });
        let anonymous = (!sources.is_private(name)).then(CredentialCandidate::anonymous);
        // A Pod's own must leave room for the operator's, and both for anonymous access.
        let pulled = distinct(pulled, limits::PULLED).into_iter();
        let held = pulled.chain(sources.of_files(name)).chain(sources.of_plugins(name));
        let mut all = distinct(held, limits::CANDIDATES - 1);
        all.extend(anonymous);
        Cow::Owned(all)
    }
}

/// The first `most` different candidates.
fn distinct(
    candidates: impl IntoIterator<Item = CredentialCandidate>,
    most: usize,
) -> Vec<CredentialCandidate> {
    let mut distinct: Vec<CredentialCandidate> = Vec::new();
    for candidate in candidates {
        if distinct.len() == most {
            break;
        }
        if !distinct.iter().any(|other| other.id() == candidate.id()) {
            distinct.push(candidate);
        }
    }
    distinct
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.sources.is_some() { "[keyring]" } else { "anonymous" })
    }
}

#[cfg(test)]
mod tests;
