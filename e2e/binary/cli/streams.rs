//! Pipes, signals, colours, help and exit statuses, as terminals and shells expect them.

use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use serde_json::json;
use testregistry::Fault;
use tokio::process::Command;

use super::{BOTH, CommandLine};
use crate::support::soon;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tolerarch");

/// Returns a list of objects whose table is longer than a pipe holds.
fn long_list() -> String {
    let daemon_set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "x".repeat(100)},
        "spec": {"template": {"spec": {"containers": [{"image": "x"}]}}},
    });
    json!({"apiVersion": "v1", "kind": "List", "items": vec![daemon_set; 1000]}).to_string()
}

#[tokio::test]
async fn reader_that_stops_early_is_no_error() {
    let cli = CommandLine::new(json!({})).await;
    cli.write("list.json", long_list());
    for format in ["table", "json"] {
        // `head` ends first, so the next write fails.
        let script =
            format!(r#"{{ "$0" check -f list.json -o {format}; echo "$?" >status; }} | head -n 1"#);
        let output = Command::new("sh")
            .args(["-c", &script, PROGRAM])
            .current_dir(cli.path())
            .output();
        let output = soon("the end", output).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{format}");
        assert_eq!(
            std::fs::read_to_string(cli.path().join("status")).unwrap(),
            "0\n",
            "{format}"
        );
    }
}

#[tokio::test]
async fn failed_write_is_status_1() {
    let cli = CommandLine::new(json!({})).await;
    cli.write("list.json", long_list());
    let commands = [
        "check -f list.json",
        "config",
        "config --schema",
        "config --explain",
        "completions bash",
    ];
    for command in commands {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!(r#""$0" {command} >/dev/full"#), PROGRAM])
            .current_dir(cli.path());
        let output = soon("the end", shell.output()).await.unwrap();
        assert_eq!(output.status.code(), Some(1), "{command}");
        assert!(
            String::from_utf8_lossy(&output.stderr).starts_with("tolerarch: "),
            "{command}: {output:?}"
        );
    }
}

#[tokio::test]
async fn closed_standard_error_keeps_the_status() {
    let with_closed_stderr = Command::new("sh")
        .args(["-c", r#""$0" check -f gone.json 2>&-"#, PROGRAM])
        .output();
    assert_eq!(
        soon("the end", with_closed_stderr)
            .await
            .unwrap()
            .status
            .code(),
        Some(1)
    );
}

#[tokio::test]
async fn interrupt_ends_a_command_at_once() {
    let cli = CommandLine::new(json!({})).await;
    let image = cli.image("hangs", &BOTH);
    cli.registry.repo("hangs").fault(Some(Fault::hang()));
    let mut child = cli.command(&["inspect", &image]).spawn().unwrap();
    cli.registry
        .wait_until(|requests| requests.len() == 1)
        .await;
    let process = child.id().unwrap().to_string();
    let sent = Command::new("sh")
        .args(["-c", r#"kill -s INT "$0""#, &process])
        .status()
        .await
        .unwrap();
    assert!(sent.success());
    // A shell shows this as status 130.
    assert_eq!(
        soon("the end", child.wait()).await.unwrap().signal(),
        Some(2)
    );
}

#[tokio::test]
async fn pipes_get_no_colours_and_no_progress() {
    let cli = CommandLine::new(json!({})).await;
    let image = cli.image("multi", &BOTH);
    for arguments in [&["inspect", &image][..], &["check", "-f", "-"]] {
        let output = cli
            .run_with(arguments, "{\"apiVersion\": \"v1\", \"kind\": \"Service\"}")
            .await;
        assert_eq!(output.status, Some(0));
        assert!(!output.stdout.contains('\u{1b}'), "{}", output.stdout);
        assert_eq!(output.stderr, "");
    }
}

#[tokio::test]
async fn reported_failure_is_not_logged_as_well() {
    let cli = CommandLine::new(json!({})).await;
    let gone = cli.registry.repo("gone").reference("v1");
    let output = cli.run(&["inspect", &gone]).await;
    assert!(
        output.stdout.contains("not-found") && output.stderr.is_empty(),
        "{}{}",
        output.stdout,
        output.stderr
    );
    let output = cli.run(&["inspect", "--log-level", "warn", &gone]).await;
    assert!(output.stderr.contains("lookup failed"), "{}", output.stderr);
}

#[tokio::test]
async fn program_runs_as_a_kubectl_plugin() {
    let cli = CommandLine::new(json!({})).await;
    let plugin = cli.path().join("kubectl-tolerarch");
    symlink(PROGRAM, &plugin).unwrap();
    let run = async |arguments: &[&str]| {
        let output = Command::new(&plugin)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .await
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (status, written) = run(&["check", "--help"]).await;
    assert_eq!(status, Some(0));
    assert!(
        written.contains("Usage: kubectl tolerarch check"),
        "{written}"
    );
    let (status, written) = run(&["check"]).await;
    assert_eq!(status, Some(2));
    assert!(
        written.contains("Usage: kubectl tolerarch check"),
        "{written}"
    );
    let (status, written) = run(&["check", "-f", "-"]).await;
    assert_eq!(status, Some(1), "{written}");
    assert!(written.contains("standard input: no objects"), "{written}");
}

#[tokio::test]
async fn wrong_use_is_status_2() {
    let cli = CommandLine::new(json!({})).await;
    for arguments in [
        &["check"][..],
        &["check", "x.yaml"],
        &["check", "-f"],
        &["inspect"],
        &["inspect", "-o", "patch", "x"],
    ] {
        let output = cli.run(arguments).await;
        assert_eq!(
            (output.status, &*output.stdout),
            (Some(2), ""),
            "{arguments:?}: {}",
            output.stderr
        );
        assert!(output.stderr.contains("--help"), "{}", output.stderr);
    }
    let output = cli.run(&["check", "x.yaml"]).await;
    assert!(
        output.stderr.contains("check -f x.yaml"),
        "{}",
        output.stderr
    );
}

#[tokio::test]
async fn completions_name_commands_and_flags() {
    for shell in ["bash", "zsh", "fish"] {
        let output = Command::new(PROGRAM)
            .args(["completions", shell])
            .output()
            .await
            .unwrap();
        assert!(output.status.success());
        let script = String::from_utf8(output.stdout).unwrap();
        assert!(
            ["check", "inspect", "fail-on"]
                .iter()
                .all(|word| script.contains(word)),
            "{shell}: {script}"
        );
    }
}
