//! Files that the operator names: read within bounds, whatever is found at their path.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Bytes of a file. The largest that are read are bundles of certificate authorities, of some hundred kilobytes.
const LIMIT: u64 = 4 << 20;

/// What a regular file holds. Anything else is an error: to open a FIFO would wait for a writer.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    bounded(File::open(path)?)
}

/// The same, for what may be a pipe, such as a shell's `<(…)`.
pub(crate) fn read_or_stream(path: &Path) -> io::Result<Vec<u8>> {
    bounded(File::open(path)?)
}

fn bounded(file: File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(LIMIT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LIMIT {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 4 MiB"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_regular_files_within_bounds() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("good"), "text").unwrap();
        assert_eq!(read(&path("good")).unwrap(), b"text");
        File::create(path("huge")).unwrap().set_len(1 << 40).unwrap();
        assert_eq!(read(&path("huge")).unwrap_err().to_string(), "larger than 4 MiB");
        let made = std::process::Command::new("mkfifo").arg(path("fifo")).status().unwrap();
        assert!(made.success());
        for other in [&path("fifo"), directory.path(), Path::new("/dev/zero")] {
            assert_eq!(read(other).unwrap_err().to_string(), "not a regular file");
        }
        assert_eq!(read_or_stream(Path::new("/dev/null")).unwrap(), b"");
        assert!(read_or_stream(Path::new("/dev/zero")).is_err());
    }
}
