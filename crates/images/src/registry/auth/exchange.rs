//! One request for a token, and its answer: by GET as in the token specification, or by POST in the OAuth2 form.

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
/// Maximum number of redirects of one request, within its origin.
const REDIRECTS: usize = 2;
/// Life of a token without `expires_in`, and the shortest life (distribution's token specification); the longest life.
const LIFE: Duration = Duration::from_secs(60);
const LIFE_MAX: Duration = Duration::from_secs(3600);

const SERVER: &str = "the registry's token server";
const UNUSABLE: &str = "the registry's token server issued no usable token";
/// Text for answers that containerd cannot decode (`OAuthTokenResponse`, `FetchTokenResponse` in its `docker/auth`).
const UNREADABLE: &str = "the answer of the registry's token server cannot be read, and nodes refuse it as well: it has \
    to be a JSON object, with token or access_token as a text and expires_in as a whole number";
const CLIENT: &str = "tolerarch";

#[derive(Clone, Copy)]
pub(crate) struct TokenRequest<'a> {
    pub(crate) transport: &'a Transport,
    pub(crate) hosts: &'a Hosts,
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) repository: &'a str,
    pub(crate) credential: Option<&'a Credential>,
    pub(crate) owner: CredentialOwner,
    /// Target of the request that needs the token. Of a redirect's target, whose path another registry chose, nothing is
    /// remembered.
    pub(crate) target: Target,
}

#[derive(Default)]
struct TokenResponse {
    token: String,
    access_token: String,
    /// Seconds, 0 if not given; some servers write -1 for a token that does not expire.
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
    /// Returns the same request at the target of a redirect: never with a credential, as the registry that redirects
    /// chooses the target (CVE-2020-15157).
    pub(crate) fn at_target(self, endpoint: &'a Endpoint, repository: &'a str) -> Self {
        Self {
            endpoint,
            repository,
            credential: None,
            owner: CredentialOwner::Operator,
            target: Target::RedirectTarget,
            ..self
        }
    }

    /// Returns whether this realm may be asked with this credential, or anonymously. Never with a client certificate
    /// that the operator gave for another host: the token would go to the registry that named the realm.
    pub(super) fn may_ask(&self, realm: &Realm) -> bool {
        let hosts = self.hosts;
        let origin = &self.endpoint.origin;
        let may_be_asked = match self.target {
            Target::Registry => may_redirect(hosts, origin, &realm.url),
            // The image's registry chose the target of its redirect.
            Target::RedirectTarget => !hosts.has_client_certificate(&realm.url),
        };
        may_be_asked
            && (self.credential.is_none() || realm.may_see_credentials(hosts, origin, self.owner))
    }

    /// Returns the service of the challenge, and our own scope, never the challenge's.
    fn parameters(&self, realm: &Realm) -> impl Iterator<Item = (&'static str, String)> {
        let service = realm.service.clone().map(|service| ("service", service));
        service
            .into_iter()
            .chain([("scope", format!("repository:{}:pull", self.repository))])
    }

    /// Requests a token by GET (token specification). Follows redirects within the origin: proxies normalise slashes.
    pub(super) async fn get(&self, realm: &Realm) -> Result<HttpResponse, Error> {
        let mut url = realm.url.clone();
        url.query_pairs_mut().extend_pairs(self.parameters(realm));
        let password = self.credential.and_then(basic);
        let mut redirects = 0;
        loop {
            let response = self.send(&url, password.as_ref(), None).await?;
            if redirects == REDIRECTS || !matches!(response.status.as_u16(), 301 | 307 | 308) {
                return Ok(response);
            }
            let location = response.location();
            let target = location.and_then(|location| url.join(&location).ok());
            match target {
                Some(target)
                    if target.origin() == url.origin()
                        && target.username().is_empty()
                        && target.password().is_none() =>
                {
                    url = target;
                    redirects += 1;
                }
                _ => return Ok(response),
            }
        }
    }

