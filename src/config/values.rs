//! Scalars of the configuration and lists of them: accepted texts, and the written form.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use clap::ValueEnum;
use ipnet::IpNet;
use regex::Regex;
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::shape::{Content, Domain, Shape, Slot, Value};
use tolerarch_core::image::{PlatformSet, canonical_name};
use tolerarch_core::pod::is_label_value;
use tolerarch_core::policy::{Mode, PlacementRules};
use tolerarch_images::credentials::{ImagePattern, PatternError};
use tolerarch_kubernetes::cluster::ObjectName;

type Read<T> = Box<dyn Fn(&str) -> Option<T>>;
type Write<T> = Box<dyn Fn(&T) -> Json>;

/// Parser and formatter of a `T`, with the accepted texts.
pub(super) struct Kind<T> {
    domain: Domain,
    read: Read<T>,
    /// Form in the file: a scalar, or null for nothing.
    write: Write<T>,
}

impl<T: 'static> Kind<T> {
    pub(super) fn new(
        expected: impl Into<String>,
        schema: Json,
        read: impl Fn(&str) -> Option<T> + 'static,
        write: impl Fn(&T) -> Json + 'static,
    ) -> Self {
        let domain = Domain {
            expected: expected.into(),
            schema,
            hint: |_| None,
            names_file: false,
            is_list: false,
            word: None,
        };
        Self {
            domain,
            read: Box::new(read),
            write: Box::new(write),
        }
    }

    /// Returns the kind of a type that parses and formats itself.
    pub(super) fn text(expected: impl Into<String>, schema: Json) -> Self
    where
        T: FromStr + Display,
    {
        Self::new(
            expected,
            schema,
            |text| text.parse().ok(),
            |value| json!(value.to_string()),
        )
    }

    pub(super) fn hinting(mut self, hint: fn(&str) -> Option<String>) -> Self {
        self.domain.hint = hint;
        self
    }

    /// Returns the shape of one value, in a slot that may be of another type with the same content.
    pub(super) fn of<U: From<T> + Clone>(self, slot: &mut U) -> Shape<'_>
    where
        T: From<U>,
    {
        let Self {
            domain,
            read,
            write,
        } = self;
        let written = write(&slot.clone().into());
        value(domain, read, written, move |values| {
            values.into_iter().for_each(|value| *slot = value.into());
        })
    }

    /// Returns the shape of a list, in which each value is kept once.
    pub(super) fn list(self, items: &mut Vec<T>) -> Shape<'_> {
        let Self {
            domain,
            read,
            write,
        } = self;
        let written = items.iter().map(&write).collect();
        let store = move |mut values: Vec<T>| {
            let mut known = HashSet::new();
            values.retain(|value| known.insert(write(value).to_string()));
            *items = values;
        };
        value(
            Domain {
                is_list: true,
                ..domain
            },
            read,
            written,
            store,
        )
    }
}

/// Returns the shape of this written value, which stores values that are read from texts.
fn value<'a, T: 'static>(
    domain: Domain,
    read: Read<T>,
    written: Json,
    mut store: impl FnMut(Vec<T>) + 'a,
) -> Shape<'a> {
    let take = move |texts: &[Option<&str>]| {
        let mut values = Vec::new();
        let mut wrong = Vec::new();
        for (at, text) in texts.iter().enumerate() {
            match text.and_then(&read) {
                Some(value) => values.push(value),
                None => wrong.push(at),
            }
        }
        store(values);
        wrong
    };
    Content::Value(Value {
        domain,
        written,
        take: Box::new(take),
    })
    .into()
}

/// Type whose values are of one kind everywhere.
pub(super) trait Scalar: Clone + 'static {
    fn kind() -> Kind<Self>;
}

impl<T: Scalar> Slot for T {
    fn shape(&mut self) -> Shape<'_> {
        T::kind().of(self)
    }
}

impl<T: Scalar> Slot for Vec<T> {
    fn shape(&mut self) -> Shape<'_> {
        T::kind().list(self)
    }
}

/// Value that may be missing: a missing text is written as `""`, any other value not at all.
impl<T: Scalar> Scalar for Option<T> {
    fn kind() -> Kind<Self> {
        let Kind {
            mut domain,
            read,
            write,
        } = T::kind();
        let mut none = Json::Null;
        if let Some(schema) = domain.schema.as_object_mut()
            && schema.get("type") == Some(&json!("string"))
        {
            none = json!("");
            schema.remove("minLength");
            if let Some(Json::String(pattern)) = schema.get_mut("pattern") {
                pattern.insert_str(0, "^$|");
            }
        }
        let unset = none.clone();
        let read = move |text: &str| {
            if none == *text {
                Some(None)
            } else {
                read(text).map(Some)
            }
        };
        let write = move |value: &Self| value.as_ref().map_or_else(|| unset.clone(), &write);
        Kind {
            domain,
            read: Box::new(read),
            write: Box::new(write),
        }
    }
}

