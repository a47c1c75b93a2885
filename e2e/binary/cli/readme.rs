//! The shell sessions of the README, run line by line: what they show is what comes out.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;
use tokio::process::Command;

use super::{BOTH, Desk};
use crate::support::soon;

/// By this name the README calls the registry.
const NAME: &str = "registry.example.com";
/// What stands between the outputs of two commands.
const MARK: &str = "\u{1}";

/// A command, and what it writes.
#[derive(Debug, PartialEq)]
struct Step {
    command: String,
    output: String,
}

/// The fenced blocks of `console`.
fn sessions(readme: &str) -> Vec<Vec<Step>> {
    let blocks = readme.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let steps = |block: &str| {
        let mut steps: Vec<Step> = Vec::new();
        for line in block.lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push(Step { command: command.to_owned(), output: String::new() }),
                (None, Some(step)) => step.output += &format!("{line}\n"),
                (None, None) => panic!("a session begins with a command: {line}"),
            }
        }
        steps
    };
    blocks.map(steps).collect()
}

/// Times differ from run to run.
fn timeless(text: &str) -> String {
    let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    for place in 1..words.len() {
        let is_time = words[place].starts_with("ms") && words[place - 1].bytes().all(|b| b.is_ascii_digit());
        if is_time {
            words[place - 1] = "N".to_owned();
        }
    }
    words.join(" ")
}

#[tokio::test]
async fn the_sessions_of_the_readme_are_true() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sessions = sessions(&fs::read_to_string(root.join("README.md")).unwrap());
    assert!(sessions.len() >= 3, "{sessions:?}");

    let desk = Desk::new(json!({})).await;
    let web = desk.registry.repo("shop/web");
    let entries = BOTH.map(|platform| web.entry(platform));
    let attestation = web.attestation(entries[0]["digest"].as_str().unwrap());
    web.index(Some("1.4"), entries.into_iter().chain([attestation]));
    desk.registry.repo("shop/legacy").image("linux/amd64", Some("2"));
    desk.registry.repo("ops/agent").index(Some("3"), BOTH);
    let address = desk.registry.address();
    for file in fs::read_dir(root.join("e2e/binary/cli/session")).unwrap() {
        let file = file.unwrap();
        let text = fs::read_to_string(file.path()).unwrap().replace(NAME, &address);
        desk.write(file.file_name().to_str().unwrap(), text);
    }
    // What the registry of this test needs, so that the README need not show it.
    fs::create_dir(desk.path().join("bin")).unwrap();
    let wrapper = desk.path().join("bin/tolerarch");
    let config = desk.path().join("config.yaml");
    let script = format!(
        "#!/bin/sh\nexec '{}' --config '{}' \"$@\"\n",
        env!("CARGO_BIN_EXE_tolerarch"),
        config.display()
    );
    fs::write(&wrapper, script).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!(
        "{}:{}",
        wrapper.parent().unwrap().display(),
        tolerarch::config::Environment::of_process().text("PATH").unwrap()
    );

    for session in sessions {
        let line = |step: &Step| format!("{}\ns=$?; printf '{MARK}'; (exit $s)\n", step.command);
        let script = session.iter().map(line).collect::<String>().replace(NAME, &address);
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec 2>&1\n{script}")]).current_dir(desk.path()).env("PATH", &path);
        shell.env("SSL_CERT_FILE", desk.path().join("ca.crt"));
        let ran = soon("the end of the session", shell.output()).await.unwrap();
        let written = String::from_utf8(ran.stdout).unwrap().replace(&address, NAME);
        for (step, output) in session.iter().zip(written.split(MARK)) {
            assert_eq!(timeless(output), timeless(&step.output), "$ {}\n{output}", step.command);
        }
    }
}
