//! Tags as versions: which tags of a repository are newer than a given tag, and of the same kind.
//!
//! Most tags are not semantic versions: they have two or four numbers (`3.12`, `4.0.1.99`), leading zeros
//! (`2024.03.01`), no `+`, and a variant after a hyphen that is no pre-release (`1.27-alpine`). So crate `semver` parses
//! few of them; for those, the tests compare the order with it. The parts of a tag are
//!
//! - a prefix (`v`, `release-`), numbers (`1.27.3`), a pre-release (`-rc.1`, `b2`), which is ordered as in section 11 of
//!   Semantic Versioning, and a variant (`-slim-bookworm`);
//! - in the variant, numbers of a distribution (`alpine3.18`, `debian-12`) and of a revision (`r5`), which are ordered
//!   after the version.
//!
//! Only tags of the same form are compared. The form is all text except pre-releases and those numbers: `17-jdk` is
//! compared with `21-jdk`, but not with `21-jre`, and `1.2-jdk17` is not compared with `1.3-jdk21`.

use std::cmp::Ordering;

/// Words of a pre-release. The words of [`WITH_NUMBER`] mean a pre-release only before a number.
const PRE_RELEASES: [&str; 17] = [
    "alpha",
    "beta",
    "canary",
    "cr",
    "dev",
    "ea",
    "edge",
    "experimental",
    "milestone",
    "next",
    "nightly",
    "pre",
    "preview",
    "rc",
    "snapshot",
    "test",
    "unstable",
];
const WITH_NUMBER: [&str; 3] = ["a", "b", "m"];
/// Words whose numbers are the version of a distribution.
const DISTRIBUTIONS: [&str; 12] = [
    "alpine",
    "bci",
    "centos",
    "debian",
    "el",
    "fedora",
    "photon",
    "rhel",
    "rocky",
    "rockylinux",
    "ubi",
    "ubuntu",
];
/// Words whose numbers count builds of one version.
const REVISIONS: [&str; 9] = [
    "build", "eksbuild", "k3s", "ls", "p", "post", "r", "rev", "rke2r",
];
/// Words between numbers of the version: `8u392` of Java, `2024-03-01T22-40-07Z`.
const WITHIN_NUMBERS: [&str; 3] = ["u", "T", "Z"];
/// Maximum digits of a number that is no date. A longer number may be a hash, or count seconds.
const MAX_DIGITS: usize = 6;
/// Minimum characters of a hash, as Git abbreviates it.
const HASH: usize = 7;

/// Returns the tags that are newer than `tag`, the nearest first; `None` if `tag` is no version. Pre-releases are returned
/// only if `tag` is one, and tags of an older distribution never.
pub fn newer_tags<'t>(tag: &str, tags: impl IntoIterator<Item = &'t str>) -> Option<Vec<&'t str>> {
    let current = Version::parse(tag)?;
    let mut newer = Vec::new();
    for tag in tags {
        if let Some(version) = Version::parse(tag)
            && version.is_newer_than(&current)
        {
            newer.push((version, tag));
        }
    }
    newer.sort_unstable();
    let tags = newer.into_iter().map(|(_, tag)| tag);
    Some(tags.collect())
}

/// A tag that is a version. Only versions of the same form are ordered.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Version<'t> {
    numbers: Vec<Number<'t>>,
    pre_release: PreRelease<'t>,
    distribution: Vec<Number<'t>>,
    revision: Vec<Number<'t>>,
    /// The tag without the pre-release, and with a sign in place of each ordered number.
    form: String,
}

/// The identifiers of a pre-release. A release has none, and comes after all its pre-releases.
#[derive(Debug, Default, PartialEq, Eq)]
struct PreRelease<'t>(Vec<Identifier<'t>>);

