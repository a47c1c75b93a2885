//! Requests one token, by GET as in the token specification, or by POST in the OAuth2 form. Reads the answer.

use bytes::Bytes;
use http::HeaderValue;
use serde::de::MapAccess;
use tokio::time::Duration;
use url::{Url, form_urlencoded};
use zeroize::Zeroizing;

use super::realm::{Realm, may_redirect};
use crate::credentials::{Credential, CredentialOwner};
use crate::registry::error::Error;
use crate::registry::hosts::{Endpoint, Hosts};
use crate::registry::metrics::RequestKind;
use crate::registry::net::{self, HttpRequest, Server, Transport};
use crate::registry::response::HttpResponse;
use crate::registry::target::Target;
use tolerarch_text::json::go::{self, GoStruct, GoValue};

/// Maximum bytes of one token.
const TOKEN_BYTES: usize = 16 << 10;
/// Maximum number of redirects of one request, all within its origin.
const MAX_REDIRECTS: usize = 2;
/// Lifetime of a token without `expires_in`, and the shortest lifetime (distribution's token specification).
const MIN_LIFETIME: Duration = Duration::from_secs(60);
/// Longest lifetime of a token.
const MAX_LIFETIME: Duration = Duration::from_secs(3600);

const TOKEN_SERVER: &str = "the registry's token server";
const UNUSABLE_TOKEN: &str = "the registry's token server issued no usable token";
/// Error text for answers that containerd cannot decode either (`OAuthTokenResponse` and `FetchTokenResponse` in
/// containerd's `docker/auth`).
const UNREADABLE_ANSWER: &str = "the answer of the registry's token server cannot be read, and nodes refuse it as well: \
    it must be a JSON object in which token or access_token is a string, and expires_in is a whole number";
/// Name by which this client introduces itself to a token server.
const CLIENT_ID: &str = "tolerarch";

#[derive(Clone, Copy)]
pub(crate) struct TokenRequest<'a> {
    pub(crate) transport: &'a Transport,
    pub(crate) hosts: &'a Hosts,
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) repository: &'a str,
    pub(crate) credential: Option<&'a Credential>,
    pub(crate) owner: CredentialOwner,
    /// Target of the request that needs the token. Nothing is cached for the target of a redirect, because another
    /// registry chose that target's path.
    pub(crate) target: Target,
}

#[derive(Default)]
struct TokenResponse {
    token: String,
    access_token: String,
    /// Lifetime in seconds; 0 if missing. Some servers write -1 for a token that does not expire.
    expires_in: i64,
}

impl GoStruct for TokenResponse {
    fn read_member<'de, A: MapAccess<'de>>(
        &mut self,
        name: &str,
        value: GoValue<'_, A>,
    ) -> Result<(), A::Error> {
        match name {
            "token" => value.read(&mut self.token),
            "access_token" => value.read(&mut self.access_token),
            "expires_in" => value.read(&mut self.expires_in),
            _ => value.skip(),
        }
    }
}

impl<'a> TokenRequest<'a> {
    /// Returns the same request for the target of a redirect. The new request never has a credential, because the
    /// registry that redirects chooses the target (CVE-2020-15157).
    pub(crate) fn for_redirect_target(self, endpoint: &'a Endpoint, repository: &'a str) -> Self {
        Self {
            endpoint,
            repository,
            credential: None,
            owner: CredentialOwner::Operator,
            target: Target::RedirectTarget,
            ..self
        }
    }

    /// Returns whether a token may be requested from this realm, with the credential of this request if there is one. A
    /// client certificate that the operator configured for another host may not be used, because the token would go to
    /// the registry that named the realm.
    pub(super) fn may_use(&self, realm: &Realm) -> bool {
        let hosts = self.hosts;
        let origin = &self.endpoint.origin;
        let may_be_reached = match self.target {
            Target::Registry => may_redirect(hosts, origin, &realm.url),
            // The image's registry redirected to the server that names this realm.
            Target::RedirectTarget => !hosts.has_client_certificate(&realm.url),
        };
        if !may_be_reached {
            return false;
        }
        self.credential.is_none() || realm.may_see_credentials(hosts, origin, self.owner)
    }

