//! The operator's files: read at once when they are loaded, and once more when a registry refuses what was in them.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::{Duration, Instant};
use zeroize::Zeroizing;

use super::credential::IdentifiedCredential;
use super::directory;
use super::docker::DockerConfig;
use super::pattern::ImagePattern;
use super::settings::CredentialsError;

/// Bytes of a file that are read.
const SIZE: u64 = 1 << 20;
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
        // A reload reports what is wrong with it.
        let text = text("", &self.path).ok()?;
        Some(match self.form {
            Form::DockerConfig => {
                DockerConfig::parse(text.as_bytes()).ok()?.read().keyring.under(key).cloned().collect()
            }
            Form::Registry => vec![directory::read(&text).ok()?.into()],
        })
    }
}

/// The text of a file that `key` of the configuration names.
pub(super) fn text(key: &'static str, path: &Path) -> Result<Zeroizing<String>, CredentialsError> {
    let unreadable = |cause| CredentialsError::Read { key, file: path.to_owned(), cause };
    let fault = |fault: &str| CredentialsError::Fault { key, file: path.to_owned(), fault: fault.into() };
    // Reading a pipe might never end.
    if !path.metadata().map_err(unreadable)?.is_file() {
        return Err(fault("is no file"));
    }
    let mut bytes = Zeroizing::new(Vec::new());
    let file = std::fs::File::open(path).map_err(unreadable)?;
    file.take(SIZE + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > SIZE {
        return Err(fault("is larger than 1 MiB"));
    }
    match std::str::from_utf8(&bytes) {
        Ok(text) => Ok(text.to_owned().into()),
        Err(_) => Err(fault("is not UTF-8")),
    }
}
