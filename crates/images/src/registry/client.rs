//! Sends one API request for an image to each endpoint in turn: first the mirrors in their order, then the registry
//! itself. Presents a token or a password where an endpoint demands one, and follows redirects.

use std::sync::Arc;

use http::StatusCode;
use tokio::time::{Duration, timeout};
use url::Url;

use super::Registry;
use super::auth::TokenRequest;
use super::error::{Error, FailureClass};
use super::hosts::{Endpoint, in_order};
use super::metrics::RequestKind;
use super::net::names;
use super::response::HttpResponse;
use super::target::{ReachedTarget, Target};
use super::trace::{self, CREDENTIAL_KIND};
use crate::credentials::{Credential, CredentialCandidate, CredentialOwner};
use route::Route;
use tolerarch_core::image::ImageRef;
use tolerarch_support::concurrency::Tenant;

/// Maximum time to wait for one mirror while other endpoints are left.
const MIRROR_TIME: Duration = Duration::from_secs(2);

mod route;

/// An image, and the credential to look it up with.
#[derive(Clone, Copy)]
pub(crate) struct Pull<'a> {
    pub(crate) image: &'a ImageRef,
    /// Credential for the image's own registry, and for no other.
    pub(crate) credential: Option<&'a Credential>,
    pub(crate) owner: CredentialOwner,
    /// Hash of the name of the namespace for which the image is looked up.
    pub(crate) namespace: u64,
    /// Tells the caller which target the request has reached, if the caller needs it.
    pub(crate) reached: Option<&'a ReachedTarget>,
}

/// An answer, and the endpoint that gave it.
pub(super) struct Answered<T> {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) answer: T,
}

impl<T> Answered<T> {
    fn of(endpoint: &Arc<Endpoint>, answer: T) -> Self {
        Self {
            endpoint: Arc::clone(endpoint),
            answer,
        }
    }
}

/// Failures of the endpoints for one request.
#[derive(Default)]
struct Failures {
    /// Failure of an endpoint that got no request ([`Error::Crowded`]). It outweighs all others, because that endpoint
    /// may be the one that has the image.
    crowded: Option<Error>,
    /// Failure of the registry itself, or of names that are not understood, or else the first failure of a mirror.
    other: Option<Error>,
    /// True if a mirror answered with anything but a status of 500 or above.
    mirror_answered: bool,
}

impl Failures {
    fn add(&mut self, endpoint: &Endpoint, error: Error) {
        let class = error.class();
        if endpoint.is_mirror && !class.is_fault() && !class.is_unsent() {
            self.mirror_answered = true;
        }
        if matches!(error.cause(), Error::Crowded) {
            self.crowded = Some(error);
        } else if !endpoint.is_mirror || self.other.is_none() {
            self.other = Some(error);
        }
    }

    /// Returns the one failure that describes all.
    fn into_error(self) -> Error {
        let Some(error) = self.crowded.or(self.other) else {
            return Error::Unexpected("no endpoint serves it (see hosts.toml)".into());
        };
        // Clusters without Internet access rely on mirrors. A mirror that lacks an image is no fault of the registry.
        if self.mirror_answered && error.class().is_fault() {
            return Error::Unexpected(format!(
                "no mirror has the image; of the registry itself: {error}"
            ));
        }
        error
    }
}

impl Registry {
    /// Sends the request to each endpoint in turn until `read` accepts an answer. If all endpoints fail, [`Failures`]
    /// decides which failure is returned.
    pub(super) async fn request<T>(
        &self,
        pull: Pull<'_>,
        kind: RequestKind,
        reference: &str,
        read: impl Fn(&HttpResponse) -> Result<T, Error>,
    ) -> Result<Answered<T>, Error> {
        let image = pull.image;
        if !self.admits(image) {
            return Err(Error::NotAllowed);
        }
        let endpoints = in_order(
            self.hosts.endpoints(image.host()),
            image,
            pull.namespace,
            is_by_tag(kind, reference),
        );
        let mut untried = endpoints.iter().peekable();
        let mut failures = Failures::default();
        while let Some(endpoint) = untried.next() {
            if let Err(location) = endpoint.name(image) {
                failures.other = Some(Error::Unexpected(format!(
                    "{location}, is not understood, so nodes may pull another image; mirrors in registries.hosts take precedence"
                )));
                break;
            }
            let answer = self.request_from(endpoint, pull, kind, reference, &read);
            let result = if endpoint.is_mirror && untried.peek().is_some() {
                let answer = timeout(MIRROR_TIME, answer).await;
                answer.unwrap_or(Err(Error::Timeout))
            } else {
                answer.await
            };
            if endpoint.is_mirror {
                record_health(endpoint, pull, result.as_ref().err());
            }
            let error = match result {
                Ok(answer) => return Ok(Answered::of(endpoint, answer)),
                Err(error) => error,
            };
            if !endpoint.is_mirror && error.class().is_answer() {
                return Err(failures.crowded.unwrap_or(error));
            }
            tracing::debug!(%image, endpoint = %endpoint.origin, %error, "no usable answer from this endpoint");
            failures.add(endpoint, error);
        }
        Err(failures.into_error())
    }

