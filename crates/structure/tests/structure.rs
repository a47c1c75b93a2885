//! The structure of the repository: which crate may depend on which, and that no files use each other.

#![allow(
    clippy::too_many_lines,
    clippy::cognitive_complexity,
    reason = "a test tells one story, however long"
)]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use structure::{Names, Uses};

/// From above to below: each may depend on those after it.
const CRATES: [&str; 9] = [
    "tolerarch",
    "tolerarch-controller",
    "tolerarch-webhook",
    "tolerarch-engine",
    "tolerarch-images",
    "tolerarch-kubernetes",
    "tolerarch-core",
    "tolerarch-support",
    "tolerarch-text",
];

/// Crates below `crates` that only tests need.
const FOR_TESTS: [&str; 2] = ["structure", "testregistry"];

fn root() -> &'static Path {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    folder.ancestors().nth(2).unwrap()
}

fn metadata() -> Value {
    let cargo = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        cargo.status.success(),
        "{}",
        String::from_utf8_lossy(&cargo.stderr)
    );
    serde_json::from_slice(&cargo.stdout).unwrap()
}

/// The packages that a package is built with, by their IDs; what its tests need is left out.
fn dependencies(metadata: &Value) -> BTreeMap<&str, Vec<&str>> {
    let is_built = |dependency: &&Value| {
        dependency["dep_kinds"]
            .as_array()
            .unwrap()
            .iter()
            .any(|kind| kind["kind"] != "dev")
    };
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap().iter();
    nodes
        .map(|node| {
            let built = node["deps"].as_array().unwrap().iter().filter(is_built);
            (
                node["id"].as_str().unwrap(),
                built
                    .map(|dependency| dependency["pkg"].as_str().unwrap())
                    .collect(),
            )
        })
        .collect()
}

fn packages(metadata: &Value) -> BTreeMap<&str, &Value> {
    metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| (it["id"].as_str().unwrap(), it))
        .collect()
}

#[test]
fn dependencies_point_down() {
    let metadata = metadata();
    let packages = packages(&metadata);
    let dependencies = dependencies(&metadata);
    let name = |id: &&str| packages[id]["name"].as_str().unwrap();
    let place = |name: &str| CRATES.iter().position(|own| *own == name);
    let mut seen = BTreeSet::new();
    for (id, below) in &dependencies {
        let Some(above) = place(name(id)) else {
            continue;
        };
        seen.insert(name(id));
        for below in below.iter().map(name) {
            let is_below = place(below).is_none_or(|below| below > above);
            assert!(is_below, "{} depends on {below}", name(id));
        }
    }
    assert_eq!(seen, BTreeSet::from(CRATES));
    let folders: BTreeSet<String> = fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let libraries = CRATES
        .iter()
        .filter_map(|name| name.strip_prefix("tolerarch-"));
    let expected: BTreeSet<String> = libraries.chain(FOR_TESTS).map(str::to_owned).collect();
    assert_eq!(folders, expected);
}

/// Fuzzing has a workspace apart, which nothing else here compiles.
#[test]
fn the_lock_file_of_fuzzing_is_up_to_date() {
    let lock = fs::read_to_string(root().join("fuzz/Cargo.lock")).unwrap();
    let metadata = metadata();
    for package in packages(&metadata)
        .values()
        .filter(|package| CRATES.contains(&package["name"].as_str().unwrap()))
    {
        let name = package["name"].as_str().unwrap();
        let built = |also_optional: bool| {
            let dependencies = package["dependencies"].as_array().unwrap().iter();
            let built = dependencies.filter(move |own| {
                own["kind"] != "dev" && (also_optional || own["optional"] == false)
            });
            built
                .map(|own| own["name"].as_str().unwrap())
                .collect::<BTreeSet<_>>()
        };
        let entry = lock
            .split("[[package]]")
            .find(|entry| entry.contains(&format!("name = \"{name}\"\n")));
        let locked = entry
            .unwrap()
            .split_once("dependencies = [")
            .unwrap()
            .1
            .lines();
        let locked =
            locked.filter_map(|line| line.trim().strip_prefix('"')?.split(['"', ' ']).next());
        let locked: BTreeSet<&str> = locked.collect();
        assert!(
            locked.is_superset(&built(false)),
            "{name}: run cargo metadata in fuzz"
        );
        assert!(
            locked.is_subset(&built(true)),
            "{name}: run cargo metadata in fuzz"
        );
    }
}

#[test]
fn the_picture_of_the_architecture_shows_each_crate_in_its_place() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let picture = page.split("```").nth(1).unwrap();
    let shown: Vec<&str> = picture
        .split_whitespace()
        .filter(|word| CRATES.contains(word))
        .collect();
    assert_eq!(shown, CRATES);
}

