//! The scalars of the configuration: what a text may be, and how it is written again.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::ValueEnum;
use ipnet::IpNet;
use serde_json::{Value as Json, json};

use super::shape::{Domain, Shape, Slot, Value};
use tolerarch_core::image::{PlatformSet, canonical_name};
use tolerarch_core::pod::{is_label_key, is_label_value};
use tolerarch_core::policy::{Mode, PlacementRules, Require};
use tolerarch_images::credentials::ImagePattern;
use tolerarch_kubernetes::cluster::ObjectName;

type Read<T> = Box<dyn Fn(&str) -> Option<T>>;

/// A kind of scalars that are held as a `T`.
pub(super) struct Kind<T> {
    domain: Domain,
    read: Read<T>,
    /// As it would stand in the file: a scalar, or null where nothing would.
    write: Box<dyn Fn(&T) -> Json>,
}

impl<T: 'static> Kind<T> {
    pub(super) fn new(
        expected: impl Into<String>,
        schema: Json,
        read: impl Fn(&str) -> Option<T> + 'static,
        write: impl Fn(&T) -> Json + 'static,
    ) -> Self {
        let (hint, expected) = (|_: &str| None, expected.into());
        let domain = Domain { expected, schema, hint, names_file: false, is_list: false, word: None };
        Self { domain, read: Box::new(read), write: Box::new(write) }
    }

    pub(super) fn hinting(mut self, hint: fn(&str) -> Option<String>) -> Self {
        self.domain.hint = hint;
        self
    }

    /// The same where there may be none, which is written so.
    pub(super) fn optional(self, none: impl Into<Json>) -> Kind<Option<T>> {
        let Self { domain, read, write } = self;
        let none: Json = none.into();
        let unset = none.clone();
        let read = move |text: &str| if none == *text { Some(None) } else { read(text).map(Some) };
        let write = move |value: &Option<T>| value.as_ref().map_or_else(|| unset.clone(), &write);
        Kind { domain, read: Box::new(read), write: Box::new(write) }
    }

    pub(super) fn of(self, slot: &mut T) -> Shape<'_> {
        Shape::value(One { kind: self, slot })
    }

    /// A list of them in which each is kept once.
    pub(super) fn set(self, items: &mut Vec<T>) -> Shape<'_>
    where
        T: PartialEq,
    {
        Shape::value(Many { kind: self, items, is_set: true })
    }
}

struct One<'a, T> {
    kind: Kind<T>,
    slot: &'a mut T,
}

impl<T: 'static> Value for One<'_, T> {
    fn domain(&self) -> Domain {
        self.kind.domain.clone()
    }

    fn add(&mut self, text: &str) -> bool {
        (self.kind.read)(text).map(|value| *self.slot = value).is_some()
    }

    fn written(&self) -> Json {
        (self.kind.write)(self.slot)
    }
}

struct Many<'a, T> {
    kind: Kind<T>,
    items: &'a mut Vec<T>,
    is_set: bool,
}

impl<T: PartialEq + 'static> Value for Many<'_, T> {
    fn domain(&self) -> Domain {
        Domain { is_list: true, ..self.kind.domain.clone() }
    }

    fn clear(&mut self) {
        self.items.clear();
    }

    fn add(&mut self, text: &str) -> bool {
        let Some(item) = (self.kind.read)(text) else { return false };
        if !self.is_set || !self.items.contains(&item) {
            self.items.push(item);
        }
        true
    }

    fn written(&self) -> Json {
        self.items.iter().map(|item| (self.kind.write)(item)).collect()
    }
}

/// A type whose values are of one kind wherever they stand.
pub(super) trait Scalar: Clone + PartialEq + 'static {
    fn kind() -> Kind<Self>;
}

impl<T: Scalar> Slot for T {
    fn shape(&mut self) -> Shape<'_> {
        T::kind().of(self)
    }
}

impl<T: Scalar> Slot for Vec<T> {
    fn shape(&mut self) -> Shape<'_> {
        Shape::value(Many { kind: T::kind(), items: self, is_set: false })
    }
}

pub(super) fn shown(value: &impl Display) -> Json {
    json!(value.to_string())
}

impl Scalar for usize {
    fn kind() -> Kind<Self> {
        const MOST: usize = 100_000_000;
        Kind::new(
            format!("a number from 1 to {MOST}"),
            json!({"type": "integer", "minimum": 1, "maximum": MOST}),
            |text| text.parse().ok().filter(|number| (1..=MOST).contains(number)),
            |number| json!(number),
        )
    }
}

