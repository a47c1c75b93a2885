//! Reloads the configuration while a service runs: if its file changes, or a file that it names.
//!
//! Files are polled. Kubernetes swaps symlinks (kubelet's AtomicWriter), which changes the inode to which a path leads;
//! other programs write in place, which changes the times of the inode. A change is applied when two polls in a row see
//! the same state, so that no half-written file is used. A configuration with faults changes nothing.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::task::spawn_blocking;
use tokio::time::{Duration, MissedTickBehavior, interval};

use super::snapshot::{Live, files};
use crate::config::{Config, ConfigError, Sources};
use tolerarch_support::file;
use tolerarch_support::health::{Reported, State};
use tolerarch_support::logging::{Levels, targets};
use tolerarch_support::metrics::outcome;
use tolerarch_support::sync::Mutex;

const POLL: Duration = Duration::from_secs(2);
/// Maximum depth of directories that are searched.
const DEPTH: usize = 3;
/// Maximum number of files and directories in total.
const FILES: usize = 4096;

const UNREADABLE: &str = "its file cannot be read; the previous configuration stays in use";
const INVALID: &str = "its file is not valid; the previous configuration stays in use";
const UNUSABLE: &str =
    "a file that it names cannot be used; the previous configuration stays in use";

/// Fingerprints of the files of a configuration.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct FileVersions {
    file: u64,
    /// Fingerprint of the files that the configuration names.
    named: u64,
}

impl FileVersions {
    pub(super) async fn now(sources: &Sources, config: &Config) -> Self {
        let sources = sources.clone();
        let config = config.clone();
        let read =
            spawn_blocking(move || Self::read(&sources, &files(&config, &sources.environment)));
        // After a panic, the default differs from any files, so that they are read again.
        read.await.unwrap_or_default()
    }

    fn read(sources: &Sources, named: &[PathBuf]) -> Self {
        Self {
            file: fingerprint(sources.file.as_slice()),
            named: fingerprint(named),
        }
    }
}

pub(super) struct Follower {
    live: Live,
    sources: Sources,
    levels: Levels,
    /// Files that the configuration in use names.
    files: Vec<PathBuf>,
    /// Versions of the files when they were last used or refused.
    seen: FileVersions,
    /// Versions of the files at the last poll.
    polled: FileVersions,
    /// True if the configuration could not be read in the version `seen`. Its cause may go away without a change of the
    /// version.
    is_unread: bool,
}

impl Follower {
    /// Makes a follower. `seen` are the versions of the files before they were used. Returns `None` if the configuration
    /// can be read only once.
    pub(super) fn new(
        live: Live,
        sources: Sources,
        levels: Levels,
        mut seen: FileVersions,
    ) -> Option<Self> {
        if sources.file.as_deref().is_some_and(is_stream) {
            tracing::info!("the configuration comes from a stream, so it is not followed");
            return None;
        }
        let config = live.config();
        let polled = seen.clone();
        // The file may have changed between its first reading and `seen`.
        if let Ok(loaded) = sources.load_again()
            && loaded.config != config
        {
            seen = FileVersions::default();
        }
        let files = files(&config, &sources.environment);
        Some(Self {
            live,
            sources,
            levels,
            files,
            seen,
            polled,
            is_unread: false,
        })
    }

    /// Polls the files, and reports whether their current versions are in use. Each poll runs in a thread, because it may
    /// wait for files.
    pub(super) async fn run(follower: &Arc<Mutex<Self>>, state: Reported) {
        let mut ticks = interval(POLL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let follower = Arc::clone(follower);
            let poll = spawn_blocking(move || follower.lock().poll());
            let result = state.await_files(poll).await;
            // A panic has already been logged with its location.
            let Ok(outcome) = result else { return };
            if let Some(outcome) = outcome {
                state.set(outcome);
            }
        }
    }

