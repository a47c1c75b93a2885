//! The tables of `docs/from/`: the outcomes of the same Pods with another tool, with tolerarch, and with both.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tolerarch_text::yaml::{self, Dialect};

/// The heading above the table of a page.
const HEADING: &str = "## The same Pods\n";
/// The lines above values of tolerarch's chart in a page.
const VALUES: &str = "<!-- tolerarch's configuration -->\n```yaml\n";
/// The label of nodes for their architecture.
const ARCHITECTURE: &str = "kubernetes.io/arch";

/// The path of the terms of a Pod's required node affinity.
const REQUIRED_TERMS: &str =
    "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";

/// A Pod of the tables.
pub(crate) struct Case {
    /// The first cell of its row.
    pub(crate) row: &'static str,
    pub(crate) pod: Value,
}

/// Returns all Pods of the tables. `image` returns the reference for a tag:
///
/// - `multi`: an index for amd64 and arm64
/// - `amd64` and `arm64`: indexes for one architecture
/// - `attested`: an index for amd64 with an attestation of buildx
/// - `single` and `single-arm64`: images without an index
/// - `absent`: not in the registry
pub(crate) fn cases(image: impl Fn(&str) -> String) -> Vec<Case> {
    let containers = |tags: &[&str]| -> Vec<Value> {
        let numbered = tags.iter().enumerate();
        numbered
            .map(|(index, tag)| json!({"name": format!("c{index}"), "image": image(tag)}))
            .collect()
    };
    let case = |row, tags: &[&str]| Case {
        row,
        pod: json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": "web-"},
            "spec": {"containers": containers(tags)},
        }),
    };
    let mut initialized = case(
        "amd64 and arm64; an init container has amd64 only",
        &["multi"],
    );
    initialized.pod["spec"]["initContainers"] = json!([{"name": "init", "image": image("amd64")}]);
    let mut selecting = case("amd64 and arm64; the Pod selects amd64", &["multi"]);
    selecting.pod["spec"]["nodeSelector"] = json!({ARCHITECTURE: "amd64"});
    vec![
        case("amd64 and arm64", &["multi"]),
        case("amd64 only", &["amd64"]),
        case("amd64 only, with an attestation of buildx", &["attested"]),
        case("amd64 only, without an index", &["single"]),
        case("arm64 only", &["arm64"]),
        case("arm64 only, without an index", &["single-arm64"]),
        case(
            "one image has both, another one amd64 only",
            &["multi", "amd64"],
        ),
        case(
            "one image has amd64 only, another one arm64 only",
            &["amd64", "arm64"],
        ),
        initialized,
        selecting,
        case("the registry has no such image", &["absent"]),
        case(
            "one image has both, the registry lacks the other one",
            &["multi", "absent"],
        ),
    ]
}

/// A page of `docs/from/`.
pub(crate) struct Page {
    /// The name of its file without `.md`.
    pub(crate) name: String,
    text: String,
}

/// Returns all pages, sorted by their names.
pub(crate) fn pages(repository: &Path) -> Vec<Page> {
    let files = fs::read_dir(repository.join("docs/from")).unwrap();
    let mut pages: Vec<Page> = files
        .map(|file| {
            let file = file.unwrap().path();
            Page {
                name: file.file_stem().unwrap().to_str().unwrap().to_owned(),
                text: fs::read_to_string(file).unwrap(),
            }
        })
        .collect();
    pages.sort_by(|one, other| one.name.cmp(&other.name));
    pages
}

impl Page {
    /// Returns the values of the chart in the page. The table is about the first ones.
    pub(crate) fn values(&self) -> Vec<&str> {
        let blocks = self.text.split(VALUES).skip(1);
        blocks
            .map(|block| block.split_once("```").unwrap().0)
            .collect()
    }

    /// Returns the configurations in these values.
    pub(crate) fn configurations(&self) -> Vec<Value> {
        let mut configurations = Vec::new();
        for values in self.values() {
            let values = yaml::read_first(values, Dialect::Kubernetes).expect("YAML");
            let values = values.expect("a document").value();
            configurations.push(values["config"].clone());
        }
        configurations
    }

