//! Follows the redirects of one request, and decides which are followed and what is sent along. A registry may redirect
//! a request to any host that the address guard admits. That holds for manifests too: registry.k8s.io keeps them at
//! another registry. What belongs to the endpoint (its authorization, headers, client certificate) is not sent to
//! another origin. After the first hop to another origin it is never used again, even if a later hop leads back.

use http::HeaderValue;
use url::Url;

use crate::registry::auth::may_redirect;
use crate::registry::error::{Error, token_hosts};
use crate::registry::hosts::{Endpoint, Hosts};
use crate::registry::metrics::RequestKind;
use crate::registry::net::{HttpRequest, Server, Transport, label, shown_host};
use crate::registry::response::HttpResponse;
use crate::registry::target::{ReachedTarget, Target};
use tolerarch_core::image::ImageRef;

/// Maximum redirects of one request. Blobs of k8s.gcr.io take three, and a custom domain in front of it adds one. Other
/// clients follow ten.
const MAX_REDIRECTS: usize = 5;

#[derive(Clone)]
pub(super) struct Route<'a> {
    endpoint: &'a Endpoint,
    kind: RequestKind,
    url: Url,
    is_by_tag: bool,
    /// Target to which the current URL leads: after a hop to another origin, never the registry again.
    pub(super) target: Target,
    /// True if any URL of the route was HTTPS. Then only a request by digest may use plain HTTP, and only at a host for
    /// which the operator has configured it.
    is_secure: bool,
    redirects: usize,
    /// Tells the caller of a pull which target was reached; set only for the image's own registry.
    pub(super) reached: Option<&'a ReachedTarget>,
}

impl<'a> Route<'a> {
    pub(super) fn new(
        endpoint: &'a Endpoint,
        kind: RequestKind,
        url: Url,
        is_by_tag: bool,
    ) -> Self {
        let is_secure = url.scheme() == "https";
        Self {
            endpoint,
            kind,
            url,
            is_by_tag,
            target: Target::Registry,
            is_secure,
            redirects: 0,
            reached: None,
        }
    }

    /// Sends the request to the current URL, and follows redirects. The authorization is for the current origin only.
    pub(super) async fn follow(
        &mut self,
        transport: &Transport,
        hosts: &Hosts,
        mut authorization: Option<&HeaderValue>,
    ) -> Result<HttpResponse, Error> {
        loop {
            let request = HttpRequest {
                kind: self.kind,
                url: &self.url,
                authorization,
                server: match self.target {
                    Target::Registry => Server::Configured(&self.endpoint.headers),
                    Target::RedirectTarget => Server::NamedByRegistry,
                },
                form: None,
                is_idempotent: true,
            };
            let response = transport
                .send(&request)
                .await
                .map_err(|error| self.located(error))?;
            if !matches!(response.status.as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Ok(response);
            }
            let next = self
                .next(hosts, response.location().as_deref())
                .map_err(|error| self.located(error))?;
            if next.origin() != self.url.origin() {
                authorization = None;
                self.target = Target::RedirectTarget;
                if let Some(reached) = self.reached {
                    reached.redirected();
                }
            }
            self.is_secure |= next.scheme() == "https";
            self.redirects += 1;
            self.url = next;
        }
    }

    /// Returns the URL to which a redirect leads, if it may be followed. Only `Location` of the redirect is used.
    fn next(&self, hosts: &Hosts, location: Option<&str>) -> Result<Url, Error> {
        let refused = |why: String| Err(Error::Unexpected(why));
        if self.redirects == MAX_REDIRECTS {
            return refused("the registry redirects too often".into());
        }
        let target = location.and_then(|location| self.url.join(location).ok());
        let Some(target) = target.filter(may_be_followed) else {
            return refused("the registry answered with a redirect that is not followed".into());
        };
        let host = shown_host(&target);
        // Content with a digest may come from any host, and without TLS where the operator has configured that.
        let may_be_plain = !self.is_by_tag && hosts.is_plain_at(&target);
        if target.scheme() == "http" && self.is_secure && !may_be_plain {
            return refused(format!("the registry redirects to {host} without TLS"));
        }
        if hosts.has_client_certificate(&target) {
            let origin = &self.endpoint.origin;
            // After a hop to another origin, the endpoint no longer chooses the targets.
            let is_chosen_by_endpoint = self.target == Target::Registry;
            if !is_chosen_by_endpoint || !may_redirect(hosts, origin, &target) {
                let line = token_hosts(label(origin), &host);
                return refused(format!(
                    "the registry redirects to {host}, which gets a client certificate; if that is right, set {line}"
                ));
            }
        }
        Ok(target)
    }

    /// Returns the redirect's target as an endpoint, and the repository there; `None` if the URL is none of the
    /// registry API, so that a 401 cannot be answered. The repository is read from the URL, as a redirect may rename
    /// it.
    pub(super) fn target_endpoint(&self) -> Option<(Endpoint, String)> {
        let api = self.url.path().strip_prefix("/v2/")?;
        let (repository, reference) = match api.strip_suffix("/tags/list") {
            Some(repository) if self.kind == RequestKind::Tags => (repository, "any"),
            _ => api
                .rsplit_once("/manifests/")
                .or_else(|| api.rsplit_once("/blobs/"))?,
        };
        let separator = if reference.contains(':') { '@' } else { ':' };
        let image = format!("target.invalid/{repository}{separator}{reference}");
        let image: ImageRef = image.parse().ok()?;
        let endpoint = Endpoint::new(self.url.join("/v2/").ok()?)?;
        if image.repository() != repository {
            return None;
        }
        Some((endpoint, repository.to_owned()))
    }

    /// Adds the host to an error of another origin: people may have to allow connections to that host.
    pub(super) fn located(&self, cause: Error) -> Error {
        if self.target == Target::Registry {
            return cause;
        }
        Error::Redirected {
            registry: label(&self.endpoint.origin).to_owned(),
            host: shown_host(&self.url),
            cause: Box::new(cause),
        }
    }
}

/// Returns whether a URL is HTTP or HTTPS, with a host and without a user or password.
fn may_be_followed(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
}

#[cfg(test)]
mod tests;
