//! The fast reader compared with serde_json.

#![allow(clippy::panic, reason = "a broken invariant has to end the run")]

use std::fmt::Debug;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Decoded;
use crate::pod::Pod;
use tolerarch_text::json::{self, Object};

/// What the fast reader reads of JSON, serde_json reads to the same value; so it is never asked twice.
pub fn json(data: &[u8]) -> bool {
    let any = agrees::<IgnoredAny>(data);
    agrees::<Object<Pod<'_>>>(data);
    agrees::<Decoded<'_>>(data);
    any
}

/// Asserts that, and says whether it is JSON that the fast reader reads. It may read more: of what it skips it finds the end.
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