    /// Returns the lines of the `sh` blocks of a section.
    pub(crate) fn commands(&self, section: &str) -> Vec<&str> {
        let (_, section) = self.text.split_once(&format!("## {section}\n")).unwrap();
        let section = section.split("\n## ").next().unwrap();
        let blocks = section.split("```sh\n").skip(1);
        blocks
            .flat_map(|block| block.split("```").next().unwrap().lines())
            .collect()
    }

    /// Returns the name of the tool's column: the first one after the names of the rows.
    pub(crate) fn tool(&self) -> &str {
        self.table()[0][1]
    }

    /// Returns rows and outcomes of a column, or `None` if the table does not have it.
    pub(crate) fn column(&self, name: &str) -> Option<Vec<(&str, &str)>> {
        let table = self.table();
        let index = table[0].iter().position(|cell| *cell == name)?;
        // The second line separates the head of the table.
        let rows = table.iter().skip(2);
        Some(rows.map(|cells| (cells[0], cells[index])).collect())
    }

    fn table(&self) -> Vec<Vec<&str>> {
        let (_, table) = self.text.split_once(HEADING).expect("a table");
        let lines = table
            .lines()
            .skip_while(|line| !line.starts_with('|'))
            .take_while(|line| line.starts_with('|'));
        lines.map(cells).collect()
    }
}

fn cells(line: &str) -> Vec<&str> {
    let cells = line.trim_matches('|').split('|');
    cells.map(str::trim).collect()
}

/// Returns the values or architectures that a cell names after a word: `tolerates` or `requires`.
pub(crate) fn named<'a>(cell: &'a str, word: &str) -> Vec<&'a str> {
    let Some((_, behind)) = cell.split_once(word) else {
        return Vec::new();
    };
    let list = behind.split("requires").next().expect("a part");
    let items = list.split(',').map(str::trim);
    items.filter(|item| !item.is_empty()).collect()
}

/// Returns what was added to a Pod, as in the cells of the tables: `tolerates VALUES OR KEYS`, `requires ARCHITECTURES`,
/// both, or `unchanged`.
pub(crate) fn outcome(before: &Value, after: &Value) -> String {
    let tolerated = added(&tolerations(before), &tolerations(after));
    let required = added(&architectures(before), &architectures(after));
    let mut parts = Vec::new();
    if !tolerated.is_empty() {
        parts.push(format!("tolerates {tolerated}"));
    }
    if !required.is_empty() {
        parts.push(format!("requires {required}"));
    }
    if parts.is_empty() {
        return "unchanged".to_owned();
    }
    parts.join(", ")
}

fn added(before: &BTreeSet<String>, after: &BTreeSet<String>) -> String {
    let added: Vec<&str> = after.difference(before).map(String::as_str).collect();
    added.join(", ")
}

/// Returns the values of the tolerations, or the keys of those without a value, except those that the API server adds to
/// every Pod.
fn tolerations(pod: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for toleration in list(pod, "/spec/tolerations") {
        let key = toleration["key"].as_str().unwrap_or_default();
        let value = toleration["value"].as_str().unwrap_or_default();
        if key.is_empty() || key.starts_with("node.kubernetes.io/") {
            continue;
        }
        let name = if value.is_empty() { key } else { value };
        names.insert(name.to_owned());
    }
    names
}

/// Returns the architectures that the node selector or the required node affinity names.
fn architectures(pod: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    if let Some(selected) = pod["spec"]["nodeSelector"][ARCHITECTURE].as_str() {
        names.insert(selected.to_owned());
    }
    for term in list(pod, REQUIRED_TERMS) {
        for expression in list(term, "/matchExpressions") {
            if expression["key"] == ARCHITECTURE {
                let values = list(expression, "/values").iter();
                names.extend(values.filter_map(Value::as_str).map(str::to_owned));
            }
        }
    }
    names
}

/// Returns a list of an object; without it, an empty one.
fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    match object.pointer(pointer).and_then(Value::as_array) {
        Some(items) => items,
        None => &[],
    }
}
