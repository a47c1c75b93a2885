//! Faults of the sources of credentials that the configuration names. The rest of a source is used.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use prometheus::IntGaugeVec;
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
    pub cause: String,
    /// True if the former content stays in use.
    pub kept: bool,
}

/// Makes the error of a file whose content is invalid.
pub(super) fn invalid(fault: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, fault.into())
}

/// Describes why a file is not used.
pub(super) fn describe(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::InvalidData => error.to_string(),
        ErrorKind::InvalidInput => "is no file".into(),
        ErrorKind::FileTooLarge => "is larger than 1 MiB".into(),
        _ => format!("cannot be read: {error}"),
    }
}

#[derive(Clone)]
pub struct CredentialMetrics(IntGaugeVec);

impl CredentialMetrics {
    pub fn register(metrics: &Metrics) -> Result<Self, prometheus::Error> {
        let own = Self(metrics.gauges(
            "tolerarch_credentials_source_faults",
            "Files, directories and programs of credentials that cannot be used right now; the log names them.",
            &["source"],
        )?);
        own.show(&[]);
        Ok(own)
    }

    pub fn show(&self, faults: &[SourceFault]) {
        for source in CredentialSource::ALL {
            let count = faults.iter().filter(|fault| fault.from == source).count();
            self.0.with_label_values(&[source.as_str()]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}
