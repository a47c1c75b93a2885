//! Pipes, signals, colours, help: what a terminal and a shell expect of a program.

use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use serde_json::json;
use testregistry::Fault;
use tokio::process::Command;

use super::{BOTH, Desk};
use crate::support::soon;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tolerarch");

#[tokio::test]
async fn a_reader_that_stops_early_is_no_error() {
    let desk = Desk::new(json!({})).await;
    let list = json!({"apiVersion": "v1", "kind": "List", "items": vec![json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "x".repeat(100)},
        "spec": {"template": {"spec": {"containers": [{"image": "x"}]}}},
    }); 1000]});
    desk.write("list.json", list.to_string());
    for output in ["table", "json"] {
        // The reader ends first: the writer's next write fails.
        let script =
            format!(r#"{{ "$0" check -f list.json -o {output}; echo "$?" >status; }} | head -n 1"#);
        let ran = Command::new("sh")
            .args(["-c", &script, PROGRAM])
            .current_dir(desk.path())
            .output();
        let ran = soon("the end", ran).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&ran.stderr), "", "{output}");
        assert_eq!(
            std::fs::read_to_string(desk.path().join("status")).unwrap(),
            "0\n",
            "{output}"
        );
    }
    let commands = [
        "check -f list.json",
        "config",
        "config --schema",
        "config --explain",
        "completions bash",
    ];
    for command in commands {
        let mut full = Command::new("sh");
        full.args(["-c", &format!(r#""$0" {command} >/dev/full"#), PROGRAM])
            .current_dir(desk.path());
        let ran = soon("the end", full.output()).await.unwrap();
        assert_eq!(ran.status.code(), Some(1), "{command}");
        assert!(
            String::from_utf8_lossy(&ran.stderr).starts_with("tolerarch: "),
            "{command}: {ran:?}"
        );
    }
    let closed = Command::new("sh")
        .args(["-c", r#""$0" check -f gone.json 2>&-"#, PROGRAM])
        .output();
    assert_eq!(
        soon("the end", closed).await.unwrap().status.code(),
        Some(1)
    );
}

#[tokio::test]
async fn an_interrupt_ends_it_at_once() {
    let desk = Desk::new(json!({})).await;
    let image = desk.image("hangs", &BOTH);
    desk.registry.repo("hangs").fault(Some(Fault::hang()));
    let mut child = desk.command(&["inspect", &image]).spawn().unwrap();
    desk.registry.wait_until(|seen| seen.len() == 1).await;
    let process = child.id().unwrap().to_string();
    let sent = Command::new("sh")
        .args(["-c", r#"kill -s INT "$0""#, &process])
        .status()
        .await
        .unwrap();
    assert!(sent.success());
    // A shell calls this status 130.
    assert_eq!(
        soon("the end", child.wait()).await.unwrap().signal(),
        Some(2)
    );
}

#[tokio::test]
async fn pipes_get_no_colours_and_no_progress() {
    let desk = Desk::new(json!({})).await;
    let image = desk.image("multi", &BOTH);
    for arguments in [&["inspect", &image][..], &["check", "-f", "-"]] {
        let ran = desk
            .run_with(arguments, "{\"apiVersion\": \"v1\", \"kind\": \"Service\"}")
            .await;
        assert_eq!(ran.status, Some(0));
        assert!(!ran.stdout.contains('\u{1b}'), "{}", ran.stdout);
        assert_eq!(ran.stderr, "");
    }
}

#[tokio::test]
async fn what_is_told_is_not_logged_as_well() {
    let desk = Desk::new(json!({})).await;
    let gone = desk.registry.repo("gone").reference("v1");
    let ran = desk.run(&["inspect", &gone]).await;
    assert!(
        ran.stdout.contains("not-found") && ran.stderr.is_empty(),
        "{}{}",
        ran.stdout,
        ran.stderr
    );
    let ran = desk.run(&["inspect", "--log-level", "warn", &gone]).await;
    assert!(ran.stderr.contains("lookup failed"), "{}", ran.stderr);
}

#[tokio::test]
async fn kubectl_finds_it_as_a_plugin() {
    let desk = Desk::new(json!({})).await;
    let plugin = desk.path().join("kubectl-tolerarch");
    symlink(PROGRAM, &plugin).unwrap();
    let run = async |arguments: &[&str]| {
        let ran = Command::new(&plugin)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .await
            .unwrap();
        (
            ran.status.code(),
            String::from_utf8(ran.stdout).unwrap() + &String::from_utf8(ran.stderr).unwrap(),
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
    let desk = Desk::new(json!({})).await;
    for arguments in [
        &["check"][..],
        &["check", "x.yaml"],
        &["check", "-f"],
        &["inspect"],
        &["inspect", "-o", "patch", "x"],
    ] {
        let ran = desk.run(arguments).await;
        assert_eq!(
            (ran.status, &*ran.stdout),
            (Some(2), ""),
            "{arguments:?}: {}",
            ran.stderr
        );
        assert!(ran.stderr.contains("--help"), "{}", ran.stderr);
    }
    let ran = desk.run(&["check", "x.yaml"]).await;
    assert!(ran.stderr.contains("check -f x.yaml"), "{}", ran.stderr);
    for shell in ["bash", "zsh", "fish"] {
        let ran = Command::new(PROGRAM)
            .args(["completions", shell])
            .output()
            .await
            .unwrap();
        assert!(ran.status.success());
        let script = String::from_utf8(ran.stdout).unwrap();
        assert!(
            ["check", "inspect", "fail-on"]
                .iter()
                .all(|word| script.contains(word)),
            "{shell}: {script}"
        );
    }
}
