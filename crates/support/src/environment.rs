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
        let (_, value) = self.0.iter().find(|(variable, _)| variable == name)?;
        Some(value)
    }

    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name)?.to_str().map(str::to_owned)
    }

    /// Returns names and values as text; bytes that are not UTF-8 are replaced by U+FFFD.
    pub fn texts(&self) -> impl Iterator<Item = (String, String)> {
        let text = |text: &OsString| text.to_string_lossy().into_owned();
        self.0
            .iter()
            .map(move |(name, value)| (text(name), text(value)))
    }
}

impl<N: Into<OsString>, V: Into<OsString>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        let variables = variables.into_iter();
        Self(
            variables
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}
