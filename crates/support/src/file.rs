//! Files that the operator names: read within bounds of size and time, whatever is found at their path.
//!
//! A file on a network mount that hangs keeps its thread for as long as it hangs. So each access has a thread of its
//! own, which is given up after a while, and the path is not touched again before that thread is back.

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
const TIME: Duration = Duration::from_secs(5);
/// Maximum number of hanging threads, with which no further file is read.
const HANGING: usize = 16;
/// Maximum number of them in one directory: a hanging mount must not keep the certificate's files, on another, unread.
const HANGING_IN_DIRECTORY: usize = 2;

static HANGS: Mutex<Vec<(PathBuf, JoinHandle<()>)>> = Mutex::new(Vec::new());

/// Reads a regular file of at most 4 MiB.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_at_most(path, LIMIT)
}

pub fn read_at_most(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    in_time(path, move |path| regular(path, limit))
}

/// Returns whether the path leads to a directory; `false` if that cannot be found out in time.
pub fn is_directory(path: &Path) -> bool {
    in_time(path, |path| Ok(path.is_dir())).unwrap_or_default()
}

/// Reads a regular file, with no time limit. Checks the opened file, not the path alone, and does not block on a FIFO.
pub fn regular(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let is_other = || io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
    // Opening alone can have an effect: on a device, or on who waits at the other end of a FIFO.
    if !fs::metadata(path)?.is_file() {
        return Err(is_other());
    }
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(is_other());
    }
    bounded(file, metadata.len(), limit)
}

/// Lists the paths in a directory, sorted, at most so many.
pub fn entries(directory: &Path, most: usize) -> io::Result<Vec<PathBuf>> {
    in_time(directory, move |directory| {
        let mut paths = Vec::new();
        for entry in fs::read_dir(directory)?.take(most) {
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
    // Large enough from the start, as the file may hold secrets: growing leaves copies.
    let capacity = usize::try_from(length.min(limit)).unwrap_or(0) + 1;
    let mut bytes = Vec::with_capacity(capacity);
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let why = format!("larger than {} MiB", limit >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Runs work on a path, and fails if the work hangs. Blocks the calling thread until then.
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
    let (done, outcome) = sync_channel(1);
    let accessed = path.to_owned();
    // The receiver may have given up.
    let thread = thread::Builder::new()
        .name("file".into())
        .spawn(move || drop(done.send(work(&accessed))))?;
    match outcome.recv_timeout(time) {
        Ok(outcome) => outcome,
        // The thread has panicked, so it does not hang.
        Err(RecvTimeoutError::Disconnected) => {
            Err(io::Error::other("internal error: reading it broke off"))
        }
        Err(RecvTimeoutError::Timeout) => {
            HANGS.lock().push((path.to_owned(), thread));
            Err(late())
        }
    }
}

/// Returns whether no thread hangs at this path, and few enough at others.
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
