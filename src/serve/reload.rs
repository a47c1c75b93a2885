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

use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Duration, MissedTickBehavior, interval};

use super::metrics::Families;
use super::snapshot::{self, Publisher, SnapshotError, files};
use crate::config::{Config, ConfigError, Loaded, Sources};
use tolerarch_controller::ControllerSettings;
use tolerarch_images::resolver::Extras;
use tolerarch_kubernetes::cluster::Caller;
use tolerarch_support::environment::Environment;
use tolerarch_support::file;
use tolerarch_support::health::{Reported, State};
use tolerarch_support::logging::Levels;

/// How often the files are read.
const POLL: Duration = Duration::from_secs(2);
/// Bytes above which a file is known by its size and time: a program, and nothing that is read here.
const LARGE: u64 = 1 << 20;
/// How deep directories are looked into, and how many files are looked at in all.
const DEPTH: usize = 3;
const FILES: usize = 4096;
/// How long failures of registries count for the controller at most: Pods are looked at again until their images are known, and a
/// circuit spares a registry that fails.
const FAILURE: Duration = Duration::from_secs(1);

/// Why a changed configuration is not used.
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
    /// As it is now.
    pub(super) async fn now(sources: &Sources, config: &Config) -> Self {
        Self::read(sources.file.clone(), named(config, &sources.environment).await).await
    }

    async fn read(file: Option<PathBuf>, named: Vec<PathBuf>) -> Self {
        let read = spawn_blocking(move || Self { file: content(file.as_slice()), named: content(&named) });
        // Where reading broke off nothing was seen.
        read.await.unwrap_or(Self { file: 0, named: 0 })
    }
}

/// The files that are read for this configuration.
async fn named(config: &Config, environment: &Environment) -> Vec<PathBuf> {
    let (config, environment) = (config.clone(), environment.clone());
    spawn_blocking(move || files(&config, &environment)).await.unwrap_or_default()
}

/// Follows the files of a configuration, and takes over what changed.
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

    /// Follows them for ever.
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
                self.due = state
                    .looking(load(&self.sources))
                    .await
                    .is_ok_and(|loaded| loaded.config != self.live.config);
                self.files.insert(named(&self.live.config, &self.sources.environment).await).clone()
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
        let old = self.live.config.clone();
        let reloaded = state.looking(self.reload()).await;
        self.levels.set(self.live.config.log.level);
        self.live.metrics.reload.reloaded(reloaded.is_ok());
        state.set(match &reloaded {
            Ok(_) => State::Healthy,
            Err(refused) => State::Degraded(refused.summary()),
        });
        match reloaded {
            Ok(kept) => {
                let changes = self.live.config.changes(&old).join(", ");
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
        let current = self.live.publisher.current().get();
        if current.credentials.faults().is_empty() {
            return;
        }
        let (settings, own) = (self.live.config.credentials.clone(), current.credentials.clone());
        let environment = self.live.environment.clone();
        let look = spawn_blocking(move || own.faults_now(&settings, Caller::Service, &environment));
        if !look.await.is_ok_and(|now| now != current.credentials.faults()) {
            return;
        }
        match self.live.take(self.live.config.clone()).await {
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
        let kept = self.live.take(loaded.config.clone()).await?;
        loaded.log_warnings();
        Ok(kept)
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

/// What is replaced when the configuration changes.
#[derive(Clone)]
pub(super) struct Live {
    pub(super) config: Config,
    pub(super) publisher: Publisher,
    pub(super) metrics: Families,
    pub(super) environment: Environment,
    pub(super) role: Role,
}

/// What runs under a configuration.
#[derive(Clone)]
pub(super) enum Role {
    Webhook,
    /// With those who follow its settings.
    Controller(watch::Sender<ControllerSettings>),
}

impl Role {
    /// What the snapshot is made of.
    pub(super) fn config(&self, mut config: Config) -> Config {
        if matches!(self, Self::Controller(_)) {
            let cache = &mut config.cache;
            cache.timeout = cache.timeout.min(FAILURE);
            cache.unreachable = cache.unreachable.min(FAILURE);
        }
        config
    }

    /// This configuration is in use from now on.
    pub(super) fn took(&self, config: &Config) {
        if let Self::Controller(settings) = self {
            settings.send_replace(config.controller.clone());
        }
    }
}

impl Live {
    /// Goes on under another configuration, as a whole or not at all. Gives the keys that need a restart.
    async fn take(&mut self, mut config: Config) -> Result<Vec<String>, Refused> {
        let kept = config.keep(&self.config);
        let parts = self.role.config(config.clone());
        let (metrics, before) = (self.metrics.clone(), self.publisher.current().get());
        let environment = self.environment.clone();
        let load = move || {
            snapshot::load(&parts, &metrics, Extras::default(), Caller::Service, &environment, Some(&before))
        };
        let snapshot = spawn_blocking(load).await??;
        self.metrics.credentials.show(snapshot.credentials.faults());
        self.publisher.reloaded(config.clone(), snapshot);
        self.role.took(&config);
        self.config = config;
        Ok(kept)
    }
}

/// A hash of what these files and directories hold; of what cannot be read, why.
fn content(files: &[PathBuf]) -> u64 {
    let mut content = Content { hasher: DefaultHasher::new(), left: FILES };
    for file in files {
        content.add(file, DEPTH);
    }
    content.hasher.finish()
}

struct Content {
    hasher: DefaultHasher,
    /// Files and directories that are still looked at.
    left: usize,
}

impl Content {
    fn add(&mut self, path: &Path, depth: usize) {
        let Some(left) = self.left.checked_sub(1) else { return };
        self.left = left;
        path.hash(&mut self.hasher);
        self.read(path, depth).map_err(|error| error.kind()).err().hash(&mut self.hasher);
    }

    fn read(&mut self, path: &Path, depth: usize) -> io::Result<()> {
        match file::in_time(path, Found::at)? {
            Found::Directory(entries) => {
                for entry in entries.iter().filter(|_| depth > 0) {
                    self.add(entry, depth - 1);
                }
            }
            Found::Large(length, modified) => (length, modified).hash(&mut self.hasher),
            Found::File(bytes) => bytes.hash(&mut self.hasher),
        }
        Ok(())
    }
}

/// What is at a path.
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
