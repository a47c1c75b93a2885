//! What README and docs show of the program: sessions are run line by line, and what they show is what comes out; other
//! commands are parsed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tokio::process::Command;

use super::cluster::FakeCluster;
use super::{BOTH, Desk};
use crate::support::soon;

/// By this name the pages call the registry.
const NAME: &str = "registry.example.com";
/// What stands between the outputs of two commands.
const MARK: &str = "\u{1}";

/// A command, and what it writes.
#[derive(Debug, PartialEq)]
struct Step {
    command: String,
    output: String,
}

/// README, docs and runbooks.
fn pages() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [root.join("docs"), root.join("docs/runbooks")];
    let files = folders.iter().flat_map(|folder| {
        fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().path())
    });
    let pages = files.filter(|file| file.extension().is_some_and(|extension| extension == "md"));
    let mut pages: Vec<PathBuf> = pages.chain([root.join("README.md")]).collect();
    pages.sort();
    pages
        .into_iter()
        .map(|page| (page.clone(), fs::read_to_string(page).unwrap()))
        .collect()
}

/// The fenced blocks of a language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    page.split(&*fence)
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect()
}

/// The blocks of `console`.
fn sessions(page: &str) -> Vec<Vec<Step>> {
    let blocks = blocks(page, "console").into_iter();
    let steps = |block: &str| {
        let mut steps: Vec<Step> = Vec::new();
        for line in block.lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push(Step {
                    command: command.to_owned(),
                    output: String::new(),
                }),
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
        let is_time =
            words[place].starts_with("ms") && words[place - 1].bytes().all(|b| b.is_ascii_digit());
        if is_time {
            words[place - 1] = "N".to_owned();
        }
    }
    words.join(" ")
}

#[tokio::test]
async fn the_sessions_of_the_documentation_are_true() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sessions: Vec<_> = pages()
        .iter()
        .flat_map(|(_, page)| sessions(page))
        .collect();
    assert!(sessions.len() >= 5, "{sessions:?}");

    let desk = Desk::new(json!({})).await;
    let web = desk.registry.repo("shop/web");
    let entries = BOTH.map(|platform| web.entry(platform));
    let attestation = web.attestation(entries[0]["digest"].as_str().unwrap());
    web.index(Some("1.4"), entries.into_iter().chain([attestation]));
    let legacy = desk.registry.repo("shop/legacy");
    legacy.image("linux/amd64", Some("2"));
    legacy.image("linux/amd64", Some("3"));
    legacy.index(Some("4"), BOTH);
    legacy.index(Some("10"), BOTH);
    desk.registry.repo("ops/agent").index(Some("3"), BOTH);
    let address = desk.registry.address();
    for file in fs::read_dir(root.join("e2e/binary/cli/session")).unwrap() {
        let file = file.unwrap();
        let text = fs::read_to_string(file.path())
            .unwrap()
            .replace(NAME, &address);
        desk.write(file.file_name().to_str().unwrap(), text);
    }
    let cluster: BTreeMap<String, Value> =
        serde_json::from_str(&fs::read_to_string(desk.path().join("cluster.json")).unwrap())
            .unwrap();
    let cluster = FakeCluster {
        objects: cluster,
        ..FakeCluster::default()
    }
    .serve()
    .await;
    let kubeconfig = cluster.kubeconfig(desk.path());
    // What the registry of this test needs, so that the pages need not show it.
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
        tolerarch_support::environment::Environment::of_process()
            .text("PATH")
            .unwrap()
    );

    for session in sessions {
        let line = |step: &Step| format!("{}\ns=$?; printf '{MARK}'; (exit $s)\n", step.command);
        let script = session
            .iter()
            .map(line)
            .collect::<String>()
            .replace(NAME, &address);
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("exec 2>&1\n{script}")])
            .current_dir(desk.path())
            .env("PATH", &path);
        shell
            .env("SSL_CERT_FILE", desk.path().join("ca.crt"))
            .env("KUBECONFIG", &kubeconfig);
        let ran = soon("the end of the session", shell.output())
            .await
            .unwrap();
        let written = String::from_utf8(ran.stdout)
            .unwrap()
            .replace(&address, NAME);
        for (step, output) in session.iter().zip(written.split(MARK)) {
            assert_eq!(
                timeless(output),
                timeless(&step.output),
                "$ {}\n{output}",
                step.command
            );
        }
    }
}

/// Commands that need a cluster, or files that are not here, are not run: subcommands, flags and their order are right.
#[tokio::test]
async fn the_commands_of_the_documentation_are_known() {
    let mut parsed = 0;
    for (page, text) in pages() {
        for line in blocks(&text, "sh").into_iter().flat_map(str::lines) {
            // What stands before redirections and comments, in each part of a pipe.
            let parts = line.split('|').map(|part| {
                part.split(['>', '#', '<', '(', ')', '$'])
                    .next()
                    .unwrap()
                    .trim()
            });
            for part in parts.filter(|part| part.starts_with("tolerarch ")) {
                let mut command = Command::new(env!("CARGO_BIN_EXE_tolerarch"));
                let arguments = part.split_whitespace().skip(1).filter(|word| *word != "\\");
                command.args(arguments).arg("--help").kill_on_drop(true);
                let ran = soon("help", command.output()).await.unwrap();
                let said = String::from_utf8_lossy(&ran.stderr);
                assert!(ran.status.success(), "{}: {part}: {said}", page.display());
                parsed += 1;
            }
        }
    }
    assert!(parsed >= 5, "{parsed}");
}

/// The Pod before, and what the webhook adds to it.
#[tokio::test]
async fn the_readme_shows_what_is_added() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let lines: Vec<&str> = blocks(&readme, "diff")[0].lines().collect();
    let desk = Desk::new(json!({})).await;
    desk.registry.repo("shop/web").index(Some("1.4"), BOTH);
    let pod = |with: &[char]| {
        let lines = lines.iter().filter_map(|line| line.strip_prefix(with));
        lines
            .map(|line| format!("{line}\n"))
            .collect::<String>()
            .replace(NAME, &desk.registry.address())
    };
    let added: String = lines
        .iter()
        .filter_map(|line| line.strip_prefix('+'))
        .collect();
    let patch = async |name, text| {
        let file = desk.write(name, text);
        let ran = desk
            .run(&["check", "-o", "patch", "-f", file.to_str().unwrap()])
            .await;
        assert_eq!(ran.status, Some(0), "{}", ran.stderr);
        ran.stdout
    };
    assert_eq!(patch("after.yaml", pod(&[' ', '+'])).await, "");
    let before = patch("before.yaml", pod(&[' '])).await;
    let operations: Vec<serde_json::Value> = serde_json::from_str(&before).unwrap();
    let texts = texts(
        &operations
            .iter()
            .map(|operation| operation["value"].clone())
            .collect(),
    );
    assert!(texts.len() >= 7, "{before}");
    assert!(
        texts.iter().all(|text| added.contains(&**text)),
        "{texts:?} in {added}"
    );
}

/// The keys and values of a JSON value.
fn texts(value: &serde_json::Value) -> Vec<String> {
    match value {
        serde_json::Value::Array(elements) => elements.iter().flat_map(texts).collect(),
        serde_json::Value::Object(members) => members
            .iter()
            .flat_map(|(key, value)| [vec![key.clone()], texts(value)].concat())
            .collect(),
        other => vec![
            other
                .as_str()
                .map_or_else(|| other.to_string(), str::to_owned),
        ],
    }
}
