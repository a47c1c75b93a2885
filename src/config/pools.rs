//! The pools of the configuration, checked so that no Pod can fail by what a pool gives it.

use saphyr::{MarkedYaml, YamlData};

use super::reader::{Reader, Slot, scalar, shown};
use crate::image::PlatformSet;
use crate::pod::{Text, Toleration};
use crate::policy::Pool;

impl Slot for Vec<Pool> {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        let empty = Pool { name: String::new(), platforms: PlatformSet::EMPTY, tolerations: Vec::new() };
        reader.items(node, self, empty);
        if self.is_empty() && matches!(node.data, YamlData::Sequence(_)) {
            reader.fault(node, "there has to be a pool");
        }
        let repeated = (0..self.len()).find(|&at| self[..at].iter().any(|pool| pool.name == self[at].name));
        if let Some(pool) = repeated.map(|at| &self[at]).filter(|pool| !pool.name.is_empty()) {
            reader.fault(node, format!("two pools are named {:?}", pool.name));
        }
    }
}

impl Slot for Pool {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        let before = reader.faults.len();
        reader.section(
            node,
            &mut [
                ("name", &mut PoolName(&mut self.name)),
                ("platforms", &mut self.platforms),
                ("tolerations", &mut self.tolerations),
            ],
        );
        if reader.faults.len() > before {
            return;
        }
        if self.name.is_empty() {
            reader.fault(node, "the pool has no name");
        }
        if self.platforms.is_empty() {
            reader.fault(node, "the pool has no platforms; write for example [linux/amd64, linux/arm64]");
        }
        if self.tolerations.is_empty() {
            reader.fault(node, "the pool has no tolerations, so nothing would open it");
        }
    }
}

/// A name that can stand in the annotation.
struct PoolName<'a>(&'a mut String);

impl Slot for PoolName<'_> {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        let expected = "a name of at most 63 lower-case letters, digits, '-' and '.'";
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
        let check = |text: &str| (1..=63).contains(&text.len()) && text.bytes().all(allowed);
        reader.parsed(node, self.0, expected, |text| check(text).then(|| text.to_owned()));
    }
}

impl Slot for PlatformSet {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        let mut platforms = Vec::new();
        reader.items(node, &mut platforms, One(Self::EMPTY));
        *self = platforms.iter().fold(Self::EMPTY, |set, One(platform)| set.union(*platform));
    }
}

/// One platform of a list.
#[derive(Clone)]
struct One(PlatformSet);

impl Slot for One {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        match scalar(node).unwrap_or_default().parse() {
            Ok(platform) => self.0 = platform,
            Err(error) => reader.fault(node, format!("found {}: {error}", shown(node))),
        }
    }
}

impl Slot for Vec<Toleration<'static>> {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.items(node, self, Toleration::default());
    }
}

/// Checked as the API server checks it (`ValidateTolerations` of k8s.io/kubernetes): a toleration that it does not take
/// would make every Pod fail that gets it.
impl Slot for Toleration<'static> {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        let before = reader.faults.len();
        reader.section(
            node,
            &mut [
                ("key", &mut Checked(&mut self.key, "a label key such as example.com/pool", is_label_key)),
                (
                    "operator",
                    &mut Checked(&mut self.operator, "Exists or Equal", |text| {
                        matches!(text, "Exists" | "Equal")
                    }),
                ),
                ("value", &mut Checked(&mut self.value, "a label value", is_label_value)),
                (
                    "effect",
                    &mut Checked(&mut self.effect, "NoSchedule, PreferNoSchedule or NoExecute", is_effect),
                ),
                ("tolerationSeconds", &mut self.toleration_seconds),
            ],
        );
        if reader.faults.len() > before {
            return;
        }
        if self.key.is_empty() {
            reader.fault(node, "the toleration has no key; without one it would open every taint");
        }
        if self.operator.as_str() == "Exists" && !self.value.is_empty() {
            reader.fault(
                node,
                "a toleration with operator Exists has no value; remove it or write operator: Equal",
            );
        }
        if self.toleration_seconds.is_some() && self.effect.as_str() != "NoExecute" {
            reader.fault(node, "tolerationSeconds of a toleration needs effect: NoExecute");
        }
    }
}

/// A text that has to pass a check.
struct Checked<'a>(&'a mut Text<'static>, &'static str, fn(&str) -> bool);

impl Slot for Checked<'_> {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.parsed(node, self.0, self.1, |text| (self.2)(text).then(|| text.to_owned().into()));
    }
}

fn is_effect(text: &str) -> bool {
    matches!(text, "NoSchedule" | "PreferNoSchedule" | "NoExecute")
}

/// `IsQualifiedName` of k8s.io/apimachinery: an optional DNS subdomain, a slash, and a name.
fn is_label_key(text: &str) -> bool {
    let (prefix, name) = text.rsplit_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
    let label = |part: &str| {
        let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let bytes = part.as_bytes();
        edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(|&b| b == b'-' || edge(Some(&b)))
    };
    let domain = |prefix: &str| prefix.len() <= 253 && prefix.split('.').all(label);
    !name.is_empty() && is_label_value(name) && prefix.is_none_or(domain)
}

/// `IsValidLabelValue` of k8s.io/apimachinery.
fn is_label_value(text: &str) -> bool {
    let edge = |b: Option<u8>| b.is_none_or(|b| b.is_ascii_alphanumeric());
    text.len() <= 63
        && edge(text.bytes().next())
        && edge(text.bytes().next_back())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}
