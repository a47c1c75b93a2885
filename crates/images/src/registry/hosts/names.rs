//! Names under which nodes request images from a host of a `hosts.toml`. k3s and RKE2 support rules for these names: a
//! table `rewrite` of regular expressions and templates (`withRewritesFromHost` in `core/remotes/docker/resolver.go` of
//! github.com/k3s-io/containerd). A rule is followed only if Go certainly reads it in the same way.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use regex::Regex;

use tolerarch_core::image::ImageRef;

/// Names of images at a host. A location is a file and a line.
#[derive(Clone, Debug, Default)]
pub(super) enum Names {
    #[default]
    Unchanged,
    /// Names are rewritten by the rules at this location.
    Rewritten {
        rules: Arc<[(Regex, String)]>,
        location: String,
    },
    /// Names are unknown, because the file is not understood at this location.
    Unclear(String),
}

impl Names {
    /// Makes names by these rules, or unclear names if `rules` is `None`. Names are also unclear if a rule is malformed
    /// or Go may read it differently.
    pub(super) fn rewritten(rules: Option<BTreeMap<String, String>>, location: String) -> Self {
        let rule = |(pattern, template): (String, String)| {
            if !is_common_pattern(&pattern) || !is_common_template(&template) {
                return None;
            }
            Some((Regex::new(&pattern).ok()?, template))
        };
        match rules.and_then(|rules| rules.into_iter().map(rule).collect()) {
            Some(rules) => Self::Rewritten { rules, location },
            None => Self::Unclear(location),
        }
    }

    /// Returns the location of the rules, and a note for the operator about them.
    pub(super) fn note(&self) -> Option<(&str, &'static str)> {
        match self {
            Self::Unchanged => None,
            Self::Rewritten { location, .. } => Some((
                location,
                "rewrite is followed as k3s and RKE2 do; other nodes ignore it",
            )),
            Self::Unclear(location) => Some((
                location,
                "not understood; Pods whose images would be looked up there are admitted unchanged",
            )),
        }
    }

    /// Returns the name of this repository at the host. An error is the location of the rules that leave the name
    /// unclear. k3s applies the first rule that changes the name, in the order of a Go map, which differs each time. So
    /// the name is clear only if all rules that change it agree.
    pub(super) fn of<'a>(&'a self, repository: &'a str) -> Result<Cow<'a, str>, &'a str> {
        let (rules, location) = match self {
            Self::Unchanged => return Ok(Cow::Borrowed(repository)),
            Self::Unclear(location) => return Err(location),
            Self::Rewritten { rules, location } => (rules, location),
        };
        let mut names = rules
            .iter()
            .map(|(pattern, template)| pattern.replace_all(repository, template))
            .filter(|name| name != repository);
        let Some(name) = names.next() else {
            return Ok(Cow::Borrowed(repository));
        };
        if !is_repository(&name) || names.any(|other| other != name) {
            return Err(location);
        }
        Ok(name)
    }
}

fn is_repository(name: &str) -> bool {
    format!("host.invalid/{name}:tag")
        .parse::<ImageRef>()
        .is_ok_and(|image| image.repository() == name)
}

/// Returns whether Go's `regexp` certainly reads a pattern as `regex` does. They differ in flags, escapes, nested
/// classes and repeated quantifiers, none of which a pattern for names of repositories needs.
fn is_common_pattern(pattern: &str) -> bool {
    const DIFFERENT: [&str; 11] = [
        "**", "*+", "+*", "++", "?*", "?+", "??", "--", "[]", "[^]", "[:",
    ];
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-^$|()[]*+?:\\".contains(c);
    let is_different = |text: &&str| pattern.contains(*text);
    if !pattern.chars().all(is_plain) || DIFFERENT.iter().any(is_different) {
        return false;
    }
    // Checks the text after each occurrence of a mark.
    let after = |mark, is_common: fn(&str) -> bool| pattern.split(mark).skip(1).all(is_common);
    let has_common_groups = after("(?", |rest| rest.starts_with(':'));
    let has_common_escapes = after("\\", |rest| rest.starts_with(['.', '/', '-', 'd', 'w']));
    let has_closed_classes = after("[", |rest| rest.contains(']'));
    has_common_groups && has_common_escapes && has_closed_classes
}

/// Returns whether Go certainly reads a template as `regex` does: the only references are `$1` and `${1}`, with one
/// digit.
fn is_common_template(template: &str) -> bool {
    template
        .split('$')
        .skip(1)
        .all(|reference| match reference.as_bytes() {
            [b'{', b'0'..=b'9', b'}', ..] | [b'0'..=b'9'] => true,
            [b'0'..=b'9', next, ..] => !next.is_ascii_alphanumeric() && *next != b'_',
            _ => false,
        })
}

#[cfg(test)]
mod tests;