impl Scalar for Option<i64> {
    fn kind() -> Kind<Self> {
        let seconds = |text: &str| text.parse().ok();
        Kind::new("a number of seconds", json!({"type": "integer"}), seconds, |own: &i64| json!(own))
            .optional(Json::Null)
    }
}

impl Scalar for bool {
    fn kind() -> Kind<Self> {
        let schema = json!({"type": "boolean"});
        Kind::new("true or false", schema, |text| text.parse().ok(), |is_so| json!(is_so))
    }
}

impl Scalar for SocketAddr {
    fn kind() -> Kind<Self> {
        Kind::new(
            "an address and a port such as \"[::]:8443\"",
            json!({"type": "string", "pattern": r"^([0-9.]+|\[[0-9A-Fa-f:.%]+\]):[0-9]+$"}),
            |text| text.parse().ok(),
            shown,
        )
    }
}

impl Scalar for IpNet {
    fn kind() -> Kind<Self> {
        Kind::new(
            "a network such as 10.0.0.0/8",
            json!({"type": "string", "pattern": "^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$", "examples": ["10.0.0.0/8"]}),
            |text| text.parse().or_else(|_| text.parse::<IpAddr>().map(Self::from)).ok(),
            shown,
        )
    }
}

impl Scalar for PathBuf {
    fn kind() -> Kind<Self> {
        path(json!({"type": "string", "minLength": 1}))
    }
}

/// A path that may be missing, written as `""`.
impl Scalar for Option<PathBuf> {
    fn kind() -> Kind<Self> {
        path(json!({"type": "string"})).optional("")
    }
}

fn path(schema: Json) -> Kind<PathBuf> {
    let read = |text: &str| (!text.is_empty()).then(|| text.into());
    let mut kind =
        Kind::new("the path of a file", schema, read, |path: &PathBuf| json!(path.to_string_lossy()));
    kind.domain.names_file = true;
    kind
}

impl Scalar for ImagePattern {
    fn kind() -> Kind<Self> {
        Kind::new(
            "a pattern of images such as *.dkr.ecr.*.amazonaws.com or registry.example.com:5000/team, without https://",
            json!({"type": "string", "pattern": r"^[^/:@?#\s][^@?#\s]*$", "examples": ["*.dkr.ecr.*.amazonaws.com"]}),
            |text| canonical_name(text).parse().ok(),
            |pattern: &Self| json!(pattern.as_str()),
        )
    }
}

impl Scalar for ObjectName {
    fn kind() -> Kind<Self> {
        Kind::new(
            "the name of a Kubernetes object",
            json!({"type": "string", "pattern": r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$", "maxLength": 253}),
            Self::new,
            |name: &Self| json!(name.as_str()),
        )
    }
}

/// A name that may be missing, written as `""`.
impl Scalar for Option<ObjectName> {
    fn kind() -> Kind<Self> {
        Kind::new(
            "a name such as tolerarch.tolerarch.svc",
            json!({"type": "string", "pattern": r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*)?$", "maxLength": 253}),
            ObjectName::new,
            |name: &ObjectName| json!(name.as_str()),
        )
        .optional("")
    }
}

impl Scalar for Mode {
    fn kind() -> Kind<Self> {
        named(vec![("enforce".to_owned(), Self::Enforce), ("observe".to_owned(), Self::Observe)])
    }
}

impl Scalar for Require {
    fn kind() -> Kind<Self> {
        named(vec![
            ("off".to_owned(), Self::Off),
            ("affinity".to_owned(), Self::Affinity),
            ("nodeSelector".to_owned(), Self::NodeSelector),
        ])
    }
}

fn named<T: Clone + PartialEq + 'static>(all: Vec<(String, T)>) -> Kind<T> {
    let names: Vec<String> = all.iter().map(|(name, _)| name.clone()).collect();
    let known = all.clone();
    Kind::new(
        either(&names),
        json!({"enum": names}),
        move |text| known.iter().find(|(name, _)| name == text).map(|(_, value)| value.clone()),
        move |value| json!(all.iter().find(|(_, known)| known == value).map(|(name, _)| name)),
    )
}

/// One of the variants of a type, by the names that the command line knows them by, too.
pub(super) fn choice<T: ValueEnum + Clone + PartialEq + 'static>() -> Kind<T> {
    let name = |value: &T| Some((value.to_possible_value()?.get_name().to_owned(), value.clone()));
    named(T::value_variants().iter().filter_map(name).collect())
}

/// What holds a text: a `String`, or a [`Text`](tolerarch_core::pod::Text) of a Pod.
pub(super) trait Words: Clone + From<String> + Into<String> + 'static {}

impl<T: Clone + From<String> + Into<String> + 'static> Words for T {}

/// A text that has to pass a check; nothing is written for the empty one.
fn checked<T: Words>(expected: &str, schema: Json, check: impl Fn(&str) -> bool + 'static) -> Kind<T> {
    let write =
        |text: &T| Some(text.clone().into()).filter(|text| !text.is_empty()).map_or(Json::Null, Json::String);
    Kind::new(expected, schema, move |text| check(text).then(|| text.to_owned().into()), write)
}

pub(super) fn one_of<T: Words>(texts: &'static [&'static str]) -> Kind<T> {
    let names: Vec<&str> = texts.iter().map(|text| if text.is_empty() { "\"\"" } else { text }).collect();
    checked(&either(&names), json!({"enum": texts}), |text| texts.contains(&text))
}

