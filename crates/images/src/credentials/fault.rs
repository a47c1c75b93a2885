//! What is wrong with a source of credentials: with a file, a directory or a program that the configuration names. Such a
//! fault ends nothing; the rest of the credentials is used.

use std::path::PathBuf;

/// Where the operator's credentials come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CredentialSource {
    /// Docker's `config.json` files, and the helpers that they name.
    DockerConfigs,
    /// The directory with a file for each registry.
    Directory,
    /// Kubelet's plugins.
    Providers,
}

impl CredentialSource {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::DockerConfigs, Self::Directory, Self::Providers];

    /// As a label of metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DockerConfigs => "docker-configs",
            Self::Directory => "directory",
            Self::Providers => "providers",
        }
    }

    /// The key of the configuration.
    pub const fn key(self) -> &'static str {
        match self {
            Self::DockerConfigs => "credentials.dockerConfigs",
            Self::Directory => "credentials.directory",
            Self::Providers => "credentials.providers.config",
        }
    }
}

/// Why a source is not in use, or not all of it. Quotes nothing of what is in a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}: {cause}", .from.key(), .file.display())]
pub struct SourceFault {
    pub from: CredentialSource,
    /// The file or directory.
    pub file: PathBuf,
    /// What is wrong, and how to mend it.
    pub cause: FaultCause,
    /// Whether what was read of it before stays in use.
    pub kept: bool,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultCause {
    /// It does not exist, so that what was in it before is not used any more.
    #[error("cannot be read: {0}")]
    Missing(String),
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// It says something that cannot be.
    #[error("{0}")]
    Content(String),
}

impl From<std::io::Error> for FaultCause {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind;
        match error.kind() {
            ErrorKind::NotFound => Self::Missing(error.to_string()),
            ErrorKind::InvalidInput => Self::Content("is no file".into()),
            ErrorKind::FileTooLarge => Self::Content("is larger than 1 MiB".into()),
            _ => Self::Unreadable(error.to_string()),
        }
    }
}

impl From<String> for FaultCause {
    fn from(fault: String) -> Self {
        Self::Content(fault)
    }
}

impl From<&str> for FaultCause {
    fn from(fault: &str) -> Self {
        Self::Content(fault.into())
    }
}
