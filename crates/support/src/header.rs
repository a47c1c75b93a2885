//! Secret values of HTTP headers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::HeaderValue;
use zeroize::Zeroizing;

/// Returns a header value that `Debug` does not print.
pub fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Returns the value of an `Authorization` header with a user and a password.
pub fn basic(user: &str, password: &str) -> Option<HeaderValue> {
    let plain = Zeroizing::new(format!("{user}:{password}"));
    let encoded = Zeroizing::new(BASE64.encode(plain.as_bytes()));
    let value = Zeroizing::new(format!("Basic {}", *encoded));
    sensitive(&value)
}
