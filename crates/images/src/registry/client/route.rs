//! The way of one request over its redirects: which are followed, and what goes along. A registry may send requests to
//! any host that the address guard admits, manifests too: registry.k8s.io has them at another registry. What belongs to
//! the endpoint (its authorization, headers, client certificate) does not go along, and is not used again after the
//! first hop to another origin, even if a later hop comes back.

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

/// Maximum redirects of one request: an own domain before k8s.gcr.io, whose blobs take three. Other clients follow ten.
const REDIRECTS: usize = 5;

#[derive(Clone)]
pub(super) struct Route<'a> {
    endpoint: &'a Endpoint,
    kind: RequestKind,
    url: Url,
    by_tag: bool,
    /// Target that the present URL is at: after a hop to another origin, never the registry again.
    pub(super) target: Target,
    /// True if the route has been on HTTPS, which only digests leave, and only where the operator says so.
    is_secure: bool,
    redirects: usize,
    /// Records the target for the caller of a pull from the image's own registry.
    pub(super) reached: Option<&'a ReachedTarget>,
}

impl<'a> Route<'a> {
    pub(super) fn new(endpoint: &'a Endpoint, kind: RequestKind, url: Url, by_tag: bool) -> Self {
        let is_secure = url.scheme() == "https";
        Self {
            endpoint,
            kind,
            url,
            by_tag,
            target: Target::Registry,
            is_secure,
            redirects: 0,
            reached: None,
        }
    }

    /// Sends the request to the present URL, and follows redirects. The authorization is for this origin only.
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

    /// Returns the target of a redirect, if followed. Nothing else of the redirect is read.
    fn next(&self, hosts: &Hosts, location: Option<&str>) -> Result<Url, Error> {
        let refused = |why: String| Err(Error::Unexpected(why));
        if self.redirects == REDIRECTS {
            return refused("the registry redirects too often".into());
        }
        let target = location.and_then(|location| self.url.join(location).ok());
        let Some(target) = target.filter(may_be_followed) else {
            return refused("the registry answered with a redirect that is not followed".into());
        };
        let host = shown_host(&target);
        // Content with a digest may come from anywhere, and then without TLS where the operator says so.
        if target.scheme() == "http"
            && self.is_secure
            && (self.by_tag || !hosts.is_plain_at(&target))
        {
            return refused(format!("the registry redirects to {host} without TLS"));
        }
        // Whoever chose the target after another origin is not the endpoint.
        let origin = &self.endpoint.origin;
        if hosts.has_client_certificate(&target)
            && (self.target == Target::RedirectTarget || !may_redirect(hosts, origin, &target))
        {
            let line = token_hosts(label(origin), &host);
            return refused(format!(
                "the registry redirects to {host}, which gets a client certificate; if that is right, set {line}"
            ));
        }
        Ok(target)
    }

    /// Returns the endpoint and its repository, if its 401 can be answered. Registries in front rename repositories.
    pub(super) fn target_endpoint(&self) -> Option<(Endpoint, String)> {
        let api = self.url.path().strip_prefix("/v2/")?;
        let (repository, reference) = match api.strip_suffix("/tags/list") {
            Some(repository) if self.kind == RequestKind::Tags => (repository, "any"),
            _ => ["/manifests/", "/blobs/"]
                .iter()
                .find_map(|kind| api.rsplit_once(kind))?,
        };
        let separator = if reference.contains(':') { '@' } else { ':' };
        let image: ImageRef = format!("target.invalid/{repository}{separator}{reference}")
            .parse()
            .ok()?;
        let endpoint = Endpoint::new(self.url.join("/v2/").ok()?)?;
        if image.repository() != repository {
            return None;
        }
        Some((endpoint, repository.to_owned()))
    }

    /// Returns the error, with its host unless that is the endpoint's: people have to open the way there.
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

/// Returns whether a URL is one of a web server, without user information.
fn may_be_followed(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
}

#[cfg(test)]
mod tests;
