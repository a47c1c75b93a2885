//! Sends one API request for an image to each endpoint in turn: its mirrors in their order, then the registry itself.
//! With a token or a password where an endpoint demands one, and over redirects.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use http::StatusCode;
use tokio::time::{Duration, timeout};
use url::Url;

use super::Registry;
use super::auth::TokenRequest;
use super::error::Error;
use super::hosts::{Endpoint, in_order};
use super::metrics::RequestKind;
use super::net::{HttpResponse, names};
use super::trace::{self, CREDENTIAL};
use crate::credentials::{Credential, CredentialCandidate};
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
    pub(crate) of_pod: bool,
    /// Hash of the name of the namespace whose lookup this is.
    pub(crate) namespace: u64,
    /// Set once the image's own registry redirects a request to another server; `None` if the caller need not know.
    pub(crate) is_redirected: Option<&'a AtomicBool>,
}

impl Registry {
    /// Requests `reference` of each endpoint until `read` accepts an answer. The registry's own outweighs mirrors'.
    pub(super) async fn request<T>(
        &self,
        pull: Pull<'_>,
        kind: RequestKind,
        reference: &str,
        read: impl Fn(&HttpResponse) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let image = pull.image;
        if !self.admits(image) {
            return Err(Error::NotAllowed);
        }
        let endpoints = in_order(
            self.hosts.endpoints(image.host()),
            image,
            pull.namespace,
            is_tag(reference),
        );
        let mut untried = endpoints.iter().peekable();
        let mut mirror_answered = false;
        let mut failure = None;
        while let Some(endpoint) = untried.next() {
            if let Err(place) = endpoint.name(image) {
                return Err(Error::Unexpected(format!(
                    "{place}, is not understood, so nodes may pull another image; mirrors in registries.hosts count more"
                )));
            }
            let asked = async {
                let mut answer = self.authorised(endpoint, pull, kind, reference).await;
                if let Err(Error::NoConnection(_) | Error::Closed(_) | Error::Unreachable(_)) =
                    answer
                    && let Some(fallback) = &endpoint.fallback
                {
                    answer = self.authorised(fallback, pull, kind, reference).await;
                }
                let (response, route) = answer?;
                let is_success = response.status.is_success();
                let read = if is_success {
                    read(&response)
                } else {
                    Err(response.failure("the registry"))
                };
                read.map_err(|error| route.located(error))
            };
            let result = if endpoint.is_mirror && untried.peek().is_some() {
                timeout(MIRROR_TIME, asked)
                    .await
                    .unwrap_or(Err(Error::Timeout))
            } else {
                asked.await
            };
            let is_fault = result.as_ref().is_err_and(Error::is_fault);
            if endpoint.is_mirror && is_fault {
                endpoint.health.failed(
                    image,
                    pull.namespace,
                    matches!(result, Err(Error::NoConnection(_))),
                );
            } else if endpoint.is_mirror {
                endpoint.health.succeeded(image);
            }
            let error = match result {
                Err(error) if endpoint.is_mirror || !error.is_answer() => error,
                result => return result,
            };
            tracing::debug!(%image, endpoint = %endpoint.origin, %error, "no usable answer from this endpoint");
            mirror_answered |=
                endpoint.is_mirror && !is_fault && !matches!(error, Error::TlsSetup(_));
            if !endpoint.is_mirror || failure.is_none() {
                failure = Some(error);
            }
        }
        match failure {
            // Clusters without a way out live on mirrors: a mirror that lacks an image is no fault of the registry.
            Some(error) if mirror_answered && error.is_fault() => Err(Error::Unexpected(format!(
                "no mirror has the image; of the registry itself: {error}"
            ))),
            Some(error) => Err(error),
            None => Err(Error::Unexpected(
                "no endpoint serves it (see hosts.toml)".into(),
            )),
        }
    }

