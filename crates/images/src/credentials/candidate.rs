//! A credential candidate: one way to access an image, whose credential may have to be fetched first.

use std::fmt;
use std::sync::Arc;

use super::credential::{Credential, CredentialId, IdentifiedCredential};
use super::files::File;
use super::pattern::ImagePattern;
use super::process::Busy;
use super::program::Program;
use super::pull_secrets::PullSecret;
use tolerarch_support::concurrency::Callers;

/// Cheap to clone.
#[derive(Clone)]
pub struct CredentialCandidate {
    id: CredentialId,
    pub(super) source: Source,
}

#[derive(Clone)]
pub(super) enum Source {
    Anonymous,
    /// Read under this key, and to be read there once more.
    Read {
        credential: Arc<Credential>,
        key: ImagePattern,
        origin: Origin,
    },
    /// A helper is asked for a host, which stands for the image.
    Program {
        program: Arc<Program>,
        image: Arc<str>,
    },
}

#[derive(Clone)]
pub(super) enum Origin {
    Secret(PullSecret),
    File(Arc<File>),
}

impl CredentialCandidate {
    pub const fn anonymous() -> Self {
        Self { id: CredentialId::ANONYMOUS, source: Source::Anonymous }
    }

    pub(super) fn read(own: IdentifiedCredential, key: ImagePattern, origin: Origin) -> Self {
        let IdentifiedCredential { id, credential } = own;
        Self { id, source: Source::Read { credential, key, origin } }
    }

    pub(super) fn program(program: &Arc<Program>, image: &str) -> Self {
        let source = Source::Program { program: Arc::clone(program), image: image.into() };
        Self { id: program.id(image), source }
    }

    /// Known before the credential is. It changes with the content of a secret or a file, not with what a program gives.
    pub fn id(&self) -> CredentialId {
        self.id
    }

    /// The kind of source, for people: one of a few fixed texts.
    pub fn kind(&self) -> &'static str {
        match &self.source {
            Source::Anonymous => "anonymous",
            Source::Read { origin: Origin::Secret(_), .. } => "pull secret",
            Source::Read { origin: Origin::File(file), .. } => file.kind(),
            Source::Program { program, .. } => program.kind(),
        }
    }

    /// The credential, where it is known without asking anything; `Some(None)` is anonymous access.
    pub(crate) fn held_credential(&self) -> Option<Option<&Credential>> {
        match &self.source {
            Source::Anonymous => Some(None),
            Source::Read { credential, .. } => Some(Some(credential)),
            Source::Program { .. } => None,
        }
    }

    /// Whether the credential came with a Pod: anyone who may create a Pod can choose it.
    pub(crate) fn is_of_pod(&self) -> bool {
        matches!(self.source, Source::Read { origin: Origin::Secret(_), .. })
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
            Source::Read { credential, .. } => vec![Some(Arc::clone(credential))],
            Source::Program { program, image } => {
                program.credentials(image, callers).await?.into_iter().map(Some).collect()
            }
        })
    }

    /// The registry accepted a credential of this candidate: runs for this registry are worth their time.
    pub(crate) fn accepted(&self) {
        if let Source::Program { program, image } = &self.source {
            program.accepted(image);
        }
    }

    /// Once the registry refused all: reads the source again, at most every few seconds. Another credential, if any.
    pub(crate) async fn refetch(&self, callers: &Callers) -> Option<Self> {
        match &self.source {
            Source::Anonymous => None,
            Source::Read { key, origin, .. } => {
                let found = match origin {
                    Origin::Secret(secret) => secret.refetch(key).await,
                    Origin::File(file) => file.refetch(key).await,
                };
                let changed = found.into_iter().find(|credential| credential.id != self.id)?;
                Some(Self::read(changed, key.clone(), origin.clone()))
            }
            Source::Program { program, image } => program.refetch(image, callers).await.then(|| self.clone()),
        }
    }
}

impl fmt::Debug for CredentialCandidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}
