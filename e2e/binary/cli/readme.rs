//! Commands in README and docs. Sessions (`console` blocks) are run, and their output is compared. The commands of `sh` blocks
//! are only parsed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testregistry::Registry;
use tokio::process::Command;

use super::cluster::FakeCluster;
use super::{BOTH, CommandLine};
use crate::support::soon;

/// Name that the pages use for the registry.
const REGISTRY_NAME: &str = "registry.example.com";
/// Separates the outputs of two commands.
const SEPARATOR: &str = "\u{1}";

/// A command of a session, with its output.
#[derive(Debug, PartialEq)]
struct Step {
    command: String,
    output: String,
}

/// Returns README, docs and runbooks with their texts.
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

/// Returns the fenced blocks of a language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    page.split(&*fence)
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect()
}

/// Returns the steps of each `console` block.
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

/// Replaces times in milliseconds, which differ from run to run.
fn without_times(text: &str) -> String {
    let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    for index in 1..words.len() {
        let is_time =
            words[index].starts_with("ms") && words[index - 1].bytes().all(|b| b.is_ascii_digit());
        if is_time {
            words[index - 1] = "N".to_owned();
        }
    }
    words.join(" ")
}

/// Pushes the images that the sessions name.
fn push_images(registry: &Registry) {
    let web = registry.repo("shop/web");
    let entries = BOTH.map(|platform| web.entry(platform));
    let attestation = web.attestation(entries[0]["digest"].as_str().unwrap());
    web.index(Some("1.4"), entries.into_iter().chain([attestation]));
    let legacy = registry.repo("shop/legacy");
    legacy.image("linux/amd64", Some("2"));
    legacy.image("linux/amd64", Some("3"));
    legacy.index(Some("4"), BOTH);
    legacy.index(Some("10"), BOTH);
    registry.repo("ops/agent").index(Some("3"), BOTH);
}

/// Writes the files that the sessions name, with the address of the registry in them.
fn write_files(cli: &CommandLine) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for file in fs::read_dir(root.join("e2e/binary/cli/session")).unwrap() {
        let file = file.unwrap();
        let text = fs::read_to_string(file.path())
            .unwrap()
            .replace(REGISTRY_NAME, &cli.registry.address());
        cli.write(file.file_name().to_str().unwrap(), text);
    }
}

/// Writes a command `tolerarch` that adds the configuration for the test registry, which the pages do not show. Returns a
/// PATH that finds this command first.
fn path_with_wrapper(cli: &CommandLine) -> String {
    let directory = cli.path().join("bin");
    fs::create_dir(&directory).unwrap();
    let wrapper = directory.join("tolerarch");
    let config = cli.path().join("config.yaml");
    let script = format!(
        "#!/bin/sh\nexec '{}' --config '{}' \"$@\"\n",
        env!("CARGO_BIN_EXE_tolerarch"),
        config.display()
    );
    fs::write(&wrapper, script).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    let environment = tolerarch_support::environment::Environment::of_process();
    let path = environment.text("PATH").unwrap();
    format!("{}:{path}", directory.display())
}

#[tokio::test]
async fn sessions_in_the_documentation_match_the_output() {
    let sessions: Vec<_> = pages()
        .iter()
        .flat_map(|(_, page)| sessions(page))
        .collect();
    assert!(sessions.len() >= 5, "{sessions:?}");

    let cli = CommandLine::new(json!({})).await;
    push_images(&cli.registry);
    write_files(&cli);
    let address = cli.registry.address();
    let objects = fs::read_to_string(cli.path().join("cluster.json")).unwrap();
    let objects: BTreeMap<String, Value> = serde_json::from_str(&objects).unwrap();
    let cluster = FakeCluster {
        objects,
        ..FakeCluster::default()
    };
    let cluster = cluster.serve().await;
    let kubeconfig = cluster.kubeconfig(cli.path());
    let path = path_with_wrapper(&cli);

    for session in sessions {
        let mut script = "exec 2>&1\n".to_owned();
        for step in &session {
            // The next command may print the status.
            script += &format!("{}\ns=$?; printf '{SEPARATOR}'; (exit $s)\n", step.command);
        }
        let script = script.replace(REGISTRY_NAME, &address);
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &script])
            .current_dir(cli.path())
            .env("PATH", &path)
            .env("SSL_CERT_FILE", cli.path().join("ca.crt"))
            .env("KUBECONFIG", &kubeconfig);
        let output = soon("the end of the session", shell.output())
            .await
            .unwrap();
        let written = String::from_utf8(output.stdout)
            .unwrap()
            .replace(&address, REGISTRY_NAME);
        for (step, output) in session.iter().zip(written.split(SEPARATOR)) {
            assert_eq!(
                without_times(output),
                without_times(&step.output),
                "$ {}\n{output}",
                step.command
            );
        }
    }
}

/// Some commands need a cluster or files that the test does not have. So only subcommands, flags and their order are checked.
#[tokio::test]
async fn commands_in_the_documentation_parse() {
    let mut parsed = 0;
    for (page, text) in pages() {
        for line in blocks(&text, "sh").into_iter().flat_map(str::lines) {
            // Keeps the text before redirections and comments, for each part of a pipe.
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
                let output = soon("help", command.output()).await.unwrap();
                let error = String::from_utf8_lossy(&output.stderr);
                assert!(
                    output.status.success(),
                    "{}: {part}: {error}",
                    page.display()
                );
                parsed += 1;
            }
        }
    }
    assert!(parsed >= 5, "{parsed}");
}

/// The diff shows a user's Pod and the lines that the webhook adds.
#[tokio::test]
async fn readme_diff_shows_what_the_patch_adds() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let lines: Vec<&str> = blocks(&readme, "diff")[0].lines().collect();
    let cli = CommandLine::new(json!({})).await;
    cli.registry.repo("shop/web").index(Some("1.4"), BOTH);
    let pod = |prefixes: &[char]| {
        let lines = lines.iter().filter_map(|line| line.strip_prefix(prefixes));
        lines
            .map(|line| format!("{line}\n"))
            .collect::<String>()
            .replace(REGISTRY_NAME, &cli.registry.address())
    };
    let added: String = lines
        .iter()
        .filter_map(|line| line.strip_prefix('+'))
        .collect();
    let patch = async |name, text| {
        let file = cli.write(name, text);
        let output = cli
            .run(&["check", "-o", "patch", "-f", file.to_str().unwrap()])
            .await;
        assert_eq!(output.status, Some(0), "{}", output.stderr);
        output.stdout
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

/// Returns all keys and values of a JSON value as texts.
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
