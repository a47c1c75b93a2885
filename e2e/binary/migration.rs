//! What `docs/from/` says of tolerarch: its configurations are valid, and decide as the tables say.

use std::fs;
use std::path::Path;

use serde_json::Value;
use testregistry::Registry;
use tolerarch_text::yaml::{self, Dialect};

use super::program::{Program, run};
use crate::support::migration::{Page, cases, outcome, pages};

#[tokio::test]
async fn configurations_in_pages_for_users_of_other_tools_are_valid() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.yaml");
    for page in all() {
        let configurations = page.configurations();
        assert!(!configurations.is_empty(), "{}", page.name);
        for configuration in configurations {
            fs::write(&file, settings(configuration).to_string()).unwrap();
            let (status, written) = run(&["config", "--config", file.to_str().unwrap()]).await;
            assert_eq!(status, Some(0), "{}: {written}", page.name);
            assert!(!written.contains("warning"), "{}: {written}", page.name);
        }
    }
}

#[tokio::test]
async fn tables_in_pages_for_users_of_other_tools_say_what_is_decided() {
    let registry = Registry::start().await;
    push_images(&registry);
    let repo = registry.repo(REPO);
    for page in all() {
        let program = Program::start(&registry, settings(page.configurations()[0])).await;
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

/// The repository of the images of the tables.
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

fn all() -> Vec<Page> {
    let pages = pages(Path::new(env!("CARGO_MANIFEST_DIR")));
    assert!(!pages.is_empty(), "pages");
    pages
}

/// The configuration in values of the chart.
fn settings(values: &str) -> Value {
    let values = yaml::read_first(values, Dialect::Kubernetes).expect("YAML");
    let values = values.expect("a document").value();
    values["config"].clone()
}
