//! One request for a token, and what its answer gives: by GET as the token specification has it, or by POST in the OAuth2 form.

use bytes::Bytes;
use http::HeaderValue;
use serde::Deserialize;
use tokio::time::Duration;
use url::{Url, form_urlencoded};
use zeroize::Zeroizing;

use super::realm::Realm;
use super::token::TokenRequest;
use crate::credentials::Credential;
use crate::registry::error::Error;
use crate::registry::limits;
use crate::registry::metrics::RequestKind;
use crate::registry::net::{self, HttpRequest, HttpResponse};

const SERVER: &str = "the registry's token server";
const UNUSABLE: &str = "the registry's token server issued no usable token";
/// Of what containerd cannot decode either (`OAuthTokenResponse` and `FetchTokenResponse` in `core/remotes/docker/auth`).
const UNREADABLE: &str = "the answer of the registry's token server cannot be read, and nodes refuse it as well: it has \
    to be a JSON object, with token or access_token as a text and expires_in as a whole number";
const CLIENT: &str = "tolerarch";

/// A token server's response; some use one name, some the other, some both.
#[derive(Deserialize)]
struct TokenResponse {
    token: Option<String>,
    access_token: Option<String>,
    /// Seconds; some servers write -1 for a token that does not expire.
    expires_in: Option<i64>,
}

/// As the token specification has it. Proxies in front normalise slashes by a redirect, followed within the origin.
pub(super) async fn get(request: TokenRequest<'_>, realm: &Realm) -> Result<HttpResponse, Error> {
    let mut url = realm.url.clone();
    {
        let mut query = url.query_pairs_mut();
        if let Some(service) = &realm.service {
            query.append_pair("service", service);
        }
        query.append_pair("scope", &request.scope());
    }
    let password = request.credential.and_then(basic);
    for _ in 0..limits::TOKEN_REDIRECTS {
        let response = send(request, &url, password.as_ref(), None).await?;
        let is_redirect = matches!(response.status.as_u16(), 301 | 307 | 308);
        let next = response.header("location").filter(|_| is_redirect).and_then(|next| url.join(next).ok());
        let within = |next: &Url| {
            next.origin() == url.origin() && next.username().is_empty() && next.password().is_none()
        };
        let Some(next) = next.filter(within) else { return Ok(response) };
        url = next;
    }
    send(request, &url, password.as_ref(), None).await
}

/// Asks for a token in the OAuth2 form, with everything in the body.
pub(super) async fn post(
    request: TokenRequest<'_>,
    realm: &Realm,
    credential: &Credential,
) -> Result<HttpResponse, Error> {
    send(request, &realm.url, None, Some(form(request, realm, credential))).await
}

async fn send(
    request: TokenRequest<'_>,
    url: &Url,
    authorization: Option<&HeaderValue>,
    form: Option<Bytes>,
) -> Result<HttpResponse, Error> {
    let http = HttpRequest {
        kind: RequestKind::Token,
        url,
        authorization,
        headers: None,
        // Go repeats no POST. But a password gives a token by POST as by GET, whereas a refresh token may be good for one use.
        is_idempotent: form.is_none() || matches!(request.credential, Some(Credential::Basic { .. })),
        form,
    };
    request.endpoint.send(request.transport, http, request.endpoint.is_at(url)).await
}

/// The form of such a request; wiped when it is dropped.
fn form(request: TokenRequest<'_>, realm: &Realm, credential: &Credential) -> Bytes {
    let mut form = form_urlencoded::Serializer::new(String::new());
    match credential {
        Credential::Basic { user, password } => {
            form.append_pair("grant_type", "password");
            form.append_pair("username", user);
            form.append_pair("password", password.reveal());
        }
        Credential::Identity(token) | Credential::Bearer(token) => {
            form.append_pair("grant_type", "refresh_token");
            form.append_pair("refresh_token", token.reveal());
        }
    }
    form.append_pair("client_id", CLIENT);
    form.append_pair("scope", &request.scope());
    if let Some(service) = &realm.service {
        form.append_pair("service", service);
    }
    Bytes::from_owner(Zeroizing::new(form.finish().into_bytes()))
}

pub(super) fn read(response: &HttpResponse) -> Result<(HeaderValue, Duration), Error> {
    match response.status.as_u16() {
        200..=299 => {}
        status @ 400..=499 if !response.is_throttled() => {
            return Err(Error::Denied(format!("{SERVER} answered {status}").into()));
        }
        _ => return Err(response.failure(SERVER)),
    }
    let unusable = || Error::Denied(UNUSABLE.into());
    let given: TokenResponse =
        serde_json::from_slice(response.body()).map_err(|_| Error::Denied(UNREADABLE.into()))?;
    let token = given.token.filter(|token| !token.is_empty()).or(given.access_token);
    Ok((bearer(&token.ok_or_else(unusable)?)?, life(given.expires_in)))
}

fn life(expires_in: Option<i64>) -> Duration {
    let given = expires_in.and_then(|seconds| u64::try_from(seconds).ok());
    given.map_or(limits::TOKEN_LIFE, Duration::from_secs).clamp(limits::TOKEN_LIFE, limits::TOKEN_LIFE_MAX)
}

pub(super) fn bearer(token: &str) -> Result<HeaderValue, Error> {
    let usable =
        (1..=limits::TOKEN_BYTES).contains(&token.len()) && token.bytes().all(|b| b.is_ascii_graphic());
    let text = usable.then(|| Zeroizing::new(format!("Bearer {token}")));
    text.and_then(|text| net::sensitive(&text)).ok_or(Error::Denied(UNUSABLE.into()))
}

/// The header with a password; an identity token goes without a user, as containerd sends it.
pub(super) fn basic(credential: &Credential) -> Option<HeaderValue> {
    match credential {
        Credential::Basic { user, password } => net::basic(user, password.reveal()),
        Credential::Identity(token) => net::basic("", token.reveal()),
        Credential::Bearer(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_without_a_sensible_life_lives_for_the_default() {
        for (text, expected) in [
            (r#"{"token": "t"}"#, limits::TOKEN_LIFE),
            (r#"{"token": "t", "expires_in": -1}"#, limits::TOKEN_LIFE),
            (r#"{"token": "t", "expires_in": 0}"#, limits::TOKEN_LIFE),
            (r#"{"token": "t", "expires_in": 59}"#, limits::TOKEN_LIFE),
            (r#"{"token": "t", "expires_in": 300}"#, Duration::from_secs(300)),
            (r#"{"token": "t", "expires_in": 9223372036854775807}"#, limits::TOKEN_LIFE_MAX),
        ] {
            let read: TokenResponse = serde_json::from_str(text).unwrap();
            assert_eq!(life(read.expires_in), expected, "{text}");
        }
    }
}
