//! What tests of several modules build alike.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails at once")]

use super::RegistryMetrics;
use tolerarch_support::metrics::Metrics;

/// Counts what no test looks at.
pub fn registry_metrics() -> RegistryMetrics {
    RegistryMetrics::register(&Metrics::new([]).unwrap()).unwrap()
}
