//! Files that are generated from the keys: the schema, and the reference in the documentation. `UPDATE=1 cargo test
//! config` writes both.

use std::path::Path;
use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;

/// Compares a file of the repository, or its part between two marks, with the generated text.
fn assert_up_to_date(file: &str, marks: Option<(&str, &str)>, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let whole = std::fs::read_to_string(&path).unwrap_or_default();
    let (begin, end) = marks.map_or((0, whole.len()), |(begin, end)| {
        let begin = whole.find(begin).map(|at| at + begin.len()).unwrap();
        (begin, begin + whole[begin..].find(end).unwrap())
    });
    if tolerarch_support::environment::Environment::of_process()
        .get("UPDATE")
        .is_some()
    {
        std::fs::write(
            &path,
            format!("{}{generated}{}", &whole[..begin], &whole[end..]),
        )
        .unwrap();
    } else {
        assert!(
            whole[begin..end] == *generated,
            "{file} is out of date; run: UPDATE=1 cargo test config"
        );
    }
}

#[test]
fn schema_is_up_to_date() {
    assert_up_to_date("manifests/config.schema.json", None, &schema());
}

#[test]
fn documentation_explains_every_key() {
    let marks = ("<!-- every key -->\n```yaml\n", "```\n");
    assert_up_to_date("docs/configuration.md", Some(marks), &explained());
}

#[test]
fn explained_configuration_is_the_default() {
    let mut config = Config::parse(&explained()).unwrap();
    assert_eq!(config.registries.hosts.len(), 1, "an example");
    config.registries.hosts.clear();
    assert_eq!(config.profiles.len(), 1, "an example");
    config.profiles.clear();
    assert_eq!(config, Config::default());
}

static VALIDATOR: LazyLock<jsonschema::Validator> =
    LazyLock::new(|| jsonschema::validator_for(&serde_json::from_str(&schema()).unwrap()).unwrap());

/// Generates texts from valid and invalid parts of durations. They never exceed the maximum, which a schema cannot check:
/// numbers without a unit between them become one, and three digits are at most 333.
fn like_a_duration() -> impl Strategy<Value = String> {
    const NUMBERS: [&str; 14] = [
        "0",
        "2",
        "3",
        "1.5",
        ".5",
        "1.",
        "0.0",
        "1.2345",
        "123456789012",
        "-1",
        "+1",
        "1e3",
        "1_0",
        "",
    ];
    const UNITS: [&str; 16] = [
        "ms", "s", "m", "h", "d", "M", "S", "min", "us", "ns", "w", "y", " m", "s ", " bananas", "",
    ];
    let valid = (
        prop::sample::select(&NUMBERS[..4]),
        prop::sample::select(&UNITS[..5]),
    );
    let any = (
        prop::sample::select(&NUMBERS[..]),
        prop::sample::select(&UNITS[..]),
    );
    let terms = prop::collection::vec(prop_oneof![3 => valid, 1 => any], 0..4);
    terms.prop_map(|terms| {
        terms
            .into_iter()
            .map(|(number, unit)| format!("{number}{unit}"))
            .collect()
    })
}

/// Generates valid and invalid values of a key.
fn some_value() -> impl Strategy<Value = Json> {
    let others = [
        json!({}),
        json!([]),
        json!([null]),
        json!({"x": 1}),
        json!([{}]),
        json!("1s"),
        json!("x"),
    ];
    prop_oneof![
        2 => Just(Json::Null),
        1 => prop::sample::select(others.to_vec()),
        2 => like_a_duration().prop_map(Json::from),
    ]
}

fn some_document() -> impl Strategy<Value = Json> {
    const SECTIONS: [&str; 9] = [
        "mode",
        "server",
        "admin",
        "lookup",
        "cache",
        "registries",
        "network",
        "log",
        "zzz",
    ];
    const KEYS: [&str; 9] = [
        "budget", "timeout", "tagTtl", "drain", "negative", "allow", "hosts", "level", "zzz",
    ];
    let section = prop::collection::btree_map(prop::sample::select(&KEYS[..]), some_value(), 0..3);
    let value = prop_oneof![1 => some_value(), 3 => section.prop_map(|keys| json!(keys))];
    prop::collection::btree_map(prop::sample::select(&SECTIONS[..]), value, 0..4)
        .prop_map(|sections| json!(sections))
}

proptest! {
    #[test]
    fn schema_and_reader_agree_on_durations(text in like_a_duration()) {
        let document = json!({"cache": {"tagTtl": text}});
        let read = Config::parse(&document.to_string());
        prop_assert_eq!(VALIDATOR.is_valid(&document), read.is_ok(), "{} {:?}", text, read);
    }

    #[test]
    fn schema_and_reader_agree_on_sections(document in some_document()) {
        let read = Config::parse(&document.to_string());
        prop_assert_eq!(VALIDATOR.is_valid(&document), read.is_ok(), "{} {:?}", document, read);
    }
}

