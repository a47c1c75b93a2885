//! Names of registries' hosts in images, in the configuration and in URLs.

use url::{Position, Url};

use tolerarch_core::image::{DOCKER_HUB, DOCKER_HUB_ENDPOINT};

/// Maximum characters of a host that a registry named, in a message.
const MAX_SHOWN: usize = 100;

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

/// Returns the host of a URL without the port, and without the brackets of an IPv6 address.
pub(super) fn name(url: &Url) -> &str {
    url.host_str().unwrap_or_default().trim_matches(['[', ']'])
}

/// Renders the host of a URL that a registry named for a message: truncated, and in ASCII like every URL's host.
pub(crate) fn shown_host(url: &Url) -> String {
    shown(authority(url))
}

pub(super) fn shown(host: &str) -> String {
    host.chars().take(MAX_SHOWN).collect()
}

/// Returns the names under which the configuration may list a URL's host. An HTTP URL without a port has two: with
/// port 80, which URLs omit, and without.
pub(crate) fn names(url: &Url) -> impl Iterator<Item = String> + use<> {
    let name = authority(url);
    let mut names = Vec::new();
    if url.scheme() == "http" && url.port().is_none() {
        names.push(format!("{name}:80"));
    }
    names.push(name.to_owned());
    names.into_iter()
}
