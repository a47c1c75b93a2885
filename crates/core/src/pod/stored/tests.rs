use serde::Deserialize;
use serde_json::json;

use super::*;

/// A Pod whose JSON has a list or a map of this item so many times, and the lengths of requests by which the API server
/// stores it.
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
        let items: Vec<String> =
            (0..self.times).map(|i| self.item.replace("@n", &format!("{i:06}"))).collect();
        self.pod.replacen("@items", &items.join(","), 1).replacen("@fill", &"x".repeat(self.fill), 1)
    }
}

/// Bytes of a request beside the Pod of a review: the key, twice, and what the API server fills in.
const REQUEST: usize = 1536;

/// The API server's encoder decides.
#[test]
fn no_object_counts_with_less_than_it_takes_in_etcd() {
    let cases: Vec<Stored> = upstream::cases("stored");
    for case in &cases {
        let json = case.json();
        let Stored { pod, item, times, stored, with, .. } = case;
        let mut reader = serde_json::Deserializer::from_str(&json);
        let size = Part::Message(MESSAGE).deserialize(&mut reader).unwrap();
        assert!(size + REQUEST >= *stored, "{size} for {stored}: {pod} {times} times {item}");
        // A small one fits, with whatever is added.
        assert!(json.len() >= SMALL || *with < (3 << 19) - (64 << 10), "{pod} {times} times {item}");
        // For which there is room when there is said to be.
        assert!(*with < stored + 128);
        if *times == 0 {
            let value = serde_json::from_str(&json).unwrap();
            assert!(size_of_value(&value) + REQUEST >= *stored, "{pod}");
        }
    }
    assert!(cases.iter().filter(|case| case.stored.abs_diff(3 << 19) <= 301).count() > 9);
}

#[derive(Deserialize)]
struct Known {
    field: String,
    #[serde(default)]
    empty: usize,
    #[serde(default)]
    map: bool,
}

/// Of every member of a Pod or a DaemonSet: that names in it count, or what is written of an empty one.
#[test]
fn knows_every_field() {
    for Known { field, empty, map } in upstream::cases("fields") {
        let (part, _) = Name(Part::Message(MESSAGE)).visit_str::<serde_json::Error>(&field).unwrap();
        match part {
            // One is stored in the status only, which nobody sends.
            Part::Map => assert!(map || field == "options", "{field}"),
            Part::Message(around) => {
                // The frequent ones have tags of one byte.
                let tag = if around == FREQUENT.1 { 1 } else { TAG };
                assert!(!map && around >= empty + tag, "{field}: {around} for {empty}");
            }
            Part::Raw => assert_eq!(field, RAW),
        }
    }
}

/// What large Pods consist of does not count with much more than it takes.
#[test]
fn ordinary_pods_count_with_little_more() {
    let container =
        |env: Value| json!({"spec": {"containers": [{"name": "c", "image": "nginx", "env": env}]}});
    let long = |text: &str, length: usize| text.repeat(length / text.len());
    let entry = |i| json!({"name": format!("A{i}"), "value": "a value of usual length"});
    // Compared with what k8s.io/api v0.36.1 makes of them.
    for (pod, stored, percent) in [
        (container(json!([{"name": "A", "value": long("<&>\n\"\\", 1 << 20)}])), 1_048_688, 1),
        (container((0..20_000).map(entry).collect()), 688_995, 12),
        (json!({"metadata": {"annotations": {"a": long("x", 200_000)}, "labels": {"b": "c"}}}), 200_090, 1),
    ] {
        let size = size_of_value(&pod);
        assert!((stored - 256..=stored + stored * percent / 100).contains(&size), "{stored}: {size}");
    }
}

#[test]
fn what_cannot_be_read_has_no_room() {
    let deep = format!(r#"{{"a": {}{}, "b": "{}"}}"#, "[".repeat(200), "]".repeat(200), "x".repeat(SMALL));
    assert_eq!(size_of_json(deep.as_bytes()), usize::MAX);
}
