//! From YAML to a [`Config`]: each section names its keys once, each value says what it accepts.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use ipnet::IpNet;
use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};

use super::{Admin, Config, Log, Registries, Server};
use crate::image::{ImageRef, PlatformSet};
use crate::logging::{Format, Level};
use crate::pod::{Text, Toleration};
use crate::policy::{Mode, Pool};
use crate::registry::{Guard, HostSettings};
use crate::resolver::{CacheSettings, LookupSettings};

/// One thing that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where, as a path of keys: `pools[0].platforms`. Empty for the whole document.
    pub path: String,
    /// On which line, from 1.
    pub line: usize,
    /// What, and how to mend it.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "the document" } else { &self.path };
        write!(f, "{path} (line {}): {}", self.line, self.message)
    }
}

/// Reads the one document of a file into `config`, which holds the defaults.
pub(super) fn document(text: &str, config: &mut Config) -> Result<(), Vec<Fault>> {
    let whole = |line, message| vec![Fault { path: String::new(), line, message }];
    let documents = MarkedYaml::load_from_str(text).map_err(|error| {
        whole(
            error.marker().line(),
            format!("not YAML: {} at column {}", error.info(), error.marker().col() + 1),
        )
    })?;
    let mut reader = Reader::default();
    match documents.as_slice() {
        [] => {}
        [document] => config.fill(document, &mut reader),
        [_, second, ..] => {
            return Err(whole(second.span.start.line(), "a second document: a configuration is one".into()));
        }
    }
    if reader.faults.is_empty() { Ok(()) } else { Err(reader.faults) }
}

/// Where the reading is, and what was found wrong.
#[derive(Default)]
struct Reader {
    path: String,
    faults: Vec<Fault>,
}

/// Something that a node of the file can fill.
trait Slot {
    /// Takes over what the node says; what is wrong with it goes to the reader.
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader);
}

impl Reader {
    fn fault(&mut self, node: &MarkedYaml<'_>, message: impl Into<String>) {
        self.faults.push(Fault {
            path: self.path.clone(),
            line: node.span.start.line(),
            message: message.into(),
        });
    }

    fn wrong(&mut self, node: &MarkedYaml<'_>, expected: &str) {
        self.fault(node, format!("found {}, expected {expected}", shown(node)));
    }

    /// Runs `read` one step deeper.
    fn within(&mut self, step: &str, read: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if !self.path.is_empty() && !step.starts_with('[') {
            self.path.push('.');
        }
        self.path.push_str(step);
        read(self);
        self.path.truncate(length);
    }

    /// A mapping with these keys and no others. A key without a value keeps its default.
    fn section(&mut self, node: &MarkedYaml<'_>, keys: &mut [(&str, &mut dyn Slot)]) {
        let YamlData::Mapping(members) = &node.data else {
            return self.wrong(node, &format!("a section with {}", list(keys.iter().map(|(key, _)| *key))));
        };
        for (key, value) in members {
            let name = scalar(key).unwrap_or_default();
            match keys.iter_mut().find(|(known, _)| *known == name) {
                Some((known, slot)) => {
                    if !is_null(value) {
                        self.within(known, |reader| slot.fill(value, reader));
                    }
                }
                None => {
                    let nearest = keys
                        .iter()
                        .map(|(known, _)| (strsim::damerau_levenshtein(known, &name), *known))
                        .min();
                    let hint = match nearest {
                        Some((distance, known)) if distance * 2 <= known.len() => {
                            format!("did you mean {known}?")
                        }
                        _ => format!("known are {}", list(keys.iter().map(|(known, _)| *known))),
                    };
                    self.within(&name, |reader| reader.fault(key, format!("unknown key; {hint}")));
                }
            }
        }
    }

    /// A value that `parse` reads from text.
    fn parsed<T>(
        &mut self,
        node: &MarkedYaml<'_>,
        slot: &mut T,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) {
        match scalar(node).as_deref().and_then(parse) {
            Some(value) => *slot = value,
            None => self.wrong(node, expected),
        }
    }
}

