//! Checks the structure of the repository: which crate may depend on which, that no files use each other, and that pages
//! name existing files.

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

/// The crates from top to bottom. Each may depend on those after it.
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

/// The crates below `crates` that only tests need.
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

/// Returns the packages with which each package is built, by their IDs. Dependencies of its tests only are left out.
fn dependencies(metadata: &Value) -> BTreeMap<&str, Vec<&str>> {
    let mut dependencies = BTreeMap::new();
    for node in metadata["resolve"]["nodes"].as_array().unwrap() {
        let mut packages = Vec::new();
        for dependency in node["deps"].as_array().unwrap() {
            let mut kinds = dependency["dep_kinds"].as_array().unwrap().iter();
            if kinds.any(|kind| kind["kind"] != "dev") {
                packages.push(dependency["pkg"].as_str().unwrap());
            }
        }
        dependencies.insert(node["id"].as_str().unwrap(), packages);
    }
    dependencies
}

/// Returns all packages by their IDs.
fn packages(metadata: &Value) -> BTreeMap<&str, &Value> {
    let mut packages = BTreeMap::new();
    for package in metadata["packages"].as_array().unwrap() {
        packages.insert(package["id"].as_str().unwrap(), package);
    }
    packages
}

#[test]
fn dependencies_point_down() {
    let metadata = metadata();
    let packages = packages(&metadata);
    let dependencies = dependencies(&metadata);
    let name = |id: &str| packages[id]["name"].as_str().unwrap();
    let position = |name: &str| CRATES.iter().position(|other| *other == name);
    let mut checked = BTreeSet::new();
    for (id, ids_of_dependencies) in &dependencies {
        let Some(above) = position(name(id)) else {
            continue;
        };
        checked.insert(name(id));
        for dependency in ids_of_dependencies {
            let dependency = name(dependency);
            let is_below = position(dependency).is_none_or(|below| below > above);
            assert!(is_below, "{} depends on {dependency}", name(id));
        }
    }
    assert_eq!(checked, BTreeSet::from(CRATES));
}

#[test]
fn every_folder_of_crates_is_listed() {
    let mut folders = BTreeSet::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        folders.insert(entry.unwrap().file_name().into_string().unwrap());
    }
    let mut expected = BTreeSet::from(FOR_TESTS.map(str::to_owned));
    for name in CRATES {
        if let Some(folder) = name.strip_prefix("tolerarch-") {
            expected.insert(folder.to_owned());
        }
    }
    assert_eq!(folders, expected);
}

/// Fuzzing has another workspace, which nothing else compiles.
#[test]
fn lock_file_of_fuzzing_is_up_to_date() {
    let lock = fs::read_to_string(root().join("fuzz/Cargo.lock")).unwrap();
    let metadata = metadata();
    for package in packages(&metadata).values() {
        let name = package["name"].as_str().unwrap();
        if !CRATES.contains(&name) {
            continue;
        }
        let mut required = BTreeSet::new();
        let mut possible = BTreeSet::new();
        for dependency in package["dependencies"].as_array().unwrap() {
            if dependency["kind"] == "dev" {
                continue;
            }
            let dependency_name = dependency["name"].as_str().unwrap();
            possible.insert(dependency_name);
            if dependency["optional"] == false {
                required.insert(dependency_name);
            }
        }
        let locked = locked_dependencies(&lock, name);
        let advice = "run cargo metadata in fuzz";
        assert!(locked.is_superset(&required), "{name}: {advice}");
        assert!(locked.is_subset(&possible), "{name}: {advice}");
    }
}

/// Returns the dependencies of a package in a lock file.
fn locked_dependencies<'a>(lock: &'a str, name: &str) -> BTreeSet<&'a str> {
    let line = format!("name = \"{name}\"\n");
    let mut entries = lock.split("[[package]]");
    let entry = entries.find(|entry| entry.contains(&line)).unwrap();
    let (_, dependencies) = entry.split_once("dependencies = [").unwrap();
    let mut names = BTreeSet::new();
    for line in dependencies.lines() {
        if let Some(quoted) = line.trim().strip_prefix('"') {
            names.extend(quoted.split(['"', ' ']).next());
        }
    }
    names
}

#[test]
fn architecture_page_shows_the_crates_in_their_order() {
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let picture = page.split("```").nth(1).unwrap();
    let words = picture.split_whitespace();
    let shown: Vec<&str> = words.filter(|word| CRATES.contains(word)).collect();
    assert_eq!(shown, CRATES);
}

fn security_page() -> String {
    fs::read_to_string(root().join("SECURITY.md")).unwrap()
}

/// The section of the security page with the tables of guards.
fn section_of_guards(page: &str) -> &str {
    let (_, from_guards) = page.split_once("\n## Guards\n").unwrap();
    let (section, _) = from_guards.split_once("\n### Who can get").unwrap();
    section
}

/// A row in a table of guards.
struct Guard<'p> {
    /// Its number, such as `P6`.
    number: &'p str,
    code: &'p str,
    tests: &'p str,
}

fn guards(page: &str) -> Vec<Guard<'_>> {
    let mut guards = Vec::new();
    for row in section_of_guards(page).lines() {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [number, _, _, code, tests] = cells[..] else {
            continue;
        };
        let is_head = number.is_empty() || number.starts_with('-');
        if !is_head {
            guards.push(Guard {
                number,
                code,
                tests,
            });
        }
    }
    assert!(guards.len() > 40, "{} guards", guards.len());
    guards
}

