//! The cached answer of an image, from what is cached for each of its credential candidates.

use super::cache::{Cache, Cached, Millis, Outcome};
use crate::credentials::{CredentialCandidate, CredentialId};
use tolerarch_core::image::{ImageRef, LookupError, Support};

pub(super) enum CachedForAny<'c> {
    /// A good answer of any candidate within its lifetime; or a recent failure, if no candidate is left to try.
    Fresh(Outcome),
    /// A good answer that is served at once.
    Stale {
        support: Support,
        /// The candidate that gave the answer; `None` if the answer need not be refreshed now.
        refresh: Option<&'c CredentialCandidate>,
    },
    /// Nothing may be served before the registry is queried.
    Nothing,
}

/// Returns what is cached at `now` for an image's candidates, which are in the order in which to try them.
pub(super) fn cached<'c>(
    cache: &Cache,
    image: &ImageRef,
    candidates: &'c [CredentialCandidate],
    now: Millis,
) -> CachedForAny<'c> {
    let mut stale = None;
    let mut expired = None;
    let mut refused = None;
    let mut failed = None;
    let mut untried = false;
    for candidate in candidates {
        match cache.get_at(image, candidate.id, now) {
            Cached::Fresh(Ok(support)) => return CachedForAny::Fresh(Ok(support)),
            Cached::Fresh(Err(error)) if is_of_credential(error) => {
                if replaces(error, refused, candidate.id) {
                    refused = Some(error);
                }
            }
            // Ignores failures of candidates after an untried one.
            Cached::Fresh(Err(_)) if untried => {}
            Cached::Fresh(Err(error)) => failed = failed.or(Some(error)),
            Cached::Stale { support, due } => {
                let refresh = due.then_some(candidate);
                stale = stale.or(Some(CachedForAny::Stale { support, refresh }));
            }
            Cached::Expired(support) => {
                untried = true;
                expired = expired.or(Some(support));
            }
            Cached::Nothing => untried = true,
        }
    }
    if let Some(stale) = stale {
        return stale;
    }
    match (failed, expired) {
        (Some(_), Some(support)) => CachedForAny::Stale {
            support,
            refresh: None,
        },
        (Some(error), None) => CachedForAny::Fresh(Err(error)),
        (None, _) if untried => CachedForAny::Nothing,
        (None, _) => CachedForAny::Fresh(Err(refused.unwrap_or(LookupError::Denied))),
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

/// Returns whether a candidate's refusal is reported in place of an `earlier` one. If a credential was accepted, a
/// missing image is reported in place of a denial.
pub(super) fn replaces(
    refusal: LookupError,
    earlier: Option<LookupError>,
    candidate: CredentialId,
) -> bool {
    let Some(earlier) = earlier else {
        return true;
    };
    let has_credential = candidate != CredentialId::ANONYMOUS;
    has_credential && earlier == LookupError::Denied && refusal != earlier
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
                Error::NoCredential,
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