    /// Returns the parameters of the request: the challenge's service, and a scope for this repository. The challenge's
    /// scope is never used.
    fn parameters(&self, realm: &Realm) -> impl Iterator<Item = (&'static str, String)> {
        let service = realm.service.clone().map(|service| ("service", service));
        let scope = format!("repository:{}:pull", self.repository);
        service.into_iter().chain([("scope", scope)])
    }

    /// Requests a token by GET (token specification). Follows redirects within the origin, because proxies redirect to
    /// normalise slashes.
    pub(super) async fn get(&self, realm: &Realm) -> Result<HttpResponse, Error> {
        let mut url = realm.url.clone();
        url.query_pairs_mut().extend_pairs(self.parameters(realm));
        let authorization = self.credential.and_then(basic_header);
        let mut redirects = 0;
        loop {
            let response = self.send(&url, authorization.as_ref(), None).await?;
            if redirects == MAX_REDIRECTS {
                return Ok(response);
            }
            let Some(target) = redirect_within_origin(&url, &response) else {
                return Ok(response);
            };
            url = target;
            redirects += 1;
        }
    }

    /// Makes the body of a request for a token in the OAuth2 form. The memory of the body is wiped when the body is
    /// dropped.
    pub(super) fn form(&self, realm: &Realm, credential: &Credential) -> Bytes {
        let mut form = form_urlencoded::Serializer::new(String::new());
        match credential {
            Credential::Basic { user, password } => form
                .append_pair("grant_type", "password")
                .append_pair("username", user)
                .append_pair("password", password.reveal()),
            Credential::Identity(token) | Credential::Bearer(token) => form
                .append_pair("grant_type", "refresh_token")
                .append_pair("refresh_token", token.reveal()),
        };
        form.append_pair("client_id", CLIENT_ID)
            .extend_pairs(self.parameters(realm));
        Bytes::from_owner(Zeroizing::new(form.finish().into_bytes()))
    }

    /// Sends one request to the token server: a POST if there is a form, otherwise a GET.
    pub(super) async fn send(
        &self,
        url: &Url,
        authorization: Option<&HeaderValue>,
        form: Option<Bytes>,
    ) -> Result<HttpResponse, Error> {
        // Go never repeats a POST. Here, a POST with a password may be repeated, because it returns a token, as a GET
        // does. A POST with a refresh token may not be repeated, because that token may be valid for only one use.
        let has_password = matches!(self.credential, Some(Credential::Basic { .. }));
        let is_at_endpoint = self.endpoint.is_at(url);
        let server = match self.target {
            Target::Registry if is_at_endpoint => Server::Configured(&self.endpoint.headers),
            _ => Server::NamedByRegistry,
        };
        let request = HttpRequest {
            kind: RequestKind::Token,
            url,
            authorization,
            server,
            is_idempotent: form.is_none() || has_password,
            form,
        };
        match self.transport.send(&request).await {
            // A server other than the endpoint cannot be reached.
            Err(Error::NoConnection(why)) if !is_at_endpoint => Err(Error::Unreachable(why)),
            answer => answer,
        }
    }
}

/// Returns the target of a redirect, if it is at the same origin and has neither a user nor a password.
fn redirect_within_origin(url: &Url, response: &HttpResponse) -> Option<Url> {
    if !matches!(response.status.as_u16(), 301 | 307 | 308) {
        return None;
    }
    let target = url.join(&response.location()?).ok()?;
    let has_userinfo = !target.username().is_empty() || target.password().is_some();
    if target.origin() != url.origin() || has_userinfo {
        return None;
    }
    Some(target)
}