    /// Applies changes. Returns the resulting health; `None` if nothing has changed.
    fn poll(&mut self) -> Option<State> {
        let now = FileVersions::read(&self.sources, &self.files);
        if now != self.polled {
            self.polled = now;
            return None;
        }
        let is_readable = || !matches!(self.sources.load_again(), Err(ConfigError::Read { .. }));
        if now == self.seen && !(self.is_unread && is_readable()) {
            self.retry_credentials();
            return None;
        }
        self.seen = now;
        let old = self.live.config();
        let reloaded = self.reload();
        self.is_unread = reloaded == Err(UNREADABLE);
        let metrics = &self.live.metrics.changes;
        let result = outcome(reloaded.is_ok());
        metrics.reloads.with_label_values(&[result]).inc();
        metrics.last_reload.set(reloaded.is_ok().into());
        let restart_keys = match reloaded {
            Ok(keys) => keys,
            Err(why) => return Some(State::Degraded(why)),
        };
        let config = self.live.config();
        // Fails only if logging has ended.
        let _ = self.levels.reload(targets(config.log.level));
        let changes = config.changes(&old).join(", ");
        if restart_keys.is_empty() {
            tracing::info!(changes, "configuration reloaded");
        } else {
            let restart = restart_keys.join(", ");
            tracing::warn!(
                changes,
                restart,
                "configuration reloaded, except for keys that need a restart"
            );
        }
        Some(State::Healthy)
    }

    /// Uses sources of credentials that have become usable although no file of the configuration has changed, such as a
    /// helper that has been installed.
    fn retry_credentials(&self) {
        let config = self.live.config();
        let current = self.live.current.load_full();
        let faults = current.credentials.faults();
        if faults.is_empty() {
            return;
        }
        let environment = &self.live.environment;
        let faults_now = current
            .credentials
            .faults_now(&config.credentials, environment);
        if faults_now == faults {
            return;
        }
        match self.live.apply(config) {
            Ok(_) => tracing::info!("sources of credentials read again"),
            Err(error) => tracing::error!(%error, "sources of credentials cannot be read again"),
        }
    }

    /// Applies the current configuration. Returns the keys that need a restart. If the configuration cannot be used, logs
    /// the error and fails with a text for probes, which must not quote the content of files.
    fn reload(&mut self) -> Result<Vec<String>, &'static str> {
        let refuse = |error: &dyn std::error::Error, why| {
            tracing::error!(%error, "the changed configuration cannot be used; the previous one stays in use");
            why
        };
        let loaded = self.sources.load_again().map_err(|error| match error {
            ConfigError::Read { .. } => refuse(&error, UNREADABLE),
            ConfigError::Faults { .. } => refuse(&error, INVALID),
        })?;
        // The fingerprints come before the use of the files, so that the next poll sees a change in between.
        self.files = files(&loaded.config, &self.sources.environment);
        self.seen.named = fingerprint(&self.files);
        self.polled = self.seen.clone();
        let restart_keys = self
            .live
            .apply(loaded.config.clone())
            .map_err(|error| refuse(&error, UNUSABLE))?;
        loaded.log_warnings();
        Ok(restart_keys)
    }
}

/// Returns whether a file can be read only once, such as a shell's `<(…)`.
fn is_stream(file: &Path) -> bool {
    file::in_time(file, |file| fs::metadata(file)).is_ok_and(|metadata| !metadata.is_file())
}

/// Hashes the metadata of these files, and of all files in these directories. For a path that cannot be read, hashes the
/// reason.
fn fingerprint(paths: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut left = FILES;
    for path in paths {
        add(path, DEPTH, &mut left, &mut hasher);
    }
    hasher.finish()
}

/// Adds a path to the hash. `left` is the number of files and directories that may still be added.
fn add(path: &Path, depth: usize, left: &mut usize, hasher: &mut DefaultHasher) {
    let Some(rest) = left.checked_sub(1) else {
        return;
    };
    *left = rest;
    path.hash(hasher);
    let metadata = match file::in_time(path, |path| fs::metadata(path)) {
        Ok(metadata) => metadata,
        Err(error) => return error.kind().hash(hasher),
    };
    metadata.ino().hash(hasher);
    metadata.len().hash(hasher);
    metadata.mtime().hash(hasher);
    metadata.mtime_nsec().hash(hasher);
    // The change time differs when a file has become readable.
    metadata.ctime().hash(hasher);
    metadata.ctime_nsec().hash(hasher);
    if depth == 0 || !metadata.is_dir() {
        return;
    }
    for entry in file::entries(path, FILES).unwrap_or_default() {
        // Kubelet's links lead to `..data` and the like. The files in there also have names outside of them.
        let name = entry.file_name().unwrap_or_default();
        if !name.as_encoded_bytes().starts_with(b"..") {
            add(&entry, depth - 1, left, hasher);
        }
    }
}

#[cfg(test)]
mod tests;
