//! The configuration follows its files while the webhook runs: the file itself, and what it names.
//!
//! Files are polled by their content, as Kubernetes swaps symlinks below them (kubelet's AtomicWriter) and others write
//! in place. What two readings in a row agree on is taken, so that nothing half-written is. A configuration with faults
//! changes nothing.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};

use tokio::task::spawn_blocking;
use tokio::time::{Duration, MissedTickBehavior, interval};

use super::Live;
use super::snapshot::{self, AccessError, files};
use crate::cluster::Caller;
use crate::config::{Config, ConfigError, Loaded, Sources};
use crate::file;
use crate::logging::Levels;

/// How often the files are read.
const POLL: Duration = Duration::from_secs(2);
/// Bytes above which a file is known by its size and time: a program, and nothing that is read here.
const LARGE: u64 = 1 << 20;
/// How deep directories are looked into, and how many files are looked at in all.
const DEPTH: usize = 3;
const FILES: usize = 4096;

/// Why a changed configuration is not used.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error("a defect: the reading broke off")]
    Broken(#[from] tokio::task::JoinError),
}

/// What was read of the files of a configuration.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Seen {
    file: u64,
    /// What the configuration names.
    named: u64,
}

impl Seen {
    /// As it is now.
    pub(super) async fn now(sources: &Sources, config: &Config) -> Self {
        Self::read(sources.file.clone(), named(config).await).await
    }

    async fn read(file: Option<PathBuf>, named: Vec<PathBuf>) -> Self {
        let read = spawn_blocking(move || Self { file: content(file.as_slice()), named: content(&named) });
        // Where reading broke off nothing was seen.
        read.await.unwrap_or(Self { file: 0, named: 0 })
    }
}

/// The files that are read for this configuration.
async fn named(config: &Config) -> Vec<PathBuf> {
    let config = config.clone();
    spawn_blocking(move || files(&config)).await.unwrap_or_default()
}

/// Follows the files for ever. `seen` is what they were before they were used.
pub(super) async fn follow(mut live: Live, sources: Sources, levels: Levels, mut seen: Seen) {
    if sources.file.as_deref().is_some_and(is_stream) {
        return tracing::info!("the configuration comes from a stream, so it is not followed");
    }
    let mut ticks = interval(POLL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut files = named(&live.config).await;
    let mut before = seen.clone();
    // The file may have changed between its first reading and `seen`.
    let mut due = load(&sources).await.is_ok_and(|loaded| loaded.config != live.config);
    loop {
        ticks.tick().await;
        let now = Seen::read(sources.file.clone(), files.clone()).await;
        let settled = now == before;
        before = now.clone();
        if !settled || now == seen && !due {
            continue;
        }
        (seen, due) = (now, false);
        let reloaded = match load(&sources).await {
            Ok(loaded) => {
                // First what the files are, then their use: a change in between is seen the next time.
                files = named(&loaded.config).await;
                seen.named = Seen::read(None, files.clone()).await.named;
                before = seen.clone();
                let taken = live.take(loaded.config.clone()).await;
                if taken.is_ok() {
                    loaded.log_warnings();
                }
                taken
            }
            Err(refused) => Err(refused),
        };
        levels.set(live.config.log.level);
        live.metrics.reload.reloaded(reloaded.is_ok());
        match reloaded {
            Ok(kept) if kept.is_empty() => tracing::info!("configuration reloaded"),
            Ok(kept) => {
                tracing::warn!(
                    restart = kept.join(", "),
                    "configuration reloaded, but for what needs a restart"
                );
            }
            Err(refused) => {
                let error = refused.to_string();
                tracing::error!(error, "the changed configuration cannot be used; the old one goes on");
            }
        }
    }
}

/// Whether this can be read only once: a pipe, as a shell's `<(…)`.
fn is_stream(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|metadata| !metadata.is_file())
}

async fn load(sources: &Sources) -> Result<Loaded, Refused> {
    let sources = sources.clone();
    let load = move || {
        if let Some(file) = &sources.file {
            // At start it may be a pipe; by now that would be waited for without an end.
            file::read(file).map_err(|cause| ConfigError::Read { file: file.clone(), cause })?;
        }
        sources.load()
    };
    Ok(spawn_blocking(load).await??)
}

impl Live {
    /// Goes on under another configuration, as a whole or not at all. Gives the keys that need a restart.
    async fn take(&mut self, mut config: Config) -> Result<Vec<String>, Refused> {
        let kept = config.keep(&self.config);
        let (parts, metrics, before) = (config.clone(), self.metrics.clone(), self.current.get());
        let load = move || snapshot::load(&parts, &metrics, None, Caller::Webhook, Some(&before));
        self.current.publish(spawn_blocking(load).await??);
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
        let metadata = fs::metadata(path)?;
        if metadata.is_dir() {
            let entries = fs::read_dir(path)?.take(FILES).filter_map(|entry| Some(entry.ok()?.path()));
            // `..data` and the like are where kubelet's links lead; what they hold has its own name, too.
            let hidden =
                |path: &PathBuf| path.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b".."));
            let mut entries: Vec<PathBuf> = entries.filter(|path| !hidden(path)).collect();
            entries.sort();
            for entry in entries.iter().filter(|_| depth > 0) {
                self.add(entry, depth - 1);
            }
        } else if metadata.len() > LARGE || !metadata.is_file() {
            (metadata.len(), metadata.modified().ok()).hash(&mut self.hasher);
        } else {
            fs::read(path)?.hash(&mut self.hasher);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