fn is_null(node: &MarkedYaml<'_>) -> bool {
    matches!(node.data, YamlData::Value(Scalar::Null))
}

/// A scalar as text: `8443` and `"8443"` are the same here.
fn scalar(node: &MarkedYaml<'_>) -> Option<String> {
    match &node.data {
        YamlData::Value(Scalar::String(text)) => Some(text.to_string()),
        YamlData::Value(Scalar::Integer(number)) => Some(number.to_string()),
        YamlData::Value(Scalar::Boolean(flag)) => Some(flag.to_string()),
        YamlData::Value(Scalar::FloatingPoint(number)) => Some(number.to_string()),
        _ => None,
    }
}

fn shown(node: &MarkedYaml<'_>) -> String {
    match &node.data {
        YamlData::Sequence(_) => "a list".into(),
        YamlData::Mapping(_) => "a section".into(),
        _ if is_null(node) => "nothing".into(),
        _ => scalar(node).map_or("something else".into(), |text| format!("{text:?}")),
    }
}

fn list<'t>(items: impl IntoIterator<Item = &'t str>) -> String {
    items.into_iter().collect::<Vec<_>>().join(", ")
}

impl Slot for Config {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.section(
            node,
            &mut [
                ("mode", &mut self.policy.mode),
                ("server", &mut self.server),
                ("admin", &mut self.admin),
                ("pools", &mut self.policy.pools),
                ("lookup", &mut self.lookup),
                ("cache", &mut self.cache),
                ("registries", &mut self.registries),
                ("network", &mut self.network),
                ("log", &mut self.log),
            ],
        );
    }
}

impl Slot for Server {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.section(
            node,
            &mut [
                ("listen", &mut self.listen),
                ("certFile", &mut self.files.certificate),
                ("keyFile", &mut self.files.key),
                ("drain", &mut self.drain),
                ("maxConnections", &mut self.max_connections),
            ],
        );
    }
}

impl Slot for Admin {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.section(node, &mut [("listen", &mut self.listen)]);
    }
}

impl Slot for LookupSettings {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.section(
            node,
            &mut [
                ("budget", &mut self.budget),
                ("timeout", &mut self.timeout),
                ("concurrency", &mut self.concurrency),
                ("perRegistry", &mut self.per_registry),
            ],
        );
    }
}

impl Slot for CacheSettings {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        let mut negative = Negative(self.clone());
        reader.section(
            node,
            &mut [
                ("capacity", &mut self.capacity),
                ("tagTtl", &mut self.tag),
                ("staleWhileRevalidate", &mut self.stale_while_revalidate),
                ("staleIfError", &mut self.stale_if_error),
                ("negative", &mut negative),
            ],
        );
        let Self { capacity, tag, stale_while_revalidate, stale_if_error, .. } = *self;
        *self = Self { capacity, tag, stale_while_revalidate, stale_if_error, ..negative.0 };
    }
}

/// The lifetimes of failures: a section of its own in the file.
struct Negative(CacheSettings);

impl Slot for Negative {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.section(
            node,
            &mut [
                ("notFound", &mut self.0.not_found),
                ("denied", &mut self.0.denied),
                ("throttled", &mut self.0.throttled),
                ("timeout", &mut self.0.timeout),
                ("unreachable", &mut self.0.unreachable),
                ("badManifest", &mut self.0.bad_manifest),
            ],
        );
    }
}

impl Slot for Registries {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.section(node, &mut [("hosts", &mut self.hosts)]);
    }
}

