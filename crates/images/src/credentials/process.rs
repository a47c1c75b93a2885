//! Runs the programs that the operator named, within bounds. Output may hold credentials, so it is never logged.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use scopeguard::{ScopeGuard, guard};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;
use tokio::time::{Duration, timeout};
use zeroize::Zeroizing;

/// Maximum time that a program may run: kubelet's limit for plugins.
const TIME: Duration = Duration::from_secs(60);
/// Maximum bytes of a program's output.
const OUTPUT: usize = 256 << 10;

#[derive(Debug, thiserror::Error)]
pub(super) enum ProcessError {
    #[error("cannot be started: {0}")]
    Start(std::io::ErrorKind),
    #[error("did not end in time")]
    Timeout,
    #[error("ended with an error; run it by hand to see which")]
    Status,
    #[error("wrote more than 256 KiB")]
    TooMuch,
    #[error("its output cannot be read: {0}")]
    Read(std::io::ErrorKind),
}

/// Output of a program, which may be secret.
pub(super) type Output = Zeroizing<Vec<u8>>;

/// Runs the command. Kills it and its children (many helpers are scripts) after `TIME`, or when this future is dropped.
pub(super) async fn run(command: Command, input: &[u8]) -> Result<Output, ProcessError> {
    match timeout(TIME, run_without_timeout(command, input)).await {
        Ok(result) => result,
        Err(_) => Err(ProcessError::Timeout),
    }
}

async fn run_without_timeout(mut command: Command, input: &[u8]) -> Result<Output, ProcessError> {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    command.process_group(0);
    let mut child = command
        .spawn()
        .map_err(|error| ProcessError::Start(error.kind()))?;
    let leader = child
        .id()
        .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
    let killer = guard(leader, |leader| {
        if let Some(leader) = leader {
            // Fails if the program and its children have just ended.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    });
    let stdin = child.stdin.take();
    let stdout = child.stdout.take();
    let write = async {
        if let Some(mut stdin) = stdin {
            // Fails if the program does not read its input, which it need not do.
            let _ = stdin.write_all(input).await;
        }
    };
    let read = async {
        let mut output = Zeroizing::new(Vec::new());
        if let Some(stdout) = stdout {
            let mut limited = stdout.take(OUTPUT as u64 + 1);
            let read = limited.read_to_end(&mut output).await;
            read.map_err(|error| ProcessError::Read(error.kind()))?;
        }
        if output.len() > OUTPUT {
            return Err(ProcessError::TooMuch);
        }
        Ok(output)
    };
    let ((), output) = tokio::join!(write, read);
    let output = output?;
    let status = child
        .wait()
        .await
        .map_err(|error| ProcessError::Read(error.kind()))?;
    // The process has ended: another one may soon have its ID, and must not be killed.
    ScopeGuard::into_inner(killer);
    if !status.success() {
        return Err(ProcessError::Status);
    }
    Ok(output)
}

/// Returns the first executable file of this name in the directories.
pub(super) fn find(name: &str, directories: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    for directory in directories {
        let file = directory.join(name);
        if let Ok(metadata) = file.metadata()
            && metadata.is_file()
            && metadata.permissions().mode() & 0o111 != 0
        {
            return Some(file);
        }
    }
    None
}

#[cfg(test)]
mod tests;
