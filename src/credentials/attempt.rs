//! One way to ask for an image, which may have to fetch its credential first.

use std::sync::Arc;

use super::secret::{AccessId, Credential};

/// One way to ask for an image.
#[derive(Clone, Debug)]
pub struct Attempt {
    id: AccessId,
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Anonymous,
    Held(Arc<Credential>),
}

impl Attempt {
    /// Without any credential.
    pub const fn anonymous() -> Self {
        Self { id: AccessId::ANONYMOUS, source: Source::Anonymous }
    }

    /// With this credential.
    pub fn with(credential: Credential) -> Self {
        Self { id: credential.id(), source: Source::Held(credential.into()) }
    }

    /// Under what its answers are remembered; known before the credential is. It stays the same when a helper or a plugin
    /// gives another credential, and changes when a secret or a file does.
    pub fn id(&self) -> AccessId {
        self.id
    }

    /// Where the credential comes from, for people: one of a few fixed texts.
    pub fn kind(&self) -> &'static str {
        match &self.source {
            Source::Anonymous => "anonymous",
            Source::Held(_) => "credential",
        }
    }

    /// What to show the registry, one after the other until one is accepted; `None` shows nothing. Nothing to try at all
    /// where the source has no credential after all.
    ///
    /// May run a helper or a plugin, which takes up to a minute and goes on when this is no longer waited for.
    pub async fn credentials(&self) -> Vec<Option<Arc<Credential>>> {
        match &self.source {
            Source::Anonymous => vec![None],
            Source::Held(credential) => vec![Some(Arc::clone(credential))],
        }
    }

    /// After the registry has refused every credential of this attempt (401): looks once more where they came from. An
    /// attempt with another credential, if there is one by now. Looks no more often than every few seconds.
    pub async fn again(&self) -> Option<Self> {
        None
    }
}