/// The schema and the reader agree, on good files and on bad ones.
#[test]
fn schema_and_reader_agree_on_examples() {
    let pool = |key: &str| serde_json::json!({"pools": [{"preset": "gke", "tolerations": [{"key": key, "operator": "Exists"}]}]});
    let hosts = |host: &str| json!({"registries": {"hosts": {"a.b": {"tokenHosts": [host]}}}});
    let value = |text: &str| serde_json::from_str(text).unwrap();
    let long = "a".repeat(64);
    for (document, valid) in [
        (value("{}"), true),
        (value(r#"{"mode": "observe"}"#), true),
        (value(r#"{"mode": "enforced"}"#), false),
        (value(r#"{"mdoe": "observe"}"#), false),
        (
            value(r#"{"cache": {"tagTtl": "1h30m", "capacity": 1}}"#),
            true,
        ),
        (value(r#"{"cache": {"tagTtl": "soon"}}"#), false),
        (value(r#"{"cache": {"tagTtl": 5}}"#), false),
        (value(r#"{"cache": {"tagTtl": "5 bananas"}}"#), false),
        (value(r#"{"cache": {"tagTtl": "5M"}}"#), false),
        (value(r#"{"cache": {"tagTtl": "1.5h"}}"#), true),
        (
            value(r#"{"cache": null, "mode": null, "pools": null, "log": {"level": null}}"#),
            true,
        ),
        (value(r#"{"registries": {"hosts": {"a.b": null}}}"#), true),
        (value(r#"{"cache": {"capacity": 0}}"#), false),
        (
            value(r#"{"cache": {"negative": {"notFound": "1s", "oops": "1s"}}}"#),
            false,
        ),
        (value(r#"{"server": {"listen": "[::1]:80"}}"#), true),
        (value(r#"{"server": {"listen": "80"}}"#), false),
        (
            value(r#"{"network": {"allow": ["10.0.0.0/8", "::1"]}}"#),
            true,
        ),
        (value(r#"{"network": {"allow": "10.0.0.0/8"}}"#), false),
        (value(r#"{"network": {"allow": ["all"]}}"#), false),
        (
            value(r#"{"registries": {"hosts": {"a.b": {"caFile": "", "plainHttp": true}}}}"#),
            true,
        ),
        (
            value(r#"{"registries": {"hosts": {"a.b": {"plainHttp": "yes"}}}}"#),
            false,
        ),
        (hosts("a.b/c"), false),
        (hosts("https://a.b/v1/"), false),
        (hosts("docker.io"), true),
        (hosts("index.docker.io/v1"), true),
        (hosts("https://index.docker.io/v1/"), true),
        (hosts("https://registry-1.docker.io/v2"), true),
        (hosts("https://docker.io:443"), true),
        (value(r#"{"pools": [{"preset": "eks"}]}"#), false),
        (
            value(r#"{"pools": [{"preset": "gke", "platforms": ["linux/s390x"]}]}"#),
            true,
        ),
        (
            value(r#"{"pools": [{"preset": "gke", "platforms": ["linux/arm46"]}]}"#),
            false,
        ),
        (pool("example.com/pool"), true),
        (pool("a_b.C"), true),
        (pool("a b"), false),
        (pool("/a"), false),
        (pool("A.b/c"), false),
        (pool(&long), false),
        (pool(&format!("x.y/{}", &long[1..])), true),
    ] {
        assert_eq!(VALIDATOR.is_valid(&document), valid, "schema: {document}");
        assert_eq!(
            Config::parse(&document.to_string()).is_ok(),
            valid,
            "reader: {document}"
        );
    }
}

#[test]
fn shipped_file_names_the_schema() {
    let text = include_str!("../../../manifests/config.yaml");
    assert!(
        text.starts_with("# yaml-language-server: $schema="),
        "{text}"
    );
}

/// The documentation's examples of pools are valid without changes.
#[test]
fn documented_pools_are_valid() {
    let pages = [
        include_str!("../../../docs/configuration.md"),
        include_str!("../../../docs/clouds.md"),
    ];
    let pages = pages.concat();
    let blocks = pages
        .split("```yaml\n")
        .skip(1)
        .filter_map(|text| text.split("```").next());
    let inline = pages.split('`').filter(|text| text.starts_with("pools: ["));
    let examples: Vec<&str> = blocks
        .filter(|text| text.starts_with("pools:"))
        .chain(inline)
        .collect();
    assert!(examples.len() >= 2, "{examples:?}");
    for text in examples {
        Config::parse(text)
            .map_err(|faults| format!("{text}: {faults:?}"))
            .unwrap();
    }
}
