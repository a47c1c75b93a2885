//! What tests of several modules build alike.

use serde_json::Value;

use crate::image::PlatformSet;
use crate::metrics::Metrics;
use crate::pod::{Text, Toleration};
use crate::registry::RegistryMetrics;

/// The set of these platforms of nodes.
pub(crate) fn platforms(names: &[&str]) -> PlatformSet {
    names.iter().fold(PlatformSet::EMPTY, |set, name| set.union(name.parse().unwrap()))
}

/// A toleration of a pool.
pub(crate) fn toleration(value: &Value) -> Toleration<'static> {
    let text = |name: &str| Text::from(value[name].as_str().unwrap_or_default().to_owned());
    Toleration {
        key: text("key"),
        operator: text("operator"),
        value: text("value"),
        effect: text("effect"),
        toleration_seconds: value["tolerationSeconds"].as_i64(),
    }
}

/// Counts what no test looks at.
pub(crate) fn registry_metrics() -> RegistryMetrics {
    RegistryMetrics::register(&Metrics::new([]).unwrap()).unwrap()
}