    /// Sends the request to one endpoint, or to the endpoint's fallback if the endpoint cannot be reached.
    pub(super) async fn request_from<T>(
        &self,
        endpoint: &Endpoint,
        pull: Pull<'_>,
        kind: RequestKind,
        reference: &str,
        read: &impl Fn(&HttpResponse) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut answer = self.send_authorised(endpoint, pull, kind, reference).await;
        if let Err(Error::NoConnection(_) | Error::Closed(_) | Error::Unreachable(_)) = answer
            && let Some(fallback) = &endpoint.fallback
        {
            answer = self.send_authorised(fallback, pull, kind, reference).await;
        }
        let (response, route) = answer?;
        let result = if response.status.is_success() {
            read(&response)
        } else {
            Err(response.failure("the registry"))
        };
        result.map_err(|error| route.located(error))
    }

    /// Sends the request to one endpoint, with a token or a password if the endpoint demands one. The pull's credential
    /// is for the image's own registry; a mirror gets the operator's credential for that mirror. A credential is sent
    /// without TLS only where the configuration allows plain HTTP for the host.
    async fn send_authorised<'e>(
        &self,
        endpoint: &'e Endpoint,
        pull: Pull<'e>,
        kind: RequestKind,
        reference: &str,
    ) -> Result<(HttpResponse, Route<'e>), Error> {
        let Some((repository, url)) = locate(endpoint, pull.image, kind, reference) else {
            return Err(Error::Unreachable(
                "the image has no URL at this endpoint".into(),
            ));
        };
        let mut route = Route::new(endpoint, kind, url, is_by_tag(kind, reference));
        let mut token_request = TokenRequest {
            transport: &self.transport,
            hosts: &self.hosts,
            endpoint,
            repository: &repository,
            credential: None,
            owner: CredentialOwner::Operator,
            target: Target::Registry,
        };
        let mut credential_kind = trace::credential_kind();
        let mirror_credential;
        if endpoint.is_registry_of(pull.image) {
            token_request.credential = pull.credential;
            token_request.owner = pull.owner;
            route.reached = pull.reached;
        } else {
            mirror_credential = self.credential_of_mirror(&endpoint.origin).await;
            if let Some((credential, candidate)) = &mirror_credential {
                token_request.credential = Some(credential);
                credential_kind = candidate.kind;
            }
        }
        if endpoint.origin.scheme() != "https" && !self.hosts.is_plain_at(&endpoint.origin) {
            token_request.credential = None;
        }
        let answer = self.follow_with_token(token_request, &route);
        let (response, route) = CREDENTIAL_KIND.scope(credential_kind, answer).await?;
        if is_unauthorised(&response) && route.target == Target::RedirectTarget {
            return self.follow_at_target(token_request, route, response).await;
        }
        Ok((response, route))
    }

    /// Follows the route from its start. Repeats that after a 401 of the endpoint, up to twice: with a token by the
    /// endpoint's challenge, then with a token by GET.
    async fn follow_with_token<'e>(
        &self,
        token_request: TokenRequest<'_>,
        start: &Route<'e>,
    ) -> Result<(HttpResponse, Route<'e>), Error> {
        let TokenRequest {
            transport, hosts, ..
        } = token_request;
        let tokens = &self.tokens;
        let mut authorization = tokens.for_first_request(token_request).await?;
        let mut refusals = 0;
        loop {
            let mut route = start.clone();
            let sent = authorization.as_ref();
            let response = route.follow(transport, hosts, sent).await?;
            if !is_unauthorised(&response) || route.target == Target::RedirectTarget {
                return Ok((response, route));
            }
            let next = match (refusals, sent) {
                (0, _) => Some(tokens.after_refusal(token_request, sent, &response).await?),
                (1, Some(refused)) => tokens.by_get(token_request, refused).await?,
                _ => None,
            };
            if next.is_none() {
                return Ok((response, route));
            }
            authorization = next;
            refusals += 1;
        }
    }

    /// Repeats a request to the target of a redirect after the target's 401, with a token that is issued to anybody.
    async fn follow_at_target<'e>(
        &self,
        token_request: TokenRequest<'_>,
        mut route: Route<'e>,
        refused: HttpResponse,
    ) -> Result<(HttpResponse, Route<'e>), Error> {
        let Some((endpoint, repository)) = route.target_endpoint() else {
            return Ok((refused, route));
        };
        let token_request = token_request.for_redirect_target(&endpoint, &repository);
        let TokenRequest {
            transport, hosts, ..
        } = token_request;
        let answer = async {
            let issued = self
                .tokens
                .after_refusal(token_request, None, &refused)
                .await;
            let authorization = issued.map_err(|error| route.located(error))?;
            route.follow(transport, hosts, Some(&authorization)).await
        };
        let response = CREDENTIAL_KIND.scope("anonymous", answer).await?;
        Ok((response, route))
    }

    /// Returns the operator's first credential for a mirror, and the candidate that it came from.
    async fn credential_of_mirror(
        &self,
        origin: &Url,
    ) -> Option<(Arc<Credential>, CredentialCandidate)> {
        for name in names(origin) {
            for candidate in self.credentials.of_host(&name) {
                let credentials = candidate.credentials(&Tenant::Operator).await;
                let mut credentials = credentials.unwrap_or_default().into_iter().flatten();
                if let Some(credential) = credentials.next() {
                    return Some((credential, candidate));
                }
            }
        }
        None
    }
}

