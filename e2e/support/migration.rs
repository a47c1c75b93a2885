//! The tables of `docs/from/`: what becomes of the same Pods by another tool, by tolerarch, and by both.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// The heading above the table of a page.
const HEADING: &str = "## The same Pods\n";
/// What stands above the configuration of tolerarch in a page.
const CONFIGURATION: &str = "<!-- tolerarch's configuration -->\n```yaml\n";
/// The label of nodes that has their architecture.
const ARCHITECTURE: &str = "kubernetes.io/arch";

/// A Pod of the tables.
pub(crate) struct Case {
    /// The first cell of its row.
    pub(crate) row: &'static str,
    pub(crate) pod: Value,
}

/// All Pods that the tables can have. Each tag names an image: `multi` has an index for amd64 and arm64, `amd64` and `arm64` have one for a single
/// architecture, `attested` has one for amd64 with buildx' attestation, `single` and `single-arm64` are images without an index, and `absent` is not in the registry.
pub(crate) fn cases(image: impl Fn(&str) -> String) -> Vec<Case> {
    let containers = |tags: &[&str]| -> Vec<Value> {
        let named = tags.iter().enumerate();
        named
            .map(|(place, tag)| json!({"name": format!("c{place}"), "image": image(tag)}))
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
    /// Its file's name without `.md`.
    pub(crate) name: String,
    text: String,
}

/// All of them, in the order of their names.
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
    /// The configurations that the page gives tolerarch, the first of which the table is about.
    pub(crate) fn configurations(&self) -> Vec<&str> {
        let blocks = self.text.split(CONFIGURATION).skip(1);
        blocks
            .map(|block| block.split_once("```").unwrap().0)
            .collect()
    }

    /// The lines of the `sh` blocks of a section.
    pub(crate) fn commands(&self, section: &str) -> Vec<&str> {
        let (_, section) = self.text.split_once(&format!("## {section}\n")).unwrap();
        let section = section.split("\n## ").next().unwrap();
        let blocks = section.split("```sh\n").skip(1);
        blocks
            .flat_map(|block| block.split("```").next().unwrap().lines())
            .collect()
    }

    /// The name of the tool's column: the first behind the rows.
    pub(crate) fn tool(&self) -> &str {
        self.table()[0][1]
    }

    /// Rows and outcomes of a column; none if the table has no such column.
    pub(crate) fn column(&self, name: &str) -> Option<Vec<(&str, &str)>> {
        let table = self.table();
        let place = table[0].iter().position(|cell| *cell == name)?;
        // The second line rules off the names.
        let rows = table.iter().skip(2);
        Some(rows.map(|cells| (cells[0], cells[place])).collect())
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

/// The values or architectures that a cell names behind a word: `tolerates` or `requires`.
pub(crate) fn named<'a>(cell: &'a str, word: &str) -> Vec<&'a str> {
    let Some((_, behind)) = cell.split_once(word) else {
        return Vec::new();
    };
    let list = behind.split("requires").next().expect("a part");
    let items = list.split(',').map(str::trim);
    items.filter(|item| !item.is_empty()).collect()
}

/// What was added to a Pod, as cells of the tables say it: `tolerates VALUES OR KEYS`, `requires ARCHITECTURES`, both, or `unchanged`.
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

/// Values of the tolerations, or keys of those without; without those that every Pod gets from the API server.
fn tolerations(pod: &Value) -> BTreeSet<String> {
    let listed = pod["spec"]["tolerations"].as_array();
    let listed = listed.into_iter().flatten();
    let named = listed.filter_map(|toleration| {
        let key = toleration["key"].as_str()?;
        let value = toleration["value"]
            .as_str()
            .filter(|value| !value.is_empty());
        (!key.starts_with("node.kubernetes.io/")).then(|| value.unwrap_or(key).to_owned())
    });
    named.collect()
}

/// Architectures that the node selector or the required node affinity names.
fn architectures(pod: &Value) -> BTreeSet<String> {
    let spec = &pod["spec"];
    let selected = spec["nodeSelector"][ARCHITECTURE]
        .as_str()
        .map(str::to_owned);
    let terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        ["nodeSelectorTerms"]
        .as_array();
    let expressions = terms
        .into_iter()
        .flatten()
        .filter_map(|term| term["matchExpressions"].as_array())
        .flatten();
    let values = expressions
        .filter(|expression| expression["key"] == ARCHITECTURE)
        .filter_map(|expression| expression["values"].as_array())
        .flatten();
    let values = values.filter_map(|value| value.as_str().map(str::to_owned));
    values.chain(selected).collect()
}
