//! Both readers on generated texts. Most texts have the members that matter, and few are malformed.

use proptest::prelude::*;
use serde::de::IgnoredAny;

use super::{agrees, all_agree, typical};

/// A string, which is rarely malformed.
fn text() -> BoxedStrategy<String> {
    let part = prop_oneof![
        10 => "[a-zA-Z0-9./:_ -]{0,20}",
        3 => "\\PC{0,5}".prop_map(|text| text.replace(['"', '\\'], "")),
        3 => prop::sample::select(vec!["\\n", "\\\"", "\\\\", "\\/", "\\b\\f\\r\\t", "\\u0041", "\\u00e4", "\\ud83d\\ude00", "\\u0000"])
            .prop_map(str::to_owned),
        1 => "[a-z]{60,140}",
    ];
    let odd = prop::sample::select(vec![
        "\\ud800",
        "\\udc00\\ud800",
        "\\x",
        "\\u12g4",
        "\n",
        "\0",
        "\u{7f}",
        "\\",
    ]);
    let parts = prop::collection::vec(
        prop_oneof![400 => part, 1 => odd.prop_map(str::to_owned)],
        0..4,
    );
    parts
        .prop_map(|parts| format!("\"{}\"", parts.concat()))
        .boxed()
}

fn scalar() -> BoxedStrategy<String> {
    let usual = vec![
        "null",
        "true",
        "false",
        "0",
        "-1",
        "300",
        "1.5",
        "-0",
        "1E-7",
        "12e+3",
        "9223372036854775807",
    ];
    let odd = vec![
        "9223372036854775808",
        "-9223372036854775809",
        "01",
        "1.",
        "-",
        "tru",
        "NaN",
        "1e999",
        "",
        "'a'",
        "300.0",
    ];
    prop_oneof![
        60 => prop::sample::select(usual).prop_map(str::to_owned),
        1 => prop::sample::select(odd).prop_map(str::to_owned),
        60 => text(),
    ]
    .boxed()
}

fn list(item: BoxedStrategy<String>) -> BoxedStrategy<String> {
    prop::collection::vec(item, 0..4)
        .prop_map(|items| format!("[{}]", items.join(",")))
        .boxed()
}

fn members(member: impl Strategy<Value = (String, String)> + 'static) -> BoxedStrategy<String> {
    let member = member.prop_map(|(key, value)| format!("{key}:{value}"));
    prop::collection::vec(member, 0..7)
        .prop_map(|members| format!("{{{}}}", members.join(",")))
        .boxed()
}

fn any_value() -> BoxedStrategy<String> {
    scalar()
        .prop_recursive(5, 40, 5, |inner| {
            prop_oneof![
                list(inner.clone().boxed()),
                members((text(), inner.boxed()))
            ]
            .boxed()
        })
        .boxed()
}

