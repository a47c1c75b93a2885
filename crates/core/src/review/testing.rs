//! The fast reader compared with serde_json.

#![allow(clippy::panic, reason = "a broken invariant has to end the run")]

use std::fmt::Debug;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Decoded;
use crate::pod::Pod;
use tolerarch_text::json::{self, Object};

/// Asserts for several types that both readers agree. Returns whether the fast reader reads the JSON.
pub fn json(data: &[u8]) -> bool {
    let is_read = agrees::<IgnoredAny>(data);
    agrees::<Object<Pod<'_>>>(data);
    agrees::<Decoded<'_>>(data);
    is_read
}

/// Asserts that serde_json reads the same value if the fast reader reads the JSON. Returns whether the fast reader does and
/// the text is JSON: the fast reader may also read other text, as it does not check the values that it skips.
pub fn agrees<'a, T: Deserialize<'a> + Debug>(json: &'a [u8]) -> bool {
    let Ok(read) = json::read::<T>(json) else {
        return false;
    };
    if serde_json::from_slice::<IgnoredAny>(json).is_err() {
        return false;
    }
    let expected = serde_json::from_slice::<T>(json);
    let text = || String::from_utf8_lossy(json);
    let expected = expected.unwrap_or_else(|error| panic!("{error}: {}", text()));
    assert_eq!(format!("{read:?}"), format!("{expected:?}"), "{}", text());
    true
}
