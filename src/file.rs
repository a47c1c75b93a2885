//! Files that the operator names: read within bounds of size and time, whatever is found at their path.
//!
//! A file on a network mount that hangs keeps its thread for as long as it hangs. So each access has a thread of its own,
//! which is given up after a while, and the path is not touched again before that thread is back.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::fs::OFlags;
use tokio::time::Duration;

/// Bytes of a file. The largest that are read are bundles of certificate authorities, of some hundred kilobytes.
const LIMIT: u64 = 4 << 20;
/// How long an access may take.
const TIME: Duration = Duration::from_secs(5);
/// Threads that may hang; with as many no file is read.
const HANGING: usize = 16;

/// Paths whose threads hang.
static HANGS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// What a regular file of at most 4 MiB holds.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_at_most(path, LIMIT)
}

/// What a regular file of at most `limit` bytes holds.
pub(crate) fn read_at_most(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    in_time(path, move |path| regular(path, limit))
}

/// What a regular file holds, however long that takes. What is read is judged, not what was there before: without waiting
/// for the writer of a FIFO.
pub(crate) fn regular(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    bounded(file, metadata.len(), limit)
}

/// What a file or a pipe holds, such as a shell's `<(…)`.
pub(crate) fn read_or_stream(path: &Path) -> io::Result<Vec<u8>> {
    bounded(File::open(path)?, 0, LIMIT)
}

fn bounded(file: File, length: u64, limit: u64) -> io::Result<Vec<u8>> {
    // Enough from the start, as it may hold secrets: growing leaves copies.
    let mut bytes = Vec::with_capacity(usize::try_from(length.min(limit)).unwrap_or(0) + 1);
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let why = format!("larger than {} MiB", limit >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// Does something with a path, if that does not hang. Blocks the thread until then.
pub(crate) fn in_time<T: Send + 'static>(
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
    let hanging = || io::Error::new(io::ErrorKind::TimedOut, "reading it takes too long");
    {
        let hangs = hangs();
        if hangs.len() >= HANGING || hangs.contains(path) {
            return Err(hanging());
        }
    }
    let (done, outcome) = sync_channel(1);
    let own = path.to_owned();
    thread::Builder::new().name("file".into()).spawn(move || {
        // The other side may have given up.
        let _ = done.send(work(&own));
        hangs().remove(&own);
    })?;
    outcome.recv_timeout(time).unwrap_or_else(|_| {
        // Its end is not missed: it sends before it looks here.
        let mut hangs = hangs();
        outcome.try_recv().unwrap_or_else(|_| {
            hangs.insert(path.to_owned());
            Err(hanging())
        })
    })
}

fn hangs() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    HANGS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;
    use std::sync::mpsc::channel;

    use super::*;

    fn fifo(path: &Path) {
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    #[test]
    fn reads_regular_files_within_bounds() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("good"), "text").unwrap();
        assert_eq!(read(&path("good")).unwrap(), b"text");
        File::create(path("huge")).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read(&path("huge")).unwrap_err().to_string(), "larger than 4 MiB");
        assert_eq!(read_at_most(&path("huge"), 1 << 20).unwrap_err().to_string(), "larger than 1 MiB");
        fifo(&path("fifo"));
        for other in [&path("fifo"), directory.path(), Path::new("/dev/zero")] {
            assert_eq!(read(other).unwrap_err().to_string(), "not a regular file");
        }
        assert_eq!(read_or_stream(Path::new("/dev/null")).unwrap(), b"");
        assert!(read_or_stream(Path::new("/dev/zero")).is_err());
    }

    /// A file that becomes a FIFO between a look at it and its opening would be waited for without an end.
    #[test]
    fn judges_the_file_that_it_has_opened() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("file"), "text").unwrap();
        fifo(&path("fifo"));
        let swaps = path("link");
        std::os::unix::fs::symlink(path("file"), &swaps).unwrap();
        let (stop, stopped) = channel::<()>();
        let root = directory.path().to_owned();
        let swapping = thread::spawn(move || {
            let targets = ["fifo", "file"].into_iter().cycle();
            for target in
                targets.take_while(|_| stopped.try_recv() != Err(std::sync::mpsc::TryRecvError::Disconnected))
            {
                std::os::unix::fs::symlink(root.join(target), root.join("new")).unwrap();
                fs::rename(root.join("new"), root.join("link")).unwrap();
            }
        });
        for _ in 0..3000 {
            match within(Duration::from_secs(1), &swaps, |path| regular(path, 9)) {
                Ok(text) => assert_eq!(text, b"text"),
                Err(error) => assert_eq!(error.to_string(), "not a regular file"),
            }
        }
        drop(stop);
        swapping.join().unwrap();
    }

    #[test]
    fn a_file_that_hangs_is_given_up_and_keeps_no_other_waiting() {
        let (release, released) = channel::<()>();
        let path = Path::new("/hangs");
        let hung = within(Duration::from_millis(20), path, move |_| {
            released.recv().unwrap();
            Ok(())
        });
        assert_eq!(hung.unwrap_err().kind(), io::ErrorKind::TimedOut);
        // Not tried again while its thread hangs; others are.
        let again = in_time(path, |_| Ok(()));
        assert_eq!(again.unwrap_err().kind(), io::ErrorKind::TimedOut);
        in_time(Path::new("/other"), |_| Ok(())).unwrap();
        release.send(()).unwrap();
        while in_time(path, |_| Ok(())).is_err() {
            thread::yield_now();
        }
    }
}