impl Slot for BTreeMap<String, HostSettings> {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        let YamlData::Mapping(members) = &node.data else {
            return reader.wrong(node, "a section with a key for each host");
        };
        for (key, value) in members {
            let host = scalar(key).unwrap_or_default();
            let step = format!("[{host:?}]");
            // A host is well-formed if it can stand in front of an image.
            if format!("{host}/x")
                .parse::<ImageRef>()
                .is_ok_and(|image| image.host().eq_ignore_ascii_case(&host))
            {
                let mut settings = HostSettings::default();
                if !is_null(value) {
                    reader.within(&step, |reader| settings.fill(value, reader));
                }
                self.insert(host, settings);
            } else {
                reader.within(&step, |reader| {
                    reader.fault(key, "no registry host; write host or host:port");
                });
            }
        }
    }
}

impl Slot for HostSettings {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.section(node, &mut [("caFile", &mut self.ca_file), ("plainHttp", &mut self.plain_http)]);
    }
}

impl Slot for Guard {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.section(node, &mut [("allow", &mut self.allow), ("deny", &mut self.deny)]);
    }
}

impl Slot for Log {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.section(node, &mut [("level", &mut self.level), ("format", &mut self.format)]);
    }
}

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

impl Reader {
    /// A list, each item beginning as `blank`; it replaces the default.
    fn items<T: Slot + Clone>(&mut self, node: &MarkedYaml<'_>, slots: &mut Vec<T>, blank: T) {
        let YamlData::Sequence(items) = &node.data else {
            return self.wrong(node, "a list");
        };
        slots.clear();
        for (place, item) in items.iter().enumerate() {
            let mut slot = blank.clone();
            self.within(&format!("[{place}]"), |reader| slot.fill(item, reader));
            slots.push(slot);
        }
    }
}

impl Slot for Vec<IpNet> {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.items(node, self, IpNet::default());
    }
}

impl Slot for IpNet {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        let parse = |text: &str| {
            text.parse().ok().or_else(|| Some(Self::from(text.parse::<std::net::IpAddr>().ok()?)))
        };
        reader.parsed(node, self, "a network such as 10.0.0.0/8", parse);
    }
}

impl Slot for Duration {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        let parse =
            |text: &str| humantime::parse_duration(text).ok().filter(|duration| DURATIONS.contains(duration));
        reader.parsed(node, self, "a duration such as 3s, 10m or 1h, from 1ms to 365d", parse);
    }
}

const DURATIONS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(1)..=Duration::from_secs(365 * 24 * 3600);

impl Slot for usize {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        let parse = |text: &str| text.parse().ok().filter(|number| (1..=COUNT_MAX).contains(number));
        reader.parsed(node, self, "a number from 1 to 100000000", parse);
    }
}

const COUNT_MAX: usize = 100_000_000;

impl Slot for Option<i64> {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.parsed(node, self, "a number of seconds", |text| text.parse().ok().map(Some));
    }
}

impl Slot for bool {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        match node.data {
            YamlData::Value(Scalar::Boolean(flag)) => *self = flag,
            _ => reader.wrong(node, "true or false"),
        }
    }
}

impl Slot for SocketAddr {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.parsed(node, self, "an address and a port such as \"[::]:8443\"", |text| text.parse().ok());
    }
}

impl Slot for PathBuf {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.parsed(node, self, "the path of a file", |text| (!text.is_empty()).then(|| text.into()));
    }
}

impl Slot for Option<PathBuf> {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        let parse = |text: &str| Some((!text.is_empty()).then(|| text.into()));
        reader.parsed(node, self, "the path of a file", parse);
    }
}

impl Slot for Mode {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.parsed(node, self, "enforce or observe", |text| match text {
            "enforce" => Some(Self::Enforce),
            "observe" => Some(Self::Observe),
            _ => None,
        });
    }
}

impl Slot for Level {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        let parse = |text: &str| <Self as ValueEnum>::from_str(text, false).ok();
        reader.parsed(node, self, "error, warn, info, debug or trace", parse);
    }
}

impl Slot for Format {
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader) {
        reader.parsed(node, self, "json or text", |text| <Self as ValueEnum>::from_str(text, false).ok());
    }
}