/// The page names files by the end of their path, which no other file has.
#[test]
fn security_page_names_existing_files() {
    let mut files = Vec::new();
    for directory in ["crates", "src", "e2e", "benches", "manifests", ".github"] {
        collect_files(&root().join(directory), &mut files);
    }
    let page = security_page();
    let quoted = page.split('`').skip(1).step_by(2);
    let is_file = |name: &&str| {
        let mut endings = [".rs", ".go", ".yaml"].iter();
        endings.any(|ending| name.ends_with(ending))
    };
    let names: Vec<&str> = quoted.filter(is_file).collect();
    assert!(names.len() > 50, "{names:?}");
    for name in names {
        let matching: Vec<_> = files.iter().filter(|file| file.ends_with(name)).collect();
        assert_eq!(matching.len(), 1, "SECURITY.md names {name}: {matching:?}");
    }
}

#[test]
fn security_page_names_code_and_a_test_of_each_guard() {
    for Guard {
        number,
        code,
        tests,
    } in guards(&security_page())
    {
        let names_code = code.contains(".rs`") || code.contains(".yaml`");
        assert!(names_code, "{number} has no code: {code}");
        let mut kinds_of_tests = [".rs`", ".go`", "`scenario "].iter();
        let names_test = kinds_of_tests.any(|kind| tests.contains(kind));
        assert!(names_test, "{number} has no test: {tests}");
    }
}

#[test]
fn security_page_names_existing_scenarios() {
    let scenarios = root().join("e2e/scenarios/tests");
    let page = security_page();
    for scenario in section_of_guards(&page).split("`scenario ").skip(1) {
        let (name, _) = scenario.split_once("::`").unwrap();
        let is_file = scenarios.join(name).with_extension("rs").is_file();
        // `x` is the placeholder in the sentence that explains these names.
        assert!(is_file || name == "x", "SECURITY.md names {name}");
    }
}

/// The numbers of guards and assets are unique, and the text names no others.
#[test]
fn security_page_numbers_guards_and_assets_uniquely() {
    let page = security_page();
    let mut numbers = BTreeSet::new();
    for Guard { number, .. } in guards(&page) {
        assert!(numbers.insert(number.to_owned()), "two guards: {number}");
    }
    for row in page.lines() {
        let asset = row
            .strip_prefix("| A")
            .and_then(|rest| rest.split_once(' '));
        if let Some((digits, _)) = asset {
            numbers.insert(format!("A{digits}"));
        }
    }
    for word in page.split(|c: char| !c.is_alphanumeric()) {
        let (letter, digits) = word.split_at_checked(1).unwrap_or_default();
        let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        if is_number && "ACKNPRSTU".contains(letter) {
            assert!(numbers.contains(word), "SECURITY.md has no {word}");
        }
    }
}

fn collect_files(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_files(&path, files);
        } else {
            files.push(path);
        }
    }
}

/// Packages for I/O, TLS, Kubernetes and C libraries.
const IMPURE: [&str; 7] = [
    "tokio",
    "hyper",
    "http",
    "kube",
    "kube-client",
    "rustls",
    "cc",
];

#[test]
fn core_depends_on_no_impure_package() {
    let metadata = metadata();
    let packages = packages(&metadata);
    let dependencies = dependencies(&metadata);
    let mut all = packages.values();
    let core = all.find(|package| package["name"] == "tolerarch-core");
    let mut needed = BTreeSet::new();
    let mut pending = vec![core.unwrap()["id"].as_str().unwrap()];
    while let Some(id) = pending.pop() {
        if needed.insert(id) {
            pending.extend(&dependencies[id]);
        }
    }
    for id in needed {
        let package = packages[id];
        let name = package["name"].as_str().unwrap();
        assert!(!IMPURE.contains(&name), "{name}");
        // Only the feature `testing` needs these.
        let is_for_tests = ["json-patch", "k8s-openapi"].contains(&name);
        let links = &package["links"];
        assert!(links.is_null() || is_for_tests, "{name} links {links}");
    }
}

/// If two files use each other, directly or by others, neither can be read or changed alone.
#[test]
fn files_do_not_use_each_other() {
    let crates = CRATES.iter().flat_map(|name| modules(name, &source(name)));
    let circles = Uses::read(crates).in_circles(Names::clone);
    assert_eq!(circles, [""; 0]);
}

/// A command, or a module that commands share, is a file with all files below it.
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

/// The support of the tests, and the tests that have several files.
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

/// Writes files with these texts, and returns their circles.
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

/// Returns the folder with the source of a crate.
fn source(name: &str) -> PathBuf {
    match name.strip_prefix("tolerarch-") {
        Some(name) => root().join("crates").join(name).join("src"),
        None => root().join("src"),
    }
}

/// Returns the modules of a crate, each with its file.
fn modules(name: &str, directory: &Path) -> Vec<(Names, PathBuf)> {
    let is_library = directory.join("lib.rs").is_file();
    let mut modules = Vec::new();
    for file in source_files(directory) {
        let path = file.strip_prefix(directory).unwrap().with_extension("");
        let mut names = vec![name.replace('-', "_")];
        for step in &path {
            let step = step.to_str().unwrap();
            let is_root = step == "lib" || step == "main" && !is_library;
            if !is_root {
                names.push(step.to_owned());
            }
        }
        modules.push((names, file));
    }
    modules
}

/// Returns the files `*.rs` of a folder, without tests and their support.
fn source_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if ["tests", "testing", "fuzzing"].contains(&name) {
            continue;
        }
        if path.is_dir() {
            files.extend(source_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
