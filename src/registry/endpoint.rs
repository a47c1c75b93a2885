//! Where the images of a registry can be had: at its mirrors and at the registry itself, in the order in which containerd
//! would ask (`core/remotes/docker/resolver.go`). Knows addresses, no protocol.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use http::HeaderMap;
use url::Url;

use super::authority::{dialled, normal};
use super::health::Health;
use super::hosts_dir::Place;
use super::limits;
use crate::image::ImageRef;

/// A place that another registry's images can be had from, as our own file names it: `host`, `host:port` or
/// `https://host/prefix`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mirror {
    /// `host` or `host:port`.
    authority: String,
    /// What stands before the image's name there: nothing, or `hub/`.
    prefix: String,
}

/// Why a text is no mirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no mirror; write host, host:port or https://host/prefix (plain HTTP: plainHttp of that host)")]
pub struct ParseMirrorError;

impl FromStr for Mirror {
    type Err = ParseMirrorError;

    fn from_str(text: &str) -> Result<Self, ParseMirrorError> {
        let plain = text.strip_prefix("https://").unwrap_or(text).trim_end_matches('/');
        let (host, prefix) = plain.split_once('/').unwrap_or((plain, ""));
        // A place is well-formed if it can stand in front of an image.
        let name = if prefix.is_empty() { format!("{host}/x") } else { format!("{host}/{prefix}/x") };
        let image: ImageRef = name.parse().map_err(|_| ParseMirrorError)?;
        let whole = image.host().eq_ignore_ascii_case(host) && !name[host.len()..].contains([':', '@']);
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        whole.then(|| Self { authority: normal(host), prefix }).ok_or(ParseMirrorError)
    }
}

impl fmt::Display for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.prefix.is_empty() {
            return f.write_str(&self.authority);
        }
        write!(f, "https://{}/{}", self.authority, self.prefix.trim_end_matches('/'))
    }
}

impl Mirror {
    /// How many of one host are asked.
    pub const MOST: usize = limits::MIRRORS;

    pub(super) fn authority(&self) -> &str {
        &self.authority
    }
}

/// One place.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// Scheme and authority, for tokens.
    pub(super) origin: Url,
    /// What the name of a repository is added to: `https://cache.example.com/v2/hub/`.
    base: Url,
    /// What is sent along to this place, and nowhere else.
    pub(super) headers: HeaderMap,
    /// Whether it may say where a tag points.
    resolves: bool,
    /// Whether it may be asked for what a digest names.
    pulls: bool,
    /// The same place without TLS, if TLS cannot be talked there and the operator named it so.
    pub(super) fallback: Option<Box<Endpoint>>,
    /// Whether it is asked before the registry itself.
    pub(super) is_mirror: bool,
    pub(super) health: Health,
}

impl Endpoint {
    /// A place with this base, which ends with a slash.
    pub(super) fn new(base: Url) -> Option<Self> {
        let origin = base.join("/").ok()?;
        Some(Self {
            origin,
            base,
            headers: HeaderMap::new(),
            resolves: true,
            pulls: true,
            fallback: None,
            is_mirror: false,
            health: Health::default(),
        })
    }

    /// The place at this authority and below this prefix.
    pub(super) fn at(authority: &str, prefix: &str, plain: bool) -> Option<Self> {
        let scheme = if plain { "http" } else { "https" };
        Self::new(Url::parse(&format!("{scheme}://{}/v2/{prefix}", dialled(authority))).ok()?)
    }

    /// A mirror as our own file names it.
    pub(super) fn of_mirror(mirror: &Mirror, plain: bool) -> Option<Self> {
        Some(Self { is_mirror: true, ..Self::at(&mirror.authority, &mirror.prefix, plain)? })
    }

    /// A place of a `hosts.toml`; `None` where that names none.
    pub(super) fn of_place(place: &Place, is_mirror: bool) -> Option<Self> {
        let at = |base: Url| Some(Self::new(base)?.sending(&place.headers));
        let fallback = place.fallback.clone().and_then(at).map(Box::new);
        let Place { resolves, pulls, .. } = *place;
        Some(Self { resolves, pulls, fallback, is_mirror, ..at(place.base.clone()?)? })
    }

    /// The same place, with these headers.
    pub(super) fn sending(self, headers: &HeaderMap) -> Self {
        Self { headers: headers.clone(), ..self }
    }

    /// This place, if the URL is at its origin: what belongs to it goes there only, as anybody may name its host.
    pub(super) fn at_home(&self, url: &Url) -> Option<&Self> {
        (url.origin() == self.origin.origin()).then_some(self)
    }

    /// Stands for the headers: a token that was got with them is for nobody who asks without.
    pub(super) fn seal(&self) -> Option<u64> {
        let mut hasher = DefaultHasher::new();
        self.headers.iter().for_each(|header| header.hash(&mut hasher));
        (!self.headers.is_empty()).then(|| hasher.finish())
    }

    /// Whether this is the registry that the image names; only there do the credentials for the image belong.
    pub(super) fn is_own(&self, image: &ImageRef) -> bool {
        // As URLs, which leave the usual port of their scheme out.
        let named = Url::parse(&format!("{}://{}/", self.origin.scheme(), dialled(image.host())));
        named.is_ok_and(|named| self.at_home(&named).is_some())
    }

    /// What this place calls the image's repository.
    pub(super) fn repository(&self, image: &ImageRef) -> String {
        let prefix = self.base.path().strip_prefix("/v2/").unwrap_or_default();
        format!("{prefix}{}", image.repository())
    }

