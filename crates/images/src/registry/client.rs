//! One API request for an image, tried at each endpoint: at its mirrors in their order, then at the registry itself. With
//! a token or a password where that is wanted, and after redirects.

use std::sync::Arc;

use http::{Method, StatusCode};
use tokio::time::timeout;
use url::Url;

use super::auth::{TokenRequest, Tokens};
use super::error::Error;
use super::hosts::{Allowed, Endpoint, Hosts, in_order};
use super::metrics::RequestKind;
use super::net::{HttpResponse, Transport, names};
use super::trace::Recorder;
use super::{limits, manifest};
use crate::credentials::{Credential, CredentialCandidate, Credentials};
use route::Route;
use tolerarch_core::image::ImageRef;

mod route;

/// Asks registries and their mirrors.
pub(super) struct Client {
    hosts: Hosts,
    allowed: Allowed,
    transport: Transport,
    tokens: Tokens,
    /// The operator's, for mirrors.
    credentials: Credentials,
}

/// An image, and the credential to ask for it with.
#[derive(Clone, Copy)]
pub(crate) struct Pull<'a> {
    pub(crate) image: &'a ImageRef,
    /// For the image's own registry only.
    pub(crate) credential: Option<&'a Credential>,
    /// Whether the credential came with a Pod.
    pub(crate) of_pod: bool,
    pub(crate) recorder: &'a Recorder,
}

/// One request of the distribution API, below an image's repository.
pub(super) struct ApiRequest {
    /// What it is counted as.
    kind: RequestKind,
    method: Method,
    path: String,
    /// Whether it asks where a tag points, which not every mirror is trusted to know.
    pub(super) by_tag: bool,
    accept: &'static str,
    limit: usize,
}

impl ApiRequest {
    pub(super) fn head(target: &str) -> Self {
        Self { kind: RequestKind::Head, method: Method::HEAD, ..Self::manifest(target) }
    }

    pub(super) fn manifest(target: &str) -> Self {
        Self {
            kind: RequestKind::Manifest,
            method: Method::GET,
            path: format!("manifests/{target}"),
            by_tag: !target.contains(':'),
            accept: manifest::ACCEPT,
            limit: limits::MANIFEST,
        }
    }

    pub(super) fn config(digest: &str) -> Self {
        Self {
            kind: RequestKind::Config,
            method: Method::GET,
            path: format!("blobs/{digest}"),
            by_tag: false,
            accept: "*/*",
            limit: limits::CONFIG,
        }
    }
}

impl Client {
    pub(super) fn new(hosts: Hosts, allowed: Allowed, transport: Transport) -> Self {
        Self { hosts, allowed, transport, tokens: Tokens::new(), credentials: Credentials::default() }
    }

    pub(super) fn with_credentials(self, credentials: Credentials) -> Self {
        Self { credentials, ..self }
    }

    pub(super) fn admits(&self, image: &ImageRef) -> bool {
        self.allowed.admits(image)
    }

    pub(super) fn has_plenty(&self, image: &ImageRef) -> bool {
        self.transport.allowances.is_plentiful(image.host())
    }

    /// Tries each endpoint, until `read` accepts a response. What the registry itself answers counts more than what
    /// mirrors do: that one of them lacks the image means nothing.
    pub(super) async fn request<T>(
        &self,
        pull: Pull<'_>,
        request: &ApiRequest,
        read: impl Fn(&HttpResponse) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let image = pull.image;
        if !self.admits(image) {
            return Err(Error::NotAllowed);
        }
        let endpoints = self.hosts.endpoints(image.host());
        let mut untried = in_order(&endpoints, image, request.by_tag).into_iter().peekable();
        let mut mirror_answered = false;
        let mut failure = None;
        while let Some(endpoint) = untried.next() {
            let asked = async {
                let (response, route) = self.request_at(endpoint, pull, request).await?;
                accepted(response).and_then(|response| read(&response)).map_err(|error| route.located(error))
            };
            let result = if endpoint.is_mirror && untried.peek().is_some() {
                timeout(limits::MIRROR_TIME, asked).await.unwrap_or(Err(Error::Timeout))
            } else {
                asked.await
            };
            let error = match result {
                Ok(value) => {
                    if endpoint.is_mirror {
                        endpoint.health.succeeded(image);
                    }
                    return Ok(value);
                }
                Err(error) => error,
            };
            if endpoint.is_mirror {
                if error.is_fault() {
                    endpoint.health.failed(image);
                } else {
                    endpoint.health.succeeded(image);
                }
            }
            if !endpoint.is_mirror && error.is_answer() {
                return Err(error);
            }
            tracing::debug!(%image, endpoint = %endpoint.origin, %error, "no usable answer from this endpoint");
            mirror_answered |= endpoint.is_mirror && !error.is_fault();
            if !endpoint.is_mirror || failure.is_none() {
                failure = Some(error);
            }
        }
        match failure {
            // Clusters without a way out live on mirrors: that one of them lacks an image is no fault of the registry.
            Some(error) if mirror_answered && error.is_fault() => {
                Err(Error::Unexpected(format!("no mirror has the image; of the registry itself: {error}")))
            }
            Some(error) => Err(error),
            None => Err(Error::Unexpected("no endpoint serves it (see hosts.toml)".into())),
        }
    }