/// An identifier of a pre-release. Numbers come before words. `rc10` has two identifiers, so that it comes after `rc9`; in
/// Semantic Versioning it comes before.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Identifier<'t> {
    Number(Number<'t>),
    /// In lower case, as PHP has `8.3.0beta3` before `8.3.0RC1`.
    Word(String),
}

/// A number of any length, as decimal digits.
#[derive(Clone, Copy, Debug)]
struct Number<'t>(&'t str);

/// The part of a tag to which the next number belongs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Version,
    PreRelease,
    Distribution,
    Revision,
    Form,
}

impl<'t> Version<'t> {
    fn parse(tag: &'t str) -> Option<Self> {
        let (prefix, mut rest) = tag.split_at(start_of_numbers(tag)?);
        let mut version = Self {
            form: prefix.to_owned(),
            ..Self::default()
        };
        let mut part = Part::Version;
        let mut has_variant = false;
        while !rest.is_empty() {
            let (separator, after) = split_where(rest, |c| c.is_ascii_alphanumeric());
            let (token, after) = split_where(after, |c| !c.is_ascii_alphanumeric());
            has_variant |= separator.contains(['-', '_']);
            let (digits, word) = split_where(token, |c| !c.is_ascii_digit());
            part = match (digits, word) {
                (_, "") => version.add_number(part, separator, digits),
                _ if is_hash(token) => version.add_text(separator, token),
                ("", _) => version.add_word(separator, word),
                // Digits and letters of a hash are neither a number nor a pre-release.
                _ if part == Part::Version && is_glued(word, has_variant) => {
                    version.add_number(part, separator, digits);
                    version.add_word("", word)
                }
                _ => version.add_text(separator, token),
            };
            rest = after;
        }
        if version.numbers.is_empty() {
            return None;
        }
        Some(version)
    }

    fn is_newer_than(&self, current: &Self) -> bool {
        if self.form != current.form || self.distribution < current.distribution {
            return false;
        }
        if self.is_pre_release() && !current.is_pre_release() {
            return false;
        }
        self > current
    }

    fn is_pre_release(&self) -> bool {
        !self.pre_release.0.is_empty()
    }

    /// Adds digits to a part, and returns the part of the next number.
    fn add_number(&mut self, part: Part, separator: &str, digits: &'t str) -> Part {
        let number = Number(digits);
        if part == Part::PreRelease {
            self.pre_release.0.push(Identifier::Number(number));
            return part;
        }
        let is_first = self.numbers.is_empty();
        let numbers = match part {
            Part::Version => &mut self.numbers,
            Part::Distribution => &mut self.distribution,
            Part::Revision => &mut self.revision,
            Part::PreRelease | Part::Form => return self.add_text(separator, digits),
        };
        // The signs `@`, `=` and `#`, which no tag has, keep dates, years and other numbers apart.
        let sign = if is_date(digits) {
            format!("@{}", digits.len())
        } else if digits.len() > MAX_DIGITS {
            return self.add_text(separator, digits);
        } else if is_first && is_year(digits) {
            "=".to_owned()
        } else {
            "#".to_owned()
        };
        numbers.push(number);
        self.form.push_str(separator);
        self.form.push_str(&sign);
        part
    }

    /// Adds a word, which may end in digits, and returns the part of the next number.
    fn add_word(&mut self, separator: &str, token: &'t str) -> Part {
        let (word, digits) = split_end(token);
        let lower = word.to_ascii_lowercase();
        let part = match &*lower {
            _ if is_pre_release(&lower, digits) => {
                self.pre_release.0.push(Identifier::Word(lower));
                if !digits.is_empty() {
                    self.add_number(Part::PreRelease, "", digits);
                }
                return Part::PreRelease;
            }
            _ if WITHIN_NUMBERS.contains(&word) => Part::Version,
            word if DISTRIBUTIONS.contains(&word) => Part::Distribution,
            word if REVISIONS.contains(&word) => Part::Revision,
            _ => return self.add_text(separator, token),
        };
        self.add_text(separator, word);
        if digits.is_empty() {
            return part;
        }
        self.add_number(part, "", digits)
    }

