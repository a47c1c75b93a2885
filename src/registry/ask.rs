//! One question, asked wherever the image can be had: at its mirrors in their order, then at the registry itself; with a
//! token or a password where that is wanted, and after redirects.

use std::ops::Deref;
use std::sync::Arc;

use http::{HeaderValue, Method};
use tokio::time::timeout;
use url::Url;

use super::endpoint::{self, Endpoint};
use super::manifest;
use super::realm::may_lead;
use super::token::Access;
use super::transport::{Answer, Get};
use super::{Error, Registry, RequestKind, authority, limits, trace};
use crate::credentials::Credential;
use crate::image::ImageRef;

/// An image, and as whom to ask for it.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'a> {
    pub(super) image: &'a ImageRef,
    /// For the image's own registry only.
    pub(super) credential: Option<&'a Credential>,
}

impl Deref for Wanted<'_> {
    type Target = ImageRef;

    fn deref(&self) -> &ImageRef {
        self.image
    }
}

/// What is asked of a registry.
pub(super) struct Ask {
    /// What it is counted as.
    pub(super) kind: RequestKind,
    pub(super) method: Method,
    /// Below the repository.
    pub(super) path: String,
    /// Whether it asks where a tag points, which not every mirror is trusted to know.
    pub(super) tag: bool,
    /// Whether a redirect may lead to another host, without the token.
    pub(super) may_leave: bool,
    pub(super) accept: &'static str,
    pub(super) limit: usize,
}

impl Ask {
    pub(super) fn manifest(kind: RequestKind, method: Method, target: &str) -> Self {
        let (path, tag) = (format!("manifests/{target}"), !target.contains(':'));
        Self { kind, method, path, tag, may_leave: false, accept: manifest::ACCEPT, limit: limits::MANIFEST }
    }
}

impl Registry {
    /// Asks wherever the image can be had, until `read` makes sense of an answer. What the registry itself says counts
    /// more than what mirrors do: that one of them has no such image means nothing.
    pub(super) async fn get<T>(
        &self,
        image: Wanted<'_>,
        ask: &Ask,
        read: impl Fn(&Answer) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if !self.admits(&image) {
            return Err(Error::NotAllowed);
        }
        let endpoints = self.hosts.endpoints(image.host());
        let mut places = endpoint::in_order(&endpoints, &image, ask.tag).into_iter().peekable();
        let mut mirror_answered = false;
        let mut failure = None;
        while let Some(endpoint) = places.next() {
            let asked = async { read(&accepted(self.ask_at(endpoint, image, ask).await?)?) };
            let result = if endpoint.is_mirror && places.peek().is_some() {
                timeout(limits::MIRROR_TIME, asked).await.unwrap_or(Err(Error::Timeout))
            } else {
                asked.await
            };
            let error = match result {
                Ok(value) => {
                    if endpoint.is_mirror {
                        endpoint.health.works(&image);
                    }
                    return Ok(value);
                }
                Err(error) => error,
            };
            if endpoint.is_mirror {
                if error.is_fault() { endpoint.health.failed(&image) } else { endpoint.health.works(&image) }
            }
            if !endpoint.is_mirror && error.is_answer() {
                return Err(error);
            }
            tracing::debug!(image = %*image, at = %endpoint.origin, %error, "no answer from here");
            mirror_answered |= endpoint.is_mirror && !error.is_fault();
            if !endpoint.is_mirror || failure.is_none() {
                failure = Some(error);
            }
        }
        match failure {
            // Clusters without a way out live on mirrors: that one of them lacks an image is no fault of the registry.
            Some(error) if mirror_answered && error.is_fault() => {
                Err(Error::Unexpected(format!("no mirror has the image, and {error}")))
            }
            Some(error) => Err(error),
            None => Err(Error::Unexpected("there is no place that it may be asked at".into())),
        }
    }

    /// Asks at one place; without TLS where that is wanted and TLS cannot be talked.
    async fn ask_at(&self, endpoint: &Endpoint, image: Wanted<'_>, ask: &Ask) -> Result<Answer, Error> {
        match (self.ask(endpoint, image, ask).await, &endpoint.fallback) {
            (Err(Error::Unreachable(_)), Some(fallback)) => self.ask(fallback, image, ask).await,
            (answer, _) => answer,
        }
    }