    /// Makes the body of a request for a token in the OAuth2 form; wiped when dropped.
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
        form.append_pair("client_id", CLIENT)
            .extend_pairs(self.parameters(realm));
        Bytes::from_owner(Zeroizing::new(form.finish().into_bytes()))
    }

    pub(super) async fn send(
        &self,
        url: &Url,
        authorization: Option<&HeaderValue>,
        form: Option<Bytes>,
    ) -> Result<HttpResponse, Error> {
        // Go repeats no POST. But a password gives a token by POST as by GET; a refresh token may be good for one use.
        let is_idempotent =
            form.is_none() || matches!(self.credential, Some(Credential::Basic { .. }));
        let server = match self.target {
            Target::Registry if self.endpoint.is_at(url) => {
                Server::Configured(&self.endpoint.headers)
            }
            _ => Server::NamedByRegistry,
        };
        let request = HttpRequest {
            kind: RequestKind::Token,
            url,
            authorization,
            server,
            form,
            is_idempotent,
        };
        match self.transport.send(&request).await {
            // It is another server that cannot be reached, not the endpoint.
            Err(Error::NoConnection(why)) if !self.endpoint.is_at(url) => {
                Err(Error::Unreachable(why))
            }
            answer => answer,
        }
    }
}

pub(super) fn read(response: &HttpResponse) -> Result<(HeaderValue, Duration), Error> {
    match response.status.as_u16() {
        200..=299 => {}
        status @ 400..=499 if !response.is_throttled() => {
            return Err(Error::Denied(format!("{SERVER} answered {status}").into()));
        }
        _ => return Err(response.failure(SERVER)),
    }
    read_body(&response.body.bytes)
}

/// Reads the body of a success: the authorization, and its life.
fn read_body(json: &[u8]) -> Result<(HeaderValue, Duration), Error> {
    let response: TokenResponse =
        go::read_first(json).map_err(|_| Error::Denied(UNREADABLE.into()))?;
    // Of two the specification prefers neither; containerd takes this one.
    let token = if response.access_token.is_empty() {
        response.token
    } else {
        response.access_token
    };
    Ok((bearer(&token)?, life(response.expires_in)))
}

fn life(expires_in: i64) -> Duration {
    let seconds = u64::try_from(expires_in).unwrap_or_default();
    Duration::from_secs(seconds).clamp(LIFE, LIFE_MAX)
}

pub(super) fn bearer(token: &str) -> Result<HeaderValue, Error> {
    let is_usable =
        (1..=TOKEN_BYTES).contains(&token.len()) && token.bytes().all(|b| b.is_ascii_graphic());
    if is_usable && let Some(header) = net::sensitive(&Zeroizing::new(format!("Bearer {token}"))) {
        return Ok(header);
    }
    Err(Error::Denied(UNUSABLE.into()))
}

/// Makes the header with a password; an identity token goes without a user, as containerd sends it.
pub(super) fn basic(credential: &Credential) -> Option<HeaderValue> {
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
    fn a_token_without_a_sensible_life_lives_for_the_default() {
        for (text, expected) in [
            (r#"{"token": "t"}"#, LIFE),
            (r#"{"token": "t", "expires_in": -1}"#, LIFE),
            (r#"{"token": "t", "expires_in": 0}"#, LIFE),
            (r#"{"token": "t", "expires_in": 59}"#, LIFE),
            (
                r#"{"token": "t", "expires_in": 300}"#,
                Duration::from_secs(300),
            ),
            (
                r#"{"token": "t", "expires_in": 9223372036854775807}"#,
                LIFE_MAX,
            ),
        ] {
            let read: TokenResponse = go::read_first(text.as_bytes()).unwrap();
            assert_eq!(life(read.expires_in), expected, "{text}");
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
            // What is no token of HTTP's is sent by nobody.
            let usable = |token: &&String| token.bytes().all(|byte| byte.is_ascii_graphic());
            let theirs = gives
                .first()
                .filter(usable)
                .map(|token| format!("Bearer {token}"));
            (String::from_utf8_lossy(&json).into_owned(), ours, theirs)
        }));
    }
}
