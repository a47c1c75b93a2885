//! The configuration follows its files while the webhook runs: the file itself, and what it names.
//!
//! Files are polled by their content, as Kubernetes swaps symlinks below them (kubelet's AtomicWriter) and others write
//! in place. What two readings in a row agree on is taken, so that nothing half-written is. A configuration with faults
//! changes nothing.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tokio::task::spawn_blocking;
use tokio::time::{Duration, MissedTickBehavior, interval};

use super::snapshot::{Live, SnapshotError, files};
use crate::config::{Config, ConfigError, Loaded, Sources};
use tolerarch_support::environment::Environment;
use tolerarch_support::file;
use tolerarch_support::health::{Reported, State};
use tolerarch_support::logging::Levels;

const POLL: Duration = Duration::from_secs(2);
/// Bytes above which a file is known by its size and time: a program, and nothing that is read here.
const LARGE: u64 = 1 << 20;
/// How deep directories are looked into, and how many files are looked at in all.
const DEPTH: usize = 3;
const FILES: usize = 4096;
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Access(#[from] SnapshotError),
    #[error("internal error: the reading broke off")]
    Broken(#[from] tokio::task::JoinError),
}

impl Refused {
    /// For probes, which show no content of files.
    fn summary(&self) -> &'static str {
        match self {
            Self::Config(ConfigError::Read { .. }) => "its file cannot be read; the old one goes on",
            Self::Config(ConfigError::Faults { .. }) => "its file is not valid; the old one goes on",
            Self::Access(_) => "a file that it names cannot be used; the old one goes on",
            Self::Broken(_) => "internal error: it cannot be read; the old one goes on",
        }
    }
}

/// What was read of the files of a configuration.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct FileVersions {
    file: u64,
    /// What the configuration names.
    named: u64,
}

impl FileVersions {
    pub(super) async fn now(sources: &Sources, config: &Config) -> Self {
        Self::read(sources.file.clone(), named(config, &sources.environment).await).await
    }

    async fn read(file: Option<PathBuf>, named: Vec<PathBuf>) -> Self {
        let read = spawn_blocking(move || Self { file: content(file.as_slice()), named: content(&named) });
        // Where reading broke off nothing was seen.
        read.await.unwrap_or(Self { file: 0, named: 0 })
    }
}

async fn named(config: &Config, environment: &Environment) -> Vec<PathBuf> {
    let (config, environment) = (config.clone(), environment.clone());
    spawn_blocking(move || files(&config, &environment)).await.unwrap_or_default()
}

pub(super) struct Follower {
    live: Live,
    sources: Sources,
    levels: Levels,
    /// The files that the configuration in use names; none before the first look.
    files: Option<Vec<PathBuf>>,
    /// The files as they were when they were last used or refused.
    seen: FileVersions,
    /// As they were at the last look.
    before: FileVersions,
    /// Whether they are to be read even if they have not changed.
    due: bool,
    state: Reported,
}

impl Follower {
    /// `seen` is what the files were before they were used. None where the configuration cannot be read again.
    pub(super) fn new(live: Live, sources: Sources, levels: Levels, seen: FileVersions) -> Option<Self> {
        if sources.file.as_deref().is_some_and(is_stream) {
            tracing::info!("the configuration comes from a stream, so it is not followed");
            return None;
        }
        let (files, before, state) = (None, seen.clone(), Reported::default());
        Some(Self { live, sources, levels, files, seen, before, due: false, state })
    }

    /// Whether the files are in use as they are now.
    pub(super) fn state(&self) -> Reported {
        self.state.clone()
    }

    pub(super) async fn run(&mut self) {
        let mut ticks = interval(POLL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.look().await;
        }
    }

    async fn look(&mut self) {
        let state = self.state.clone();
        let files = match self.files.clone() {
            Some(files) => files,
            None => {
                // The file may have changed between its first reading and `seen`.
                let config = self.live.config();
                self.due =
                    state.looking(load(&self.sources)).await.is_ok_and(|loaded| loaded.config != config);
                self.files.insert(named(&config, &self.sources.environment).await).clone()
            }
        };
        let now = state.looking(FileVersions::read(self.sources.file.clone(), files)).await;
        let settled = now == self.before;
        self.before = now.clone();
        if settled && now == self.seen && !self.due {
            return state.looking(self.mend()).await;
        }
        if !settled {
            return;
        }
        (self.seen, self.due) = (now, false);
        let old = self.live.config();
        let reloaded = state.looking(self.reload()).await;
        let config = self.live.config();
        self.levels.set(config.log.level);
        self.live.metrics.reload.reloaded(reloaded.is_ok());
        state.set(match &reloaded {
            Ok(_) => State::Healthy,
            Err(refused) => State::Degraded(refused.summary()),
        });
        match reloaded {
            Ok(kept) => {
                let changes = config.changes(&old).join(", ");
                if kept.is_empty() {
                    tracing::info!(changes, "configuration reloaded");
                } else {
                    let restart = kept.join(", ");
                    tracing::warn!(changes, restart, "configuration reloaded, but for what needs a restart");
                }
            }
            Err(refused) => {
                let error = refused.to_string();
                tracing::error!(error, "the changed configuration cannot be used; the old one goes on");
            }
        }
    }

