//! The operator's files: read at once when they are loaded, and once more when a registry refuses what was in them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::{Duration, Instant};
use zeroize::Zeroizing;

use super::credential::IdentifiedCredential;
use super::directory;
use super::docker::DockerConfig;
use super::fault::FaultCause;
use super::pattern::ImagePattern;

/// Bytes of a file that are read.
const SIZE: usize = 1 << 20;
/// How long after it was read it is not read again because a registry refuses what was in it.
const AGAIN: Duration = Duration::from_secs(5);

/// One file with credentials.
pub(super) struct File {
    path: PathBuf,
    form: Form,
    read: Mutex<Instant>,
}

#[derive(Clone, Copy)]
pub(super) enum Form {
    DockerConfig,
    /// A file of the directory.
    Registry,
}

impl File {
    pub(super) fn new(path: PathBuf, form: Form) -> Arc<Self> {
        Arc::new(Self { path, form, read: Mutex::new(Instant::now()) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn kind(&self) -> &'static str {
        match self.form {
            Form::DockerConfig => "docker config",
            Form::Registry => "credentials directory",
        }
    }

    /// What it says under a key by now; nothing if it was read a moment ago, or cannot be read.
    pub(super) async fn refetch(self: &Arc<Self>, key: &ImagePattern) -> Vec<IdentifiedCredential> {
        {
            let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
            if read.elapsed() < AGAIN {
                return Vec::new();
            }
            *read = Instant::now();
        }
        let (file, key) = (Arc::clone(self), key.clone());
        let work = tokio::task::spawn_blocking(move || file.under(&key));
        work.await.ok().flatten().unwrap_or_default()
    }

    fn under(&self, key: &ImagePattern) -> Option<Vec<IdentifiedCredential>> {
        // A fault is reported when the sources are loaded again.
        let text = text(&self.path).ok()?;
        Some(match self.form {
            Form::DockerConfig => {
                DockerConfig::parse(text.as_bytes()).ok()?.read().keyring.under(key).cloned().collect()
            }
            Form::Registry => vec![directory::read(&text).ok()?.into()],
        })
    }
}

pub(super) fn text(path: &Path) -> Result<Zeroizing<String>, FaultCause> {
    let bytes = Zeroizing::new(tolerarch_support::file::read(path)?);
    if bytes.len() > SIZE {
        return Err(std::io::Error::from(std::io::ErrorKind::FileTooLarge).into());
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(text.to_owned().into()),
        Err(_) => Err("is not UTF-8".into()),
    }
}
