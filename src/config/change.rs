//! From one configuration to the next while the program runs: what has to wait for a restart, and which files count.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use super::Config;
use super::quote::may_be_secret;
use super::shape::{Shape, Slot};

impl Config {
    /// Puts back what cannot change while the program runs as it is in `old`, and names those keys.
    pub fn keep(&mut self, old: &Self) -> Vec<String> {
        let mut kept = Vec::new();
        keep(self.shape(), old.clone().shape(), false, "", &mut kept);
        kept
    }

    /// What is other than in `old`, for a log line: `lookup.budget: 3s → 5s`. What may hold a password is named, not shown.
    pub fn changes(&self, old: &Self) -> Vec<String> {
        let [old, new] = [old, self].map(|config| {
            let mut values = BTreeMap::new();
            flatten(&mut config.clone(), String::new(), &mut values);
            values
        });
        let mut keys: Vec<&String> = old.keys().chain(new.keys()).collect();
        keys.sort();
        keys.dedup();
        let changed = keys.into_iter().filter(|key| old.get(*key) != new.get(*key));
        let shown = |value: Option<&String>| match value {
            None => "none".to_owned(),
            Some(value) if may_be_secret(value) => "…".to_owned(),
            Some(value) => value.clone(),
        };
        changed.map(|key| format!("{key}: {} → {}", shown(old.get(key)), shown(new.get(key)))).collect()
    }

    /// Lets `~` at the beginning of any path mean this directory, as a shell would.
    pub fn expand_home(&mut self, home: &Path) {
        expand(self, home);
    }

    /// The files and directories that the configuration names, and whose content belongs to it. Not those of keys that
    /// need a restart: the serving certificate is followed by itself.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        collect(&mut self.clone(), &mut files);
        files.retain(|file| !file.as_os_str().is_empty());
        files.sort();
        files.dedup();
        files
    }
}

fn keep(new: Shape<'_>, old: Shape<'_>, at_start: bool, path: &str, kept: &mut Vec<String>) {
    match (new, old) {
        (Shape::Section(new), Shape::Section(old)) => {
            for (mut new, mut old) in new.into_iter().zip(old) {
                let path = new.path(path);
                keep(new.slot.shape(), old.slot.shape(), new.at_start, &path, kept);
            }
        }
        (Shape::Value(mut new), Shape::Value(old)) if at_start && new.written() != old.written() => {
            new.read(&text(old.written()));
            kept.push(path.to_owned());
        }
        (Shape::Values(mut new), Shape::Values(old)) if at_start && new.written() != old.written() => {
            new.clear();
            for item in old.written() {
                new.add(&text(item));
            }
            kept.push(path.to_owned());
        }
        _ => {}
    }
}

/// As a file or a variable would say it.
fn text(value: Json) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The scalars and lists of scalars by their paths, empty ones left out.
fn flatten(slot: &mut dyn Slot, path: String, values: &mut BTreeMap<String, String>) {
    match slot.shape() {
        Shape::Section(keys) => {
            for mut key in keys {
                let path = key.path(&path);
                flatten(&mut *key.slot, path, values);
            }
        }
        Shape::Value(value) => {
            let written = Some(value.written()).filter(|written| !written.is_null()).map(text);
            values.extend(written.filter(|text| !text.is_empty()).map(|text| (path, text)));
        }
        Shape::Values(list) => {
            let items: Vec<String> = list.written().into_iter().map(text).collect();
            if !items.is_empty() {
                values.insert(path, format!("[{}]", items.join(", ")));
            }
        }
        Shape::List(list) => {
            let mut at = 0;
            list.each(&mut |slot| {
                flatten(slot, format!("{path}[{at}]"), values);
                at += 1;
            });
        }
        Shape::Map(map) => map.each(&mut |name, slot| flatten(slot, format!("{path}[{name:?}]"), values)),
    }
}

fn collect(slot: &mut dyn Slot, files: &mut Vec<PathBuf>) {
    match slot.shape() {
        Shape::Section(keys) => {
            for mut key in keys.into_iter().filter(|key| !key.at_start) {
                collect(&mut *key.slot, files);
            }
        }
        Shape::Value(value) => files.extend(value.file()),
        Shape::Values(values) => files.extend(values.files()),
        Shape::List(list) => list.each(&mut |slot| collect(slot, files)),
        Shape::Map(map) => map.each(&mut |_, slot| collect(slot, files)),
    }
}

fn expand(slot: &mut dyn Slot, home: &Path) {
    let expanded = |path: &Path| {
        let rest = path.strip_prefix("~").ok()?;
        Some(home.join(rest).to_string_lossy().into_owned())
    };
    match slot.shape() {
        Shape::Section(keys) => keys.into_iter().for_each(|mut key| expand(&mut *key.slot, home)),
        Shape::Value(mut value) => {
            if let Some(path) = value.file().and_then(|path| expanded(&path)) {
                value.read(&path);
            }
        }
        Shape::Values(mut values) => {
            let paths = values.files();
            if paths.iter().any(|path| path.starts_with("~")) {
                values.clear();
                for path in paths {
                    values.add(&expanded(&path).unwrap_or_else(|| path.to_string_lossy().into_owned()));
                }
            }
        }
        Shape::List(list) => list.each(&mut |slot| expand(slot, home)),
        Shape::Map(map) => map.each(&mut |_, slot| expand(slot, home)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(text).unwrap_or_else(|faults| panic!("{faults:?}"))
    }

    #[test]
    fn says_what_has_changed_and_shows_no_password() {
        let old = config(
            "{lookup: {budget: 3s}, registries: {hosts: {a.b: {plainHttp: true}}}, network: {allow: [10.0.0.0/8]}}",
        );
        let new = config(
            "{mode: observe, lookup: {budget: 5s}, credentials: {directory: /u:p@w}, network: {allow: [10.0.0.0/8, ::1/128]}}",
        );
        assert_eq!(
            new.changes(&old),
            [
                "credentials.directory: none → …",
                "lookup.budget: 3s → 5s",
                "mode: enforce → observe",
                "network.allow: [10.0.0.0/8] → [10.0.0.0/8, ::1/128]",
                r#"registries.hosts["a.b"].plainHttp: true → none"#,
                r#"registries.hosts["a.b"].skipVerify: false → none"#,
            ]
        );
        assert_eq!(new.changes(&new), Vec::<String>::new());
    }
}
