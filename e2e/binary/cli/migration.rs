//! The pages of `docs/from/`: their configurations are valid, and decide as the tables of the pages say.

use std::fs;
use std::io::Write;
use std::path::Path;

use serde_json::{Value, json};
use testregistry::Registry;
use tokio::process::Command;

use super::CommandLine;
use crate::binary::program::{Program, run};
use crate::support::migration::{Page, cases, named, outcome, pages};
use crate::support::soon;

#[tokio::test]
async fn configurations_of_migration_pages_are_valid() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.yaml");
    for page in migration_pages() {
        let configurations = page.configurations();
        assert!(!configurations.is_empty(), "{}", page.name);
        for configuration in configurations {
            fs::write(&file, configuration.to_string()).unwrap();
            let (status, written) = run(&["config", "--config", file.to_str().unwrap()]).await;
            assert_eq!(status, Some(0), "{}: {written}", page.name);
            assert!(!written.contains("warning"), "{}: {written}", page.name);
        }
    }
}

#[tokio::test]
async fn tables_of_migration_pages_show_the_decisions() {
    let registry = Registry::start().await;
    push_images(&registry);
    let repo = registry.repo(REPO);
    for page in migration_pages() {
        let program = Program::start(&registry, page.configurations().remove(0)).await;
        let column = page.column("tolerarch").expect("a table");
        assert!(column.len() >= 8, "{}: {column:?}", page.name);
        for (row, expected) in column {
            let cases = cases(|tag| repo.reference(tag));
            let case = cases.iter().find(|case| case.row == row);
            let pod = &case
                .unwrap_or_else(|| panic!("{}: no Pod for {row}", page.name))
                .pod;
            let changed = program.review(pod).await.applied_to(pod);
            assert_eq!(outcome(pod, &changed), expected, "{}: {row}", page.name);
        }
    }
}

#[tokio::test]
async fn comparisons_of_migration_pages_show_the_decisions() {
    if !has_jq() {
        return;
    }
    let cli = CommandLine::new(json!({})).await;
    push_images(&cli.registry);
    let repo = cli.registry.repo(REPO);
    for page in migration_pages() {
        let mut settings = page.configurations().remove(0);
        settings["mode"] = "observe".into();
        cli.configure(&settings);
        let cases = cases(|tag| repo.reference(tag));
        let mut stored = Vec::new();
        for (number, (row, outcome)) in page.column(page.tool()).unwrap().into_iter().enumerate() {
            let case = cases.iter().find(|case| case.row == row).unwrap();
            if outcome != "refused" {
                stored.push(stored_pod(&case.pod, number, outcome, &page, &settings));
            }
        }

        let rows = page.column("tolerarch").unwrap();
        let bound = stored.clone().into_iter();
        let bound = bound.filter(|pod| pod["spec"]["affinity"].is_object());
        let results = compare(&cli, &page, stored).await;
        assert!(results.len() >= 3, "{}: {results:?}", page.name);
        for pod in bound {
            let name = &pod["metadata"]["name"];
            let is_reported = results.iter().any(|result| result["name"] == *name);
            assert!(is_reported, "{}: {pod}", page.name);
        }
        for result in results {
            let number: usize = result["name"].as_str().unwrap().parse().unwrap();
            let (row, expected) = rows[number];
            let pools = result["pools"].as_array().unwrap().len();
            let required = result["required"].as_str().unwrap_or_default();
            let decided = (pools, required.to_owned());
            let expected = (
                named(expected, "tolerates").len(),
                named(expected, "requires").join(","),
            );
            assert_eq!(decided, expected, "{}: {row}: {result}", page.name);
        }
    }
}

/// Returns whether jq, which the commands of the pages need, can be run. Without jq the test is skipped, and fails in CI.
fn has_jq() -> bool {
    let result = std::process::Command::new("jq").arg("--version").output();
    let Err(error) = result else {
        return true;
    };
    #[expect(clippy::disallowed_methods, reason = "only in tests")]
    let ci = std::env::var("CI").is_ok_and(|ci| ci == "true");
    assert!(!ci, "jq: {error}");
    // The test harness captures the output of macros.
    let text = format!("SKIPPED: jq cannot be run here: {error}\n");
    std::io::stderr().write_all(text.as_bytes()).unwrap();
    false
}

