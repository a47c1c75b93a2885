//! One way to ask for an image, which may have to fetch its credential first.

use std::fmt;
use std::sync::Arc;

use super::credential::{Credential, CredentialId, Kept};
use super::file::File;
use super::helper::Helper;
use super::pattern::ImagePattern;
use super::provider::Plugin;
use super::pull_secrets::PullSecret;

/// One way to ask for an image. Cheap to clone.
#[derive(Clone)]
pub struct CredentialCandidate {
    id: CredentialId,
    source: Source,
}

#[derive(Clone)]
enum Source {
    Anonymous,
    Held { credential: Arc<Credential>, origin: Option<Origin> },
    Helper { helper: Arc<Helper>, host: Arc<str> },
    Plugin { plugin: Arc<Plugin>, image: Arc<str> },
}

/// Where a credential was read, to read it again.
#[derive(Clone)]
pub(super) struct Origin {
    pub(super) key: ImagePattern,
    pub(super) place: Place,
}

#[derive(Clone)]
pub(super) enum Place {
    Secret(PullSecret),
    File(Arc<File>),
}

impl CredentialCandidate {
    /// Without any credential.
    pub const fn anonymous() -> Self {
        Self { id: CredentialId::ANONYMOUS, source: Source::Anonymous }
    }

    /// With this credential.
    pub fn with(credential: Credential) -> Self {
        Self::held(credential.into(), None)
    }

    pub(super) fn held(kept: Kept, origin: Option<Origin>) -> Self {
        let Kept { id, credential } = kept;
        Self { id, source: Source::Held { credential, origin } }
    }

    pub(super) fn helper(helper: &Arc<Helper>, host: &str) -> Self {
        let source = Source::Helper { helper: Arc::clone(helper), host: host.into() };
        Self { id: helper.id(host), source }
    }

    pub(super) fn plugin(plugin: &Arc<Plugin>, image: &str) -> Self {
        let source = Source::Plugin { plugin: Arc::clone(plugin), image: image.into() };
        Self { id: plugin.id(), source }
    }

    /// Under what its answers are remembered; known before the credential is. It stays the same when a helper or a plugin
    /// gives another credential, and changes when a secret or a file does.
    pub fn id(&self) -> CredentialId {
        self.id
    }

    /// Where the credential comes from, for people: one of a few fixed texts.
    pub fn kind(&self) -> &'static str {
        match &self.source {
            Source::Anonymous => "anonymous",
            Source::Held { origin: None, .. } => "credential",
            Source::Held { origin: Some(origin), .. } => match &origin.place {
                Place::Secret(_) => "pull secret",
                Place::File(file) => file.kind(),
            },
            Source::Helper { .. } => "credential helper",
            Source::Plugin { .. } => "credential provider plugin",
        }
    }

    /// Whether the credential came with a Pod, or from somewhere unknown: whoever may create a Pod can choose it.
    pub fn is_of_pod(&self) -> bool {
        match &self.source {
            Source::Held { origin: Some(origin), .. } => matches!(origin.place, Place::Secret(_)),
            Source::Held { origin: None, .. } => true,
            Source::Anonymous | Source::Helper { .. } | Source::Plugin { .. } => false,
        }
    }

    /// What to show the registry, one after the other until one is accepted; `None` shows nothing. Nothing to try at all
    /// where the source has no credential after all.
    ///
    /// May run a helper or a plugin, which takes up to a minute and goes on when this is no longer waited for.
    pub async fn credentials(&self) -> Vec<Option<Arc<Credential>>> {
        match &self.source {
            Source::Anonymous => vec![None],
            Source::Held { credential, .. } => vec![Some(Arc::clone(credential))],
            Source::Helper { helper, host } => helper.credential(host).await.into_iter().map(Some).collect(),
            Source::Plugin { plugin, image } => {
                plugin.credentials(image).await.into_iter().map(Some).collect()
            }
        }
    }

    /// After the registry has refused every credential of this candidate (401): looks once more where they came from. An
    /// candidate with another credential, if there is one by now. Looks no more often than every few seconds.
    pub async fn again(&self) -> Option<Self> {
        match &self.source {
            Source::Anonymous | Source::Held { origin: None, .. } => None,
            Source::Held { origin: Some(origin), .. } => {
                let found = match &origin.place {
                    Place::Secret(secret) => secret.again(&origin.key).await,
                    Place::File(file) => file.again(&origin.key).await,
                };
                let changed = found.into_iter().find(|kept| kept.id != self.id)?;
                Some(Self::held(changed, Some(origin.clone())))
            }
            Source::Helper { helper, host } => helper.again(host).await.then(|| self.clone()),
            Source::Plugin { plugin, image } => plugin.again(image).await.then(|| self.clone()),
        }
    }
}

impl fmt::Debug for CredentialCandidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}
