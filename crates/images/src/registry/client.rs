//! Sends one API request for an image to each endpoint in turn: its mirrors in their order, then the registry itself.
//! With a token or a password where an endpoint demands one, and over redirects.

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
use super::trace::{self, CREDENTIAL};
use crate::credentials::{Credential, CredentialCandidate, CredentialOwner};
use route::Route;
use tolerarch_core::image::ImageRef;
use tolerarch_support::concurrency::Tenant;

/// Maximum time of one mirror while other endpoints are left.
const MIRROR_TIME: Duration = Duration::from_secs(2);

mod route;

/// An image, and the credential to look it up with.
#[derive(Clone, Copy)]
pub(crate) struct Pull<'a> {
    pub(crate) image: &'a ImageRef,
    /// Credential for the image's own registry, and for no other.
    pub(crate) credential: Option<&'a Credential>,
    pub(crate) owner: CredentialOwner,
    /// Hash of the name of the namespace whose lookup this is.
    pub(crate) namespace: u64,
    /// Records the target for the caller, if it has to know.
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

impl Registry {
    /// Requests `reference` of each endpoint until `read` accepts an answer. The registry's own outweighs mirrors'. If an
    /// endpoint had no turn ([`Error::Crowded`]), that outweighs all failures: it may be the one that has the image.
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
        let mut mirror_answered = false;
        let mut crowded = None;
        let mut failure = None;
        while let Some(endpoint) = untried.next() {
            if let Err(place) = endpoint.name(image) {
                failure = Some(Error::Unexpected(format!(
                    "{place}, is not understood, so nodes may pull another image; mirrors in registries.hosts count more"
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
                Err(error) if endpoint.is_mirror || !error.class().is_answer() => error,
                Err(error) => return Err(crowded.unwrap_or(error)),
                Ok(answer) => return Ok(Answered::of(endpoint, answer)),
            };
            tracing::debug!(%image, endpoint = %endpoint.origin, %error, "no usable answer from this endpoint");
            let class = error.class();
            mirror_answered |= endpoint.is_mirror && !class.is_fault() && !class.is_unasked();
            if matches!(error.cause(), Error::Crowded) {
                crowded = Some(error);
            } else if !endpoint.is_mirror || failure.is_none() {
                failure = Some(error);
            }
        }
        match crowded.or(failure) {
            // Clusters without a way out live on mirrors: a mirror that lacks an image is no fault of the registry.
            Some(error) if mirror_answered && error.class().is_fault() => Err(Error::Unexpected(
                format!("no mirror has the image; of the registry itself: {error}"),
            )),
            Some(error) => Err(error),
            None => Err(Error::Unexpected(
                "no endpoint serves it (see hosts.toml)".into(),
            )),
        }
    }

    /// Requests `reference` of one endpoint, or of its fallback if the endpoint cannot be reached.
    pub(super) async fn request_from<T>(
        &self,
        endpoint: &Endpoint,
        pull: Pull<'_>,
        kind: RequestKind,
        reference: &str,
        read: &impl Fn(&HttpResponse) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut answer = self.authorised(endpoint, pull, kind, reference).await;
        if let Err(Error::NoConnection(_) | Error::Closed(_) | Error::Unreachable(_)) = answer
            && let Some(fallback) = &endpoint.fallback
        {
            answer = self.authorised(fallback, pull, kind, reference).await;
        }
        let (response, route) = answer?;
        let result = if response.status.is_success() {
            read(&response)
        } else {
            Err(response.failure("the registry"))
        };
        result.map_err(|error| route.located(error))
    }

    /// Sends the request to one endpoint, with a token or a password on demand. The pull's credential is for the image's
    /// own registry; a mirror gets the operator's for the mirror. Without TLS only where configured for this host.
    async fn authorised<'e>(
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
        let mut token = TokenRequest {
            transport: &self.transport,
            hosts: &self.hosts,
            endpoint,
            repository: &repository,
            credential: None,
            owner: CredentialOwner::Operator,
            target: Target::Registry,
        };
        let mut source = trace::credential();
        let of_mirror;
        if endpoint.is_registry_of(pull.image) {
            token.credential = pull.credential;
            token.owner = pull.owner;
            route.reached = pull.reached;
        } else {
            of_mirror = self.credential_of_mirror(&endpoint.origin).await;
            if let Some((credential, candidate)) = &of_mirror {
                token.credential = Some(credential);
                source = candidate.kind;
            }
        }
        if endpoint.origin.scheme() != "https" && !self.hosts.is_plain_at(&endpoint.origin) {
            token.credential = None;
        }
        let answer = self.follow_with_token(token, &route);
        let (response, route) = CREDENTIAL.scope(source, answer).await?;
        if response.status == StatusCode::UNAUTHORIZED && route.target == Target::RedirectTarget {
            return self.follow_at_target(token, route, response).await;
        }
        Ok((response, route))
    }

    /// Follows the route from its start, once more after each 401 of the endpoint that leads to another token: one of its
    /// challenge, then one by GET.
    async fn follow_with_token<'e>(
        &self,
        token: TokenRequest<'_>,
        start: &Route<'e>,
    ) -> Result<(HttpResponse, Route<'e>), Error> {
        let tokens = &self.tokens;
        let mut sent = tokens.remembered(token).await?;
        let mut refusals = 0;
        loop {
            let mut route = start.clone();
            let response = route
                .follow(token.transport, token.hosts, sent.as_ref())
                .await?;
            if response.status != StatusCode::UNAUTHORIZED || route.target == Target::RedirectTarget
            {
                return Ok((response, route));
            }
            let next = match (refusals, &sent) {
                (0, _) => Some(tokens.renewed(token, sent.as_ref(), &response).await?),
                (1, Some(refused)) => tokens.by_get(token, refused).await?,
                _ => None,
            };
            if next.is_none() {
                return Ok((response, route));
            }
            sent = next;
            refusals += 1;
        }
    }

