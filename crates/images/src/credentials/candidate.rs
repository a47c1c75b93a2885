//! A credential candidate: one way to access an image, whose credential may have to be fetched first.

use std::fmt;
use std::sync::Arc;

use super::credential::{Credential, CredentialId, IdentifiedCredential};
use super::file::File;
use super::helper::Helper;
use super::pattern::ImagePattern;
use super::process::Busy;
use super::provider::Plugin;
use super::pull_secrets::PullSecret;
use tolerarch_support::concurrency::Callers;

/// One way to access an image. Cheap to clone.
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

/// Where a credential was read, to read it once more.
#[derive(Clone)]
pub(super) struct Origin {
    pub(super) key: ImagePattern,
    pub(super) source: OriginSource,
}

#[derive(Clone)]
pub(super) enum OriginSource {
    Secret(PullSecret),
    File(Arc<File>),
}

impl CredentialCandidate {
    /// Anonymous access.
    pub const fn anonymous() -> Self {
        Self { id: CredentialId::ANONYMOUS, source: Source::Anonymous }
    }

    pub fn with(credential: Credential) -> Self {
        Self::held(credential.into(), None)
    }

    pub(super) fn held(own: IdentifiedCredential, origin: Option<Origin>) -> Self {
        let IdentifiedCredential { id, credential } = own;
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

    /// Part of the cache key of its answers; known before the credential is. It changes with the content of a secret or
    /// a file, and stays the same when a helper or a plugin gives another credential.
    pub fn id(&self) -> CredentialId {
        self.id
    }

    /// The kind of source, for people: one of a few fixed texts.
    pub fn kind(&self) -> &'static str {
        match &self.source {
            Source::Anonymous => "anonymous",
            Source::Held { origin: None, .. } => "credential",
            Source::Held { origin: Some(origin), .. } => match &origin.source {
                OriginSource::Secret(_) => "pull secret",
                OriginSource::File(file) => file.kind(),
            },
            Source::Helper { .. } => "credential helper",
            Source::Plugin { .. } => "credential provider plugin",
        }
    }

    /// The credential, where it is known without asking anything; `Some(None)` is anonymous access.
    pub(crate) fn held_credential(&self) -> Option<Option<&Credential>> {
        match &self.source {
            Source::Anonymous => Some(None),
            Source::Held { credential, .. } => Some(Some(credential)),
            Source::Helper { .. } | Source::Plugin { .. } => None,
        }
    }

    /// Whether the credential came with a Pod, or from an unknown source: anyone who may create a Pod can choose it.
    pub(crate) fn is_of_pod(&self) -> bool {
        match &self.source {
            Source::Held { origin: Some(origin), .. } => matches!(origin.source, OriginSource::Secret(_)),
            Source::Held { origin: None, .. } => true,
            Source::Anonymous | Source::Helper { .. } | Source::Plugin { .. } => false,
        }
    }

    /// The credentials to present, one after the other until one is accepted; `None` is anonymous access. Empty if the
    /// source has no credential after all, or cannot be asked now.
    ///
    /// May run a helper or a plugin, which takes up to a minute and goes on when this future is dropped.
    pub async fn credentials(&self) -> Vec<Option<Arc<Credential>>> {
        self.credentials_for(&Callers::operator()).await.unwrap_or_default()
    }

    /// The same on behalf of these callers, whose shares of the runs hold.
    pub(crate) async fn credentials_for(
        &self,
        callers: &Callers,
    ) -> Result<Vec<Option<Arc<Credential>>>, Busy> {
        Ok(match &self.source {
            Source::Anonymous => vec![None],
            Source::Held { credential, .. } => vec![Some(Arc::clone(credential))],
            Source::Helper { helper, host } => {
                helper.credential(host, callers).await?.into_iter().map(Some).collect()
            }
            Source::Plugin { plugin, image } => {
                plugin.credentials(image, callers).await?.into_iter().map(Some).collect()
            }
        })
    }

    /// The registry accepted a credential of this candidate: runs for this registry are worth their time.
    pub(crate) fn accepted(&self) {
        match &self.source {
            Source::Anonymous | Source::Held { .. } => {}
            Source::Helper { helper, host } => helper.accepted(host),
            Source::Plugin { plugin, image } => plugin.accepted(image),
        }
    }

    /// Whether the registry accepted a credential of this helper.
    #[cfg(test)]
    pub(crate) fn has_accepted(&self) -> bool {
        matches!(&self.source, Source::Helper { helper, host } if helper.has_accepted(host))
    }

    /// After the registry refused every credential of this candidate: reads its source once more, at most every few
    /// seconds. A candidate with another credential, if there is one by now.
    pub(crate) async fn refetch(&self, callers: &Callers) -> Option<Self> {
        match &self.source {
            Source::Anonymous | Source::Held { origin: None, .. } => None,
            Source::Held { origin: Some(origin), .. } => {
                let found = match &origin.source {
                    OriginSource::Secret(secret) => secret.refetch(&origin.key).await,
                    OriginSource::File(file) => file.refetch(&origin.key).await,
                };
                let changed = found.into_iter().find(|credential| credential.id != self.id)?;
                Some(Self::held(changed, Some(origin.clone())))
            }
            Source::Helper { helper, host } => helper.refetch(host, callers).await.then(|| self.clone()),
            Source::Plugin { plugin, image } => plugin.refetch(image, callers).await.then(|| self.clone()),
        }
    }
}

impl fmt::Debug for CredentialCandidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}
