//! The meaning of an answer's status, headers and text. Registries differ in these, and each quirk of one registry is
//! noted where it is handled. The module `manifest` reads documents; `auth/owner.rs` says which hosts issue a
//! registry's tokens.

use http::header::{CONTENT_ENCODING, LOCATION, RETRY_AFTER};
use http::{HeaderMap, StatusCode};
use percent_encoding::{CONTROLS, percent_encode};
use tokio::time::Duration;

use super::error::{Error, FailureClass};
use tolerarch_core::image::is_digest;
use tolerarch_support::body::Read;

pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// The whole body; empty if the body of an error response was too long or too slow.
    pub(crate) body: Read,
}

impl HttpResponse {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.headers.get(name)?.as_bytes()).ok()
    }

    /// Returns the digest of the manifest, if the registry announces one.
    pub(super) fn announced_digest(&self) -> Option<&str> {
        let digest = self.header("docker-content-digest");
        digest.filter(|digest| is_digest(digest))
    }

    /// Returns whether a token server may have refused only the OAuth2 form of a request, so that GET is worth trying.
    /// GCR answers the form with 404, Artifactory with 401, ACR with 400, old Harbor with 403.
    pub(super) fn refuses_form(&self) -> bool {
        matches!(self.status.as_u16(), 400 | 401 | 403 | 404 | 405 | 501) && !self.is_throttled()
    }

    /// Returns the target of a redirect, with bytes beyond ASCII percent-encoded, as Go sends them.
    pub(super) fn location(&self) -> Option<String> {
        location(&self.headers)
    }

    /// Returns whether the registry limits requests. Most registries answer 429; GitHub's secondary rate limit is a 403
    /// that only its text distinguishes.
    pub(super) fn is_throttled(&self) -> bool {
        match self.status {
            StatusCode::TOO_MANY_REQUESTS => true,
            StatusCode::FORBIDDEN => self.contains(b"secondary rate limit"),
            _ => false,
        }
    }

    /// Returns whether the body contains a text, in any case of letters.
    fn contains(&self, text: &[u8]) -> bool {
        let mut parts = self.body.bytes.windows(text.len());
        parts.any(|part| part.eq_ignore_ascii_case(text))
    }

    /// Returns the error for a status that is no success. `sender` names the server in the text.
    pub(super) fn failure(&self, sender: &str) -> Error {
        let answered = |status| format!("{sender} answered {status}");
        match self.status.as_u16() {
            _ if self.is_throttled() => Error::Throttled(self.retry_after()),
            status @ (401 | 403) => Error::Denied(answered(status).into()),
            404 => Error::NotFound,
            status @ 500.. => Error::Unreachable(answered(status)),
            status => Error::Unexpected(answered(status)),
        }
    }

    /// Reads the remaining requests of a rate limit, and the whole limit if the registry reports it. Docker Hub sends
    /// `ratelimit-remaining: 20;w=21600` and `ratelimit-limit: 100;w=21600`.
    pub(super) fn allowance(&self) -> Option<(u32, Option<u32>)> {
        let count = |name| {
            let number = self.header(name)?.split(';').next()?;
            number.trim().parse().ok()
        };
        Some((count("ratelimit-remaining")?, count("ratelimit-limit")))
    }

    /// Parses `Retry-After` (RFC 9110 section 10.2.3): seconds, or a date.
    fn retry_after(&self) -> Option<Duration> {
        let text = self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
        match text.parse() {
            Ok(seconds) => Some(Duration::from_secs(seconds)),
            Err(_) => {
                let date = httpdate::parse_http_date(text).ok()?;
                date.duration_since(std::time::SystemTime::now()).ok()
            }
        }
    }
}

/// Returns whether a body with these headers is compressed.
pub(super) fn is_encoded(headers: &HeaderMap) -> bool {
    let Some(encoding) = headers.get(CONTENT_ENCODING) else {
        return false;
    };
    // Object stores send a blank encoding for an object that was stored with a blank one.
    let encoding = encoding.as_bytes().trim_ascii();
    !encoding.is_empty() && !encoding.eq_ignore_ascii_case(b"identity")
}

fn location(headers: &HeaderMap) -> Option<String> {
    let location = headers.get(LOCATION)?;
    Some(percent_encode(location.as_bytes(), CONTROLS).to_string())
}

/// Returns whether a HEAD request failed where a GET request may succeed.
pub(super) fn is_of_head(error: &Error) -> bool {
    match error {
        // A signed URL of an object store is valid for GET only.
        Error::Redirected { cause, .. } if matches!(**cause, Error::NotFound) => true,
        error => {
            error.class() == FailureClass::Refused || matches!(error.cause(), Error::Unexpected(_))
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn location_beyond_ascii_is_percent_encoded() {
        for (given, expected) in [
            (&b"https://a.b/c?d=%20&e#f"[..], "https://a.b/c?d=%20&e#f"),
            ("/\u{e4}".as_bytes(), "/%C3%A4"),
            (b"/\xe4", "/%E4"),
        ] {
            let headers =
                HeaderMap::from_iter([(LOCATION, HeaderValue::from_bytes(given).unwrap())]);
            assert_eq!(location(&headers).as_deref(), Some(expected));
        }
        assert_eq!(location(&HeaderMap::new()), None);
    }
}
