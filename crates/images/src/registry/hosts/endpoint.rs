//! An endpoint of a registry: a mirror or the registry, in containerd's order (`core/remotes/docker/resolver.go`).

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
    /// Prefix of the image's name at the mirror: nothing, or `hub/`.
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
        // A mirror is well-formed if it can stand in front of an image.
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
    /// Scheme and authority, for tokens.
    pub(crate) origin: Url,
    /// URL to which the name of a repository is added: `https://cache.example.com/v2/hub/`.
    pub(super) base: Url,
    /// Headers for this endpoint, and no other.
    pub(crate) headers: HeaderMap,
    /// True if the endpoint resolves tags.
    pub(super) resolves: bool,
    /// True if the endpoint serves digests.
    pub(super) pulls: bool,
    /// The same endpoint without TLS, used if TLS fails and the operator configured it so.
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

    pub(super) fn at(authority: &str, prefix: &str, plain: bool) -> Option<Self> {
        let scheme = if plain { "http" } else { "https" };
        Self::new(Url::parse(&format!("{scheme}://{}/v2/{prefix}", dialled(authority))).ok()?)
    }

    pub(super) fn of_mirror(mirror: &Mirror, plain: bool) -> Option<Self> {
        Some(Self {
            is_mirror: true,
            ..Self::at(&mirror.authority, &mirror.prefix, plain)?
        })
    }

    /// Returns whether the URL is at this very origin. What is configured for the endpoint is sent to no other.
    pub(crate) fn is_at(&self, url: &Url) -> bool {
        url.origin() == self.origin.origin()
    }

    /// Returns a hash of the headers for keys of tokens: a token issued for the headers is not used without them.
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

    /// Returns whether this is the registry that the image names; only there do the credentials for the image belong.
    pub(crate) fn is_registry_of(&self, image: &ImageRef) -> bool {
        // URLs leave the usual port of their scheme out.
        let scheme = self.origin.scheme();
        let registry = Url::parse(&format!("{scheme}://{}/", dialled(image.host())));
        registry.is_ok_and(|registry| self.is_at(&registry))
    }

    /// Returns the name of the image's repository at the endpoint. An error is the place of rules that leave it open.
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

/// Returns the endpoints in the order of trying for an image and a namespace, by its hash: mirrors, the registry itself, then failing mirrors.
pub(crate) fn in_order(
    mut all: Vec<Arc<Endpoint>>,
    image: &ImageRef,
    namespace: u64,
    by_tag: bool,
) -> Vec<Arc<Endpoint>> {
    // A tag is only resolved where it can be pulled, too (`Resolve` in `core/remotes/docker/resolver.go`).
    all.retain(|endpoint| endpoint.pulls && (endpoint.resolves || !by_tag));
    all.sort_by_cached_key(|endpoint| {
        endpoint.is_mirror && endpoint.health.is_failing(image, namespace)
    });
    all
}

#[cfg(test)]
mod tests;