/// An object with some of these members, rarely one of them twice, and with other members. Rarely another value.
fn object(members: Vec<(&'static str, BoxedStrategy<String>)>) -> BoxedStrategy<String> {
    let all = members.len();
    let member = prop::strategy::Union::new(members.into_iter().map(|(key, value)| {
        let value = prop_oneof![30 => value, 1 => Just("null".to_owned()), 1 => any_value()];
        value.prop_map(move |value| (key, value)).boxed()
    }));
    let mixed = (
        prop::collection::vec(member, 0..=all),
        prop::collection::vec((text(), any_value()), 0..2),
        0..30u8,
    );
    let object = mixed.prop_map(|(chosen, others, twice)| {
        let mut keys = Vec::new();
        let mut members: Vec<String> = Vec::new();
        for (key, value) in chosen {
            if twice == 0 || !keys.contains(&key) {
                members.push(format!("\"{key}\":{value}"));
                keys.push(key);
            }
        }
        for (key, value) in others {
            members.insert(members.len() / 2, format!("{key}:{value}"));
        }
        format!("{{{}}}", members.join(","))
    });
    prop_oneof![40 => object, 1 => any_value()].boxed()
}

fn pod() -> BoxedStrategy<String> {
    let owner = object(vec![
        ("kind", text()),
        ("name", text()),
        ("controller", scalar()),
    ]);
    let annotations = prop_oneof![
        2 => members((text(), text())),
        3 => object(vec![("tolerarch.io/mode", text()), ("tolerarch.io/pools", text()), ("kubernetes.io/config.mirror", text())]),
    ]
    .boxed();
    let metadata = object(vec![
        ("name", text()),
        ("generateName", text()),
        ("labels", object(vec![("tolerarch.io/mode", text())])),
        ("annotations", annotations),
        ("ownerReferences", list(owner)),
        ("managedFields", any_value()),
    ]);
    let container = object(vec![
        ("image", text()),
        ("imagePullPolicy", text()),
        ("env", any_value()),
    ]);
    let image = object(vec![("reference", text()), ("pullPolicy", text())]);
    let seconds = prop::sample::select(vec![
        "300",
        "-1",
        "0",
        "1.0",
        "3e2",
        "9223372036854775808",
        "\"1\"",
    ]);
    let toleration = object(vec![
        ("key", text()),
        ("operator", text()),
        ("effect", text()),
        ("value", text()),
        ("tolerationSeconds", seconds.prop_map(str::to_owned).boxed()),
    ]);
    let spec = object(vec![
        ("nodeName", text()),
        ("os", object(vec![("name", text())])),
        ("nodeSelector", object(vec![("kubernetes.io/os", text())])),
        ("containers", list(container.clone())),
        ("initContainers", list(container)),
        ("volumes", list(object(vec![("image", image)]))),
        ("tolerations", list(toleration)),
        ("imagePullSecrets", list(object(vec![("name", text())]))),
        ("affinity", any_value()),
    ]);
    object(vec![
        ("metadata", metadata),
        ("spec", spec),
        ("status", any_value()),
    ])
}

fn a_review() -> BoxedStrategy<String> {
    let kind = object(vec![
        ("group", text()),
        ("kind", text()),
        ("version", text()),
    ]);
    let resource = object(vec![
        ("group", text()),
        ("version", text()),
        ("resource", text()),
    ]);
    let request = object(vec![
        ("uid", text()),
        ("kind", kind),
        ("resource", resource),
        ("subResource", text()),
        ("operation", text()),
        ("namespace", text()),
        ("object", pod()),
        ("userInfo", any_value()),
    ]);
    object(vec![
        ("apiVersion", text()),
        ("kind", text()),
        ("request", request),
    ])
}

/// Changes of some bytes: the kind of change, the place (in parts of 65536 of the length), and the new byte.
fn damage() -> impl Strategy<Value = Vec<(u8, u16, u8)>> {
    let byte = prop_oneof![3 => prop::sample::select(b"\"\\{}[]:,0-.eutn \n\0\xff\xc3".to_vec()), 1 => any::<u8>()];
    prop::collection::vec((0..4u8, any::<u16>(), byte), 1..3)
}

fn damaged(json: &str, damage: &[(u8, u16, u8)]) -> Vec<u8> {
    let mut json = json.as_bytes().to_vec();
    for &(what, place, byte) in damage {
        let place = json.len() * usize::from(place) / (1 << 16);
        match what {
            _ if place >= json.len() => json.push(byte),
            0 => json[place] = byte,
            1 => json.insert(place, byte),
            2 => drop(json.remove(place)),
            _ => json.truncate(place),
        }
    }
    json
}

proptest! {
    #[test]
    fn any_review_is_read_as_by_serde_json(json in a_review()) {
        all_agree(json.as_bytes());
    }

    #[test]
    fn any_pod_is_read_as_by_serde_json(json in pod()) {
        all_agree(json.as_bytes());
    }

    #[test]
    fn any_value_is_skipped_as_by_serde_json(json in any_value()) {
        // No value is nested deep or has blanks, so the fast reader reads exactly what is JSON.
        let is_json = serde_json::from_str::<IgnoredAny>(&json).is_ok();
        prop_assert_eq!(agrees::<IgnoredAny>(json.as_bytes()), is_json);
    }

    #[test]
    fn damaged_json_is_refused_or_read_as_by_serde_json(json in prop_oneof![a_review(), pod(), any_value()], damage in damage()) {
        all_agree(&damaged(&json, &damage));
    }

    #[test]
    fn damaged_review_is_refused_or_read_as_by_serde_json(damage in damage()) {
        all_agree(&damaged(&typical().to_string(), &damage));
    }
}