pub(super) fn label_key<T: Words>() -> Kind<T> {
    label_key_that(is_label_key)
}

/// The key of a label that this takes.
pub(super) fn label_key_that<T: Words>(check: fn(&str) -> bool) -> Kind<T> {
    let pattern = "^([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$";
    checked("a label key such as example.com/pool", json!({"type": "string", "pattern": pattern}), check)
}

pub(super) fn label_value<T: Words>() -> Kind<T> {
    let pattern = "^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$";
    checked("a label value", json!({"type": "string", "pattern": pattern}), is_label_value)
}

/// A name that can stand in the annotation.
pub(super) fn pool_name() -> Kind<String> {
    checked(
        "a name of at most 63 lower-case letters, digits, '-' and '.'",
        json!({"type": "string", "pattern": "^[a-z0-9.-]{1,63}$"}),
        tolerarch_core::policy::is_pool_name,
    )
}

/// A weight; zero, until it is set.
pub(super) fn weight() -> Kind<u8> {
    Kind::new(
        "a weight from 1 to 100",
        json!({"type": "integer", "minimum": 1, "maximum": 100}),
        |text| text.parse().ok().filter(|weight| (1..=100).contains(weight)),
        |weight| if *weight == 0 { Json::Null } else { json!(weight) },
    )
}

pub(super) fn platform() -> Kind<PlatformSet> {
    let all: Vec<String> = PlatformSet::ALL.to_string().split(", ").map(str::to_owned).collect();
    Kind::new(
        format!("a platform that nodes can have: {}", PlatformSet::ALL),
        json!({"enum": all}),
        |text| text.parse().ok(),
        |platform: &PlatformSet| if platform.is_empty() { Json::Null } else { shown(platform) },
    )
}

/// What stands for the platforms that are read of the cluster.
const DISCOVERED: &str = "discovered";

/// Platforms; of the cluster, they may also be discovered.
pub(super) struct Platforms<'a> {
    pub(super) known: &'a mut PlatformSet,
    pub(super) discovered: Option<&'a mut bool>,
}

impl Slot for PlatformSet {
    fn shape(&mut self) -> Shape<'_> {
        Shape::value(Platforms { known: self, discovered: None })
    }
}

impl Platforms<'_> {
    fn are_discovered(&self) -> bool {
        self.discovered.as_deref() == Some(&true)
    }
}

impl Value for Platforms<'_> {
    fn domain(&self) -> Domain {
        let mut domain = Domain { is_list: true, ..platform().domain };
        if self.discovered.is_some() {
            domain.expected += &format!("; or {DISCOVERED}");
            domain.schema = json!({"anyOf": [domain.schema, {"const": DISCOVERED}]});
            domain.word = Some(DISCOVERED);
        }
        domain
    }

    fn clear(&mut self) {
        *self.known = PlatformSet::EMPTY;
        if let Some(discovered) = &mut self.discovered {
            **discovered = false;
        }
    }

    fn add(&mut self, text: &str) -> bool {
        if let Some(discovered) = self.discovered.as_deref_mut().filter(|_| text == DISCOVERED) {
            // What counts until they are read.
            (*self.known, *discovered) = (PlacementRules::default().platforms, true);
            return true;
        }
        let Ok(platform) = text.parse::<PlatformSet>() else { return false };
        // Beside the word, which says it all, nothing counts.
        if !self.are_discovered() {
            *self.known = self.known.union(platform);
        }
        true
    }

    fn written(&self) -> Json {
        if self.are_discovered() {
            return json!([DISCOVERED]);
        }
        let text = self.known.to_string();
        text.split(", ").filter(|_| !self.known.is_empty()).collect()
    }
}

/// `a, b or c`.
fn either<T: AsRef<str>>(names: &[T]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.split_last() {
        Some((last, first)) if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => names.concat(),
    }
}