/// Files of guards and of their tests are named by the end of their path, which no other file has.
#[test]
fn the_security_page_names_files_that_are_there() {
    let mut there = Vec::new();
    for directory in ["crates", "src", "e2e", "benches", "manifests", ".github"] {
        walk(&root().join(directory), &mut there);
    }
    let page = fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let is_file = |name: &&str| {
        [".rs", ".go", ".yaml"]
            .iter()
            .any(|end| name.ends_with(end))
    };
    let named: Vec<&str> = page.split('`').skip(1).step_by(2).filter(is_file).collect();
    assert!(named.len() > 50, "{named:?}");
    for name in named {
        let files: Vec<_> = there.iter().filter(|file| file.ends_with(name)).collect();
        assert_eq!(files.len(), 1, "SECURITY.md names {name}: {files:?}");
    }
}

#[test]
fn the_security_page_names_code_and_a_test_of_each_guard() {
    let page = fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let (_, section) = page.split_once("\n## Guards\n").unwrap();
    let (section, _) = section.split_once("\n### Who can get").unwrap();
    let mut guards = BTreeSet::new();
    for row in section.lines() {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [guard, _, _, code, tests] = cells[..] else {
            continue;
        };
        // The head of a table.
        if guard.is_empty() || guard.starts_with('-') {
            continue;
        }
        let names_code = code.contains(".rs`") || code.contains(".yaml`");
        assert!(names_code, "no code: {row}");
        let names_test = [".rs`", ".go`", "`scenario "]
            .iter()
            .any(|part| tests.contains(part));
        assert!(names_test, "no test: {row}");
        assert!(guards.insert(guard), "two guards: {row}");
    }
    assert!(guards.len() > 40, "{guards:?}");
    let scenarios = root().join("e2e/scenarios/tests");
    for scenario in section.split("`scenario ").skip(1) {
        let (name, _) = scenario.split_once("::`").unwrap();
        let is_there = scenarios.join(name).with_extension("rs").is_file();
        // The sentence that says how scenarios are named.
        assert!(is_there || name == "x", "SECURITY.md names {name}");
    }
    let assets = page.lines().filter_map(|row| row.strip_prefix("| A"));
    let assets = assets.filter_map(|row| Some(format!("A{}", row.split_once(' ')?.0)));
    let known: BTreeSet<String> = assets.chain(guards.into_iter().map(String::from)).collect();
    for word in page.split(|c: char| !c.is_alphanumeric()) {
        let (letter, number) = word.split_at_checked(1).unwrap_or_default();
        let is_number = !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit());
        if is_number && "ACKNPRSTU".contains(letter) {
            assert!(known.contains(word), "SECURITY.md has no {word}");
        }
    }
}

fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, found);
        } else {
            found.push(path);
        }
    }
}

#[test]
fn the_core_is_pure() {
    let metadata = metadata();
    let packages = packages(&metadata);
    let dependencies = dependencies(&metadata);
    let core = packages
        .values()
        .find(|package| package["name"] == "tolerarch-core")
        .unwrap();
    let mut below = BTreeSet::new();
    let mut left = vec![core["id"].as_str().unwrap()];
    while let Some(id) = left.pop() {
        if below.insert(id) {
            left.extend(&dependencies[id]);
        }
    }
    // Behind its feature `testing` alone.
    let is_for_tests = |name: &str| ["json-patch", "k8s-openapi"].contains(&name);
    for id in below {
        let Value::Object(package) = packages[id] else {
            continue;
        };
        let name = package["name"].as_str().unwrap();
        assert!(
            ![
                "tokio",
                "hyper",
                "http",
                "kube",
                "kube-client",
                "rustls",
                "cc"
            ]
            .contains(&name),
            "{name}"
        );
        assert!(
            package["links"].is_null() || is_for_tests(name),
            "{name} links {}",
            package["links"]
        );
    }
}

/// A file that uses one that uses it, directly or by others, cannot be read or changed alone.
#[test]
fn files_do_not_use_each_other() {
    let crates = CRATES.iter().flat_map(|name| modules(name, &source(name)));
    let circles = Uses::read(crates).in_circles(Names::clone);
    assert_eq!(circles, [""; 0]);
}

/// A command, or a module that commands share, is a file with all that is below it.
#[test]
fn commands_do_not_use_each_other() {
    let program = modules("tolerarch", &source("tolerarch"));
    let circles = Uses::read(program).in_circles(command);
    assert_eq!(circles, [""; 0]);
}

