//! Header values that are secret.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use http::HeaderValue;
use zeroize::Zeroizing;

pub fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::try_from(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

pub fn basic(user: &str, password: &str) -> Option<HeaderValue> {
    let plain = Zeroizing::new(format!("{user}:{password}"));
    let encoded = Zeroizing::new(BASE64.encode(plain.as_bytes()));
    sensitive(&Zeroizing::new(format!("Basic {}", *encoded)))
}
