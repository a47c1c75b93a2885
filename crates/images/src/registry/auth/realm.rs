//! Realms are the URLs at which tokens are fetched. This module decides which hosts that a registry names may get the
//! registry's credentials. Without that, an untrusted challenge could have a credential sent to any host
//! (CVE-2020-15157 of containerd, CVE-2026-48978 of oras-go).

use url::Url;

use super::owner;
use crate::credentials::CredentialOwner;
use crate::registry::hosts::Hosts;
use crate::registry::net::{authority, names};
use tolerarch_core::image::canonical_host;

/// Maximum bytes of a challenge's realm, and of its service.
const MAX_BYTES: usize = 2048;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Realm {
    pub(super) url: Url,
    /// The `service` of the challenge, which the request for a token repeats.
    pub(super) service: Option<String>,
}

impl Realm {
    /// Returns the realm of a challenge. The URL may be relative to the registry. It has no user information, and is
    /// HTTPS unless the registry itself is at an HTTP URL or the realm's host is configured for plain HTTP. The realm
    /// may be at another host, whose addresses the address guard checks like all others.
    pub(super) fn of(
        hosts: &Hosts,
        origin: &Url,
        realm: &str,
        service: Option<String>,
    ) -> Option<Self> {
        let is_too_long = |text: &str| text.len() > MAX_BYTES;
        if is_too_long(realm) || service.as_deref().is_some_and(is_too_long) {
            return None;
        }
        let mut url = origin.join(realm).ok()?;
        // A registry behind a proxy that terminates TLS writes its own address with `http`. Such a realm is used over
        // TLS.
        let is_downgraded = url.scheme() == "http" && origin.scheme() == "https";
        if is_downgraded && url.host() == origin.host() && !hosts.is_plain_at(&url) {
            url.set_scheme("https").ok()?;
            url.set_port(origin.port()).ok()?;
        }
        let has_allowed_scheme = match url.scheme() {
            "https" => true,
            "http" => origin.scheme() == "http" || hosts.is_plain_at(&url),
            _ => false,
        };
        let has_user = !url.username().is_empty() || url.password().is_some();
        if !has_allowed_scheme || has_user || !url.has_host() {
            return None;
        }
        url.set_fragment(None);
        Some(Self { url, service })
    }

    /// Returns whether credentials for this registry may be sent to the realm. The registry itself names the realm,
    /// over TLS, and could get a credential anyway by demanding the password. So a Pod's credential may also go to
    /// another host of the same owner. The operator's credential serves all tenants, so it goes only to the registry's
    /// own host and to hosts that the operator or this program lists.
    pub(super) fn may_see_credentials(
        &self,
        hosts: &Hosts,
        origin: &Url,
        credential_owner: CredentialOwner,
    ) -> bool {
        if belongs(hosts, origin, &self.url) || owner::is_same_host(origin, &self.url) {
            return true;
        }
        match credential_owner {
            CredentialOwner::Pod => owner::is_same_owner(origin, &self.url),
            CredentialOwner::Operator => false,
        }
    }
}

/// Returns whether a URL that the registry wrote belongs to that registry: it is at the registry's origin, or at a host
/// that is built in or configured (`tokenHosts`) as the issuer of its tokens. Another origin without TLS never belongs,
/// unless that host is configured for plain HTTP.
fn belongs(hosts: &Hosts, origin: &Url, url: &Url) -> bool {
    if url.origin() == origin.origin() {
        return true;
    }
    if url.scheme() != "https" && !hosts.is_plain_at(url) {
        return false;
    }
    if owner::is_known_token_server(authority(origin), authority(url)) {
        return true;
    }
    let Some(registry) = names(origin).find_map(|name| hosts.settings(&name)) else {
        return false;
    };
    names(url).any(|name| registry.token_hosts.contains(&canonical_host(&name)))
}

/// Returns whether the registry at `origin` may send a request to this URL. If the operator has a client certificate
/// for the URL's host, only a registry that the URL belongs to may. Otherwise a Pod's registry could use the operator's
/// certificate for its own purposes (confused deputy).
pub(crate) fn may_redirect(hosts: &Hosts, origin: &Url, url: &Url) -> bool {
    !hosts.has_client_certificate(url) || belongs(hosts, origin, url)
}

#[cfg(test)]
mod tests;
