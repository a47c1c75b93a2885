//! Scalars of the configuration and lists of them: their accepted texts and their form in the file.

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

use super::shape::{AcceptedTexts, Content, Describe, Description, Value};
use tolerarch_core::image::{PlatformSet, canonical_name};
use tolerarch_core::pod::is_label_value;
use tolerarch_core::policy::{Mode, PlacementRules};
use tolerarch_images::credentials::{ImagePattern, PatternError};
use tolerarch_kubernetes::cluster::ObjectName;

type Read<T> = Box<dyn Fn(&str) -> Option<T>>;
type Write<T> = Box<dyn Fn(&T) -> Json>;

/// Parser and formatter of a `T`, with a description of the accepted texts.
pub(super) struct Codec<T> {
    accepted: AcceptedTexts,
    read: Read<T>,
    /// Returns the form in the file: a scalar, or null if the value is not written.
    write: Write<T>,
}

impl<T: 'static> Codec<T> {
    pub(super) fn new(
        expected: impl Into<String>,
        schema: Json,
        read: impl Fn(&str) -> Option<T> + 'static,
        write: impl Fn(&T) -> Json + 'static,
    ) -> Self {
        let accepted = AcceptedTexts {
            expected: expected.into(),
            schema,
            hint: |_| None,
            names_file: false,
            is_list: false,
            word: None,
        };
        Self {
            accepted,
            read: Box::new(read),
            write: Box::new(write),
        }
    }

    /// Returns the codec of a type that parses and formats itself.
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

    pub(super) fn with_hint(mut self, hint: fn(&str) -> Option<String>) -> Self {
        self.accepted.hint = hint;
        self
    }

    /// Describes one value in `target`, which may have another type with the same content.
    pub(super) fn of<U: From<T> + Clone>(self, target: &mut U) -> Description<'_>
    where
        T: From<U>,
    {
        let Self {
            accepted,
            read,
            write,
        } = self;
        let written = write(&target.clone().into());
        value(accepted, read, written, move |values| {
            values.into_iter().for_each(|value| *target = value.into());
        })
    }

    /// Describes a list, in which each value is kept once.
    pub(super) fn list(self, items: &mut Vec<T>) -> Description<'_> {
        let Self {
            accepted,
            read,
            write,
        } = self;
        let written = items.iter().map(&write).collect();
        let store = move |mut values: Vec<T>| {
            let mut kept = HashSet::new();
            values.retain(|value| kept.insert(write(value).to_string()));
            *items = values;
        };
        value(
            AcceptedTexts {
                is_list: true,
                ..accepted
            },
            read,
            written,
            store,
        )
    }
}

/// Describes a value. `store` gets the values that are read from accepted texts.
fn value<'a, T: 'static>(
    accepted: AcceptedTexts,
    read: Read<T>,
    written: Json,
    mut store: impl FnMut(Vec<T>) + 'a,
) -> Description<'a> {
    let set_texts = move |texts: &[Option<&str>]| {
        let mut values = Vec::new();
        let mut refused = Vec::new();
        for (at, text) in texts.iter().enumerate() {
            match text.and_then(&read) {
                Some(value) => values.push(value),
                None => refused.push(at),
            }
        }
        store(values);
        refused
    };
    Content::Value(Value {
        accepted,
        written,
        set_texts: Box::new(set_texts),
    })
    .into()
}

/// Type whose values have the same codec everywhere.
pub(super) trait Scalar: Clone + 'static {
    fn codec() -> Codec<Self>;
}

impl<T: Scalar> Describe for T {
    fn describe(&mut self) -> Description<'_> {
        T::codec().of(self)
    }
}

impl<T: Scalar> Describe for Vec<T> {
    fn describe(&mut self) -> Description<'_> {
        T::codec().list(self)
    }
}

/// Optional value. A missing text is written as `""`; any other missing value is not written.
impl<T: Scalar> Scalar for Option<T> {
    fn codec() -> Codec<Self> {
        let Codec {
            mut accepted,
            read,
            write,
        } = T::codec();
        let mut none = Json::Null;
        if let Some(schema) = accepted.schema.as_object_mut()
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
        Codec {
            accepted,
            read: Box::new(read),
            write: Box::new(write),
        }
    }
}

