//! From YAML to values, with the place of everything that is wrong. Knows no key of the configuration: each section
//! names its own, and each value says what it accepts.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};

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

/// Reads the one document of a file into `slot`, which holds the defaults.
pub(super) fn document(text: &str, slot: &mut impl Slot) -> Result<(), Vec<Fault>> {
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
        [document] => slot.fill(document, &mut reader),
        [_, second, ..] => {
            return Err(whole(second.span.start.line(), "a second document: a configuration is one".into()));
        }
    }
    if reader.faults.is_empty() { Ok(()) } else { Err(reader.faults) }
}

/// Where the reading is, and what was found wrong.
#[derive(Default)]
pub(super) struct Reader {
    path: String,
    pub(super) faults: Vec<Fault>,
}

/// Something that a node of the file can fill.
pub(super) trait Slot {
    /// Takes over what the node says; what is wrong with it goes to the reader.
    fn fill(&mut self, node: &MarkedYaml<'_>, reader: &mut Reader);
}

impl Reader {
    pub(super) fn fault(&mut self, node: &MarkedYaml<'_>, message: impl Into<String>) {
        self.faults.push(Fault {
            path: self.path.clone(),
            line: node.span.start.line(),
            message: message.into(),
        });
    }

    pub(super) fn wrong(&mut self, node: &MarkedYaml<'_>, expected: &str) {
        self.fault(node, format!("found {}, expected {expected}", shown(node)));
    }

    /// Runs `read` one step deeper.
    pub(super) fn within(&mut self, step: &str, read: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if !self.path.is_empty() && !step.starts_with('[') {
            self.path.push('.');
        }
        self.path.push_str(step);
        read(self);
        self.path.truncate(length);
    }

    /// A mapping with these keys and no others. A key without a value keeps its default.
    pub(super) fn section(&mut self, node: &MarkedYaml<'_>, keys: &mut [(&str, &mut dyn Slot)]) {
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
    pub(super) fn parsed<T>(
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

    /// A list, each item beginning as `blank`; it replaces the default.
    pub(super) fn items<T: Slot + Clone>(&mut self, node: &MarkedYaml<'_>, slots: &mut Vec<T>, blank: T) {
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

pub(super) fn is_null(node: &MarkedYaml<'_>) -> bool {
    matches!(node.data, YamlData::Value(Scalar::Null))
}

/// A scalar as text: `8443` and `"8443"` are the same here.
pub(super) fn scalar(node: &MarkedYaml<'_>) -> Option<String> {
    match &node.data {
        YamlData::Value(Scalar::String(text)) => Some(text.to_string()),
        YamlData::Value(Scalar::Integer(number)) => Some(number.to_string()),
        YamlData::Value(Scalar::Boolean(flag)) => Some(flag.to_string()),
        YamlData::Value(Scalar::FloatingPoint(number)) => Some(number.to_string()),
        _ => None,
    }
}

pub(super) fn shown(node: &MarkedYaml<'_>) -> String {
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
