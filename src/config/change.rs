//! Changes of the configuration at run time: keys that need a restart, differences for the log, and files to follow.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use super::Config;
use super::print::rendered;
use super::reader::may_be_secret;
use super::shape::{Describe, is_empty};

impl Config {
    /// Restores the keys that need a restart to their values in `old`. Returns those that differed.
    pub fn restore_restart_keys(&mut self, old: &Self) -> Vec<String> {
        let before = old.written();
        let mut restored = Vec::new();
        self.describe().values(&mut |path, at_start, value| {
            if at_start
                && let Some(old) = before.get(path)
                && *old != value.written
            {
                value.set(old);
                restored.push(path.to_owned());
            }
        });
        restored
    }

    /// Returns the differences from `old` for a log line: `lookup.budget: 3s → 5s`. A possible password is replaced by `…`.
    pub fn changes(&self, old: &Self) -> Vec<String> {
        let [old, new] = [old, self].map(Self::written);
        let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        let text = |value: Option<&Json>| match value.map(rendered) {
            None => "none".to_owned(),
            Some(text) if may_be_secret(&text) => "…".to_owned(),
            Some(text) => text,
        };
        let mut changes = Vec::new();
        for key in keys {
            let [old, new] = [&old, &new].map(|all| all.get(key).filter(|value| !is_empty(value)));
            if old != new {
                changes.push(format!("{key}: {} → {}", text(old), text(new)));
            }
        }
        changes
    }

    /// Returns the values in the form of the file, by path.
    fn written(&self) -> BTreeMap<String, Json> {
        let mut all = BTreeMap::new();
        self.clone()
            .describe()
            .values(&mut |path, _, value| drop(all.insert(path.to_owned(), value.written.take())));
        all
    }

    /// Replaces `~` at the beginning of each path by this directory, as a shell does.
    pub fn expand_home(&mut self, home: &Path) {
        let expanded = |path: PathBuf| match path.strip_prefix("~") {
            Ok(rest) => home.join(rest),
            Err(_) => path,
        };
        self.describe().values(&mut |_, _, value| {
            let paths = value.files();
            if paths.iter().any(|path| path.starts_with("~")) {
                let paths = paths
                    .into_iter()
                    .map(|path| expanded(path).to_string_lossy().into_owned());
                value.set(&paths.collect());
            }
        });
    }

    /// Returns the files and directories whose content belongs to the configuration, without those of keys that need a
    /// restart. The serving certificate is followed separately.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        self.clone().describe().values(&mut |_, at_start, value| {
            if !at_start {
                files.extend(value.files());
            }
        });
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(text).unwrap_or_else(|faults| panic!("{faults:?}"))
    }

    #[test]
    fn changes_are_listed_without_passwords() {
        let old = config(
            "{lookup: {budget: 3s}, registries: {hosts: {a.b: {plainHttp: true}}}, network: {allow: [10.0.0.0/8]}}",
        );
        let new = config(
            "{mode: observe, lookup: {budget: 5s}, credentials: {directory: /u:p@w}, network: {allow: \
             [10.0.0.0/8, '::1/128']}}",
        );
        assert_eq!(
            new.changes(&old),
            [
                "credentials.directory: none → …",
                "lookup.budget: 3s → 5s",
                "mode: enforce → observe",
                "network.allow: [10.0.0.0/8] → [10.0.0.0/8, \"::1/128\"]",
                r#"registries.hosts["a.b"].plainHttp: true → none"#,
                r#"registries.hosts["a.b"].skipVerify: false → none"#,
            ]
        );
        assert_eq!(new.changes(&new), Vec::<String>::new());
    }
}