    /// Sends the request to one endpoint, with a token or a password on demand. The Pod's credential is for the image's
    /// own registry; a mirror gets the operator's for the mirror. Without TLS only where configured for this host.
    async fn authorised<'e>(
        &self,
        endpoint: &'e Endpoint,
        pull: Pull<'e>,
        kind: RequestKind,
        reference: &str,
    ) -> Result<(HttpResponse, Route<'e>), Error> {
        let invalid = || Error::Unreachable("the image has no URL at this endpoint".into());
        let Self {
            hosts,
            transport,
            tokens,
            ..
        } = self;
        let origin = &endpoint.origin;
        let repository = &endpoint.repository(pull.image).ok_or_else(invalid)?;
        let directory = if kind == RequestKind::Config {
            "blobs"
        } else {
            "manifests"
        };
        let url = endpoint
            .url(pull.image, &format!("{directory}/{reference}"))
            .ok_or_else(invalid)?;
        let is_own = endpoint.is_own(pull.image);
        let of_mirror = if is_own {
            None
        } else {
            self.credential_of_mirror(origin).await
        };
        let source = of_mirror
            .as_ref()
            .map_or_else(trace::credential, |(_, candidate)| candidate.kind);
        let credential = if is_own {
            pull.credential
        } else {
            of_mirror.as_ref().map(|(found, _)| &**found)
        };
        let safe = || origin.scheme() == "https" || hosts.is_plain_at(origin);
        let credential = credential.filter(|_| safe());
        let of_pod = is_own && pull.of_pod;
        let token = TokenRequest {
            transport,
            hosts,
            endpoint,
            repository,
            credential,
            of_pod,
            of_redirect: false,
        };
        let asked = async {
            let (mut sent, mut refusals) = (tokens.remembered(token).await?, 0);
            loop {
                let is_redirected = if is_own { pull.is_redirected } else { None };
                let mut route = Route::new(
                    endpoint,
                    kind,
                    url.clone(),
                    is_tag(reference),
                    is_redirected,
                );
                let response = route.follow(transport, hosts, sent.as_ref()).await?;
                let is_refused =
                    response.status == StatusCode::UNAUTHORIZED && !route.is_cross_origin;
                let next = match (is_refused, refusals, &sent) {
                    (true, 0, _) => Some(tokens.renewed(token, sent.as_ref(), &response).await?),
                    (true, 1, Some(refused)) => tokens.by_get(token, refused).await?,
                    _ => None,
                };
                if next.is_none() {
                    return Ok::<_, Error>((response, route));
                }
                (sent, refusals) = (next, refusals + 1);
            }
        };
        let (mut response, mut route) = CREDENTIAL.scope(source, asked).await?;
        // The target of a redirect is requested once more, with a token that the target's server issues to anybody.
        if response.status == StatusCode::UNAUTHORIZED
            && route.is_cross_origin
            && let Some((endpoint, repository)) = &route.target()
        {
            let token = token.at_target(endpoint, repository);
            let asked = async {
                let given = tokens.renewed(token, None, &response).await;
                let given = given.map_err(|error| route.located(error))?;
                route.follow(transport, hosts, Some(&given)).await
            };
            response = CREDENTIAL.scope("anonymous", asked).await?;
        }
        Ok((response, route))
    }

    /// Returns the operator's first credential for a mirror, and its candidate.
    async fn credential_of_mirror(
        &self,
        origin: &Url,
    ) -> Option<(Arc<Credential>, CredentialCandidate)> {
        for candidate in names(origin).flat_map(|name| self.credentials.of_host(&name)) {
            let found = candidate
                .credentials(&Tenant::Operator)
                .await
                .unwrap_or_default();
            if let Some(found) = found.into_iter().flatten().next() {
                return Some((found, candidate));
            }
        }
        None
    }
}

/// Returns whether a reference is a tag, which not every mirror is trusted to resolve.
pub(super) fn is_tag(reference: &str) -> bool {
    !reference.contains(':')
}
