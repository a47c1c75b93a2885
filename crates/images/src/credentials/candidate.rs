//! A credential candidate: one way to access an image, whose credential may have to be fetched first.

use std::fmt;
use std::sync::Arc;

use super::credential::{Credential, CredentialId};
use super::program::{Busy, Program};
use tolerarch_support::concurrency::Tenant;

/// Who has chosen a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CredentialOwner {
    /// Anyone who may create a Pod: the credential may also go to token servers of the registry's owner.
    Pod,
    /// The operator, for all tenants: goes only where the operator or this program says so. Anonymous access, too.
    Operator,
}

/// Cheap to clone. The id is computed once, as every Pod needs it.
#[derive(Clone)]
pub struct CredentialCandidate {
    /// Known before the credential: follows the owner and the content of secrets and files, not answers.
    pub(crate) id: CredentialId,
    /// Kind of source, for people: one of a few fixed texts.
    pub(crate) kind: &'static str,
    pub(crate) owner: CredentialOwner,
    source: Source,
}

#[derive(Clone)]
enum Source {
    /// A credential of a file or a pull secret; `None` for anonymous access.
    Held(Option<Arc<Credential>>),
    /// Program with the image to run it for; a helper gets the host in place of the image.
    Program {
        program: Arc<Program>,
        image: Arc<str>,
    },
}

impl CredentialCandidate {
    pub const fn anonymous() -> Self {
        Self {
            id: CredentialId::ANONYMOUS,
            kind: "anonymous",
            owner: CredentialOwner::Operator,
            source: Source::Held(None),
        }
    }

    pub(super) fn pod(credential: Credential) -> Self {
        let candidate = Self::file(credential, "pull secret");
        Self {
            id: candidate.id.of_pod(),
            owner: CredentialOwner::Pod,
            ..candidate
        }
    }

    pub(super) fn file(credential: Credential, kind: &'static str) -> Self {
        Self {
            id: credential.id(),
            kind,
            owner: CredentialOwner::Operator,
            source: Source::Held(Some(credential.into())),
        }
    }

    pub(super) fn program(program: &Arc<Program>, image: &str) -> Self {
        Self {
            id: program.protocol.id(image),
            kind: program.kind,
            owner: CredentialOwner::Operator,
            source: Source::Program {
                program: Arc::clone(program),
                image: image.into(),
            },
        }
    }

    /// Returns the ID of the credential alone, without its owner.
    pub(super) fn credential_id(&self) -> CredentialId {
        match self.owner {
            CredentialOwner::Pod => self.id.of_pod(),
            CredentialOwner::Operator => self.id,
        }
    }

    /// Returns the credential if no program has to run for it; `Some(None)` is anonymous access.
    pub(crate) fn held_credential(&self) -> Option<Option<&Credential>> {
        match &self.source {
            Source::Held(credential) => Some(credential.as_deref()),
            Source::Program { .. } => None,
        }
    }

    /// Returns the bytes of the longer part of a credential at hand.
    pub(super) fn longest(&self) -> usize {
        self.held_credential()
            .flatten()
            .map_or(0, Credential::longest)
    }

    /// Returns the credentials to present in turn until one is accepted; `None` is anonymous. Empty if the source has
    /// none. May run a helper or a plugin within the tenant's share of the runs, for up to a minute, even if the future
    /// is dropped.
    pub(crate) async fn credentials(
        &self,
        tenant: &Tenant,
    ) -> Result<Vec<Option<Arc<Credential>>>, Busy> {
        match &self.source {
            Source::Held(credential) => Ok(vec![credential.clone()]),
            Source::Program { program, image } => {
                let credentials = program.credentials(image, tenant).await?;
                Ok(credentials.into_iter().map(Some).collect())
            }
        }
    }

    /// Reports that the registry refused all credentials of this candidate: a program's answer is not used again.
    pub(crate) fn refused(&self) {
        if let Source::Program { program, image } = &self.source {
            program.refused(image);
        }
    }
}

impl fmt::Debug for CredentialCandidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind)
    }
}
