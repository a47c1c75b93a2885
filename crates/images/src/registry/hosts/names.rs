//! Names by which nodes request images from a host of a `hosts.toml`. k3s and RKE2 have rules for these names, a table
//! `rewrite` of regular expressions and templates (`withRewritesFromHost` in `core/remotes/docker/resolver.go` of
//! github.com/k3s-io/containerd). Rules are followed where Go's reading of them is beyond doubt.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use regex::Regex;

use tolerarch_core::image::ImageRef;

/// Names of images at a host. A place is a file and a line.
#[derive(Clone, Debug, Default)]
pub(super) enum Names {
    /// Unchanged names.
    #[default]
    Unchanged,
    /// Names rewritten by the rules at this place.
    Rewritten {
        rules: Arc<[(Regex, String)]>,
        place: String,
    },
    /// Unknown names: the rules at this place are not understood.
    Unclear(String),
}

impl Names {
    /// Makes names by these rules; unclear if Go may read one of them otherwise, or they are malformed.
    pub(super) fn rewritten(rules: Option<BTreeMap<String, String>>, place: String) -> Self {
        let rule = |(pattern, template): (String, String)| {
            if !is_common_pattern(&pattern) || !is_common_template(&template) {
                return None;
            }
            Some((Regex::new(&pattern).ok()?, template))
        };
        match rules.and_then(|rules| rules.into_iter().map(rule).collect()) {
            Some(rules) => Self::Rewritten { rules, place },
            None => Self::Unclear(place),
        }
    }

    /// Returns a note for the operator about the rules, and their place.
    pub(super) fn note(&self) -> Option<(&str, &'static str)> {
        match self {
            Self::Unchanged => None,
            Self::Rewritten { place, .. } => Some((
                place,
                "rewrite is followed as k3s and RKE2 do; other nodes pass it over",
            )),
            Self::Unclear(place) => Some((
                place,
                "not understood; Pods whose images would be looked up there are admitted unchanged",
            )),
        }
    }

    /// Returns the name of this repository at the host, or the place of what leaves it open. k3s takes the first rule
    /// that changes the name, in the order of a map of Go, which differs each time.
    pub(super) fn of<'a>(&'a self, repository: &'a str) -> Result<Cow<'a, str>, &'a str> {
        let (rules, place) = match self {
            Self::Unchanged => return Ok(Cow::Borrowed(repository)),
            Self::Unclear(place) => return Err(place),
            Self::Rewritten { rules, place } => (rules, place),
        };
        let mut names = rules
            .iter()
            .map(|(pattern, template)| pattern.replace_all(repository, template))
            .filter(|name| name != repository);
        let Some(name) = names.next() else {
            return Ok(Cow::Borrowed(repository));
        };
        if !is_repository(&name) || names.any(|other| other != name) {
            return Err(place);
        }
        Ok(name)
    }
}

fn is_repository(name: &str) -> bool {
    format!("host.invalid/{name}:tag")
        .parse::<ImageRef>()
        .is_ok_and(|image| image.repository() == name)
}

/// Returns whether Go's `regexp` reads a pattern as `regex` does. They differ in flags, escapes, nested classes and
/// doubled repetition, on which names of repositories do not depend.
fn is_common_pattern(pattern: &str) -> bool {
    const DIFFERENT: [&str; 11] = [
        "**", "*+", "+*", "++", "?*", "?+", "??", "--", "[]", "[^]", "[:",
    ];
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-^$|()[]*+?:\\".contains(c);
    let behind = |mark, is_fine: fn(&str) -> bool| pattern.split(mark).skip(1).all(is_fine);
    pattern.chars().all(is_plain)
        && !DIFFERENT
            .iter()
            .any(|different| pattern.contains(different))
        && behind("(?", |rest| rest.starts_with(':'))
        && behind("\\", |rest| rest.starts_with(['.', '/', '-', 'd', 'w']))
        && behind("[", |class| class.contains(']'))
}

/// Returns whether Go reads a template as `regex` does: references are `$1` and `${1}`, with one digit.
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
