//! Realms, where tokens are fetched: which hosts that a registry names may get its credentials. Else an untrusted
//! challenge could have a credential sent to any host (CVE-2020-15157 of containerd, CVE-2026-48978 of oras-go).

use url::Url;

use super::owner;
use crate::credentials::CredentialOwner;
use crate::registry::hosts::Hosts;
use crate::registry::net::{authority, names};
use tolerarch_core::image::canonical_host;

/// Maximum bytes of a challenge's realm, and of its service.
const CHALLENGE_BYTES: usize = 2048;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Realm {
    pub(super) url: Url,
    /// The `service` of the challenge, sent along with the request for a token.
    pub(super) service: Option<String>,
}

impl Realm {
    /// Returns the realm of a challenge: relative to the registry, HTTPS unless the registry itself has none, without
    /// user information. The realm may be at another host; the address guard judges that host all the same.
    pub(super) fn of(
        hosts: &Hosts,
        origin: &Url,
        realm: &str,
        service: Option<String>,
    ) -> Option<Self> {
        let is_long = |text: &str| text.len() > CHALLENGE_BYTES;
        if is_long(realm) || service.as_deref().is_some_and(is_long) {
            return None;
        }
        let mut url = origin.join(realm).ok()?;
        // Behind a proxy that ends TLS, registries write their own address with `http`: the realm is used over TLS.
        let lacks_tls =
            url.scheme() == "http" && origin.scheme() == "https" && url.host() == origin.host();
        if lacks_tls && !hosts.is_plain_at(&url) {
            url.set_scheme("https").ok()?;
            url.set_port(origin.port()).ok()?;
        }
        let may_be_used = match url.scheme() {
            "https" => true,
            "http" => origin.scheme() == "http" || hosts.is_plain_at(&url),
            _ => false,
        };
        let has_user = !url.username().is_empty() || url.password().is_some();
        if !may_be_used || has_user || !url.has_host() {
            return None;
        }
        url.set_fragment(None);
        Some(Self { url, service })
    }

    /// Returns whether credentials for this registry may be sent to the realm. The registry itself names the realm,
    /// over TLS, and could have a credential by asking for the password. So a Pod's may also go to another host of the
    /// same owner; the operator's, which serves all tenants, only where the operator or this program says so.
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

/// Returns whether a URL that the registry wrote is its own: at the registry itself, or at a host that is known or
/// configured (`tokenHosts`) to give its tokens; never without TLS, unless that very host is configured so.
fn belongs(hosts: &Hosts, origin: &Url, url: &Url) -> bool {
    if url.origin() == origin.origin() {
        return true;
    }
    if url.scheme() != "https" && !hosts.is_plain_at(url) {
        return false;
    }
    if owner::is_known(authority(origin), authority(url)) {
        return true;
    }
    let Some(registry) = names(origin).find_map(|name| hosts.settings(&name)) else {
        return false;
    };
    names(url).any(|name| registry.token_hosts.contains(&canonical_host(&name)))
}

/// Prevents confused-deputy use of the operator's client certificates: a Pod's registry must not borrow them.
pub(crate) fn may_redirect(hosts: &Hosts, origin: &Url, url: &Url) -> bool {
    !hosts.has_client_certificate(url) || belongs(hosts, origin, url)
}

#[cfg(test)]
mod tests;