fn is_unauthorised(response: &HttpResponse) -> bool {
    response.status == StatusCode::UNAUTHORIZED
}

/// Returns the name of the image's repository at an endpoint, and the URL of the request. For a list of tags,
/// `reference` is the query; for other requests it is a tag or a digest.
fn locate(
    endpoint: &Endpoint,
    image: &ImageRef,
    kind: RequestKind,
    reference: &str,
) -> Option<(String, Url)> {
    let url = match kind {
        RequestKind::Tags => {
            let mut url = endpoint.url(image, "tags/list")?;
            let query = match url.query() {
                Some(namespace) => format!("{namespace}&{reference}"),
                None => reference.to_owned(),
            };
            url.set_query(Some(&query));
            url
        }
        RequestKind::Config => endpoint.url(image, &format!("blobs/{reference}"))?,
        _ => endpoint.url(image, &format!("manifests/{reference}"))?,
    };
    Some((endpoint.repository(image)?, url))
}

/// Records whether a mirror works. It works if it gave any answer that is no fault.
fn record_health(mirror: &Endpoint, pull: Pull<'_>, error: Option<&Error>) {
    match error.map(Error::class) {
        Some(class) if class.is_unsent() => {}
        Some(FailureClass::Fault(_)) => {
            let has_no_connection = matches!(error, Some(Error::NoConnection(_)));
            mirror
                .health
                .failed(pull.image, pull.namespace, has_no_connection);
        }
        _ => mirror.health.succeeded(pull.image),
    }
}

/// Returns whether the answer cannot be verified by a digest, so that not every mirror is trusted with the request.
fn is_by_tag(kind: RequestKind, reference: &str) -> bool {
    kind == RequestKind::Tags || is_tag(reference)
}

/// Returns whether a reference is a tag.
pub(super) fn is_tag(reference: &str) -> bool {
    !reference.contains(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn unsent_requests_leave_a_mirrors_health_unchanged() {
        let image: ImageRef = "registry.test/app".parse().unwrap();
        let pull = Pull {
            image: &image,
            credential: None,
            owner: CredentialOwner::Operator,
            namespace: 1,
            reached: None,
        };
        let mut endpoints = Vec::new();
        for (url, is_mirror) in [
            ("https://mirror.test/v2/", true),
            ("https://registry.test/v2/", false),
        ] {
            let mut endpoint = Endpoint::new(url.parse().unwrap()).unwrap();
            endpoint.is_mirror = is_mirror;
            endpoints.push(Arc::new(endpoint));
        }
        let mirror = &*endpoints[0];
        let is_first = || in_order(endpoints.clone(), &image, 1, false)[0].is_mirror;
        for (error, expected) in [
            (Some(Error::Crowded), true),
            (Some(Error::Timeout), false),
            (Some(Error::Crowded), false),
            (Some(Error::NotFound), true),
            (Some(Error::NoConnection(String::new())), false),
            (Some(Error::TlsSetup(String::new())), false),
            (None, true),
        ] {
            record_health(mirror, pull, error.as_ref());
            assert_eq!(is_first(), expected, "{error:?}");
        }
    }
}
