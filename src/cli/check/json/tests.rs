use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

#[test]
fn knows_the_line_of_each_value() {
    let text = "{\n \"a\": [1,\n  {\"b]\\\"}\": \"x,\\\\\"},\n  []\n ],\n \"c\":\n  null\n}\n{}";
    let documents: Vec<Node> = Documents::of(text, 0).map(Result::unwrap).collect();
    let [node, last] = &documents[..] else { panic!("{documents:?}") };
    assert_eq!((node.line, node.value()), (1, json!({"a": [1, {"b]\"}": "x,\\"}, []], "c": null})));
    let Data::Map(members) = &node.data else { panic!("{node:?}") };
    let Data::List(items) = &members[0].1.data else { panic!("{node:?}") };
    let lines: Vec<usize> = items.iter().map(|item| item.line).collect();
    assert_eq!((members[0].1.line, lines, members[1].1.line), (2, vec![2, 3, 4], 7));
    assert_eq!(last.line, 9);
}

#[test]
fn managed_fields_are_passed_over_however_deep_they_are() {
    let deep = |name: &str| {
        let (open, close) = ("{\"a\":".repeat(200), "}".repeat(200));
        let text = format!("{{\"metadata\":{{\"{name}\":[{open}1{close}],\"name\":\"web\"}}}}");
        Documents::of(&text, 0).next().unwrap().map(|node| node.value())
    };
    assert_eq!(deep("managedFields"), Ok(json!({"metadata": {"name": "web"}})));
    assert_eq!(deep("others"), Err((1, "nested deeper than is read".to_owned())));
}

proptest! {
    #[test]
    fn reads_what_serde_json_reads(text in "[\\[\\]{},:\"\\\\ \n1a.e-]{0,30}|(\\{\"[\\\\\"a]{0,3}\": ?\\[?[0-9]{0,2}\\]?\\}\n?){0,3}") {
        let mut expected = Vec::new();
        for value in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
            let Ok(value) = value else { break };
            expected.push(value);
        }
        let seen: Vec<Value> = Documents::of(&text, 0).map_while(Result::ok).map(|node| node.value()).collect();
        prop_assert!(seen.starts_with(&expected), "{:?} {:?}", seen, expected);
    }
}
