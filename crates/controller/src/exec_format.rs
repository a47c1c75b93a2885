//! Messages about a program for another architecture. Pure.
//!
//! Evidence for an image is only what is said of the container's own program, in words of runtimes and shells that are
//! known here. All other words name a program of the node: a hook, a shim, the runtime, a log driver.

/// Words of the C library and, in lower case, of Go.
const EXEC_FORMAT: &str = "exec format error";
/// What may follow these words: of containerd and dockerd, of a log line that is quoted, of Rust.
const ENDINGS: [&str; 4] = [": unknown", "\"", "\\n", " (os error 8)"];
/// Maximum bytes that are kept of a message about the node; its end names the program.
const KEPT: usize = 500;
/// Words of containerd and gVisor before the cause if a container's own program cannot be loaded. No other runtime
/// loads it before the container counts as started: those of runc and crun are in the container's log.
const TASK_NOT_STARTED: &str = "failed to start containerd task \"";
const GVISOR_STARTS: &str = "OCI runtime start failed: starting container: starting ";
const GVISOR_LOADS: &str = ": creating process: failed to load ";

/// Program that could not be run, by a message of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program<'m> {
    /// The container's own.
    Own,
    /// One of the node. Holds the end of the message.
    Other { message: &'m str },
}

/// Returns which program could not be run, by a runtime's message on a container that it could not create or start;
/// `None` if the message is about something else. Its end counts: before it is text that the Pod chooses.
pub(super) fn failed_program(message: &str) -> Option<Program<'_>> {
    let cause = up_to_the_cause(message)?;
    if is_of_gvisor(cause) {
        return Some(Program::Own);
    }
    let least = cause.len().saturating_sub(KEPT);
    let begin = (least..=cause.len()).find(|at| cause.is_char_boundary(*at))?;
    Some(Program::Other {
        message: &cause[begin..],
    })
}

/// Returns whether a line that a container's run ended with says that its own program, or one that its shell or init
/// called, is for another architecture.
pub(super) fn names_own_program(line: &str) -> bool {
    let line = line.trim();
    is_of_runc(line) || is_of_crun(line) || is_of_init(line) || is_of_shell(line)
}

/// Returns the message up to its cause, if that is an exec format error.
fn up_to_the_cause(message: &str) -> Option<&str> {
    let mut text = message.trim_end();
    for ending in ENDINGS {
        text = text.strip_suffix(ending).unwrap_or(text).trim_end();
    }
    let before = text.len().checked_sub(EXEC_FORMAT.len())?;
    let is_exec_format = text.get(before..)?.eq_ignore_ascii_case(EXEC_FORMAT);
    is_exec_format.then_some(text)
}

/// `failed to start containerd task "ID": OCI runtime start failed: starting container: starting sub-container
/// [/app]: creating process: failed to load /app: exec format error`
fn is_of_gvisor(cause: &str) -> bool {
    if let Some(task) = cause.strip_prefix(TASK_NOT_STARTED)
        && let Some((_, start)) = task.split_once("\": ")
        && let Some(start) = start.strip_prefix(GVISOR_STARTS)
        && let Some((_, loaded)) = start.rsplit_once(GVISOR_LOADS)
        && let Some(program) = loaded.strip_suffix(": exec format error")
    {
        return is_path(program);
    }
    false
}

/// `exec /app: exec format error`; before 1.1 `standard_init_linux.go:228: exec user process caused: exec format error`,
/// and before 1.0 with the cause in quotes. Go says `fork/exec` of a program that another one runs, as of a hook.
fn is_of_runc(line: &str) -> bool {
    if let Some((before, cause)) = line.split_once("exec user process caused") {
        let is_begin = before.is_empty() || before.starts_with("standard_init_linux.go:");
        return is_begin && [": exec format error", " \"exec format error\""].contains(&cause);
    }
    let program = between(line, "exec ", ": exec format error");
    program.is_some_and(is_path)
}

/// ``exec container process `/app`: Exec format error``, also as the message of a line of JSON.
fn is_of_crun(line: &str) -> bool {
    let message = line.strip_prefix("{\"msg\":\"").unwrap_or(line);
    let Some(program) = message.strip_prefix("exec container process `") else {
        return false;
    };
    let Some((_, cause)) = program.split_once("`: ") else {
        return false;
    };
    cause == "Exec format error" || cause.starts_with("Exec format error\",\"level\":\"error\"")
}

/// `[FATAL tini (7)] exec /app failed: Exec format error`, `[dumb-init] /app: Exec format error`
fn is_of_init(line: &str) -> bool {
    let Some(called) = line.strip_suffix(": Exec format error") else {
        return false;
    };
    if let Some(by_tini) = between(called, "[FATAL tini (", " failed")
        && let Some((_, program)) = by_tini.split_once(")] exec ")
    {
        return is_path(program);
    }
    called.strip_prefix("[dumb-init] ").is_some_and(is_path)
}