    /// Asks at one place, with a token or a password where it wants one. A credential for the image is for the registry that
    /// the image names; a mirror sees what the operator has for the mirror. Never without TLS unless that is configured for
    /// this host.
    async fn ask(&self, endpoint: &Endpoint, image: Wanted<'_>, ask: &Ask) -> Result<Answer, Error> {
        let unreachable = || Error::Unreachable("its path cannot stand in a URL".into());
        let (origin, repository) = (&endpoint.origin, &endpoint.repository(&image));
        let url = endpoint.url(&image, &ask.path).ok_or_else(unreachable)?;
        let safe = || origin.scheme() == "https" || self.hosts.is_plain_at(origin);
        let own = endpoint.is_own(&image);
        trace::note(|trace| trace.mirror_sees = None);
        let of_mirror = if own { None } else { self.of_mirror(origin).await };
        let credential = if own { image.credential } else { of_mirror.as_deref() }.filter(|_| safe());
        let access = Access { endpoint, repository, credential };
        let sent = self.tokens.remembered(&self.transport, &self.hosts, access).await?;
        let answer = self.follow(endpoint, url.clone(), ask, sent.as_ref()).await?;
        if answer.status.as_u16() != 401 {
            return Ok(answer);
        }
        let renewed = self.tokens.renewed(&self.transport, &self.hosts, access, sent.as_ref(), &answer);
        let authorization = renewed.await?;
        self.follow(endpoint, url, ask, Some(&authorization)).await
    }

    /// The first credential that the operator has for a mirror.
    async fn of_mirror(&self, origin: &Url) -> Option<Arc<Credential>> {
        let mut found = None;
        for candidate in authority::names(origin).flat_map(|name| self.credentials.of_host(&name)) {
            found = candidate.credentials().await.into_iter().flatten().next();
            if found.is_some() {
                trace::note(|trace| trace.mirror_sees = Some(candidate.kind()));
                break;
            }
        }
        found
    }

    /// One request with its redirects. What authorises it, and the headers of the place, go to the place itself only, and
    /// no more once it has sent elsewhere.
    async fn follow(
        &self,
        endpoint: &Endpoint,
        mut url: Url,
        ask: &Ask,
        mut authorization: Option<&HeaderValue>,
    ) -> Result<Answer, Error> {
        let mut home = Some(endpoint);
        for _ in 0..=limits::REDIRECTS {
            let get = Get {
                kind: ask.kind,
                method: ask.method.clone(),
                url: &url,
                home,
                accept: ask.accept,
                authorization,
                limit: ask.limit,
                form: None,
            };
            let answer = self.transport.get(&get).await?;
            if !matches!(answer.status.as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(answer);
            }
            let next = answer.header("location").and_then(|location| redirect(&url, location, ask.may_leave));
            let next = next.ok_or_else(|| Error::Unexpected("a redirect that is not followed".into()))?;
            if !may_lead(&self.hosts, &endpoint.origin, &next) {
                return Err(Error::Unexpected(
                    "a redirect to a host with headers or a client certificate".into(),
                ));
            }
            if next.origin() != url.origin() {
                (authorization, home) = (None, None);
            }
            url = next;
        }
        Err(Error::Unexpected("too many redirects".into()))
    }
}

/// An answer that gives what was asked for; or what it says instead.
fn accepted(answer: Answer) -> Result<Answer, Error> {
    match answer.status.as_u16() {
        200..=299 => Ok(answer),
        401 | 403 => Err(Error::Denied("it refuses")),
        404 => Err(Error::NotFound),
        429 => Err(Error::Throttled(answer.retry_after())),
        status @ 500.. => Err(Error::Unreachable(format!("it answers with status {status}"))),
        status => Err(Error::Unexpected(format!("status {status}"))),
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
mod tests {
    use super::*;

    #[test]
    fn redirects_stay_where_they_may() {
        let url = |text: &str| Url::parse(text).unwrap();
        for (from, to, leaves, expected) in [
            ("https://a.b/v2/x", "/v2/y", false, Some("https://a.b/v2/y")),
            ("https://a.b/v2/x", "https://a.b:443/y", false, Some("https://a.b/y")),
            ("https://a.b/v2/x", "https://a.b:5000/y", false, None),
            ("https://a.b/v2/x", "https://c.d/y", false, None),
            ("https://a.b/v2/x", "https://c.d/y", true, Some("https://c.d/y")),
            ("https://a.b/v2/x", "//c.d/y", true, Some("https://c.d/y")),
            ("https://a.b/v2/x", "http://a.b/y", true, None),
            ("https://a.b/v2/x", "http://c.d/y", true, None),
            ("http://a.b/v2/x", "http://c.d/y", true, Some("http://c.d/y")),
            ("http://a.b/v2/x", "https://c.d/y", true, Some("https://c.d/y")),
            ("https://a.b/v2/x", "https://u:p@c.d/y", true, None),
            ("https://a.b/v2/x", "https://u@a.b/y", false, None),
            ("https://a.b/v2/x", "file:///etc/passwd", true, None),
            ("https://a.b/v2/x", "data:,x", true, None),
            ("https://a.b/v2/x", "https://", true, None),
        ] {
            let found = redirect(&url(from), to, leaves);
            assert_eq!(found.as_ref().map(Url::as_str), expected, "{from} to {to}");
        }
    }
}
