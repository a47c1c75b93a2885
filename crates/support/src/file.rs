//! Files that the operator names, read within bounds on size and time.
//!
//! An access to a hanging network mount blocks its thread for as long as the mount hangs. So each access has its own
//! thread. The caller stops waiting for it after a while, and the path is not accessed again before the thread has ended.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::{self, JoinHandle};

use crate::sync::Mutex;
use rustix::fs::OFlags;
use tokio::time::Duration;

/// Maximum bytes of a file. The largest files are bundles of certificate authorities, of some hundred kilobytes.
const LIMIT: u64 = 4 << 20;
/// Time after which an access counts as hanging.
const TIME: Duration = Duration::from_secs(5);
/// Maximum number of hanging threads. With so many, no file is read.
const HANGING: usize = 16;
/// Maximum number of hanging threads for one directory. So a hanging mount does not prevent the certificate's files on
/// another one from being read.
const HANGING_IN_DIRECTORY: usize = 2;

static HANGS: Mutex<Vec<(PathBuf, JoinHandle<()>)>> = Mutex::new(Vec::new());

/// Reads a regular file of at most 4 MiB.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_at_most(path, LIMIT)
}

pub fn read_at_most(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    in_time(path, move |path| regular(path, limit))
}

/// Returns whether the path leads to a directory; `false` if that takes too long.
pub fn is_directory(path: &Path) -> bool {
    in_time(path, |path| Ok(path.is_dir())).unwrap_or_default()
}

/// Reads a regular file, without a time limit. Checks the opened file as well as the path, and does not block on a FIFO.
pub fn regular(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let not_regular = || io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
    // Checked before the file is opened, as opening can affect a device, or a process at the other end of a FIFO.
    if !fs::metadata(path)?.is_file() {
        return Err(not_regular());
    }
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(flags);
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(not_regular());
    }
    bounded(file, metadata.len(), limit)
}

/// Lists at most `limit` paths in a directory, sorted.
pub fn entries(directory: &Path, limit: usize) -> io::Result<Vec<PathBuf>> {
    in_time(directory, move |directory| {
        let mut paths = Vec::new();
        for entry in fs::read_dir(directory)?.take(limit) {
            paths.push(entry?.path());
        }
        paths.sort_unstable();
        Ok(paths)
    })
}

/// Reads a file or a pipe, such as a shell's `<(…)`.
pub fn read_or_stream(path: &Path) -> io::Result<Vec<u8>> {
    bounded(File::open(path)?, 0, LIMIT)
}

fn bounded(file: File, length: u64, limit: u64) -> io::Result<Vec<u8>> {
    // The buffer is large enough from the start: if it grew, copies of secrets could stay in memory.
    let capacity = usize::try_from(length.min(limit)).unwrap_or(0) + 1;
    let mut bytes = Vec::with_capacity(capacity);
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let message = format!("larger than {} MiB", limit >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// Runs work on a path, and fails if the work takes too long. Blocks the calling thread until then.
pub fn in_time<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    within(TIME, path, work)
}

fn within<T: Send + 'static>(
    time: Duration,
    path: &Path,
    work: impl FnOnce(&Path) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, "reading it takes too long");
    if !may_be_accessed(path) {
        return Err(late());
    }
    let (sender, outcome) = sync_channel(1);
    let owned_path = path.to_owned();
    let run = move || {
        let outcome = work(&owned_path);
        // The receiver may have stopped waiting.
        drop(sender.send(outcome));
    };
    let thread = thread::Builder::new().name("file".into()).spawn(run)?;
    match outcome.recv_timeout(time) {
        Ok(outcome) => outcome,
        // The thread has panicked, so it does not hang.
        Err(RecvTimeoutError::Disconnected) => {
            Err(io::Error::other("internal error: reading it panicked"))
        }
        Err(RecvTimeoutError::Timeout) => {
            HANGS.lock().push((path.to_owned(), thread));
            Err(late())
        }
    }
}

/// Returns whether no thread hangs at this path, and fewer than the maximum at others.
fn may_be_accessed(path: &Path) -> bool {
    let mut hangs = HANGS.lock();
    hangs.retain(|(_, thread)| !thread.is_finished());
    let mut in_directory = 0;
    for (hanging, _) in hangs.iter() {
        if hanging == path {
            return false;
        }
        if hanging.parent() == path.parent() {
            in_directory += 1;
        }
    }
    hangs.len() < HANGING && in_directory < HANGING_IN_DIRECTORY
}

#[cfg(test)]
mod tests;