    fn add_text(&mut self, separator: &str, text: &str) -> Part {
        self.form.push_str(separator);
        self.form.push_str(text);
        Part::Form
    }
}

/// Finds the first number at the beginning of a word, or after a `v` there. So the version of `k8s-1.2` begins with 1, and
/// `jdk17` has none. A word begins after a dot only if no digit comes before: `RELEASE.2024-03-01`, but not `alpine3.18`.
fn start_of_numbers(tag: &str) -> Option<usize> {
    let mut before = '-';
    let mut has_digits = false;
    for (index, c) in tag.char_indices() {
        let is_separated = match before {
            '-' | '_' => true,
            '.' => !has_digits,
            _ => false,
        };
        if is_separated {
            let word = &tag[index..];
            let number = word.strip_prefix(['v', 'V']).unwrap_or(word);
            if number.starts_with(|c: char| c.is_ascii_digit()) {
                return Some(tag.len() - number.len());
            }
        }
        has_digits |= c.is_ascii_digit();
        before = c;
    }
    None
}

/// Returns whether a word may follow a digit of the version directly. Before any variant, a pre-release may: `3.13.0a1`.
fn is_glued(token: &str, has_variant: bool) -> bool {
    let (word, digits) = split_end(token);
    if WITHIN_NUMBERS.contains(&word) {
        return true;
    }
    !has_variant && is_pre_release(&word.to_ascii_lowercase(), digits)
}

fn is_pre_release(word: &str, digits: &str) -> bool {
    if digits.is_empty() {
        return PRE_RELEASES.contains(&word);
    }
    PRE_RELEASES.contains(&word) || WITH_NUMBER.contains(&word)
}

/// Returns whether a word with letters and digits may be an abbreviated hash: `4b82341` is no beta of version 4.
fn is_hash(token: &str) -> bool {
    let is_hexadecimal = |c: char| matches!(c, '0'..='9' | 'a'..='f');
    token.len() >= HASH && token.chars().all(is_hexadecimal)
}

/// Returns whether digits are a date: year, month and day, perhaps with the time to the hour, minute or second.
fn is_date(digits: &str) -> bool {
    if !matches!(digits.len(), 8 | 10 | 12 | 14) || !is_year(&digits[..4]) {
        return false;
    }
    let ranges = [1..=12, 1..=31, 0..=23, 0..=59, 0..=60];
    let starts = (4..digits.len()).step_by(2);
    for (start, range) in starts.zip(ranges) {
        let Ok(value) = digits[start..start + 2].parse::<u8>() else {
            return false;
        };
        if !range.contains(&value) {
            return false;
        }
    }
    true
}

fn is_year(digits: &str) -> bool {
    digits.len() == 4 && ("1990".."2100").contains(&digits)
}

/// Splits `text` before the first character for which `is_next` holds.
fn split_where(text: &str, is_next: impl Fn(char) -> bool) -> (&str, &str) {
    let index = text.find(is_next).unwrap_or(text.len());
    text.split_at(index)
}

/// Splits `token` before the digits at its end.
fn split_end(token: &str) -> (&str, &str) {
    let word = token.trim_end_matches(|c: char| c.is_ascii_digit());
    (word, &token[word.len()..])
}

impl Ord for PreRelease<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.0.is_empty(), other.0.is_empty()) {
            (false, false) => self.0.cmp(&other.0),
            (is_release, other) => is_release.cmp(&other),
        }
    }
}

impl PartialOrd for PreRelease<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Number<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let digits = self.0.trim_start_matches('0');
        let others = other.0.trim_start_matches('0');
        let by_length = digits.len().cmp(&others.len());
        by_length.then_with(|| digits.cmp(others))
    }
}

impl PartialOrd for Number<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Number<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Number<'_> {}

#[cfg(test)]
mod tests;