    /// Requests the target of a redirect once more after its 401, with a token that its server issues to anybody.
    async fn follow_at_target<'e>(
        &self,
        token: TokenRequest<'_>,
        mut route: Route<'e>,
        refused: HttpResponse,
    ) -> Result<(HttpResponse, Route<'e>), Error> {
        let Some((endpoint, repository)) = route.target_endpoint() else {
            return Ok((refused, route));
        };
        let token = token.at_target(&endpoint, &repository);
        let answer = async {
            let issued = self
                .tokens
                .renewed(token, None, &refused)
                .await
                .map_err(|error| route.located(error))?;
            route
                .follow(token.transport, token.hosts, Some(&issued))
                .await
        };
        let response = CREDENTIAL.scope("anonymous", answer).await?;
        Ok((response, route))
    }

    /// Returns the operator's first credential for a mirror, and its candidate.
    async fn credential_of_mirror(
        &self,
        origin: &Url,
    ) -> Option<(Arc<Credential>, CredentialCandidate)> {
        for candidate in names(origin).flat_map(|name| self.credentials.of_host(&name)) {
            let held = candidate.credentials(&Tenant::Operator).await;
            if let Some(credential) = held.unwrap_or_default().into_iter().flatten().next() {
                return Some((credential, candidate));
            }
        }
        None
    }
}

/// Returns the image's repository at an endpoint, and the URL of a reference in it; of tags, of a query of their list.
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

/// Records whether a mirror works. An answer that is no fault shows that it does.
fn record_health(mirror: &Endpoint, pull: Pull<'_>, error: Option<&Error>) {
    match error.map(Error::class) {
        Some(class) if class.is_unasked() => {}
        Some(FailureClass::Fault(_)) => {
            let has_no_connection = matches!(error, Some(Error::NoConnection(_)));
            mirror
                .health
                .failed(pull.image, pull.namespace, has_no_connection);
        }
        _ => mirror.health.succeeded(pull.image),
    }
}

/// Returns whether no digest verifies the answer, so that not every mirror is trusted with the request.
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
    async fn a_mirror_that_was_not_asked_is_neither_healthy_nor_ill() {
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