pub(super) fn pattern(pattern: &str) -> Json {
    json!({"type": "string", "pattern": pattern})
}

/// Returns whether a text has a form, one of the few that the program itself has.
pub(super) fn matches(form: &'static str, text: &str) -> bool {
    static COMPILED: Mutex<BTreeMap<&str, Regex>> = Mutex::new(BTreeMap::new());
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = compiled.get(form) {
        return known.is_match(text);
    }
    let Ok(new) = Regex::new(form) else {
        return false;
    };
    let is_match = new.is_match(text);
    compiled.insert(form, new);
    is_match
}

/// Returns the kind of numbers within bounds; one that is not set lies outside of the bounds, and is not written.
pub(super) fn number<T>(least: T, most: T) -> Kind<T>
where
    T: Copy + FromStr + Display + PartialOrd + Serialize + 'static,
{
    let bounds = least..=most;
    let is_set = bounds.clone();
    Kind::new(
        format!("a number from {least} to {most}"),
        json!({"type": "integer", "minimum": least, "maximum": most}),
        move |text| text.parse().ok().filter(|number| bounds.contains(number)),
        move |number| {
            if is_set.contains(number) {
                json!(number)
            } else {
                Json::Null
            }
        },
    )
}

impl Scalar for usize {
    fn kind() -> Kind<Self> {
        number(1, 100_000_000)
    }
}

impl Scalar for i64 {
    fn kind() -> Kind<Self> {
        let schema = json!({"type": "integer"});
        Kind::new(
            "a number of seconds",
            schema,
            |text| text.parse().ok(),
            |seconds| json!(seconds),
        )
    }
}

impl Scalar for bool {
    fn kind() -> Kind<Self> {
        let schema = json!({"type": "boolean"});
        Kind::new(
            "true or false",
            schema,
            |text| text.parse().ok(),
            |is_so| json!(is_so),
        )
    }
}

impl Scalar for SocketAddr {
    fn kind() -> Kind<Self> {
        let schema = pattern(r"^([0-9.]+|\[[0-9A-Fa-f:.%]+\]):[0-9]+$");
        Kind::text("an address and a port such as \"[::]:8443\"", schema)
    }
}

impl Scalar for IpNet {
    fn kind() -> Kind<Self> {
        Kind::new(
            "a network such as 10.0.0.0/8",
            json!({"type": "string", "pattern": "^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$", "examples": ["10.0.0.0/8"]}),
            |text| {
                text.parse()
                    .or_else(|_| text.parse::<IpAddr>().map(Self::from))
                    .ok()
            },
            |network| json!(network.to_string()),
        )
    }
}

impl Scalar for PathBuf {
    fn kind() -> Kind<Self> {
        let schema = json!({"type": "string", "minLength": 1});
        let read = |text: &str| (!text.is_empty()).then(|| text.into());
        let mut kind = Kind::new("the path of a file", schema, read, |path: &Self| {
            json!(path.to_string_lossy())
        });
        kind.domain.names_file = true;
        kind
    }
}

impl Scalar for ImagePattern {
    fn kind() -> Kind<Self> {
        Kind::new(
            "a pattern of images such as *.dkr.ecr.*.amazonaws.com or registry.example.com:5000/team, without https://",
            json!({"type": "string", "pattern": r"^[^/:@?#\s\[\\][^/@?#\s\[\\]*(/[^@?#\s]*)?$", "examples": ["*.dkr.ecr.*.amazonaws.com"]}),
            |text| canonical_name(text).parse().ok(),
            |pattern: &Self| json!(pattern.as_str()),
        )
        .hinting(|text| match canonical_name(text).parse::<Self>() {
            Err(fault @ PatternError::Class) => Some(fault.to_string()),
            _ => None,
        })
    }
}

