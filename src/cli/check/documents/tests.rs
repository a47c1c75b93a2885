use proptest::prelude::*;

use super::*;

/// Number, line, and the kind or the fault of each document.
fn all(bytes: &[u8]) -> Vec<(usize, usize, String)> {
    let shown = |content: Result<Node, String>| match content {
        Ok(node) => node.value().to_string(),
        Err(fault) => format!("! {fault}"),
    };
    read(bytes)
        .into_iter()
        .map(|document| (document.number, document.line, shown(document.content)))
        .collect()
}

fn check(text: &str, expected: &[(usize, &str)]) {
    let read = all(text.as_bytes());
    assert_eq!(read.len(), expected.len(), "{text:?}: {read:?}");
    for (place, ((number, line, shown), (expected_line, expected))) in read.iter().zip(expected).enumerate() {
        assert_eq!((*number, *line), (place + 1, *expected_line), "{text:?}: {read:?}");
        assert!(shown.starts_with(expected), "{text:?}: {shown}");
    }
}

#[test]
fn reads_streams() {
    check("", &[]);
    check("---\n", &[]);
    check("---\n---\n# nothing\n--- # nothing\n...\n", &[]);
    check("a: 1\n", &[(1, r#"{"a":1}"#)]);
    check("---\na: 1\n---\n\nb: 2\n---\n", &[(2, r#"{"a":1}"#), (5, r#"{"b":2}"#)]);
    check("--- {a: 1}\n---\tb\n", &[(1, r#"{"a":1}"#), (2, "\"b\"")]);
    check("%YAML 1.1\n---\na: 1\n...\n", &[(3, r#"{"a":1}"#)]);
    check("a: |\n  ---\n  x\n", &[(1, r#"{"a":"---\nx\n"}"#)]);
    check("---a: 1\n", &[(1, r#"{"---a":1}"#)]);
    check("\u{feff}a: 1\r\n---\r\nb: 2\r\n", &[(1, r#"{"a":1}"#), (3, r#"{"b":2}"#)]);
}

#[test]
fn reads_json() {
    check("{\"a\": 1}{\"b\": 2}\n\n{\"c\": 3}", &[(1, r#"{"a":1}"#), (1, r#"{"b":2}"#), (3, r#"{"c":3}"#)]);
    check("{\n\t\"a\": 1\n}\n---\n{a: 1}\n", &[(1, r#"{"a":1}"#), (5, r#"{"a":1}"#)]);
    check("{\"a\": 1}\n{\"b\": }\n{\"c\": 3}\n", &[(1, r#"{"a":1}"#), (2, "! not JSON"), (3, r#"{"c":3}"#)]);
    check("{\"a\": \n\n]}", &[(3, "! not JSON")]);
    check("{\"a\": \"\\ud83d\\ude00\"}", &[(1, "{\"a\":\"😀\"}")]);
}

#[test]
fn one_that_is_broken_costs_no_other() {
    check("a: 1\n---\nb: [1\n---\nc: 3\n", &[(1, "{"), (4, "! not YAML"), (5, r#"{"c":3}"#)]);
    check("a: 1\n---\nb:\n\t- 1\n---\nc: 3\n", &[(1, "{"), (4, "! not YAML"), (6, r#"{"c":3}"#)]);
    let mut latin = b"a: 1\n---\nb: 1\nc: stra\xdfe\n---\nc: 3\n".to_vec();
    assert_eq!(all(&latin)[1].1, 4);
    assert_eq!(all(&latin)[2].2, r#"{"c":3}"#);
    latin.insert(3, 0);
    assert!(all(&latin)[0].2.contains("binary"));
    assert!(all(b"\xff\xfea\0")[0].2.contains("UTF-16"));
    check(&"[".repeat(200_000), &[(1, "! ")]);
    check(&"{\"a\":".repeat(200_000), &[(1, "! ")]);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = all(&bytes);
    }

    #[test]
    fn anything_like_yaml_is_read_or_refused(text in "([-?:,\\[\\]{}#&*!|>'\"%@ \t\r\nab0<~.]|---\n|: |- |\n  ){0,60}") {
        let _ = all(text.as_bytes());
    }
}
