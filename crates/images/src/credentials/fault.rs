//! Faults of the sources of credentials that the configuration names. The rest of a source is used.

use std::path::PathBuf;

use prometheus::IntGauge;
use tolerarch_support::metrics::Metrics;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialSource {
    DockerConfigs,
    Directory,
    Providers,
}

impl CredentialSource {
    pub const ALL: [Self; 3] = [Self::DockerConfigs, Self::Directory, Self::Providers];

    /// Returns the label of metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DockerConfigs => "docker-configs",
            Self::Directory => "directory",
            Self::Providers => "providers",
        }
    }

    pub const fn key(self) -> &'static str {
        match self {
            Self::DockerConfigs => "credentials.dockerConfigs",
            Self::Directory => "credentials.directory",
            Self::Providers => "credentials.providers.config",
        }
    }
}

/// Reason why a source is not used, or only in part. Quotes nothing of a file's content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}: {cause}", .from.key(), .file.display())]
pub struct SourceFault {
    pub from: CredentialSource,
    pub file: PathBuf,
    pub cause: FaultCause,
    /// True if the former content stays in use.
    pub kept: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultCause {
    /// The file does not exist, so its former content is dropped.
    #[error("cannot be read: {0}")]
    Missing(String),
    /// The file cannot be read, or its content is invalid.
    #[error("{0}")]
    Other(String),
}

impl From<std::io::Error> for FaultCause {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind;
        match error.kind() {
            ErrorKind::NotFound => Self::Missing(error.to_string()),
            ErrorKind::InvalidInput => Self::Other("is no file".into()),
            ErrorKind::FileTooLarge => Self::Other("is larger than 1 MiB".into()),
            _ => Self::Other(format!("cannot be read: {error}")),
        }
    }
}

impl From<String> for FaultCause {
    fn from(fault: String) -> Self {
        Self::Other(fault)
    }
}

#[derive(Clone)]
pub struct CredentialMetrics([IntGauge; CredentialSource::ALL.len()]);

impl CredentialMetrics {
    pub fn register(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let faults = metrics.gauges(
            "tolerarch_credentials_source_faults",
            "Files, directories and programs of credentials that cannot be used right now; the log names them.",
            &["source"],
        )?;
        Ok(Self(CredentialSource::ALL.map(|source| faults.with_label_values(&[source.as_str()]))))
    }

    pub fn show(&self, faults: &[SourceFault]) {
        for (source, gauge) in CredentialSource::ALL.into_iter().zip(&self.0) {
            let count = faults.iter().filter(|fault| fault.from == source).count();
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}