    /// Takes over sources of credentials that can be used by now, although no file of the configuration has changed: a
    /// helper that has been installed, or a file that could not be read for a while.
    async fn mend(&mut self) {
        let (config, current) = (self.live.config(), self.live.current().get());
        if current.credentials.faults().is_empty() {
            return;
        }
        let (settings, own) = (config.credentials.clone(), current.credentials.clone());
        let environment = self.live.environment.clone();
        let look = spawn_blocking(move || own.faults_now(&settings, &environment));
        if !look.await.is_ok_and(|now| now != current.credentials.faults()) {
            return;
        }
        match self.take(config).await {
            Ok(_) => tracing::info!("sources of credentials read again"),
            Err(error) => tracing::error!(%error, "sources of credentials cannot be read again"),
        }
    }

    /// Takes over the configuration as it is now. Gives the keys that need a restart.
    async fn reload(&mut self) -> Result<Vec<String>, Refused> {
        let loaded = load(&self.sources).await?;
        // First what the files are, then their use: a change in between is seen the next time.
        let files = named(&loaded.config, &self.sources.environment).await;
        self.seen.named = FileVersions::read(None, files.clone()).await.named;
        self.files = Some(files);
        self.before = self.seen.clone();
        let kept = self.take(loaded.config.clone()).await?;
        loaded.log_warnings();
        Ok(kept)
    }

    async fn take(&self, config: Config) -> Result<Vec<String>, Refused> {
        let live = self.live.clone();
        Ok(spawn_blocking(move || live.take(config)).await??)
    }
}

/// Whether this can be read only once: a pipe, as a shell's `<(…)`.
fn is_stream(file: &Path) -> bool {
    file::in_time(file, |file| fs::metadata(file)).is_ok_and(|metadata| !metadata.is_file())
}

async fn load(sources: &Sources) -> Result<Loaded, Refused> {
    let sources = sources.clone();
    Ok(spawn_blocking(move || sources.load_again()).await??)
}

/// A hash of what these files and directories hold; of what cannot be read, why.
fn content(files: &[PathBuf]) -> u64 {
    let (mut hasher, mut left) = (DefaultHasher::new(), FILES);
    files.iter().for_each(|file| add(file, DEPTH, &mut left, &mut hasher));
    hasher.finish()
}

/// `left` is how many files and directories are still looked at.
fn add(path: &Path, depth: usize, left: &mut usize, hasher: &mut DefaultHasher) {
    let Some(rest) = left.checked_sub(1) else { return };
    *left = rest;
    let found = file::in_time(path, Found::at).map_err(|error| error.kind());
    (path, &found).hash(hasher);
    if let Ok(Found::Directory(entries)) = found {
        for entry in entries.iter().filter(|_| depth > 0) {
            add(entry, depth - 1, left, hasher);
        }
    }
}

#[derive(Hash)]
enum Found {
    Directory(Vec<PathBuf>),
    /// Length and time of what is not read.
    Large(u64, Option<SystemTime>),
    File(Vec<u8>),
}

impl Found {
    fn at(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        if metadata.is_dir() {
            let entries = fs::read_dir(path)?.take(FILES).filter_map(|entry| Some(entry.ok()?.path()));
            // `..data` and the like are where kubelet's links lead; what they hold has its own name, too.
            let hidden =
                |path: &PathBuf| path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b".."));
            let mut entries: Vec<PathBuf> = entries.filter(|path| !hidden(path)).collect();
            entries.sort();
            return Ok(Self::Directory(entries));
        }
        if metadata.len() > LARGE || !metadata.is_file() {
            return Ok(Self::Large(metadata.len(), metadata.modified().ok()));
        }
        file::regular(path, LARGE).map(Self::File)
    }
}

#[cfg(test)]
mod tests;
