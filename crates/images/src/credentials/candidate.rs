//! Credential candidates. Each is one way to access an image; its credential may have to be fetched first.

use std::fmt;
use std::sync::Arc;

use super::credential::{Credential, CredentialId};
use super::program::{Busy, Program};
use tolerarch_support::concurrency::Tenant;

/// Who chose a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CredentialOwner {
    /// Anyone who may create a Pod: the credential may also go to token servers of the registry's owner.
    Pod,
    /// The operator, for all tenants: the credential goes only where the operator or this program says so. Anonymous
    /// access counts as the operator's.
    Operator,
}

/// Credential that may be tried for an image. Cheap to clone; the ID is computed once, as every Pod needs it.
#[derive(Clone)]
pub struct CredentialCandidate {
    /// Depends on the owner and on the content of secrets and files, not on a program's answer: the ID is needed before
    /// the credential is fetched.
    pub(crate) id: CredentialId,
    /// Kind of the source, for people to read: one of a few fixed texts.
    pub(crate) kind: &'static str,
    pub(crate) owner: CredentialOwner,
    source: Source,
}

#[derive(Clone)]
enum Source {
    /// Credential of a file or a pull secret; `None` for anonymous access.
    Held(Option<Arc<Credential>>),
    /// Program, and the image that it runs for; a helper gets the host in place of the image.
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

    /// Returns the length in bytes of the credential's longer part; 0 if a program has to run for the credential.
    pub(super) fn longest(&self) -> usize {
        match self.held_credential() {
            Some(Some(credential)) => credential.longest(),
            _ => 0,
        }
    }

    /// Returns the credentials to present in turn until one is accepted; `None` is anonymous access. Empty if the
    /// source has none. May run a helper or a plugin within the tenant's share of the runs. A run takes up to a minute,
    /// and continues if the future is dropped.
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

    /// Records that the registry refused all credentials of this candidate: a program's answer is not used again.
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
