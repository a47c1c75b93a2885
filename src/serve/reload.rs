//! The configuration follows its files while the webhook runs: the file itself, and what it names.
//!
//! Files are polled, as Kubernetes swaps symlinks below them (kubelet's AtomicWriter), which changes the inode that
//! they lead to, and others write in place, which changes its times. What two looks in a row agree on is taken, so that
//! nothing half-written is. A configuration with faults changes nothing.

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
/// Maximum depth of directories that are searched, and maximum number of files in all.
const DEPTH: usize = 3;
const FILES: usize = 4096;

const UNREADABLE: &str = "its file cannot be read; the old one goes on";
const INVALID: &str = "its file is not valid; the old one goes on";
const UNUSABLE: &str = "a file that it names cannot be used; the old one goes on";

/// Fingerprints that change with the files of a configuration.
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
        // Where reading broke off nothing was seen.
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
    /// Versions of the files at the last look.
    before: FileVersions,
    /// Whether the configuration could not be read as it was last seen: what made it so need not be in its version.
    is_unread: bool,
}

impl Follower {
    /// Makes a follower. `seen` was read before the files were used. `None` if the configuration cannot be read again.
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
        let before = seen.clone();
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
            before,
            is_unread: false,
        })
    }

    /// Reports whether the files are in use as they are now. Each look has a thread, as it may wait for files.
    pub(super) async fn run(follower: &Arc<Mutex<Self>>, state: Reported) {
        let mut ticks = interval(POLL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let follower = Arc::clone(follower);
            let look = spawn_blocking(move || follower.lock().look());
            let looked = state.await_files(look).await;
            // The panic itself has been logged with its location.
            let Ok(outcome) = looked else { return };
            if let Some(outcome) = outcome {
                state.set(outcome);
            }
        }
    }

    /// Takes over changes. Returns the resulting health; `None` if nothing has changed.
    fn look(&mut self) -> Option<State> {
        let now = FileVersions::read(&self.sources, &self.files);
        if now != self.before {
            self.before = now;
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
        let metrics = &self.live.metrics.own;
        let result = outcome(reloaded.is_ok());
        metrics.reloads.with_label_values(&[result]).inc();
        metrics.last_reload.set(reloaded.is_ok().into());
        let kept = match reloaded {
            Ok(kept) => kept,
            Err(why) => return Some(State::Degraded(why)),
        };
        let config = self.live.config();
        // Fails only if logging has ended.
        let _ = self.levels.reload(targets(config.log.level));
        let changes = config.changes(&old).join(", ");
        if kept.is_empty() {
            tracing::info!(changes, "configuration reloaded");
        } else {
            let restart = kept.join(", ");
            tracing::warn!(
                changes,
                restart,
                "configuration reloaded, but for what needs a restart"
            );
        }
        Some(State::Healthy)
    }

    /// Takes over sources of credentials that can be used by now, although no file of the configuration has changed: a
    /// helper that has been installed, or a file that could not be read for a while.
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
        match self.live.take(config) {
            Ok(_) => tracing::info!("sources of credentials read again"),
            Err(error) => tracing::error!(%error, "sources of credentials cannot be read again"),
        }
    }

    /// Takes over the configuration as it is now. Returns the keys that need a restart, or after logging why it cannot
    /// be used the text for probes, which show no content of files.
    fn reload(&mut self) -> Result<Vec<String>, &'static str> {
        let refuse = |error: &dyn std::error::Error, why| {
            tracing::error!(%error, "the changed configuration cannot be used; the old one goes on");
            why
        };
        let loaded = self.sources.load_again().map_err(|error| match error {
            ConfigError::Read { .. } => refuse(&error, UNREADABLE),
            ConfigError::Faults { .. } => refuse(&error, INVALID),
        })?;
        // First what the files are, then their use: a change in between is seen the next time.
        self.files = files(&loaded.config, &self.sources.environment);
        self.seen.named = fingerprint(&self.files);
        self.before = self.seen.clone();
        let kept = self
            .live
            .take(loaded.config.clone())
            .map_err(|error| refuse(&error, UNUSABLE))?;
        loaded.log_warnings();
        Ok(kept)
    }
}

/// Returns whether this can be read only once, as a pipe like a shell's `<(…)`.
fn is_stream(file: &Path) -> bool {
    file::in_time(file, |file| fs::metadata(file)).is_ok_and(|metadata| !metadata.is_file())
}

/// Hashes what changes with these files, and with all in these directories; for paths that cannot be read, the reason.
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
    // This time shows when a file has become readable.
    metadata.ctime().hash(hasher);
    metadata.ctime_nsec().hash(hasher);
    if depth == 0 || !metadata.is_dir() {
        return;
    }
    for entry in file::entries(path, FILES).unwrap_or_default() {
        // `..data` and the like are where kubelet's links lead; what they hold has its own name, too.
        let name = entry.file_name().unwrap_or_default();
        if !name.as_encoded_bytes().starts_with(b"..") {
            add(&entry, depth - 1, left, hasher);
        }
    }
}

#[cfg(test)]
mod tests;
