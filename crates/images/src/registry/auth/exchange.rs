//! One request for a token, and what its answer gives: by GET as the token specification has it, or by POST in the OAuth2 form.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::{HeaderValue, Method};
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
use crate::registry::net::{HttpRequest, HttpResponse, Transport};

const UNUSABLE: &str = "the registry's token server issued no usable token";
/// The `client_id` of token requests.
const CLIENT: &str = "tolerarch";

/// A token server's response; some use one name, some the other, some both.
#[derive(Deserialize)]
struct TokenResponse {
    token: Option<String>,
    access_token: Option<String>,
    /// Seconds; some servers write -1 for a token that does not expire.
    expires_in: Option<i64>,
}

/// Asks for a token as the token specification has it: a password, if there is one, in the header. Proxies in front normalise
/// slashes by a redirect, which is followed within the origin.
pub(super) async fn get(
    transport: &Transport,
    request: TokenRequest<'_>,
    realm: &Realm,
) -> Result<HttpResponse, Error> {
    let mut url = realm.url.clone();
    {
        let mut query = url.query_pairs_mut();
        if let Some(service) = &realm.service {
            query.append_pair("service", service);
        }
        query.append_pair("scope", &request.scope());
    }
    let password = request.credential.and_then(basic);
    let mut response = send(transport, request, Method::GET, &url, password.as_ref(), None).await?;
    for _ in 0..limits::TOKEN_REDIRECTS {
        if !matches!(response.status.as_u16(), 301 | 307 | 308) {
            break;
        }
        let next = response.header("location").and_then(|location| url.join(location).ok());
        let within = |next: &Url| {
            next.origin() == url.origin() && next.username().is_empty() && next.password().is_none()
        };
        let Some(next) = next.filter(within) else { break };
        url = next;
        response = send(transport, request, Method::GET, &url, password.as_ref(), None).await?;
    }
    Ok(response)
}

/// Asks for a token in the OAuth2 form, with everything in the body.
pub(super) async fn post(
    transport: &Transport,
    request: TokenRequest<'_>,
    realm: &Realm,
    credential: &Credential,
) -> Result<HttpResponse, Error> {
    let form = form(request, realm, credential);
    send(transport, request, Method::POST, &realm.url, None, Some(form)).await
}

async fn send(
    transport: &Transport,
    request: TokenRequest<'_>,
    method: Method,
    url: &Url,
    authorization: Option<&HeaderValue>,
    form: Option<Bytes>,
) -> Result<HttpResponse, Error> {
    let http = HttpRequest {
        kind: RequestKind::Token,
        method,
        url,
        accept: "application/json",
        authorization,
        headers: None,
        form,
        limit: limits::TOKEN,
        recorder: request.recorder,
    };
    request.endpoint.send(transport, http, request.endpoint.is_at(url)).await
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

/// The token of a response, and how long it lives.
pub(super) fn read(response: &HttpResponse) -> Result<(HeaderValue, Duration), Error> {
    match response.status.as_u16() {
        200..=299 => {}
        _ if response.is_throttled() => return Err(Error::Throttled(response.retry_after())),
        status @ 400..=499 => {
            return Err(Error::Denied(format!("the registry's token server answered {status}").into()));
        }
        status @ 500.. => {
            return Err(Error::Unreachable(format!("the registry's token server answered {status}")));
        }
        status => return Err(Error::Unexpected(format!("the registry's token server answered {status}"))),
    }
    let unusable = || Error::Denied(UNUSABLE.into());
    let given: TokenResponse = serde_json::from_slice(response.body()).map_err(|_| unusable())?;
    let token = given.token.filter(|token| !token.is_empty()).or(given.access_token);
    Ok((bearer(&token.ok_or_else(unusable)?)?, life(given.expires_in)))
}

fn life(expires_in: Option<i64>) -> Duration {
    let given = expires_in.and_then(|seconds| u64::try_from(seconds).ok());
    given.map_or(limits::TOKEN_LIFE, Duration::from_secs).clamp(limits::TOKEN_LIFE, limits::TOKEN_LIFE_MAX)
}

/// The header with a token.
pub(super) fn bearer(token: &str) -> Result<HeaderValue, Error> {
    let usable =
        (1..=limits::TOKEN_BYTES).contains(&token.len()) && token.bytes().all(|b| b.is_ascii_graphic());
    let text = usable.then(|| Zeroizing::new(format!("Bearer {token}")));
    text.and_then(|text| sensitive(&text)).ok_or(Error::Denied(UNUSABLE.into()))
}

/// The header with a password; an identity token goes without a user, as containerd sends it.
pub(super) fn basic(credential: &Credential) -> Option<HeaderValue> {
    let (user, password) = match credential {
        Credential::Basic { user, password } => (user.as_str(), password),
        Credential::Identity(token) => ("", token),
        Credential::Bearer(_) => return None,
    };
    let plain = Zeroizing::new(format!("{user}:{}", password.reveal()));
    sensitive(&format!("Basic {}", *Zeroizing::new(BASE64.encode(plain.as_bytes()))))
}

/// A header value that no `Debug` shows.
fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(text).ok()?;
    value.set_sensitive(true);
    Some(value)
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