/// Returns the command that a file belongs to, or the file itself.
fn command(module: &Names) -> Names {
    match &module[..] {
        [program, cli, command, ..] if cli == "cli" => {
            vec![program.clone(), cli.clone(), command.clone()]
        }
        other => other.to_vec(),
    }
}

/// The support of the tests, and the tests that are more than a file.
#[test]
fn files_of_the_tests_do_not_use_each_other() {
    let tests = root().join("e2e");
    let testregistry = root().join("crates/testregistry");
    let scenarios = tests.join("scenarios");
    let mut files = modules("testregistry", &testregistry.join("src"));
    files.extend(modules("suite", &testregistry.join("tests/suite")));
    files.extend(modules("conformance", &tests.join("conformance")));
    files.extend(modules("scenarios", &scenarios.join("src")));
    files.extend(modules("main", &scenarios.join("tests")));
    let prometheus = ["main", "prometheus"].map(str::to_owned).to_vec();
    files.push((prometheus, tests.join("support/prometheus.rs")));
    let migration = ["main", "migration"].map(str::to_owned).to_vec();
    files.push((migration, tests.join("support/migration.rs")));
    for entry in fs::read_dir(&tests).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if path.is_file() && path.extension().is_some_and(|extension| extension == "rs") {
            files.extend(program(name, &tests));
        }
    }
    let circles = Uses::read(files).in_circles(Names::clone);
    assert_eq!(circles, [""; 0]);
}

/// Returns the modules of a test program: those in the folder of its name, and `support`.
fn program(name: &str, tests: &Path) -> Vec<(Names, PathBuf)> {
    let mut modules = modules(name, tests);
    modules.retain(|(module, _)| [name, "support"].contains(&module[1].as_str()));
    for (module, _) in &mut modules {
        if *module == [name, name] {
            module.pop();
        }
    }
    modules
}

fn circles_among<const N: usize>(
    files: [(&str, &str); N],
    unit: fn(&Names) -> Names,
) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    for (file, text) in files {
        let file = directory.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    Uses::read(modules("own-crate", directory.path())).in_circles(unit)
}

#[test]
fn circles_are_found_through_what_parents_pass_on() {
    let files = [
        (
            "lib.rs",
            "mod one; mod three; mod two; pub use one::One; use two::Two;",
        ),
        (
            "one.rs",
            "use super::{Two as Other, three}; pub struct One(Other); #[cfg(test)] use crate::three::Three;",
        ),
        (
            "two.rs",
            "pub(in crate::three) struct Two; fn two() -> crate::One { loop {} }",
        ),
        (
            "three.rs",
            "pub use crate::one::One; pub struct Three; impl Three {}",
        ),
    ];
    assert_eq!(
        circles_among(files, Names::clone),
        [
            "own_crate::one uses own_crate::two (super::Two)",
            "own_crate::two uses own_crate::one (crate::One)"
        ]
    );
}

#[test]
fn circles_of_commands_are_found_although_their_files_have_none() {
    let files = [
        ("cli.rs", "mod one; mod two;"),
        ("cli/one.rs", "mod part; use super::two::Two;"),
        ("cli/one/part.rs", "pub struct Part;"),
        ("cli/two.rs", "mod part; pub struct Two;"),
        ("cli/two/part.rs", "use crate::cli::one::part::Part;"),
    ];
    assert_eq!(circles_among(files, Names::clone), [""; 0]);
    assert_eq!(
        circles_among(files, command),
        [
            "own_crate::cli::one uses own_crate::cli::two (super::two::Two)",
            "own_crate::cli::two::part uses own_crate::cli::one::part (crate::cli::one::part::Part)"
        ]
    );
}

fn source(name: &str) -> PathBuf {
    match name.strip_prefix("tolerarch-") {
        Some(name) => root().join("crates").join(name).join("src"),
        None => root().join("src"),
    }
}

/// Returns the modules of a crate, each with its file.
fn modules(name: &str, directory: &Path) -> Vec<(Names, PathBuf)> {
    let is_library = directory.join("lib.rs").is_file();
    let module = |file: PathBuf| {
        let within = file.strip_prefix(directory).unwrap().with_extension("");
        let steps = within.iter().map(|step| step.to_str().unwrap().to_owned());
        let is_root = |step: &String| step == "lib" || step == "main" && !is_library;
        let mut names = vec![name.replace('-', "_")];
        names.extend(steps.filter(|step| !is_root(step)));
        (names, file)
    };
    files(directory).into_iter().map(module).collect()
}

/// `*.rs` without tests and their support.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if ["tests", "testing", "fuzzing"].contains(&name) {
            continue;
        }
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}