    /// Asks one endpoint; without TLS where that is configured and TLS fails.
    async fn request_at<'e>(
        &self,
        endpoint: &'e Endpoint,
        pull: Pull<'_>,
        request: &ApiRequest,
    ) -> Result<(HttpResponse, Route<'e>), Error> {
        match (self.authorised(endpoint, pull, request).await, &endpoint.fallback) {
            (Err(Error::NoConnection(_) | Error::Unreachable(_)), Some(fallback)) => {
                self.authorised(fallback, pull, request).await
            }
            (response, _) => response,
        }
    }

    /// Asks one endpoint, with a token or a password where it wants one. The Pod's credential is for the registry that the
    /// image names; a mirror gets the operator's for the mirror. Never without TLS unless that is configured for this host.
    async fn authorised<'e>(
        &self,
        endpoint: &'e Endpoint,
        pull: Pull<'_>,
        request: &ApiRequest,
    ) -> Result<(HttpResponse, Route<'e>), Error> {
        let invalid = || Error::Unreachable("the image has no URL at this endpoint".into());
        let Self { hosts, transport, tokens, .. } = self;
        let (origin, repository) = (&endpoint.origin, &endpoint.repository(pull.image));
        let url = endpoint.url(pull.image, &request.path).ok_or_else(invalid)?;
        let is_own = endpoint.is_own(pull.image);
        let of_mirror = if is_own { None } else { self.credential_of_mirror(origin).await };
        let recorder =
            of_mirror.as_ref().map(|(_, candidate)| pull.recorder.with_credential(candidate.kind()));
        let recorder = recorder.as_ref().unwrap_or(pull.recorder);
        let credential = if is_own { pull.credential } else { of_mirror.as_ref().map(|(found, _)| &**found) };
        let safe = || origin.scheme() == "https" || hosts.is_plain_at(origin);
        let credential = credential.filter(|_| safe());
        let of_pod = is_own && pull.of_pod;
        let token = TokenRequest { endpoint, repository, credential, of_pod, of_redirect: false, recorder };
        let sent = tokens.remembered(transport, hosts, token).await?;
        let mut route = Route::new(endpoint, url.clone());
        let mut response = route.follow(transport, hosts, request, sent.as_ref(), recorder).await?;
        if response.status == StatusCode::UNAUTHORIZED && !route.is_cross_origin() {
            let renewed = tokens.renewed(transport, hosts, token, sent.as_ref(), &response).await?;
            route = Route::new(endpoint, url.clone());
            response = route.follow(transport, hosts, request, Some(&renewed), recorder).await?;
            if response.status == StatusCode::UNAUTHORIZED
                && !route.is_cross_origin()
                && let Some(renewed) = tokens.by_get(transport, hosts, token, &renewed).await?
            {
                route = Route::new(endpoint, url);
                response = route.follow(transport, hosts, request, Some(&renewed), recorder).await?;
            }
        }
        if response.status == StatusCode::UNAUTHORIZED && route.is_cross_origin() {
            response = self.anonymous(&mut route, request, response, recorder).await?;
        }
        if let Some((_, candidate)) = &of_mirror
            && credential.is_some()
            && response.status.is_success()
        {
            candidate.accepted();
        }
        Ok((response, route))
    }

    /// Asks the target of a redirect once more, with a token of its own that it gives to anybody: never with a credential, for
    /// whoever redirected there chose it (CVE-2020-15157).
    async fn anonymous(
        &self,
        route: &mut Route<'_>,
        request: &ApiRequest,
        refused: HttpResponse,
        recorder: &Recorder,
    ) -> Result<HttpResponse, Error> {
        let Self { hosts, transport, tokens, .. } = self;
        let Some((endpoint, repository)) = route.target() else { return Ok(refused) };
        let (endpoint, repository) = (&endpoint, &*repository);
        let recorder = &recorder.with_credential("anonymous");
        let token = TokenRequest {
            endpoint,
            repository,
            credential: None,
            of_pod: false,
            of_redirect: true,
            recorder,
        };
        let given = tokens.renewed(transport, hosts, token, None, &refused).await;
        let given = given.map_err(|error| route.located(error))?;
        route.follow(transport, hosts, request, Some(&given), recorder).await
    }

    /// The first credential that the operator has for a mirror, and its candidate.
    async fn credential_of_mirror(&self, origin: &Url) -> Option<(Arc<Credential>, CredentialCandidate)> {
        for candidate in names(origin).flat_map(|name| self.credentials.of_host(&name)) {
            if let Some(found) = candidate.credentials().await.into_iter().flatten().next() {
                return Some((found, candidate));
            }
        }
        None
    }
}

/// A successful response, or what its status means.
fn accepted(response: HttpResponse) -> Result<HttpResponse, Error> {
    match response.status.as_u16() {
        200..=299 => Ok(response),
        _ if response.is_throttled() => Err(Error::Throttled(response.retry_after())),
        status @ (401 | 403) => Err(Error::Denied(format!("the registry answered {status}").into())),
        404 => Err(Error::NotFound),
        status @ 500.. => Err(Error::Unreachable(format!("the registry answered {status}"))),
        status => Err(Error::Unexpected(format!("the registry answered {status}"))),
    }
}
