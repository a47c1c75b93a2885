use super::*;

#[derive(Debug, Default, PartialEq)]
struct Outer {
    task: String,
    count: i64,
    inner: Inner,
    pointer: Option<Inner>,
    map: BTreeMap<String, Go<Inner>>,
}

#[derive(Debug, Default, PartialEq)]
struct Inner {
    a: String,
    b: String,
}

impl GoStruct for Outer {
    fn read_member<'de, A: MapAccess<'de>>(
        &mut self,
        name: &str,
        value: GoValue<'_, A>,
    ) -> Result<(), A::Error> {
        match name {
            "task" => value.read(&mut self.task),
            "count" => value.read(&mut self.count),
            "inner" => value.merge(&mut self.inner),
            "pointer" => value.merge_pointer(&mut self.pointer),
            "map" => value.extend(&mut self.map),
            _ => value.skip(),
        }
    }
}

impl GoStruct for Inner {
    fn read_member<'de, A: MapAccess<'de>>(
        &mut self,
        name: &str,
        value: GoValue<'_, A>,
    ) -> Result<(), A::Error> {
        match name {
            "a" => value.read(&mut self.a),
            "b" => value.read(&mut self.b),
            _ => value.skip(),
        }
    }
}

fn inner(a: &str, b: &str) -> Inner {
    Inner {
        a: a.into(),
        b: b.into(),
    }
}

#[test]
fn names_match_in_any_case() {
    for name in [
        "task",
        "Task",
        "TASK",
        "ta\u{17f}k",
        "TAS\u{212a}",
        "t\\u0061sk",
        "ta\\u017fk",
    ] {
        let json = format!(r#"{{"{name}": "x", "TASKS": 1, "tas": [], "": {{}}, "ä": 2}}"#);
        assert_eq!(read::<Outer>(json.as_bytes()).unwrap().task, "x", "{name}");
    }
    for name in [
        "tasks",
        "tas",
        "task ",
        "täsk",
        "ẞask",
        "",
        &"task".repeat(20),
    ] {
        let json = format!(r#"{{"{name}": "x"}}"#);
        assert_eq!(
            read::<Outer>(json.as_bytes()).unwrap(),
            Outer::default(),
            "{name}"
        );
    }
}

#[test]
fn last_member_counts_and_null_changes_nothing() {
    for json in [
        r#"{"task": "x", "Task": "y"}"#,
        r#"{"Task": "x", "task": "y"}"#,
        r#"{"task": "y", "TASK": null}"#,
    ] {
        assert_eq!(read::<Outer>(json.as_bytes()).unwrap().task, "y", "{json}");
    }
}

#[test]
fn repeated_structs_and_maps_are_merged() {
    let json = r#"{"inner": {"a": "1", "b": "2"}, "INNER": {"B": "3"}, "inner": null}"#;
    assert_eq!(
        read::<Outer>(json.as_bytes()).unwrap().inner,
        inner("1", "3")
    );
    let json = r#"{"pointer": {"a": "1"}, "Pointer": {"b": "3"}}"#;
    assert_eq!(
        read::<Outer>(json.as_bytes()).unwrap().pointer,
        Some(inner("1", "3"))
    );
    let json = r#"{"pointer": {"a": "1"}, "Pointer": null}"#;
    assert_eq!(read::<Outer>(json.as_bytes()).unwrap().pointer, None);
    let json =
        r#"{"map": {"k": {"a": "1"}, "l": {"a": "1"}}, "Map": {"k": {"b": "2"}, "K": null}}"#;
    let map = read::<Outer>(json.as_bytes()).unwrap().map;
    let expected = [
        ("K", inner("", "")),
        ("k", inner("", "2")),
        ("l", inner("1", "")),
    ];
    assert_eq!(
        map,
        expected
            .map(|(key, value)| (key.to_owned(), Go(value)))
            .into()
    );
    let json = r#"{"map": {"k": {"a": "1"}}, "MAP": null}"#;
    assert!(read::<Outer>(json.as_bytes()).unwrap().map.is_empty());
}

#[test]
fn values_that_go_refuses_are_refused() {
    for json in [
        "",
        " ",
        "[]",
        "1",
        r#""""#,
        "{",
        r#"{"task": 1}"#,
        r#"{"Count": "1"}"#,
        r#"{"count": 1.0}"#,
        r#"{"inner": []}"#,
        r#"{"map": []}"#,
        r#"{"map": {"k": 1}}"#,
        "{}x",
        "{}{}",
        "\u{feff}{}",
        r#"{"x": 01}"#,
    ] {
        assert!(read::<Outer>(json.as_bytes()).is_err(), "{json}");
    }
    assert_eq!(read::<Outer>(b"null").unwrap(), Outer::default());
    for json in [
        r#"{"task": "x"}{"#,
        r#" {"task": "x"}, "#,
        "{\"task\": \"x\"}\n\0",
    ] {
        assert!(read::<Outer>(json.as_bytes()).is_err(), "{json}");
        assert_eq!(
            read_first::<Outer>(json.as_bytes()).unwrap().task,
            "x",
            "{json}"
        );
    }
    assert!(read_first::<Outer>(br#"{"task": "x""#).is_err());
}

#[test]
fn invalid_unicode_is_replaced() {
    for (json, expected) in [
        (&b"{\"task\": \"a\xffb\", \"x\xff\": 1}"[..], "a\u{fffd}b"),
        (b"{\"task\": \"\xed\xa0\x80\"}", "\u{fffd}\u{fffd}\u{fffd}"),
        (br#"{"task": "\ud800"}"#, "\u{fffd}"),
        (br#"{"task": "\ud800x"}"#, "\u{fffd}x"),
        (br#"{"task": "\uDC00\uD83D\uDE00"}"#, "\u{fffd}😀"),
        (br#"{"task": "\ud800\ud83d\ude00"}"#, "\u{fffd}😀"),
        (br#"{"task": "\ud800\\ud800"}"#, "\u{fffd}\\ud800"),
        (br#"{"task": "\\\ud83d\ude00"}"#, "\\😀"),
    ] {
        assert_eq!(read::<Outer>(json).unwrap().task, expected);
    }
    for json in [
        &br#"{"task": "\ud8"}"#[..],
        br#"{"task": "\ud800\"}"#,
        b"\\",
        b"{\"\\ud800",
        b"\xff{}",
    ] {
        assert!(read::<Outer>(json).is_err());
    }
}

/// Skipped values take no stack.
#[test]
fn deep_nesting_is_skipped() {
    let json = format!(
        r#"{{"x": {}{}, "Task": "x"}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    assert_eq!(read::<Outer>(json.as_bytes()).unwrap().task, "x");
}
