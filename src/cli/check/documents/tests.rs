use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// Returns the line of each document, and its value or fault.
fn rendered_documents(bytes: &[u8]) -> Vec<(usize, String)> {
    let rendered = |document: Result<Node, Fault>| match document {
        Ok(node) => (node.line, node.value().to_string()),
        Err(fault) => (fault.line, format!("! {}", fault.message)),
    };
    read(bytes).into_iter().map(rendered).collect()
}

fn check(text: &str, expected: &[(usize, &str)]) {
    let documents = rendered_documents(text.as_bytes());
    assert_eq!(documents.len(), expected.len(), "{text:?}: {documents:?}");
    for ((line, rendered), (expected_line, expected)) in documents.iter().zip(expected) {
        assert_eq!(line, expected_line, "{text:?}: {documents:?}");
        assert!(rendered.starts_with(expected), "{text:?}: {rendered}");
    }
}

#[test]
fn yaml_documents_are_read_separately() {
    check("", &[]);
    check("---\n", &[]);
    check("---\n---\n# nothing\n--- # nothing\n...\n", &[]);
    check("a: 1\n", &[(1, r#"{"a":1}"#)]);
    check(
        "---\na: 1\n---\n\nb: 2\n---\n",
        &[(2, r#"{"a":1}"#), (5, r#"{"b":2}"#)],
    );
    check("--- {a: 1}\n---\tb\n", &[(1, r#"{"a":1}"#), (2, "\"b\"")]);
    check("%YAML 1.1\n---\na: 1\n...\n", &[(3, r#"{"a":1}"#)]);
    check("a: |\n  ---\n  x\n", &[(1, r#"{"a":"---\nx\n"}"#)]);
    check("---a: 1\n", &[(1, r#"{"---a":1}"#)]);
    check(
        "\u{feff}a: 1\r\n---\r\nb: 2\r\n",
        &[(1, r#"{"a":1}"#), (3, r#"{"b":2}"#)],
    );
    check(
        "\u{feff}a: 1\n---\n\u{feff}b: 2\n",
        &[(1, r#"{"a":1}"#), (3, r#"{"b":2}"#)],
    );
    check(
        "a: [\n  \"b\"\n]\n---\nc: \"d\ne\"#f\n",
        &[(1, r#"{"a":["b"]}"#), (5, r#"{"c":"d e"}"#)],
    );
}

#[test]
fn json_documents_are_read_separately() {
    check(
        "{\"a\": 1}{\"b\": 2}\n\n{\"c\": 3}",
        &[(1, r#"{"a":1}"#), (1, r#"{"b":2}"#), (3, r#"{"c":3}"#)],
    );
    check(
        "{\n\t\"a\": 1\n}\n---\n{a: 1}\n",
        &[(1, r#"{"a":1}"#), (5, r#"{"a":1}"#)],
    );
    check(
        "{\"a\": 1}\n{\"b\": }\n{\"c\": 3}\n",
        &[(1, r#"{"a":1}"#), (2, "! not JSON"), (3, r#"{"c":3}"#)],
    );
    check("{\"a\": \n\n]}", &[(3, "! not JSON")]);
    check("{\"a\": \"\\ud83d\\ude00\"}", &[(1, "{\"a\":\"😀\"}")]);
}

#[test]
fn broken_document_does_not_affect_others() {
    check(
        "a: 1\n---\nb: [1\n---\nc: 3\n",
        &[(1, "{"), (4, "! not YAML"), (5, r#"{"c":3}"#)],
    );
    check(
        "a: 1\n---\nb:\n\t- 1\n---\nc: 3\n",
        &[(1, "{"), (4, "! not YAML"), (6, r#"{"c":3}"#)],
    );
    let mut bytes = b"a: 1\n---\nb: 1\nc: stra\xdfe\n---\nc: 3\n".to_vec();
    let documents = rendered_documents(&bytes);
    assert_eq!(documents[1].0, 4, "the line that is not UTF-8");
    assert_eq!(documents[2].1, r#"{"c":3}"#);
    bytes.insert(3, 0);
    assert!(rendered_documents(&bytes)[0].1.contains("binary"));
    assert!(rendered_documents(b"\xff\xfea\0")[0].1.contains("UTF-16"));
    check(&"[".repeat(200_000), &[(1, "! ")]);
    check(&"{\"a\":".repeat(200_000), &[(1, "! ")]);
}

proptest! {
    #[test]
    fn never_panics_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = rendered_documents(&bytes);
    }

    #[test]
    fn never_panics_on_yaml_like_text(text in "([-?:,\\[\\]{}#&*!|>'\"%@ \t\r\nab0<~.]|---\n|: |- |\n  ){0,60}") {
        let _ = rendered_documents(text.as_bytes());
    }
}

fn json_of(text: &str) -> Vec<Result<Node, Fault>> {
    let mut documents = Vec::new();
    super::json(text, 0, &mut documents);
    documents
}

#[test]
fn values_keep_their_lines() {
    let text = "{\n \"a\": [1,\n  {\"b]\\\"}\": \"x,\\\\\"},\n  []\n ],\n \"c\":\n  null\n}\n{}";
    let documents: Vec<Node> = json_of(text).into_iter().map(Result::unwrap).collect();
    let [node, last] = &documents[..] else {
        panic!("{documents:?}")
    };
    assert_eq!(
        (node.line, node.value()),
        (1, json!({"a": [1, {"b]\"}": "x,\\"}, []], "c": null}))
    );
    let Data::Map(members) = &node.data else {
        panic!("{node:?}")
    };
    let Data::List(items) = &members[0].1.data else {
        panic!("{node:?}")
    };
    let lines: Vec<usize> = items.iter().map(|item| item.line).collect();
    assert_eq!(
        (members[0].1.line, lines, members[1].1.line),
        (2, vec![2, 3, 4], 7)
    );
    assert_eq!(last.line, 9);
}

#[test]
fn deep_managed_fields_are_skipped() {
    let deep = |name: &str| {
        let open = "{\"a\":".repeat(200);
        let close = "}".repeat(200);
        let text = format!("{{\"metadata\":{{\"{name}\":[{open}1{close}],\"name\":\"web\"}}}}");
        json_of(&text)
            .remove(0)
            .map(|node| node.value())
            .map_err(|fault| (fault.line, fault.message))
    };
    assert_eq!(
        deep("managedFields"),
        Ok(json!({"metadata": {"name": "web"}}))
    );
    assert_eq!(
        deep("others"),
        Err((1, "nested more than 128 levels deep".to_owned()))
    );
}

/// Makes all numbers floats, because a node holds 1.0 as 1, as Go writes it.
fn with_floats(value: Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(items) => items.into_iter().map(with_floats).collect(),
        Value::Object(members) => {
            let members = members.into_iter();
            members
                .map(|(name, member)| (name, with_floats(member)))
                .collect()
        }
        other => other,
    }
}

proptest! {
    #[test]
    fn json_is_read_like_serde_json(text in "[\\[\\]{},:\"\\\\ \n1a.e-]{0,30}|(\\{\"[\\\\\"a]{0,3}\": ?\\[?[0-9]{0,2}\\]?\\}\n?){0,3}") {
        let mut expected = Vec::new();
        for value in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
            let Ok(value) = value else { break };
            expected.push(with_floats(value));
        }
        let nodes = json_of(&text).into_iter().map_while(Result::ok);
        let actual: Vec<Value> = nodes.map(|node| with_floats(node.value())).collect();
        prop_assert!(actual.starts_with(&expected), "{:?} {:?}", actual, expected);
    }
}