/// Reads the answer of a token server. Returns the authorization and its lifetime.
pub(super) fn read_answer(response: &HttpResponse) -> Result<(HeaderValue, Duration), Error> {
    match response.status.as_u16() {
        200..=299 => {}
        status @ 400..=499 if !response.is_throttled() => {
            return Err(Error::Denied(
                format!("{TOKEN_SERVER} answered {status}").into(),
            ));
        }
        _ => return Err(response.failure(TOKEN_SERVER)),
    }
    read_body(&response.body.bytes)
}

/// Reads the body of a successful answer. Returns the authorization and its lifetime.
fn read_body(json: &[u8]) -> Result<(HeaderValue, Duration), Error> {
    let Ok(response) = go::read_first::<TokenResponse>(json) else {
        return Err(Error::Denied(UNREADABLE_ANSWER.into()));
    };
    // If there are two tokens, the specification prefers neither, and containerd uses `access_token`.
    let token = if response.access_token.is_empty() {
        response.token
    } else {
        response.access_token
    };
    let header = bearer_header(&token)?;
    Ok((header, lifetime(response.expires_in)))
}

fn lifetime(expires_in: i64) -> Duration {
    let seconds = u64::try_from(expires_in).unwrap_or_default();
    Duration::from_secs(seconds).clamp(MIN_LIFETIME, MAX_LIFETIME)
}

/// Makes the header with a token. Refuses a token that is empty, too long, or not valid in a header.
pub(super) fn bearer_header(token: &str) -> Result<HeaderValue, Error> {
    let unusable = || Error::Denied(UNUSABLE_TOKEN.into());
    let is_graphic = token.bytes().all(|byte| byte.is_ascii_graphic());
    if token.is_empty() || token.len() > TOKEN_BYTES || !is_graphic {
        return Err(unusable());
    }
    let header = Zeroizing::new(format!("Bearer {token}"));
    net::sensitive(&header).ok_or_else(unusable)
}

/// Makes the header with a password. An identity token is sent without a user, as containerd does.
pub(super) fn basic_header(credential: &Credential) -> Option<HeaderValue> {
    match credential {
        Credential::Basic { user, password } => net::basic(user, password.reveal()),
        Credential::Identity(token) => net::basic("", token.reveal()),
        Credential::Bearer(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    #[test]
    fn lifetime_of_a_token_is_clamped() {
        for (text, expected) in [
            (r#"{"token": "t"}"#, MIN_LIFETIME),
            (r#"{"token": "t", "expires_in": -1}"#, MIN_LIFETIME),
            (r#"{"token": "t", "expires_in": 0}"#, MIN_LIFETIME),
            (r#"{"token": "t", "expires_in": 59}"#, MIN_LIFETIME),
            (
                r#"{"token": "t", "expires_in": 300}"#,
                Duration::from_secs(300),
            ),
            (
                r#"{"token": "t", "expires_in": 9223372036854775807}"#,
                MAX_LIFETIME,
            ),
        ] {
            let read: TokenResponse = go::read_first(text.as_bytes()).unwrap();
            assert_eq!(lifetime(read.expires_in), expected, "{text}");
        }
    }

    #[derive(serde::Deserialize)]
    struct Answer {
        kind: String,
        json: String,
        #[serde(default)]
        gives: Vec<String>,
    }

    #[test]
    fn answers_are_read_as_upstream_reads_them() {
        let answers = ::conformance::cases("documents")
            .into_iter()
            .filter(|answer: &Answer| answer.kind == "token");
        ::conformance::assert_agreement(answers.map(|Answer { json, gives, .. }| {
            let json = STANDARD.decode(json).unwrap();
            let ours = read_body(&json)
                .ok()
                .map(|(token, _)| token.to_str().unwrap().to_owned());
            // No client can send a token that is not valid in an HTTP header.
            let is_usable = |token: &&String| token.bytes().all(|byte| byte.is_ascii_graphic());
            let theirs = gives
                .first()
                .filter(is_usable)
                .map(|token| format!("Bearer {token}"));
            (String::from_utf8_lossy(&json).into_owned(), ours, theirs)
        }));
    }
}
