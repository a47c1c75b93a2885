//! Where a registry's tokens are fetched, and which hosts that a registry names may get its credentials.
//!
//! A challenge is untrusted input. Without this rule it could have a credential sent to any host (CVE-2020-15157 of
//! containerd, CVE-2026-48978 of oras-go).

use url::Url;

use crate::image::{DOCKER_HUB_ENDPOINT, canonical_host};
use crate::registry::hosts::Hosts;
use crate::registry::limits;
use crate::registry::net::{authority, names};

/// Registries whose token server is another host, as they are dialled. Docker Hub's and GitLab's as in
/// devcontainers/cli#1278, NVIDIA's as in oras-project/oras-dotnet#401; of the other public registries none is known to
/// need it.
const PAIRS: [(&str, &str); 3] = [
    (DOCKER_HUB_ENDPOINT, "auth.docker.io"),
    ("registry.gitlab.com", "gitlab.com"),
    ("nvcr.io", "authn.nvidia.com"),
];

/// Where a registry's tokens are fetched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Realm {
    pub(super) url: Url,
    /// The `service` of the challenge, sent along with the request for a token.
    pub(super) service: Option<String>,
}

impl Realm {
    /// The realm of a challenge: relative to the registry, HTTPS unless the registry itself has none, without user
    /// information. It may be another host; the address guard looks at that all the same.
    pub(super) fn of(hosts: &Hosts, origin: &Url, realm: &str, service: Option<String>) -> Option<Self> {
        let long = |text: &str| text.len() > limits::CHALLENGE_BYTES;
        if long(realm) || service.as_deref().is_some_and(long) {
            return None;
        }
        let mut url = origin.join(realm).ok()?;
        let plain = origin.scheme() == "http" || hosts.is_plain_at(&url);
        let scheme = url.scheme() == "https" || plain && url.scheme() == "http";
        if !scheme || !url.has_host() || !url.username().is_empty() || url.password().is_some() {
            return None;
        }
        url.set_fragment(None);
        Some(Self { url, service })
    }

    /// Whether credentials for this registry may be sent there.
    pub(super) fn may_see_credentials(&self, hosts: &Hosts, origin: &Url) -> bool {
        belongs(hosts, origin, &self.url)
    }

    /// Whether it may be asked for an anonymous token.
    pub(super) fn may_be_asked(&self, hosts: &Hosts, origin: &Url) -> bool {
        may_redirect(hosts, origin, &self.url)
    }

    /// The host, for a message: cut, and ASCII as in every URL.
    pub(super) fn host(&self) -> String {
        authority(&self.url).chars().take(limits::SHOWN_HOST).collect()
    }
}

/// Whether a URL that the registry wrote is its own: at the registry itself, or at a host that is known or configured
/// (`tokenHosts`) to give its tokens; never without TLS, unless that very host is configured so.
fn belongs(hosts: &Hosts, origin: &Url, url: &Url) -> bool {
    if url.origin() == origin.origin() {
        return true;
    }
    let (registry, host) = (authority(origin), authority(url));
    let configured = || {
        let settings = hosts.settings_of(origin);
        let listed =
            |name: String| settings.is_some_and(|known| known.token_hosts.contains(&canonical_host(&name)));
        names(url).any(listed)
    };
    let known = PAIRS.contains(&(&registry, &host)) || configured();
    known && (url.scheme() == "https" || hosts.is_plain_at(url))
}

/// Whether the registry may have requests sent there. Prevents confused-deputy use of the operator's headers and client
/// certificates: a registry that a Pod names must not borrow them.
pub(crate) fn may_redirect(hosts: &Hosts, origin: &Url, url: &Url) -> bool {
    !hosts.gets_operator_identity(url) || belongs(hosts, origin, url)
}

#[cfg(test)]
mod tests;