/// Returns a Pod of a table as the cluster stores it: its name is its number, and it has what the other tool adds.
fn stored_pod(pod: &Value, number: usize, outcome: &str, page: &Page, settings: &Value) -> Value {
    let mut pod = pod.clone();
    pod["metadata"] = json!({"namespace": "shop", "name": number.to_string()});
    let tolerated = named(outcome, "tolerates");
    let mut tolerations = Vec::new();
    for pool in settings["pools"].as_array().unwrap() {
        let gke = json!([{"key": "kubernetes.io/arch", "value": "arm64", "effect": "NoSchedule"}]);
        let listed = match pool["preset"].as_str() {
            Some("gke") => &gke,
            _ => &pool["tolerations"],
        };
        for toleration in listed.as_array().into_iter().flatten() {
            if tolerated.contains(&toleration["value"].as_str().unwrap()) {
                tolerations.push(toleration.clone());
            }
        }
    }
    pod["spec"]["tolerations"] = tolerations.into();
    let required = named(outcome, "requires");
    let is_operator = page.name == "multiarch-tuning-operator";
    if is_operator && !required.is_empty() {
        let label = if required.len() == 1 {
            "single-arch"
        } else {
            "multi-arch"
        };
        pod["metadata"]["labels"] = json!({format!("multiarch.openshift.io/{label}"): ""});
    }
    // noe adds a node selector for its preferred architecture, amd64, and an affinity to other Pods.
    if is_operator || (page.name == "noe" && required == ["arm64"]) {
        bind(&mut pod, &required);
    } else if let [architecture] = required[..] {
        pod["spec"]["nodeSelector"] = json!({"kubernetes.io/arch": architecture});
    }
    pod
}

/// Adds an affinity that requires one of these architectures, and prefers arm64.
fn bind(pod: &mut Value, architectures: &[&str]) {
    if architectures.is_empty() {
        return;
    }
    let term = |values: &[&str]| json!({"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "In", "values": values}]});
    pod["spec"]["affinity"] = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term(architectures)]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 50, "preference": term(&["arm64"])}],
    }});
}

/// Runs the commands of the page for the Pods of a cluster, and returns their results. A fake kubectl prints the Pods and the
/// configuration from files, and tolerarch prints JSON.
async fn compare(cli: &CommandLine, page: &Page, pods: Vec<Value>) -> Vec<Value> {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": pods});
    cli.write("cluster.json", list.to_string());
    fs::copy(
        cli.path().join("config.yaml"),
        cli.path().join("installed.yaml"),
    )
    .unwrap();
    let fake_commands = format!(
        r#"kubectl() {{
            case "$*" in
                *configmap*) cat installed.yaml ;;
                *" -l "*) jq --arg key "$5" '.items |= map(select(.metadata.labels[$key] != null))' cluster.json ;;
                *) cat cluster.json ;;
            esac
        }}
        tolerarch() {{
            '{}' "$@" -o json
        }}
        "#,
        env!("CARGO_BIN_EXE_tolerarch")
    );
    let mut script = fake_commands;
    for command in page.commands("Both for a day") {
        if ["get configmap", "get pods", "tolerarch check"]
            .iter()
            .any(|part| command.contains(part))
            && !command.starts_with("helm")
        {
            script += command;
            script += "\n";
        }
    }
    let output = Command::new("bash")
        .args(["-e", "-o", "pipefail", "-c", &script])
        .current_dir(cli.path())
        .env("SSL_CERT_FILE", cli.path().join("ca.crt"))
        .kill_on_drop(true)
        .output();
    let output = soon("the end of the commands", output).await.unwrap();
    assert!(
        output.status.success(),
        "{}: {}",
        page.name,
        String::from_utf8_lossy(&output.stderr)
    );
    let mut results = Vec::new();
    for report in serde_json::Deserializer::from_slice(&output.stdout).into_iter::<Value>() {
        results.extend(report.unwrap()["results"].as_array().unwrap().clone());
    }
    results
}

/// Repository of the images that the tables name.
const REPO: &str = "team/app";

fn push_images(registry: &Registry) {
    let repo = registry.repo(REPO);
    repo.index(Some("multi"), ["linux/amd64", "linux/arm64"]);
    repo.index(Some("amd64"), ["linux/amd64"]);
    repo.index(Some("arm64"), ["linux/arm64"]);
    repo.image("linux/amd64", Some("single"));
    repo.image("linux/arm64", Some("single-arm64"));
    let entry = repo.entry("linux/amd64");
    let attestation = repo.attestation(entry["digest"].as_str().unwrap());
    repo.index(Some("attested"), [entry, attestation]);
}

fn migration_pages() -> Vec<Page> {
    let pages = pages(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(!pages.is_empty(), "pages");
    pages
}
