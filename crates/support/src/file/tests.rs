use std::fs;
use std::process::Command;
use std::sync::mpsc::channel;

use super::*;

/// More time than an access takes on any machine, unless it hangs.
const LONG: Duration = Duration::from_secs(120);

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

#[test]
fn only_regular_files_within_the_limit_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    fs::write(path("good"), "text").unwrap();
    assert_eq!(read(&path("good")).unwrap(), b"text");
    let huge = File::create(path("huge")).unwrap();
    huge.set_len(1 << 40).unwrap();
    let error = read(&path("huge")).unwrap_err();
    assert_eq!(error.to_string(), "larger than 4 MiB");
    let error = read_at_most(&path("huge"), 1 << 20).unwrap_err();
    assert_eq!(error.to_string(), "larger than 1 MiB");
    fifo(&path("fifo"));
    for other in [&path("fifo"), directory.path(), Path::new("/dev/zero")] {
        assert_eq!(read(other).unwrap_err().to_string(), "not a regular file");
    }
    assert_eq!(read_or_stream(Path::new("/dev/null")).unwrap(), b"");
    assert!(read_or_stream(Path::new("/dev/zero")).is_err());
}

/// If a file became a FIFO between the check of the path and the opening, reading it would never end.
#[test]
fn opened_file_is_checked_as_well_as_the_path() {
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
        for target in targets
            .take_while(|_| stopped.try_recv() != Err(std::sync::mpsc::TryRecvError::Disconnected))
        {
            std::os::unix::fs::symlink(root.join(target), root.join("new")).unwrap();
            fs::rename(root.join("new"), root.join("link")).unwrap();
        }
    });
    for _ in 0..3000 {
        match within(LONG, &swaps, |path| regular(path, 9)) {
            Ok(text) => assert_eq!(text, b"text"),
            Err(error) => assert_eq!(error.to_string(), "not a regular file"),
        }
    }
    drop(stop);
    swapping.join().unwrap();
}

#[test]
fn hanging_file_times_out_without_delaying_others() {
    let (release, released) = channel::<()>();
    let path = Path::new("/hangs");
    let hung = within(Duration::from_millis(20), path, move |_| {
        released.recv().unwrap();
        Ok(())
    });
    assert_eq!(hung.unwrap_err().kind(), io::ErrorKind::TimedOut);
    // The path is not accessed again while its thread hangs; other paths are.
    let again = in_time(path, |_| Ok(()));
    assert_eq!(again.unwrap_err().kind(), io::ErrorKind::TimedOut);
    within(LONG, Path::new("/other"), |_| Ok(())).unwrap();
    release.send(()).unwrap();
    while in_time(path, |_| Ok(())).is_err() {
        thread::yield_now();
    }
}

#[test]
fn hanging_mount_does_not_prevent_reading_elsewhere() {
    let directory = Path::new("/a/mount");
    let mut releases = Vec::new();
    for number in 0..2 * HANGING {
        let (release, released) = channel::<()>();
        let hung = within(
            Duration::from_millis(20),
            &directory.join(number.to_string()),
            move |_| {
                let _ = released.recv();
                Ok(())
            },
        );
        assert_eq!(hung.unwrap_err().kind(), io::ErrorKind::TimedOut);
        releases.push(release);
    }
    within(LONG, Path::new("/the/certificate"), |_| Ok(())).unwrap();
    drop(releases);
    while in_time(&directory.join("0"), |_| Ok(())).is_err() {
        thread::yield_now();
    }
}

#[test]
fn panic_while_reading_is_an_error() {
    let path = Path::new("/b/panics");
    let broken = within(LONG, path, |_| -> io::Result<()> {
        panic!("expected in this test")
    });
    assert_eq!(broken.unwrap_err().kind(), io::ErrorKind::Other);
    within(LONG, path, |_| Ok(())).unwrap();
}
