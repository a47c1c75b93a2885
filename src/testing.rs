//! What tests of several modules build alike.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails at once")]

use serde_json::Value;

use crate::image::PlatformSet;
use crate::pod::{Text, Toleration};

/// The set of these platforms of nodes.
pub fn platforms(names: &[&str]) -> PlatformSet {
    names.iter().fold(PlatformSet::EMPTY, |set, name| set.union(name.parse().unwrap()))
}

/// A toleration of a pool.
pub fn toleration(value: &Value) -> Toleration<'static> {
    let text = |name: &str| Text::from(value[name].as_str().unwrap_or_default().to_owned());
    Toleration {
        key: text("key"),
        operator: text("operator"),
        value: text("value"),
        effect: text("effect"),
        toleration_seconds: value["tolerationSeconds"].as_i64(),
    }
}
