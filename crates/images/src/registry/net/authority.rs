//! Names of registries' hosts: in images, in the configuration, in URLs.

use url::{Position, Url};

use tolerarch_core::image::{DOCKER_HUB, DOCKER_HUB_ENDPOINT};

/// Maximum characters of a host that a registry named, in a message.
const SHOWN: usize = 100;

/// Returns the host to dial for images of `host`.
pub(crate) fn dialled(host: &str) -> &str {
    if host == DOCKER_HUB {
        DOCKER_HUB_ENDPOINT
    } else {
        host
    }
}

/// Returns the host of a URL as images name it, for metrics.
pub(crate) fn label(url: &Url) -> &str {
    let authority = authority(url);
    if authority == DOCKER_HUB_ENDPOINT {
        DOCKER_HUB
    } else {
        authority
    }
}

/// Returns `host` or `host:port` of a URL, as the configuration names hosts.
pub(crate) fn authority(url: &Url) -> &str {
    &url[Position::BeforeHost..Position::AfterPort]
}

/// Returns the host of a URL, an IPv6 address without brackets.
pub(super) fn name(url: &Url) -> &str {
    url.host_str().unwrap_or_default().trim_matches(['[', ']'])
}

/// Renders the host of a URL that a registry named, for a message: truncated, and ASCII as in every URL.
pub(crate) fn shown_host(url: &Url) -> String {
    shown(authority(url))
}

pub(super) fn shown(host: &str) -> String {
    host.chars().take(SHOWN).collect()
}

/// Returns the names of a URL's host: with the port that plain HTTP leaves out in URLs, and as [`authority`] writes it.
pub(crate) fn names(url: &Url) -> impl Iterator<Item = String> + use<> {
    let named = authority(url);
    let full = (url.scheme() == "http" && url.port().is_none()).then(|| format!("{named}:80"));
    full.into_iter().chain([named.to_owned()])
}
