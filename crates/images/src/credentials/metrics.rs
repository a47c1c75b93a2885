//! What is counted of sources of credentials.

use prometheus::IntGauge;

use super::fault::{CredentialSource, SourceFault};
use tolerarch_support::metrics::Metrics;

/// Shows faults; clones show the same.
#[derive(Clone)]
pub struct CredentialMetrics([IntGauge; CredentialSource::ALL.len()]);

impl CredentialMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// A name is taken: an internal error.
    pub fn register(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let faults = metrics.gauges(
            "tolerarch_credentials_source_faults",
            "Files, directories and programs of credentials that cannot be used right now; the log names them.",
            &["source"],
        )?;
        Ok(Self(CredentialSource::ALL.map(|source| faults.with_label_values(&[source.as_str()]))))
    }

    /// Shows these and no others.
    pub fn show(&self, faults: &[SourceFault]) {
        for (source, gauge) in CredentialSource::ALL.into_iter().zip(&self.0) {
            let count = faults.iter().filter(|fault| fault.from == source).count();
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}
