//! Key of a registry's state: the image, the credential and the namespace of a lookup. Names are keyed hashes.

use crate::credentials::{CredentialCandidate, CredentialId, CredentialOwner};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) image: u64,
    pub(super) repository: u64,
    pub(super) namespace: u64,
    pub(super) credential: CredentialId,
    pub(super) owner: CredentialOwner,
}

impl Access {
    pub(super) fn with(self, candidate: &CredentialCandidate) -> Self {
        Self {
            credential: candidate.id,
            owner: candidate.owner,
            ..self
        }
    }
}