pub(super) fn pattern(pattern: &str) -> Json {
    json!({"type": "string", "pattern": pattern})
}

/// Returns whether a text has this form. Forms are constants of the program, so their compiled patterns are kept.
pub(super) fn matches(form: &'static str, text: &str) -> bool {
    static COMPILED: Mutex<BTreeMap<&str, Regex>> = Mutex::new(BTreeMap::new());
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pattern) = compiled.get(form) {
        return pattern.is_match(text);
    }
    let Ok(pattern) = Regex::new(form) else {
        return false;
    };
    let is_match = pattern.is_match(text);
    compiled.insert(form, pattern);
    is_match
}

/// Returns the codec of numbers within bounds. A number outside of the bounds means that the key is not set, and is not
/// written.
pub(super) fn number<T>(min: T, max: T) -> Codec<T>
where
    T: Copy + FromStr + Display + PartialOrd + Serialize + 'static,
{
    let bounds = min..=max;
    let is_set = bounds.clone();
    Codec::new(
        format!("a number from {min} to {max}"),
        json!({"type": "integer", "minimum": min, "maximum": max}),
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
    fn codec() -> Codec<Self> {
        number(1, 100_000_000)
    }
}

impl Scalar for i64 {
    fn codec() -> Codec<Self> {
        let schema = json!({"type": "integer"});
        Codec::new(
            "a number of seconds",
            schema,
            |text| text.parse().ok(),
            |seconds| json!(seconds),
        )
    }
}

impl Scalar for bool {
    fn codec() -> Codec<Self> {
        let schema = json!({"type": "boolean"});
        Codec::new(
            "true or false",
            schema,
            |text| text.parse().ok(),
            |flag| json!(flag),
        )
    }
}

impl Scalar for SocketAddr {
    fn codec() -> Codec<Self> {
        let schema = pattern(r"^([0-9.]+|\[[0-9A-Fa-f:.%]+\]):[0-9]+$");
        Codec::text("an address and a port such as \"[::]:8443\"", schema)
    }
}

impl Scalar for IpNet {
    fn codec() -> Codec<Self> {
        Codec::new(
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
    fn codec() -> Codec<Self> {
        let schema = json!({"type": "string", "minLength": 1});
        let read = |text: &str| (!text.is_empty()).then(|| text.into());
        let mut kind = Codec::new("the path of a file", schema, read, |path: &Self| {
            json!(path.to_string_lossy())
        });
        kind.accepted.names_file = true;
        kind
    }
}

impl Scalar for ImagePattern {
    fn codec() -> Codec<Self> {
        Codec::new(
            "a pattern of images such as *.dkr.ecr.*.amazonaws.com or registry.example.com:5000/team, without \
             https://",
            json!({"type": "string", "pattern": r"^[^/:@?#\s\[\\][^/@?#\s\[\\]*(/[^@?#\s]*)?$", "examples": ["*.dkr.ecr.*.amazonaws.com"]}),
            |text| canonical_name(text).parse().ok(),
            |pattern: &Self| json!(pattern.as_str()),
        )
        .with_hint(|text| match canonical_name(text).parse::<Self>() {
            Err(fault @ PatternError::Class) => Some(fault.to_string()),
            _ => None,
        })
    }
}

impl Scalar for ObjectName {
    fn codec() -> Codec<Self> {
        Codec::new(
            "the name of a Kubernetes object such as zz-tolerarch or tolerarch.tolerarch.svc",
            json!({"type": "string", "pattern": r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$", "maxLength": 253}),
            Self::new,
            |name: &Self| json!(name.as_str()),
        )
    }
}

impl Scalar for Mode {
    fn codec() -> Codec<Self> {
        named([("enforce", Self::Enforce), ("observe", Self::Observe)])
    }
}

pub(super) fn named<T, N>(all: impl IntoIterator<Item = (N, T)>) -> Codec<T>
where
    T: Clone + PartialEq + 'static,
    N: Into<String>,
{
    let (names, values): (Vec<String>, Vec<T>) = all
        .into_iter()
        .map(|(name, value)| (name.into(), value))
        .unzip();
    let accepted_names = names.clone();
    let written_values = values.clone();
    let mut choices: Vec<Json> = names.iter().map(|name| json!(name)).collect();
    // Tools that read YAML, such as Helm, pass an unquoted `off` on as this boolean.
    let has_off = names.iter().any(|name| name == "off");
    if has_off {
        choices.push(json!(false));
    }
    Codec::new(
        either(&names),
        json!({"enum": choices}),
        move |text| {
            let text = if has_off && text == "false" {
                "off"
            } else {
                text
            };
            let at = accepted_names.iter().position(|name| name == text)?;
            Some(values[at].clone())
        },
        move |value| {
            let at = written_values.iter().position(|other| other == value);
            json!(at.map(|at| &names[at]))
        },
    )
}

/// Returns the codec of an enum, by the names of its variants on the command line.
pub(super) fn choice<T: ValueEnum + Clone + PartialEq + 'static>() -> Codec<T> {
    let name = |value: &T| {
        Some((
            value.to_possible_value()?.get_name().to_owned(),
            value.clone(),
        ))
    };
    named(T::value_variants().iter().filter_map(name))
}

/// Returns the codec of texts that pass a check. An empty text is not written.
fn checked(expected: &str, schema: Json, check: impl Fn(&str) -> bool + 'static) -> Codec<String> {
    let write = |text: &String| match text.as_str() {
        "" => Json::Null,
        text => json!(text),
    };
    Codec::new(
        expected,
        schema,
        move |text| check(text).then(|| text.to_owned()),
        write,
    )
}

pub(super) fn one_of(texts: &'static [&'static str]) -> Codec<String> {
    let names: Vec<&str> = texts
        .iter()
        .map(|text| if text.is_empty() { "\"\"" } else { text })
        .collect();
    checked(&either(&names), json!({"enum": texts}), |text| {
        texts.contains(&text)
    })
}

/// Returns the codec of label keys that pass a check.
pub(super) fn label_key(check: fn(&str) -> bool) -> Codec<String> {
    let schema = pattern("^([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$");
    checked("a label key such as example.com/pool", schema, check)
}

pub(super) fn label_value() -> Codec<String> {
    let schema = pattern("^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$");
    checked("a label value", schema, is_label_value)
}

/// Value of a label, which may be empty. This is the default codec of a text.
impl Scalar for String {
    fn codec() -> Codec<Self> {
        Codec {
            write: Box::new(|value| json!(value)),
            ..label_value()
        }
    }
}

/// Returns the codec of pool names, which must fit into the annotation.
pub(super) fn pool_name() -> Codec<String> {
    let expected = "a name of at most 63 lower-case letters, digits, '-' and '.'";
    checked(
        expected,
        pattern("^[a-z0-9.-]{1,63}$"),
        tolerarch_core::policy::is_pool_name,
    )
}

pub(super) fn platform() -> Codec<PlatformSet> {
    Codec::new(
        format!("a platform that nodes can have: {}", PlatformSet::ALL),
        json!({"enum": PlatformSet::ALL}),
        |text| text.parse().ok(),
        |platform: &PlatformSet| {
            if platform.is_empty() {
                Json::Null
            } else {
                json!(platform.to_string())
            }
        },
    )
}

impl Describe for PlatformSet {
    fn describe(&mut self) -> Description<'_> {
        platforms(self, None)
    }
}

/// Describes platforms. With `discovered` they are those of a cluster, which may also be discovered.
pub(super) fn platforms<'a>(
    platforms: &'a mut PlatformSet,
    mut discovered: Option<&'a mut bool>,
) -> Description<'a> {
    /// Word for the platforms that are discovered in the cluster.
    const WORD: &str = "discovered";
    let Codec {
        mut accepted,
        mut read,
        ..
    } = platform();
    accepted.is_list = true;
    if discovered.is_some() {
        accepted.expected += &format!("; or {WORD}");
        accepted.schema = json!({"anyOf": [accepted.schema, {"const": WORD}]});
        accepted.word = Some(WORD);
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
    value(accepted, read, written, move |sets| {
        let has_word = sets.contains(&PlatformSet::EMPTY);
        *platforms = if has_word {
            // The word overrides all other items. Until the cluster's platforms are read, the default counts.
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
