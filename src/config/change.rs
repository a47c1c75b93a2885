//! From one configuration to the next while the program runs: what has to wait for a restart, and which files count.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use super::Config;
use super::reader::may_be_secret;
use super::shape::{Slot, texts, values};

impl Config {
    /// Puts back what cannot change while the program runs as it is in `old`, and names those keys.
    pub fn keep(&mut self, old: &Self) -> Vec<String> {
        let (mut before, mut kept) = (HashMap::new(), Vec::new());
        values(old.clone().shape(), "", &mut |path, at_start, value| {
            before.extend(at_start.then(|| (path.to_owned(), value.written())));
        });
        values(self.shape(), "", &mut |path, _, value| {
            if let Some(old) = before.get(path).filter(|old| **old != value.written()) {
                value.set(old);
                kept.push(path.to_owned());
            }
        });
        kept
    }

    /// What is other than in `old`, for a log line: `lookup.budget: 3s → 5s`. What may hold a password is named, not shown.
    pub fn changes(&self, old: &Self) -> Vec<String> {
        let [old, new] = [old, self].map(Self::written);
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

    /// All values by their paths, but for empty ones.
    fn written(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        values(self.clone().shape(), "", &mut |path, _, value| {
            let mut text = texts(&value.written()).join(", ");
            if !text.is_empty() && value.domain().is_list {
                text = format!("[{text}]");
            }
            all.extend((!text.is_empty()).then(|| (path.to_owned(), text)));
        });
        all
    }

    /// Lets `~` at the beginning of any path mean this directory, as a shell would.
    pub fn expand_home(&mut self, home: &Path) {
        let expanded = |path: PathBuf| path.strip_prefix("~").map(|rest| home.join(rest)).unwrap_or(path);
        values(self.shape(), "", &mut |_, _, value| {
            let paths = value.files();
            if paths.iter().any(|path| path.starts_with("~")) {
                value.clear();
                for path in paths {
                    value.add(&expanded(path).to_string_lossy());
                }
            }
        });
    }

    /// The files and directories that the configuration names, and whose content belongs to it. Not those of keys that
    /// need a restart: the serving certificate is followed by itself.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        values(self.clone().shape(), "", &mut |_, at_start, value| {
            if !at_start {
                files.extend(value.files());
            }
        });
        files.sort();
        files.dedup();
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
