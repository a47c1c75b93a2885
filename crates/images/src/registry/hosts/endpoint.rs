//! An endpoint of a registry is one of its mirrors or the registry itself. Endpoints are tried in containerd's order
//! (`core/remotes/docker/resolver.go`).

use std::borrow::Cow;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use http::HeaderMap;
use url::Url;

use super::health::Health;
use super::names::Names;
use crate::registry::net::dialled;
use tolerarch_core::image::{ImageRef, canonical_host};

/// A mirror in the configuration: `host`, `host:port` or `https://host/prefix`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mirror {
    /// `host` or `host:port`.
    pub(super) authority: String,
    /// Prefix of an image's name at the mirror, such as `hub/`; may be empty.
    prefix: String,
}

impl FromStr for Mirror {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let name = text
            .strip_prefix("https://")
            .unwrap_or(text)
            .trim_end_matches('/');
        let (host, path) = name.split_once('/').unwrap_or((name, ""));
        let mut prefix = path.to_owned();
        if !prefix.is_empty() {
            prefix.push('/');
        }
        // A mirror is well-formed if an image can be named below it.
        let image: ImageRef = format!("{host}/{prefix}x").parse().map_err(drop)?;
        if !image.host().eq_ignore_ascii_case(host) || prefix.contains([':', '@']) {
            return Err(());
        }
        Ok(Self {
            authority: canonical_host(host),
            prefix,
        })
    }
}

impl fmt::Display for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefix.is_empty() {
            return f.write_str(&self.authority);
        }
        write!(
            f,
            "https://{}/{}",
            self.authority,
            self.prefix.trim_end_matches('/')
        )
    }
}

impl Mirror {
    /// Maximum number of mirrors of one registry.
    pub const MOST: usize = 4;
}

#[derive(Debug)]
pub(crate) struct Endpoint {
    /// Scheme and authority, by which schemes and tokens are cached.
    pub(crate) origin: Url,
    /// URL to which the name of a repository is appended: `https://cache.example.com/v2/hub/`.
    pub(super) base: Url,
    /// Headers for requests to this endpoint only.
    pub(crate) headers: HeaderMap,
    /// True if the endpoint resolves tags.
    pub(super) resolves: bool,
    /// True if the endpoint serves digests.
    pub(super) pulls: bool,
    /// The same endpoint without TLS, used if TLS fails. The operator's `hosts.toml` decides whether there is one.
    pub(crate) fallback: Option<Box<Endpoint>>,
    /// True if the endpoint is tried before the registry itself.
    pub(crate) is_mirror: bool,
    pub(super) names: Names,
    pub(crate) health: Health,
}

impl Endpoint {
    /// Makes an endpoint with this base, which ends with a slash.
    pub(crate) fn new(base: Url) -> Option<Self> {
        let origin = base.join("/").ok()?;
        Some(Self {
            origin,
            base,
            headers: HeaderMap::new(),
            resolves: true,
            pulls: true,
            fallback: None,
            is_mirror: false,
            names: Names::Unchanged,
            health: Health::default(),
        })
    }

    pub(super) fn at(authority: &str, prefix: &str, is_plain: bool) -> Option<Self> {
        let scheme = if is_plain { "http" } else { "https" };
        let base = format!("{scheme}://{}/v2/{prefix}", dialled(authority));
        Self::new(Url::parse(&base).ok()?)
    }

    pub(super) fn of_mirror(mirror: &Mirror, is_plain: bool) -> Option<Self> {
        let endpoint = Self::at(&mirror.authority, &mirror.prefix, is_plain)?;
        Some(Self {
            is_mirror: true,
            ..endpoint
        })
    }

    /// Returns whether the URL is at exactly this origin. Headers of the endpoint are sent to no other origin.
    pub(crate) fn is_at(&self, url: &Url) -> bool {
        url.origin() == self.origin.origin()
    }

    /// Returns a hash of the headers. It is part of the key of a token, so that a token issued to a request with these
    /// headers is not used for a request without them.
    pub(crate) fn headers_fingerprint(&self) -> Option<u64> {
        if self.headers.is_empty() {
            return None;
        }
        let mut hasher = DefaultHasher::new();
        for header in &self.headers {
            header.hash(&mut hasher);
        }
        Some(hasher.finish())
    }

    /// Returns whether this is the registry that the image names. Only that registry may get the credentials for the
    /// image.
    pub(crate) fn is_registry_of(&self, image: &ImageRef) -> bool {
        // Parsed as a URL, because a URL omits the default port of its scheme.
        let scheme = self.origin.scheme();
        let registry = Url::parse(&format!("{scheme}://{}/", dialled(image.host())));
        registry.is_ok_and(|registry| self.is_at(&registry))
    }

    /// Returns the name of the image's repository at the endpoint. An error is the location of the rules that leave the
    /// name unclear.
    pub(crate) fn name<'a>(&'a self, image: &'a ImageRef) -> Result<Cow<'a, str>, &'a str> {
        self.names.of(image.repository())
    }

    /// Returns the name of the image's repository at the endpoint, as tokens name it.
    pub(crate) fn repository(&self, image: &ImageRef) -> Option<String> {
        let prefix = self.base.path().strip_prefix("/v2/").unwrap_or_default();
        Some(format!("{prefix}{}", self.name(image).ok()?))
    }

    /// Returns the URL of `path` of the image's repository. A mirror gets the registry's name as `ns`.
    pub(crate) fn url(&self, image: &ImageRef, path: &str) -> Option<Url> {
        let name = self.name(image).ok()?;
        let mut url = self.base.join(&format!("{name}/{path}")).ok()?;
        if !self.is_registry_of(image) {
            url.query_pairs_mut().append_pair("ns", image.host());
        }
        Some(url)
    }
}

/// Returns the endpoints in the order in which they are tried: mirrors, the registry itself, then mirrors that are
/// failing for this image and namespace (a hash of its name).
pub(crate) fn in_order(
    mut endpoints: Vec<Arc<Endpoint>>,
    image: &ImageRef,
    namespace: u64,
    is_by_tag: bool,
) -> Vec<Arc<Endpoint>> {
    // A tag is resolved only where it can also be pulled (`Resolve` in `core/remotes/docker/resolver.go`).
    endpoints.retain(|endpoint| endpoint.pulls && (endpoint.resolves || !is_by_tag));
    endpoints.sort_by_cached_key(|endpoint| {
        endpoint.is_mirror && endpoint.health.is_failing(image, namespace)
    });
    endpoints
}

#[cfg(test)]
mod tests;
