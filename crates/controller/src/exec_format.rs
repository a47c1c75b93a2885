//! Messages about a program for another architecture. Pure.
//!
//! Only messages about the container's own program are evidence against its image: those of runtimes, inits and shells
//! that are known here. Any other message is about a program of the node: a hook, a shim, the runtime, a log driver.

/// Message of the C library and, in lower case, of Go.
const EXEC_FORMAT: &str = "exec format error";
/// Endings that may follow: of containerd and dockerd, of a quoted log line, of Rust.
const ENDINGS: [&str; 4] = [": unknown", "\"", "\\n", " (os error 8)"];
/// Maximum bytes that are kept of a message about the node; its end names the program.
const KEPT: usize = 500;
/// Words of containerd and gVisor before the cause if a container's own program cannot be loaded. No other runtime
/// loads it before the container counts as started: the messages of runc and crun are in the container's log.
const TASK_NOT_STARTED: &str = "failed to start containerd task \"";
const GVISOR_STARTS: &str = "OCI runtime start failed: starting container: starting ";
const GVISOR_LOADS: &str = ": creating process: failed to load ";

/// A program that could not be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program<'m> {
    /// The container's program.
    Own,
    /// A program of the node. Holds the end of the message.
    Other { message: &'m str },
}

/// Returns the program that could not be run, from a runtime's message about a container that it could not create or
/// start; `None` if the message is about something else. Only the end of the message counts: the Pod may choose the
/// text before it.
pub(super) fn failed_program(message: &str) -> Option<Program<'_>> {
    let message = up_to_the_cause(message)?;
    if is_of_gvisor(message) {
        return Some(Program::Own);
    }
    let mut start = message.len().saturating_sub(KEPT);
    while !message.is_char_boundary(start) {
        start += 1;
    }
    Some(Program::Other {
        message: &message[start..],
    })
}

/// Returns whether the last line of a container's run shows that its program is for another architecture, or a program
/// that its shell or init called.
pub(super) fn names_own_program(line: &str) -> bool {
    let line = line.trim();
    is_of_runc(line) || is_of_crun(line) || is_of_init(line) || is_of_shell(line)
}

/// Returns the message up to and including its cause, if the cause is an exec format error.
fn up_to_the_cause(message: &str) -> Option<&str> {
    let mut text = message.trim_end();
    for ending in ENDINGS {
        text = text.strip_suffix(ending).unwrap_or(text).trim_end();
    }
    let start = text.len().checked_sub(EXEC_FORMAT.len())?;
    if text.get(start..)?.eq_ignore_ascii_case(EXEC_FORMAT) {
        Some(text)
    } else {
        None
    }
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

/// Since 1.1 `exec /app: exec format error`; before
/// `standard_init_linux.go:228: exec user process caused: exec format error`, and before 1.0 with the cause in quotes.
/// For a program that another program runs, such as a hook, Go writes `fork/exec`.
fn is_of_runc(line: &str) -> bool {
    if let Some((before, cause)) = line.split_once("exec user process caused") {
        let is_beginning = before.is_empty() || before.starts_with("standard_init_linux.go:");
        return is_beginning && [": exec format error", " \"exec format error\""].contains(&cause);
    }
    between(line, "exec ", ": exec format error").is_some_and(is_path)
}

/// ``exec container process `/app`: Exec format error``, also in a JSON object.
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

/// `/entrypoint.sh: 3: exec: /app: Exec format error` of dash; of bash `/entrypoint.sh: line 3: /app: cannot execute
/// binary file: Exec format error`, with `-c` without the line number.
fn is_of_shell(line: &str) -> bool {
    let Some(called) = line.strip_suffix(": Exec format error") else {
        return false;
    };
    let Some((shell, called)) = called.split_once(": ") else {
        return false;
    };
    if shell.is_empty() || shell.contains(' ') {
        return false;
    }
    let by_bash = called.strip_suffix(": cannot execute binary file");
    let called = by_bash.unwrap_or(called);
    let (number, program) = match called.split_once(": ") {
        Some((number, program)) => (number.strip_prefix("line ").unwrap_or(number), program),
        None if by_bash.is_some() => ("", called),
        None => return false,
    };
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return false;
    }
    is_path(program.strip_prefix("exec: ").unwrap_or(program))
}

fn between<'t>(text: &'t str, prefix: &str, suffix: &str) -> Option<&'t str> {
    text.strip_prefix(prefix)?.strip_suffix(suffix)
}

/// Returns whether a text may be the path of a program, rather than part of another message.
fn is_path(text: &str) -> bool {
    !text.is_empty() && !text.contains(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: &str = "failed to create containerd task: failed to create shim task: ";
    const HOOK: &str = "/usr/bin/oci-hook: exec format error";

    fn of_the_node(message: &str) -> bool {
        matches!(failed_program(message), Some(Program::Other { message: end }) if message.contains(end))
    }

    /// Messages of runc 1.1.5 and 1.4.0, crun 1.8.1, dash 0.5.12, bash 5.2; and, from their sources, of earlier
    /// versions, tini and dumb-init.
    #[test]
    fn message_about_the_containers_program_is_evidence() {
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
                "not a message of the runtime: {line}"
            );
        }
    }

    #[test]
    fn log_line_about_another_program_is_no_evidence() {
        for line in [
            // About a startContainer hook, by runc 1.1.5 and 1.4.0, in the container's log.
            "error running hook #0: fork/exec /hook: exec format error",
            "error running startContainer hook #0: fork/exec /hook: exec format error",
            "error running startContainer hook #0: exit status 1, stdout: , stderr: exec /sbin/ldconfig: exec format error",
            "error running startContainer hook #0: exit status 126, stdout: , stderr: /hook: 1: /x: Exec format error",
            "error executing hook `/hook` (exit code: 1)",
            // By programs in the container, about programs that they run.
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
    fn message_about_another_program_is_of_the_node() {
        for cause in [
            "OCI runtime create failed: runc create failed: unable to start container process: error during container init: error running hook #0: fork/exec HOOK: unknown",
            "OCI runtime create failed: runc create failed: unable to start container process: error during container init: error running createContainer hook #0: fork/exec HOOK: unknown",
            "OCI runtime create failed: runc create failed: error running poststart hook #0: fork/exec HOOK: unknown",
            "OCI runtime create failed: runc create failed: unable to start container process: error during container init: error running hook #0: error running hook: exit status 1, stdout: , stderr: exec HOOK\n: unknown",
            "OCI runtime create failed: unable to retrieve OCI runtime error (open /run/containerd/io.containerd.runtime.v2.task/k8s.io/a/log.json: no such file or directory): fork/exec HOOK",
            // In unknown words.
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
    fn message_of_gvisor_is_about_the_containers_program() {
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
        // A command that repeats these words has no effect.
        let chosen = format!(
            "{start}sub-container [: failed to load /app]: fork/exec /gofer: exec format error"
        );
        assert!(of_the_node(&chosen));
        let quoted = "failed to create containerd task: starting container: starting x: failed to load /a: exec format error";
        assert!(of_the_node(quoted));
    }

    /// Neither the name of the other program nor other names in the message matter.
    #[test]
    fn names_in_a_message_about_the_node_have_no_effect() {
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
    fn text_of_the_pod_within_a_message_is_no_evidence() {
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