impl Scalar for ObjectName {
    fn kind() -> Kind<Self> {
        Kind::new(
            "the name of a Kubernetes object such as zz-tolerarch or tolerarch.tolerarch.svc",
            json!({"type": "string", "pattern": r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$", "maxLength": 253}),
            Self::new,
            |name: &Self| json!(name.as_str()),
        )
    }
}

impl Scalar for Mode {
    fn kind() -> Kind<Self> {
        named([("enforce", Self::Enforce), ("observe", Self::Observe)])
    }
}

pub(super) fn named<T, N>(all: impl IntoIterator<Item = (N, T)>) -> Kind<T>
where
    T: Clone + PartialEq + 'static,
    N: Into<String>,
{
    let (names, values): (Vec<String>, Vec<T>) = all
        .into_iter()
        .map(|(name, value)| (name.into(), value))
        .unzip();
    let known = names.clone();
    let written = values.clone();
    let mut choices: Vec<Json> = names.iter().map(|name| json!(name)).collect();
    // Tools that read YAML, Helm among them, hand an `off` without quotes on as this boolean.
    let has_off = names.iter().any(|name| name == "off");
    if has_off {
        choices.push(json!(false));
    }
    Kind::new(
        either(&names),
        json!({"enum": choices}),
        move |text| {
            let meant = if has_off && text == "false" {
                "off"
            } else {
                text
            };
            known
                .iter()
                .position(|name| name == meant)
                .map(|at| values[at].clone())
        },
        move |value| {
            json!(
                written
                    .iter()
                    .position(|known| known == value)
                    .map(|at| &names[at])
            )
        },
    )
}

/// Returns the kind of an enum, by the names of its variants on the command line.
pub(super) fn choice<T: ValueEnum + Clone + PartialEq + 'static>() -> Kind<T> {
    let name = |value: &T| {
        Some((
            value.to_possible_value()?.get_name().to_owned(),
            value.clone(),
        ))
    };
    named(T::value_variants().iter().filter_map(name))
}

/// Returns the kind of texts that pass a check; an empty text is not written.
fn checked(expected: &str, schema: Json, check: impl Fn(&str) -> bool + 'static) -> Kind<String> {
    let write = |text: &String| match text.as_str() {
        "" => Json::Null,
        text => json!(text),
    };
    Kind::new(
        expected,
        schema,
        move |text| check(text).then(|| text.to_owned()),
        write,
    )
}

pub(super) fn one_of(texts: &'static [&'static str]) -> Kind<String> {
    let names: Vec<&str> = texts
        .iter()
        .map(|text| if text.is_empty() { "\"\"" } else { text })
        .collect();
    checked(&either(&names), json!({"enum": texts}), |text| {
        texts.contains(&text)
    })
}

/// Returns the kind of label keys that pass a check.
pub(super) fn label_key(check: fn(&str) -> bool) -> Kind<String> {
    let schema = pattern("^([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$");
    checked("a label key such as example.com/pool", schema, check)
}

pub(super) fn label_value() -> Kind<String> {
    let schema = pattern("^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$");
    checked("a label value", schema, is_label_value)
}

/// Value of a label, the default kind of a text; may be empty.
impl Scalar for String {
    fn kind() -> Kind<Self> {
        Kind {
            write: Box::new(|value| json!(value)),
            ..label_value()
        }
    }
}

/// Returns the kind of pool names, which must fit into the annotation.
pub(super) fn pool_name() -> Kind<String> {
    let expected = "a name of at most 63 lower-case letters, digits, '-' and '.'";
    checked(
        expected,
        pattern("^[a-z0-9.-]{1,63}$"),
        tolerarch_core::policy::is_pool_name,
    )
}

pub(super) fn platform() -> Kind<PlatformSet> {
    Kind::new(
        format!("a platform that nodes can have: {}", PlatformSet::ALL),
        json!({"enum": PlatformSet::ALL}),
        |text| text.parse().ok(),
        |own: &PlatformSet| {
            if own.is_empty() {
                Json::Null
            } else {
                json!(own.to_string())
            }
        },
    )
}

impl Slot for PlatformSet {
    fn shape(&mut self) -> Shape<'_> {
        platforms(self, None)
    }
}

/// Returns the shape of platforms; with `discovered`, of a cluster, whose platforms may also be discovered.
pub(super) fn platforms<'a>(
    platforms: &'a mut PlatformSet,
    mut discovered: Option<&'a mut bool>,
) -> Shape<'a> {
    /// Word for the platforms that are discovered in the cluster.
    const WORD: &str = "discovered";
    let Kind {
        mut domain,
        mut read,
        ..
    } = platform();
    domain.is_list = true;
    if discovered.is_some() {
        domain.expected += &format!("; or {WORD}");
        domain.schema = json!({"anyOf": [domain.schema, {"const": WORD}]});
        domain.word = Some(WORD);
        read = Box::new(|text| {
            if text == WORD {
                Some(PlatformSet::EMPTY)
            } else {
                text.parse().ok()
            }
        });
    }
    let written = if discovered.as_deref() == Some(&true) {
        json!([WORD])
    } else {
        json!(platforms)
    };
    value(domain, read, written, move |sets| {
        let has_word = sets.contains(&PlatformSet::EMPTY);
        *platforms = if has_word {
            // The word beats all other items; until the cluster's platforms are read, the default holds.
            PlacementRules::default().platforms
        } else {
            sets.into_iter().collect()
        };
        if let Some(discovered) = &mut discovered {
            **discovered = has_word;
        }
    })
}

/// Joins names: `a, b or c`.
fn either<T: AsRef<str>>(names: &[T]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.split_last() {
        Some((last, first)) if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => names.concat(),
    }
}
