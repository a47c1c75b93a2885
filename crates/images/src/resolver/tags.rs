//! Lists of tags, for the commands that look for newer images. A list uses the credentials of a lookup, and is refused
//! where a lookup would be refused. It waits for no permit: the caller bounds the number of lists.

use std::borrow::Cow;

use tokio::time::Instant;

use super::Resolver;
use super::host::{Attempt, Ending};
use super::request::{LookupRequest, Requester};
use crate::credentials::{Busy, CredentialCandidate};
use crate::registry::trace::CREDENTIAL_KIND;
use crate::registry::{Error, Pull, TagList, on_behalf_of};
use tolerarch_core::image::{ImageRef, LookupError};

impl Resolver {
    /// Lists the tags of an image's repository with the first of the candidates that the registry accepts, within the
    /// time of a lookup.
    ///
    /// # Errors
    /// The failure of the first page.
    pub async fn tags(
        &self,
        image: &ImageRef,
        candidates: Cow<'static, [CredentialCandidate]>,
    ) -> Result<TagList, Error> {
        let request = LookupRequest::new(image, candidates, Requester::OPERATOR);
        let host = self.hosts.get(image.host());
        let entered = host.enter(self.hosts.access(&request));
        let mut attempt = entered.map_err(refused_by_gate)?;
        let listed = self.list_with_any(&request, &mut attempt);
        let listed = on_behalf_of(&request.tenant, listed).await;
        let failure = match &listed {
            Ok(list) => list.failure.as_ref(),
            Err(error) => Some(error),
        };
        attempt.finish(match failure {
            None => Ending::Found,
            Some(error) if matches!(error.cause(), Error::Throttled(_)) => {
                Ending::Throttled(error.target(), self.fetcher.cache.pauses(error))
            }
            Some(error) => Ending::Failed(error.class()),
        });
        listed
    }

    async fn list_with_any(
        &self,
        request: &LookupRequest,
        attempt: &mut Attempt,
    ) -> Result<TagList, Error> {
        let deadline = Instant::now() + self.fetcher.timeout_of(attempt);
        let mut refused = None;
        for candidate in &*request.candidates {
            attempt.use_candidate(candidate).map_err(refused_by_gate)?;
            let credentials = match candidate.credentials(&request.tenant).await {
                Ok(credentials) => credentials,
                Err(Busy) => return Err(Error::Crowded),
            };
            for credential in credentials {
                attempt.begin_query();
                let pull = Pull {
                    image: &request.image,
                    credential: credential.as_deref(),
                    owner: candidate.owner,
                    namespace: attempt.access().namespace,
                    reached: None,
                };
                let listed = self.fetcher.registry.tags(pull, deadline);
                match CREDENTIAL_KIND.scope(candidate.kind, listed).await {
                    Err(error) if error.class().is_of_credential() => {
                        refused.get_or_insert(error);
                    }
                    listed => return listed,
                }
            }
        }
        match refused {
            Some(error) => Err(error),
            None => Err(Error::Denied("there is no credential for the image".into())),
        }
    }
}

/// Returns the error of a list that the registry's gate refuses.
fn refused_by_gate(error: LookupError) -> Error {
    match error {
        LookupError::Throttled => Error::Throttled(None),
        LookupError::CircuitOpen => Error::Unexpected("the registry has just failed".into()),
        _ => Error::Crowded,
    }
}
