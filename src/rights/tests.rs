use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tolerarch_support::environment::Environment;
use tolerarch_text::yaml::{self, Dialect};

use super::*;

/// Process, API group, resource, name (empty for any), and verb.
type Given = (Process, String, String, String, String);

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the files below a folder with this extension, except those in folders named `helm`.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("helm") {
            paths.extend(files(&path, extension));
        } else if path.extension().is_some_and(|other| other == extension) {
            paths.push(path);
        }
    }
    paths
}

/// Returns the objects of all manifests except the chart, from which they are rendered.
fn manifests() -> Vec<Value> {
    let mut objects = Vec::new();
    for file in files(&repository().join("manifests"), "yaml") {
        let text = fs::read_to_string(file).unwrap();
        let documents = yaml::read(&text, Dialect::Kubernetes).unwrap();
        objects.extend(documents.iter().map(yaml::Node::value));
    }
    objects
}

fn texts(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// Returns the rights that the Roles and ClusterRoles give to the accounts that are bound to them.
fn given(objects: &[Value]) -> BTreeSet<Given> {
    let mut given = BTreeSet::new();
    for binding in objects {
        let Some(subjects) = binding["subjects"].as_array() else {
            continue;
        };
        let role = &binding["roleRef"];
        let is_role = |object: &&Value| {
            object["kind"] == role["kind"] && object["metadata"]["name"] == role["name"]
        };
        let role = objects.iter().find(is_role).unwrap();
        for subject in subjects {
            let process = match subject["name"].as_str().unwrap() {
                "tolerarch" => Process::Webhook,
                "tolerarch-certificates" => Process::Certificates,
                "tolerarch-controller" => Process::Controller,
                other => panic!("{other}"),
            };
            for rule in role["rules"].as_array().unwrap() {
                let mut names = texts(&rule["resourceNames"]);
                if names.is_empty() {
                    names.push(String::new());
                }
                for group in texts(&rule["apiGroups"]) {
                    for resource in texts(&rule["resources"]) {
                        for name in &names {
                            for verb in texts(&rule["verbs"]) {
                                let right =
                                    (process, group.clone(), resource.clone(), name.clone(), verb);
                                given.insert(right);
                            }
                        }
                    }
                }
            }
        }
    }
    given
}

/// Returns these verbs, and those that are given in addition: `get` for objects that are watched, and `create` for objects
/// of the installation that are patched, in case somebody has deleted them.
fn given_verbs(verbs: &'static str, is_of_installation: bool) -> Vec<&'static str> {
    let mut given: Vec<&str> = verbs.split(' ').collect();
    if given.contains(&"watch") && !given.contains(&"get") {
        given.push("get");
    }
    if given.contains(&"patch") && is_of_installation {
        given.push("create");
    }
    given
}

fn needed(config: &Config) -> BTreeSet<Given> {
    let mut needed = BTreeSet::new();
    for process in [Process::Webhook, Process::Certificates, Process::Controller] {
        for right in process.rights(config, "tolerarch") {
            for verb in given_verbs(right.verb, !right.namespace.is_empty()) {
                needed.insert((
                    process,
                    right.group.to_owned(),
                    right.resource.to_owned(),
                    right.name.clone(),
                    verb.to_owned(),
                ));
            }
        }
    }
    needed
}

/// `e2e/manifests` checks rendered charts with any values by this file.
#[test]
fn rights_json_is_up_to_date() {
    let mut declared = Vec::new();
    for need in &NEEDS {
        for access in need.access {
            declared.push(json!({
                "process": need.process.component(),
                "key": need.key,
                "group": access.group,
                "resource": access.resource,
                "verbs": given_verbs(access.verbs, access.names.is_some() && access.group != ADMISSION),
            }));
        }
    }
    let declared = format!("{:#}\n", Value::from(declared));
    let file = repository().join("e2e/manifests/rights.json");
    if Environment::of_process().get("UPDATE").is_some() {
        fs::write(&file, &declared).unwrap();
    }
    let current = fs::read_to_string(&file).unwrap_or_default();
    let update = "e2e/manifests/rights.json is out of date; run: UPDATE=1 cargo test rights";
    assert!(current == declared, "{update}");
}

/// Settings that the manifests and their components switch on.
const SWITCHED_ON: &str = "
    discover: {nodePools: true, nodes: true}
    cache: {warm: {fromPods: true}}
    credentials: {pullSecrets: true}
    server: {failedImages: true}
    tls: {mode: managed}
    controller: {nodeTaints: [{selector: {a: b}, taint: {key: c, effect: NoSchedule}}]}
";

#[test]
fn manifests_give_exactly_the_needed_rights() {
    let config = Config::parse(SWITCHED_ON).unwrap();
    let given = given(&manifests());
    let mut needed = needed(&config);
    // The manifests for pull secrets are rendered without a controller.
    needed.retain(|(process, _, resource, ..)| {
        *process != Process::Controller || resource != "secrets"
    });
    let missing: Vec<&Given> = needed.difference(&given).collect();
    let excess: Vec<&Given> = given.difference(&needed).collect();
    assert_eq!((missing, excess), (Vec::new(), Vec::new()));
}

/// Returns a configuration that needs every right.
fn everything() -> Config {
    let text = SWITCHED_ON.replace("nodeTaints", "podLogs: true, evictFailed: true, nodeTaints");
    Config::parse(&text).unwrap()
}

/// The chart has more rights than the manifests, which are rendered from it with its defaults.
#[test]
fn chart_gives_exactly_the_needed_rights() {
    let everything = needed(&everything());
    for (process, templates) in [
        (Process::Webhook, &["discovery", "warm", "pullsecrets"][..]),
        (Process::Certificates, &["managedcertificates"]),
        (
            Process::Controller,
            &["controller", "nodetaints", "pullsecrets"],
        ),
    ] {
        let mut given = BTreeSet::new();
        for template in templates {
            let chart = repository().join("manifests/helm/tolerarch/templates");
            let text = fs::read_to_string(chart.join(template).with_extension("yaml")).unwrap();
            let mut resource = "";
            for line in text.lines() {
                let (key, list) = line.trim().split_once(": [").unwrap_or_default();
                let list = list.split(']').next().unwrap();
                match key {
                    "resources" => resource = list,
                    "verbs" => given.extend(
                        list.split(", ")
                            .map(|verb| (resource.to_owned(), verb.to_owned())),
                    ),
                    _ => {}
                }
            }
        }
        let needed = everything.iter().filter(|right| right.0 == process);
        // The right to the ConfigMap of failed images is in the template of the controller.
        let needed = needed.filter(|right| process != Process::Webhook || right.2 != "configmaps");
        let needed: BTreeSet<_> = needed
            .map(|right| (right.2.clone(), right.4.clone()))
            .collect();
        assert_eq!(given, needed, "{process:?}");
    }
}

#[test]
fn security_page_lists_optional_rights() {
    let page = include_str!("../../SECURITY.md");
    let (_, section) = page
        .split_once("\n## What an installation may do\n")
        .unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let default = Config::default();
    // The text before the table describes these and the settings that are on by default.
    let mut described = vec!["tls.mode", "discover"];
    for need in &NEEDS {
        if (need.is_on)(&default) {
            described.push(need.key);
        }
    }
    for need in NEEDS.iter().filter(|need| !described.contains(&need.key)) {
        let mut rows = section.lines();
        let row = rows.find(|row| row.starts_with(&format!("| `{}`", need.key)));
        let row = row.unwrap_or_else(|| panic!("{} has no row", need.key));
        for access in need.access {
            for verb in access.verbs.split(' ') {
                assert!(row.contains(&format!("`{verb}`")), "{verb}: {row}");
            }
        }
    }
}

/// Returns the texts between `begin` and `end` in the code of a crate.
fn reported(krate: &str, begin: &str, end: &str) -> Vec<String> {
    let mut texts = Vec::new();
    for file in files(&repository().join("crates").join(krate).join("src"), "rs") {
        let code = fs::read_to_string(file).unwrap();
        let parts = code.split(begin).skip(1);
        texts.extend(parts.filter_map(|part| Some(part.split_once(end)?.0.to_owned())));
    }
    texts
}

#[test]
fn reported_missing_rights_are_needed_ones() {
    let needed = needed(&everything());
    let needs = |process: Process, verb: &str, resource: &str| {
        let mut rights = needed.iter();
        rights.any(|right| right.0 == process && right.2 == resource && right.4 == verb)
    };
    let of_controller = reported("controller", "\"the right to ", " is missing\"");
    assert!(of_controller.len() >= 4, "{of_controller:?}");
    for right in of_controller {
        let (verb, resource) = right.split_once(' ').unwrap();
        assert!(needs(Process::Controller, verb, resource), "{right}");
    }
    for (kind, resource) in [
        ("Secrets", "secrets"),
        ("MutatingWebhookConfigurations", WEBHOOKS),
    ] {
        for verb in ["get", "create", "patch", "delete"] {
            let reports = reported("webhook", &format!("\"{verb} on the {kind} of "), "\"");
            let is_reported = !reports.is_empty();
            let is_needed = needs(Process::Certificates, verb, resource);
            assert_eq!(is_reported, is_needed, "{verb} {resource}");
        }
    }
}
