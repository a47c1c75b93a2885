//! The environment of the process, read once and passed on, so that signatures show which functions depend on it.

use std::ffi::{OsStr, OsString};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment(Vec<(OsString, OsString)>);

impl Environment {
    #[expect(clippy::disallowed_methods, reason = "the one place where it is read")]
    pub fn of_process() -> Self {
        Self(std::env::vars_os().collect())
    }

    pub fn get(&self, name: &str) -> Option<&OsStr> {
        for (variable, value) in &self.0 {
            if variable == name {
                return Some(value);
            }
        }
        None
    }

    /// Returns the value of a variable; `None` if it is absent or not UTF-8.
    pub fn text(&self, name: &str) -> Option<String> {
        let text = self.get(name)?.to_str()?;
        Some(text.to_owned())
    }

    /// Returns names and values as texts. Bytes that are not UTF-8 are replaced by U+FFFD.
    pub fn texts(&self) -> impl Iterator<Item = (String, String)> {
        let text = |text: &OsString| text.to_string_lossy().into_owned();
        let variables = self.0.iter();
        variables.map(move |(name, value)| (text(name), text(value)))
    }
}

impl<N: Into<OsString>, V: Into<OsString>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        let mut owned = Vec::new();
        for (name, value) in variables {
            owned.push((name.into(), value.into()));
        }
        Self(owned)
    }
}
