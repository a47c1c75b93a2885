use serde::Deserialize;
use serde_json::{Value, json};

use super::*;

/// A Pod whose JSON has `times` items in a list or a map, and the lengths of the requests with which the API server stores
/// the Pod.
#[derive(Deserialize)]
struct Stored {
    pod: String,
    #[serde(default)]
    item: String,
    #[serde(default)]
    times: usize,
    fill: usize,
    stored: usize,
    with: usize,
}

impl Stored {
    fn json(&self) -> String {
        let items: Vec<String> = (0..self.times)
            .map(|i| self.item.replace("@n", &format!("{i:06}")))
            .collect();
        self.pod.replacen("@items", &items.join(","), 1).replacen(
            "@fill",
            &"x".repeat(self.fill),
            1,
        )
    }
}

/// Bytes of a request beside the Pod of a review: the key, twice, and fields that the API server adds.
const REQUEST: usize = 1536;

/// The sizes are those of the API server's encoder.
#[test]
fn bound_is_at_least_the_size_in_etcd() {
    let cases: Vec<Stored> = conformance::cases("stored");
    for case in &cases {
        let json = case.json();
        let Stored {
            pod,
            item,
            times,
            stored,
            with,
            ..
        } = case;
        let size = bound(json.as_bytes());
        assert!(
            size + REQUEST >= *stored,
            "{size} for {stored}: {pod} {times} times {item}"
        );
        // A small Pod fits, with any additions.
        assert!(
            json.len() >= SMALL || *with < (3 << 19) - (64 << 10),
            "{pod} {times} times {item}"
        );
        // The additions are within their estimate.
        assert!(*with < stored + 128);
        if *times == 0 {
            let value: Value = serde_json::from_str(&json).unwrap();
            assert!(
                bound(value.to_string().as_bytes()) + REQUEST >= *stored,
                "{pod}"
            );
        }
    }
    assert!(
        cases
            .iter()
            .filter(|case| case.stored.abs_diff(3 << 19) <= 301)
            .count()
            > 9
    );
}

/// A member of a Pod or a DaemonSet, and the bytes that its empty message takes.
#[derive(Deserialize)]
struct Field {
    field: String,
    #[serde(default)]
    empty: usize,
}

#[test]
fn no_empty_message_is_larger_than_the_maximum() {
    for Field { field, empty } in conformance::cases("fields") {
        assert!(empty + 2 + 4 <= MESSAGE, "{field}: {empty}");
    }
}

#[test]
fn bound_of_texts_and_objects_is_tight() {
    let annotated = |text: &str| json!({"metadata": {"annotations": {"a": text}}}).to_string();
    // k8s.io/api v0.36.1 stores it as 200,052.
    assert!((200_052..201_000).contains(&size_of_json(annotated(&"x".repeat(200_000)).as_bytes())));
    let entry = |i| json!({"name": format!("A{i:03}"), "value": "x".repeat(180), "valueFrom": null, "x": 0, "y": 0});
    let pod = Value::from_iter([("a", Value::from_iter((0..1000).map(entry)))]);
    let json = pod.to_string();
    assert!((json.len()..json.len() + (96 << 10)).contains(&size_of_json(json.as_bytes())));
}