/// `/entrypoint.sh: 3: exec: /app: Exec format error` of dash, and of bash `/entrypoint.sh: line 3: /app: cannot
/// execute binary file: Exec format error`, without a line for `-c`.
fn is_of_shell(line: &str) -> bool {
    let Some(called) = line.strip_suffix(": Exec format error") else {
        return false;
    };
    let Some((shell, called)) = called.split_once(": ") else {
        return false;
    };
    let by_bash = called.strip_suffix(": cannot execute binary file");
    let called = by_bash.unwrap_or(called);
    let (number, program) = match called.split_once(": ") {
        Some((number, program)) => (number.strip_prefix("line ").unwrap_or(number), program),
        None if by_bash.is_some() => ("", called),
        None => return false,
    };
    let is_named = !shell.is_empty() && !shell.contains(' ');
    is_named
        && number.bytes().all(|b| b.is_ascii_digit())
        && is_path(program.strip_prefix("exec: ").unwrap_or(program))
}

fn between<'t>(text: &'t str, prefix: &str, suffix: &str) -> Option<&'t str> {
    text.strip_prefix(prefix)?.strip_suffix(suffix)
}

/// Returns whether a text may be the path of a program, and not the words of another message.
fn is_path(text: &str) -> bool {
    !text.is_empty() && !text.contains(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: &str = "failed to create containerd task: failed to create shim task: ";
    const HOOK: &str = "/usr/bin/oci-hook: exec format error";

    fn of_the_node(message: &str) -> bool {
        matches!(failed_program(message), Some(Program::Other { message: said }) if message.contains(said))
    }

    /// By runc 1.1.5 and 1.4.0, crun 1.8.1, dash 0.5.12, bash 5.2 and, as their sources have it, earlier versions, tini and
    /// dumb-init.
    #[test]
    fn what_is_said_of_a_containers_own_program_counts() {
        for line in [
            "exec /app: exec format error",
            "exec /script: exec format error\n",
            "standard_init_linux.go:228: exec user process caused: exec format error",
            "standard_init_linux.go:178: exec user process caused \"exec format error\"",
            "exec container process `/app`: Exec format error",
            r#"{"msg":"exec container process `/app`: Exec format error","level":"error","time":"2026-11-28T14:07:36.762227Z"}"#,
            "[FATAL tini (7)] exec /app failed: Exec format error",
            "[dumb-init] ./app: Exec format error",
            // By dash.
            "sh: 1: /app: Exec format error",
            "/entrypoint.sh: 1: exec: ./app: Exec format error",
            // By bash.
            "bash: ./app: cannot execute binary file: Exec format error",
            "/entrypoint.sh: line 1: ./app: cannot execute binary file: Exec format error",
        ] {
            assert!(names_own_program(line), "{line}");
            assert_ne!(
                failed_program(line),
                Some(Program::Own),
                "the runtime would not say so: {line}"
            );
        }
    }

    #[test]
    fn a_log_that_ends_with_another_program_is_no_evidence() {
        for line in [
            // A startContainer hook, by runc 1.1.5 and 1.4.0, which the container's log shows.
            "error running hook #0: fork/exec /hook: exec format error",
            "error running startContainer hook #0: fork/exec /hook: exec format error",
            "error running startContainer hook #0: exit status 1, stdout: , stderr: exec /sbin/ldconfig: exec format error",
            "error running startContainer hook #0: exit status 126, stdout: , stderr: /hook: 1: /x: Exec format error",
            "error executing hook `/hook` (exit code: 1)",
            // By programs in it, of what they call.
            "fork/exec /host/usr/bin/nvidia-smi: exec format error",
            "panic: fork/exec /plugin: exec format error",
            "exec: fork/exec /plugin: exec format error",
            "OSError: [Errno 8] Exec format error: '/plugin'",
            "could not exec '/usr/bin/runc': exec format error",
            "exec format error",
            "exec : exec format error",
            ": 1: /app: Exec format error",
            "sh: /app: Exec format error",
            "exec /app: exec format error, or so",
            "",
        ] {
            assert!(!names_own_program(line), "{line}");
        }
    }

    /// Messages of containerd 2.3.4 with runc 1.1.5 and 1.4.0, some with the ending of earlier versions.
    #[test]
    fn a_message_in_which_another_program_fails_is_of_the_node() {
        for cause in [
            "OCI runtime create failed: runc create failed: unable to start container process: error during container init: error running hook #0: fork/exec HOOK: unknown",
            "OCI runtime create failed: runc create failed: unable to start container process: error during container init: error running createContainer hook #0: fork/exec HOOK: unknown",
            "OCI runtime create failed: runc create failed: error running poststart hook #0: fork/exec HOOK: unknown",
            "OCI runtime create failed: runc create failed: unable to start container process: error during container init: error running hook #0: error running hook: exit status 1, stdout: , stderr: exec HOOK\n: unknown",
            "OCI runtime create failed: unable to retrieve OCI runtime error (open /run/containerd/io.containerd.runtime.v2.task/k8s.io/a/log.json: no such file or directory): fork/exec HOOK",
            // In words of which none is known.
            "exec HOOK: unknown",
        ] {
            let message = format!("{TASK}{}", cause.replace("HOOK", HOOK));
            assert!(of_the_node(&message), "{message}");
        }
        for message in [
            // By CRI-O, as a line of the runtime's log.
            "container create failed: time=\"2026-11-28T14:07:38Z\" level=error msg=\"runc create failed: error running hook #0: error running hook: exit status 1, stdout: , stderr: exec /sbin/ldconfig: exec format error\\n\"\n",
            "failed to create containerd task: failed to start shim: start failed: : fork/exec /usr/local/bin/containerd-shim-other-v2: exec format error",
            "failed to create containerd task: failed to create shim task: failed to create init process I/O: failed to start binary process: fork/exec /usr/bin/logger: exec format error",
            "executing hook: Exec format error (os error 8)",
            "failed to start containerd task \"a\": OCI runtime start failed: starting container: executing hook: fork/exec /hook: exec format error",
        ] {
            assert!(of_the_node(message), "{message}");
        }
        let long = format!("{}{HOOK}", "é".repeat(1000));
        assert!(
            matches!(failed_program(&long), Some(Program::Other { message }) if message.len() <= KEPT)
        );
    }

    #[test]
    fn gvisor_alone_says_of_a_container_that_it_cannot_start_it_for_its_own_program() {
        let start = "failed to start containerd task \"a\": OCI runtime start failed: starting container: starting ";
        for cause in [
            "sub-container [/app]: creating process: failed to load /app: exec format error",
            "root container: urpc method \"containerManager.StartRoot\" failed: creating process: failed to load /app: exec format error: unknown",
        ] {
            assert_eq!(
                failed_program(&format!("{start}{cause}")),
                Some(Program::Own),
                "{cause}"
            );
        }
        // A command that repeats these words changes nothing.
        let chosen = format!(
            "{start}sub-container [: failed to load /app]: fork/exec /gofer: exec format error"
        );
        assert!(of_the_node(&chosen));
        let quoted = "failed to create containerd task: starting container: starting x: failed to load /a: exec format error";
        assert!(of_the_node(quoted));
    }

    /// Whatever the other program, or what is around it in the message, is called.
    #[test]
    fn no_message_in_which_another_program_fails_is_of_the_containers_own() {
        let names = [
            "/usr/bin/oci-hook",
            "/opt/exec /app",
            "/opt/exec container process `/app`",
            "/opt/x: failed to load /app",
            "/opt/standard_init_linux.go:228: exec user process caused",
            "/opt/[FATAL tini (7)] exec /app failed",
            "/opt/sh: 1: /app",
        ];
        let frames = [
            "error running hook #0: fork/exec NAME: exec format error",
            "error running startContainer hook #0: fork/exec NAME: exec format error",
            "error running createContainer hook #0: exit status 1, stdout: OTHER, stderr: exec NAME: exec format error",
            "failed to start shim: start failed: OTHER: fork/exec NAME: exec format error",
            "unable to retrieve OCI runtime error (open OTHER: no such file or directory): fork/exec NAME: exec format error",
            "failed to create init process I/O: failed to start binary process: fork/exec NAME: exec format error",
            "could not exec 'NAME': exec format error",
            "fork/exec NAME: exec format error",
        ];
        let begins = [
            "",
            "failed to create containerd task: ",
            "failed to start containerd task \"a\": OCI runtime start failed: starting container: starting sub-container [OTHER]: ",
            "failed to start containerd task \"a\": OCI runtime start failed: starting container: executing hook: ",
            "container create failed: ",
        ];
        for (begin, frame) in begins
            .iter()
            .flat_map(|begin| frames.map(|frame| (begin, frame)))
        {
            for (name, other) in names
                .iter()
                .flat_map(|name| names.map(|other| (name, other)))
            {
                let message = format!("{begin}{frame}")
                    .replace("NAME", name)
                    .replace("OTHER", other);
                for ending in ["", ": unknown", "\n: unknown", "\\n\"\n"] {
                    let message = format!("{message}{ending}");
                    assert!(
                        matches!(failed_program(&message), Some(Program::Other { .. })),
                        "{message}"
                    );
                    assert!(!names_own_program(&message), "{message}");
                }
            }
        }
    }

    #[test]
    fn what_the_pod_chooses_within_a_message_says_nothing() {
        for message in [
            "exec: \"exec format error\": executable file not found in $PATH: unknown",
            "chdir to cwd (\"/exec format error\") set in config.json failed: no such file or directory: unknown",
            "fork/exec /hook: permission denied",
            "exec format error, or so",
            "",
        ] {
            assert_eq!(failed_program(message), None, "{message}");
            assert!(!names_own_program(message), "{message}");
        }
    }
}