    /// Where `path` of the image's repository is found. A mirror is told whose image it is.
    pub(super) fn url(&self, image: &ImageRef, path: &str) -> Option<Url> {
        let mut url = self.base.join(&format!("{}/{path}", image.repository())).ok()?;
        if !self.is_own(image) {
            url.query_pairs_mut().append_pair("ns", image.host());
        }
        Some(url)
    }
}

/// The places in the order in which they are asked for an image: mirrors, the registry itself, and at last the mirrors that
/// rest.
pub(super) fn in_order<'e>(endpoints: &'e [Arc<Endpoint>], image: &ImageRef, tag: bool) -> Vec<&'e Endpoint> {
    let able = endpoints
        .iter()
        .map(Arc::as_ref)
        .filter(|endpoint| if tag { endpoint.resolves } else { endpoint.pulls });
    let (resting, fit): (Vec<_>, Vec<_>) =
        able.partition(|endpoint| endpoint.is_mirror && endpoint.health.rests(image));
    fit.into_iter().chain(resting).collect()
}

#[cfg(test)]
mod tests {
    use super::super::authority::authority;
    use super::*;

    #[test]
    fn reads_mirrors() {
        for (text, expected) in [
            ("cache.example.com", Some(("cache.example.com", ""))),
            ("Cache.example.com:5000", Some(("cache.example.com:5000", ""))),
            ("https://cache.example.com", Some(("cache.example.com", ""))),
            ("https://cache.example.com:443/hub/", Some(("cache.example.com", "hub/"))),
            ("cache.example.com/hub/x", Some(("cache.example.com", "hub/x/"))),
            ("[::1]:5000", Some(("[::1]:5000", ""))),
            ("http://cache.example.com", None),
            ("ftp://cache.example.com", None),
            ("https://user:password@cache.example.com", None),
            ("https://cache.example.com/hub:1", None),
            ("https://cache.example.com/hub?x", None),
            ("https://cache.example.com/Hub", None),
            ("https://cache.example.com/../x", None),
            ("https://", None),
            ("cache", None),
            ("", None),
        ] {
            let read = text.parse::<Mirror>().ok();
            let expected =
                expected.map(|(host, prefix)| Mirror { authority: host.into(), prefix: prefix.into() });
            assert_eq!(read, expected, "{text}");
        }
    }

    #[test]
    fn finds_the_image_at_each_place() {
        let url = |endpoint: &Endpoint, image: &str| {
            endpoint.url(&image.parse().unwrap(), "manifests/v1").unwrap().to_string()
        };
        let mirror = |text: &str| Endpoint::of_mirror(&text.parse().unwrap(), false).unwrap();
        let hub = Endpoint::at("docker.io", "", false).unwrap();
        assert_eq!(url(&hub, "nginx"), "https://registry-1.docker.io/v2/library/nginx/manifests/v1");
        assert!(hub.is_own(&"nginx".parse().unwrap()));
        let cache = mirror("https://cache.example.com/hub");
        assert_eq!(
            url(&cache, "nginx"),
            "https://cache.example.com/v2/hub/library/nginx/manifests/v1?ns=docker.io"
        );
        assert_eq!(cache.repository(&"nginx".parse().unwrap()), "hub/library/nginx");
        assert!(!cache.is_own(&"nginx".parse().unwrap()));
        let own = Endpoint::at("a.b:5000", "", true).unwrap();
        assert_eq!(url(&own, "a.b:5000/x"), "http://a.b:5000/v2/x/manifests/v1");
        for (host, plain, expected) in [
            ("a.b:443", false, "https://a.b/v2/x/manifests/v1"),
            ("a.b:80", true, "http://a.b/v2/x/manifests/v1"),
            ("a.b:80", false, "https://a.b:80/v2/x/manifests/v1"),
            ("a.b:443", true, "http://a.b:443/v2/x/manifests/v1"),
        ] {
            let own = Endpoint::at(host, "", plain).unwrap();
            assert_eq!(url(&own, &format!("{host}/x")), expected);
        }
        assert!(!Endpoint::at("a.b", "", false).unwrap().is_own(&"a.b:80/x".parse().unwrap()));
    }

    #[test]
    fn only_the_very_origin_is_its_home() {
        let endpoint = Endpoint::at("a.b:5000", "", false).unwrap();
        for (url, expected) in [
            ("https://a.b:5000/token", true),
            ("http://a.b:5000/token", false),
            ("https://a.b/token", false),
            ("https://a.b.c:5000/", false),
        ] {
            assert_eq!(endpoint.at_home(&Url::parse(url).unwrap()).is_some(), expected, "{url}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_mirror_that_rests_is_asked_last() {
        let [a, b] = ["a.b", "c.d"].map(|text| Endpoint::of_mirror(&text.parse().unwrap(), false).unwrap());
        let registry = Endpoint::at("e.f", "", false).unwrap();
        let all = [Arc::new(a), Arc::new(b), Arc::new(registry)];
        let image = "e.f/x".parse().unwrap();
        let order = || -> Vec<String> {
            in_order(&all, &image, true).iter().map(|endpoint| authority(&endpoint.origin)).collect()
        };
        assert_eq!(order(), ["a.b", "c.d", "e.f"]);
        all[0].health.failed(&image);
        all[2].health.failed(&image);
        assert_eq!(order(), ["c.d", "e.f", "a.b"]);
        tokio::time::advance(limits::MIRROR_REST).await;
        assert_eq!(order(), ["a.b", "c.d", "e.f"]);
    }
}
