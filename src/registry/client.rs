//! One API request for an image, tried at each endpoint: at its mirrors in their order, then at the registry itself. With
//! a token or a password where that is wanted, and after redirects.

use std::sync::Arc;

use http::{HeaderValue, Method};
use tokio::time::timeout;
use url::Url;

use super::auth::{TokenRequest, Tokens, may_redirect};
use super::error::Error;
use super::hosts::{Allowed, Endpoint, Hosts, in_order};
use super::metrics::RequestKind;
use super::net::{HttpRequest, HttpResponse, Transport, names};
use super::trace::Recorder;
use super::{limits, manifest};
use crate::credentials::{Credential, CredentialCandidate, Credentials};
use crate::image::ImageRef;

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
pub(super) struct Pull<'a> {
    pub(super) image: &'a ImageRef,
    /// For the image's own registry only.
    pub(super) credential: Option<&'a Credential>,
    pub(super) recorder: &'a Recorder,
}

/// One request of the distribution API, below an image's repository.
pub(super) struct ApiRequest {
    /// What it is counted as.
    kind: RequestKind,
    method: Method,
    path: String,
    /// Whether it asks where a tag points, which not every mirror is trusted to know.
    pub(super) by_tag: bool,
    /// Whether a redirect may lead to another host, without the token.
    may_leave: bool,
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
            may_leave: false,
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
            may_leave: true,
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
            let asked = async { read(&accepted(self.request_at(endpoint, pull, request).await?)?) };
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
    async fn request_at(
        &self,
        endpoint: &Endpoint,
        pull: Pull<'_>,
        request: &ApiRequest,
    ) -> Result<HttpResponse, Error> {
        match (self.authorised(endpoint, pull, request).await, &endpoint.fallback) {
            (Err(Error::Unreachable(_)), Some(fallback)) => self.authorised(fallback, pull, request).await,
            (response, _) => response,
        }
    }

    /// Asks one endpoint, with a token or a password where it wants one. The Pod's credential is for the registry that the
    /// image names; a mirror gets the operator's for the mirror. Never without TLS unless that is configured for this host.
    async fn authorised(
        &self,
        endpoint: &Endpoint,
        pull: Pull<'_>,
        request: &ApiRequest,
    ) -> Result<HttpResponse, Error> {
        let invalid = || Error::Unreachable("the image has no URL at this endpoint".into());
        let (origin, repository) = (&endpoint.origin, &endpoint.repository(pull.image));
        let url = endpoint.url(pull.image, &request.path).ok_or_else(invalid)?;
        let is_own = endpoint.is_own(pull.image);
        let of_mirror = if is_own { None } else { self.credential_of_mirror(origin).await };
        let recorder =
            of_mirror.as_ref().map(|(_, candidate)| pull.recorder.with_credential(candidate.kind()));
        let recorder = recorder.as_ref().unwrap_or(pull.recorder);
        let credential = if is_own { pull.credential } else { of_mirror.as_ref().map(|(found, _)| &**found) };
        let safe = || origin.scheme() == "https" || self.hosts.is_plain_at(origin);
        let credential = credential.filter(|_| safe());
        let accepted = |response: HttpResponse| {
            if let Some((_, candidate)) = &of_mirror
                && credential.is_some()
                && response.status.is_success()
            {
                candidate.accepted();
            }
            response
        };
        let token = TokenRequest { endpoint, repository, credential, recorder };
        let sent = self.tokens.remembered(&self.transport, &self.hosts, token).await?;
        let response = self.redirected(endpoint, url.clone(), request, sent.as_ref(), recorder).await?;
        if response.status.as_u16() != 401 {
            return Ok(accepted(response));
        }
        let renewed = self.tokens.renewed(&self.transport, &self.hosts, token, sent.as_ref(), &response);
        let authorization = renewed.await?;
        self.redirected(endpoint, url, request, Some(&authorization), recorder).await.map(accepted)
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

    /// One request with its redirects. The authorisation and the endpoint's headers go to the endpoint itself only, and
    /// no more once it has redirected elsewhere.
    async fn redirected(
        &self,
        endpoint: &Endpoint,
        mut url: Url,
        request: &ApiRequest,
        mut authorization: Option<&HeaderValue>,
        recorder: &Recorder,
    ) -> Result<HttpResponse, Error> {
        let mut at_home = true;
        for _ in 0..=limits::REDIRECTS {
            let http = HttpRequest {
                kind: request.kind,
                method: request.method.clone(),
                url: &url,
                accept: request.accept,
                authorization,
                headers: None,
                form: None,
                limit: request.limit,
                recorder,
            };
            let response = endpoint.send(&self.transport, http, at_home).await?;
            if !matches!(response.status.as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(response);
            }
            let location = response.header("location");
            let next = location.and_then(|location| redirect(&url, location, request.may_leave));
            let next = next.ok_or_else(|| {
                Error::Unexpected("the registry answered with a redirect that is not followed".into())
            })?;
            if !may_redirect(&self.hosts, &endpoint.origin, &next) {
                return Err(Error::Unexpected(
                    "the registry redirected to a host that gets headers or a client certificate".into(),
                ));
            }
            if next.origin() != url.origin() {
                (authorization, at_home) = (None, false);
            }
            url = next;
        }
        Err(Error::Unexpected("the registry redirected too often".into()))
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

/// Where a redirect leads, if it is followed: manifests within their host, configs anywhere, and from HTTPS never to
/// plain HTTP.
fn redirect(from: &Url, location: &str, may_leave: bool) -> Option<Url> {
    let to = from.join(location).ok()?;
    let scheme = to.scheme() == "https" || to.scheme() == "http" && from.scheme() == "http";
    let acceptable = scheme && to.has_host() && to.username().is_empty() && to.password().is_none();
    (acceptable && (may_leave || to.origin() == from.origin())).then_some(to)
}

#[cfg(test)]
mod tests;
