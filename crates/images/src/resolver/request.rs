//! Request of a Pod: an image and the credential candidates that the Pod may use, with what the cache has for them.

use std::fmt::Write;
use std::slice::from_ref;

use super::cache::{Cache, Cached, Millis};
use crate::credentials::{CredentialCandidate, CredentialId, CredentialOwner};
use tolerarch_core::image::{ImageRef, LookupError};
use tolerarch_support::concurrency::Tenant;

#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) image: &'a ImageRef,
    pub(super) candidates: &'a [CredentialCandidate],
}

/// Key by which a tenant, or any tenant if there is none, joins a lookup.
pub(super) type FlightKey = (Option<Tenant>, Box<str>);

/// An image, a credential and a namespace. Names are keyed hashes.
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

impl<'a> Request<'a> {
    /// Returns the key of the lookup in flight. No image contains a space, which separates the parts.
    pub(super) fn key(self) -> Box<str> {
        let mut key = self.image.to_string();
        for candidate in self.candidates {
            // Writing to a string does not fail.
            let _ = write!(key, " {:x}", candidate.id.0);
        }
        key.into()
    }

    /// Returns the key by which tenants share the request to the registry. A request that may run a program is not
    /// shared: the run waits for its tenant's share of the runs, and no other tenant should.
    pub(super) fn shared_key(self, tenant: &Tenant) -> FlightKey {
        let runs_program = self
            .candidates
            .iter()
            .any(|candidate| candidate.held_credential().is_none());
        (runs_program.then(|| tenant.clone()), self.key())
    }

    /// Returns what is cached for any candidate, and the request that would refresh it by the candidate that gave it.
    pub(super) fn cached(self, cache: &Cache, now: Millis) -> (Cached, Self) {
        let mut stale = None;
        let mut expired = None;
        let mut refused = None;
        let mut failed = None;
        let mut untried = false;
        for candidate in self.candidates {
            match cache.get_at(self.image, candidate.id, now) {
                good @ Cached::Fresh(Ok(_)) => return (good, self),
                Cached::Fresh(Err(error)) if is_of_credential(error) => {
                    if says_more(error, refused, candidate.id) {
                        refused = Some(error);
                    }
                }
                // Failures of candidates after an untried one do not count.
                Cached::Fresh(Err(_)) if untried => {}
                Cached::Fresh(Err(error)) => failed = failed.or(Some(error)),
                answer @ Cached::Stale { .. } => {
                    let refresh = Self {
                        candidates: from_ref(candidate),
                        ..self
                    };
                    stale = stale.or(Some((answer, refresh)));
                }
                Cached::Expired(support) => {
                    untried = true;
                    expired = expired.or(Some(support));
                }
                Cached::Nothing => untried = true,
            }
        }
        let cached = match (failed, expired) {
            (Some(_), Some(support)) => Cached::Stale {
                support,
                due: false,
            },
            (Some(error), None) => Cached::Fresh(Err(error)),
            (None, Some(support)) => Cached::Expired(support),
            (None, None) if untried => Cached::Nothing,
            (None, None) => Cached::Fresh(Err(refused.unwrap_or(LookupError::Denied))),
        };
        stale.unwrap_or((cached, self))
    }
}

/// Returns whether a cached failure holds for one credential only
/// ([`FailureClass::is_of_credential`](crate::registry::FailureClass::is_of_credential)).
fn is_of_credential(error: LookupError) -> bool {
    match error {
        LookupError::Denied | LookupError::NotFound => true,
        LookupError::Invalid
        | LookupError::PullNever
        | LookupError::Throttled
        | LookupError::Timeout
        | LookupError::BudgetExceeded
        | LookupError::Unreachable
        | LookupError::BadManifest
        | LookupError::NotAllowed
        | LookupError::AddressNotAllowed
        | LookupError::CircuitOpen
        | LookupError::Overloaded
        | LookupError::TooMany
        | LookupError::Internal => false,
    }
}

/// Returns whether this refusal outweighs `before`, as a missing image does a denial if a credential was accepted.
pub(super) fn says_more(now: LookupError, before: Option<LookupError>, by: CredentialId) -> bool {
    let has_credential = by != CredentialId::ANONYMOUS;
    before.is_none_or(|before| before == LookupError::Denied && now != before && has_credential)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Error, ManifestError};

    #[test]
    fn cache_and_registry_agree_on_what_holds_for_one_credential() {
        let redirected = |cause| Error::Redirected {
            registry: String::new(),
            host: String::new(),
            cause: Box::new(cause),
        };
        let errors = || {
            [
                Error::NotFound,
                Error::Denied("".into()),
                Error::TokenHost {
                    registry: String::new(),
                    host: String::new(),
                },
                Error::Throttled(None),
                Error::Timeout,
                Error::NoConnection(String::new()),
                Error::TlsSetup(String::new()),
                Error::Unreachable(String::new()),
                Error::Closed(String::new()),
                Error::Unexpected(String::new()),
                Error::Crowded,
                Error::NotAllowed,
                Error::AddressNotAllowed,
                Error::BadManifest(ManifestError::Digest),
            ]
        };
        for error in errors().into_iter().chain(errors().map(redirected)) {
            let of_credential = error.class().is_of_credential();
            let cached = is_of_credential(LookupError::from(&error));
            assert_eq!(of_credential, cached, "{error:?}");
        }
    }
}
