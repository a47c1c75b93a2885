//! The fast reader compared with serde_json, for reviews as the API server sends them and for malformed input.

use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::super::testing::{agrees, json as all_agree};
use crate::pod::Pod;
use crate::review;
use tolerarch_text::json::{self, Object, Unread};

mod properties;

fn typical() -> Value {
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u-1", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "operation": "CREATE",
            "resource": {"group": "", "version": "v1", "resource": "pods"}, "namespace": "shop", "dryRun": false,
            "oldObject": null,
            "object": {
                "metadata": {
                    "generateName": "web-", "creationTimestamp": null, "labels": {"a": "b", "tolerarch.io/mode": "on"},
                    "annotations": {"a": "\u{e4}\"\n", "tolerarch.io/pools": "x,y"},
                    "ownerReferences": [{"kind": "ReplicaSet", "name": "web", "controller": true}],
                    "managedFields": [{"fieldsV1": {"f:spec": {"k:{\"name\":\"a\"}": {".": {}, "f:image": {}}}}}],
                },
                "spec": {
                    "containers": [
                        {"name": "a", "image": "nginx", "ports": [{"containerPort": 80}], "imagePullPolicy": "Never"},
                        {"name": "b", "image": "a\\b\u{1F600}", "x": [1.5e-3, -0, 0, [], [[]], {}, true, false, null]},
                    ],
                    "initContainers": [{"image": null}], "nodeName": "", "nodeSelector": {"kubernetes.io/os": "linux"},
                    "volumes": [{"name": "c"}, {"image": {"reference": "data:1", "pullPolicy": "Always"}}],
                    "tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": -300}, {}],
                    "os": {"name": "linux"}, "priority": 0,
                },
                "status": {},
            },
        },
    })
}

#[test]
fn reviews_of_the_api_server_are_read() {
    for json in [typical().to_string(), format!("{}\n", typical())] {
        assert!(
            agrees::<review::Decoded<'_>>(json.as_bytes()) && agrees::<IgnoredAny>(json.as_bytes())
        );
    }
    let large = json!({"spec": {"containers": vec![json!({"image": "x".repeat(300), "env": ["y".repeat(3000)]}); 900]}});
    assert!(agrees::<Object<Pod<'_>>>(large.to_string().as_bytes()));
}

#[test]
fn strings_of_any_length_end_at_their_quote() {
    for before in (0..70).step_by(3) {
        for inside in (0..140).chain([1000]) {
            let (before, inside) = ("b".repeat(before), "x".repeat(inside));
            for inside in [inside.clone(), format!("{inside}\\\"\\\\")] {
                let json =
                    format!("{{\"{before}\":\"{inside}\",\"metadata\":{{\"name\":\"{inside}\"}}}}");
                assert!(
                    agrees::<IgnoredAny>(json.as_bytes())
                        && agrees::<Object<Pod<'_>>>(json.as_bytes())
                );
                let cut = json.trim_end_matches(['"', '}']);
                assert!(json::read::<IgnoredAny>(cut.as_bytes()).is_err());
                assert!(json::read::<Object<Pod<'_>>>(cut.as_bytes()).is_err());
            }
        }
    }
}

#[test]
fn json_with_blanks_is_left_to_serde_json() {
    let pretty = serde_json::to_string_pretty(&typical()).unwrap();
    for json in [
        &pretty,
        " {}",
        "{} ",
        "{}\n\n",
        "{}\r\n",
        "{\t}",
        "{ }",
        "{\"a\" :1}",
        "{\"a\": 1}",
        "[1 ]",
        "[1, 2]",
        "\n",
    ] {
        assert!(
            json::read::<Unread<'_>>(json.as_bytes()).is_err(),
            "{json:?}"
        );
        all_agree(json.as_bytes());
    }
    let in_string = r#"{"a b":"c d"}"#;
    let unread: Unread<'_> = json::read(in_string.as_bytes()).unwrap();
    assert_eq!(unread.0, in_string);
    let pod = |json: &str| {
        let mut review = review::decode(json.as_bytes()).unwrap();
        if let review::Subject::Pod(pod) = &mut review.subject {
            pod.bytes = 0;
        }
        format!("{review:?}")
    };
    assert_eq!(pod(&pretty), pod(&typical().to_string()));
}

#[test]
fn malformed_json_is_refused_in_values_that_are_read() {
    for value in [
        "",
        " ",
        "tru",
        "nulll",
        "truefalse",
        "01",
        "-",
        "1.",
        ".5",
        "1e",
        "1e+",
        "+1",
        "0x1",
        "1 2",
        "\"",
        "\"\\\"",
        "\"\\x\"",
        "\"\\u00g0\"",
        "\"\\u12\"",
        "\"a\nb\"",
        "\"\0\"",
        "{",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,}",
        "{,}",
        "{\"a\" 1}",
        "{a:1}",
        "{1:1}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":1,,\"b\":2}",
        "{\"a\"::1}",
        "[",
        "[1",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1}",
        "{\"a\":1]",
        "[[]",
        "[]]",
        "{}}",
        "[\"a\":1]",
        "{\"a\",\"b\"}",
        "{\"a\":{},}",
        "{\"a\":{},\"b\"}",
        "{\"a\":{},1}",
        "{\"a\":{},,\"b\":1}",
        "{\"a\":{},",
        "{\"a\":{}",
        "{\"a\"1}",
        "{\"a\":1\"b\":2}",
        "[{},\"a\":{},1]",
        "[1\"b\"]",
        "\u{feff}{}",
        "{}\0",
        "\u{a0}1",
    ] {
        assert!(
            serde_json::from_str::<IgnoredAny>(value).is_err(),
            "{value:?}"
        );
        for json in [
            format!("{{\"metadata\":{value}}}"),
            format!("{{\"metadata\":{{\"name\":{value}}}}}"),
            format!("{{\"spec\":{{\"containers\":{value}}}}}"),
            format!("{{\"spec\":{{\"tolerations\":[{{\"tolerationSeconds\":{value}}}]}}}}"),
        ] {
            assert!(
                json::read::<Object<Pod<'_>>>(json.as_bytes()).is_err(),
                "{json}"
            );
        }
    }
    assert!(json::read::<IgnoredAny>(b"\"\xff\"").is_err());
}

/// Reviews come from the API server, which writes only JSON.
#[test]
fn skipped_values_are_only_checked_for_their_end() {
    for value in [
        "tru",
        "nulll",
        "-",
        "01",
        "1.",
        "+1",
        "\"\\x\"",
        "{\"a\"}",
        "{\"a\"::1}",
        "[,1]",
        "[1}",
        "[1 2]",
        "[1, 2]",
    ] {
        let json = format!("{{\"skipped\":{value},\"metadata\":{{\"name\":\"a\"}}}}");
        let pod = json::read::<Object<Pod<'_>>>(json.as_bytes());
        assert_eq!(pod.unwrap().0.described(), "a", "{json}");
    }
    for value in [
        "",
        " ",
        "1 2",
        "\"",
        "\"\\\"",
        "\"a\nb\"",
        "\"\0\"",
        "{",
        "[",
        "{\"a\":1",
        "[\"]",
        "[[]",
        "[]]",
        "{}}",
        "{}\0",
        "{\"a\":{},",
        "'a'",
        "\u{feff}{}",
        "\u{a0}1",
        ":1",
        "{}1",
        "1{}",
    ] {
        let json = format!("{{\"skipped\":{value},\"metadata\":{{\"name\":\"a\"}}}}");
        assert!(
            json::read::<Object<Pod<'_>>>(json.as_bytes()).is_err(),
            "{json}"
        );
    }
}

#[test]
fn nesting_of_any_depth_must_be_closed() {
    let nested = |depth: usize, open: &str, close: &str| {
        format!("{}1{}", open.repeat(depth), close.repeat(depth))
    };
    for (open, close) in [
        ("[", "]"),
        ("{\"a\":", "}"),
        ("[{\"a\":", "}]"),
        ("{\"b\":[0],\"a\":", "}"),
    ] {
        for depth in [1, 30, 60] {
            assert!(agrees::<IgnoredAny>(nested(depth, open, close).as_bytes()));
        }
        for depth in [1, 63, 64, 65, 129, 50_000] {
            let text = nested(depth, open, close);
            assert!(json::read::<IgnoredAny>(text.as_bytes()).is_ok());
            for wrong in [
                &text[..text.len() - 1],
                &text[1..],
                &format!("{text}{close}"),
            ] {
                assert!(json::read::<IgnoredAny>(wrong.as_bytes()).is_err());
            }
            let owner = format!("{{\"managedFields\":{text},\"name\":\"a\"}}");
            let pod = format!("{{\"metadata\":{owner}}}");
            let pod = json::read::<Object<Pod<'_>>>(pod.as_bytes());
            assert_eq!(pod.unwrap().0.described(), "a");
        }
    }
}

/// A place in a review for a string.
type Place<'p> = &'p dyn Fn(&str) -> String;

#[test]
fn unusual_texts_are_read_as_by_serde_json() {
    let deep = |depth: usize, open: &str, close: &str| {
        format!("{}1{}", open.repeat(depth), close.repeat(depth))
    };
    let digits = "9".repeat(400);
    let values = [
        deep(62, "[", "]"),
        deep(63, "{\"a\":", "}"),
        deep(120, "[", "]"),
        deep(200, "{\"a\":", "}"),
        deep(50_000, "[", "]"),
        deep(70, "[{\"a\":", "}]"),
        deep(40, "[{\"a\":", "]}"),
        "{".repeat(100),
        "[{".repeat(100),
        digits.clone(),
        format!("-{digits}.{digits}e{digits}"),
        "1e-99999999999".into(),
        "18446744073709551616".into(),
        r#""\ud800""#.into(),
        r#""\udc00""#.into(),
        r#""\ud800\ud800""#.into(),
        r#""\ud83d\ude00 \u0000 \u00E9 \/""#.into(),
        r#""\uD83D""#.into(),
        r#""\u{41}""#.into(),
        r#""\U0041""#.into(),
        r#""\""#.into(),
        "\"a\0b\"".into(),
        "\"a\u{1f}\"".into(),
        "\"\u{7f}\u{80}\u{2028}\u{feff}\u{10ffff}\"".into(),
        "\0".into(),
        "-0".into(),
        "-00".into(),
        "-0.0".into(),
        "{\"a\":1,\"a\":2,\"a\":{}}".into(),
    ];
    let places: [Place<'_>; 6] = [
        &|value| value.to_owned(),
        &|value| format!("{{\"skipped\":{value}}}"),
        &|value| format!("{{\"metadata\":{{\"name\":{value}}}}}"),
        &|value| format!("{{\"metadata\":{{\"annotations\":{{{value}:\"a\",\"b\":{value}}}}}}}"),
        &|value| format!("{{\"spec\":{{\"containers\":[{{\"image\":{value}}},{value}]}}}}"),
        &|value| format!("{{\"spec\":{{\"tolerations\":[{{\"tolerationSeconds\":{value}}}]}}}}"),
    ];
    for place in places {
        for value in &values {
            for json in [
                place(value),
                format!("{}\0", place(value)),
                format!("{} ,", place(value)),
            ] {
                all_agree(json.as_bytes());
                all_agree(
                    format!("{{\"request\":{{\"uid\":\"u\",\"object\":{json}}}}}").as_bytes(),
                );
            }
        }
    }
    // Invalid UTF-8 is refused everywhere.
    for bytes in [
        &b"\xff"[..],
        b"\xc0\xaf",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xe2\x82",
        b"\x80",
    ] {
        for (before, after) in [
            ("{\"", "\":1}"),
            ("{\"metadata\":{\"name\":\"", "\"}}"),
            ("", "{}"),
            ("{}", ""),
        ] {
            let json = [before.as_bytes(), bytes, after.as_bytes()].concat();
            assert!(json::read::<IgnoredAny>(&json).is_err());
            assert!(json::read::<Object<Pod<'_>>>(&json).is_err());
        }
    }
}

#[test]
fn repeated_member_is_an_error_for_both() {
    let twice = [
        r#"{"spec":{},"spec":{}}"#,
        r#"{"metadata":{"name":"a","name":"a"}}"#,
        r#"{"metadata":{},"meta\u0064ata":{}}"#,
        r#"{"spec":{"containers":[{"image":"a","image":"b"}]}}"#,
    ];
    for json in twice {
        assert!(
            json::read::<Object<Pod<'_>>>(json.as_bytes()).is_err(),
            "{json}"
        );
        assert!(
            serde_json::from_str::<Object<Pod<'_>>>(json).is_err(),
            "{json}"
        );
    }
    assert!(agrees::<Object<Pod<'_>>>(br#"{"other":1,"other":2}"#));
    assert!(agrees::<Object<Pod<'_>>>(
        br#"{"metadata":{"annotations":{"tolerarch.io/pools":"a","tolerarch.io/pools":"b"}}}"#
    ));
}

#[test]
fn truncated_json_is_never_read() {
    let json = typical().to_string();
    for end in 0..json.len() {
        let cut = &json.as_bytes()[..end];
        assert!(
            json::read::<review::Decoded<'_>>(cut).is_err()
                && json::read::<IgnoredAny>(cut).is_err(),
            "{end}"
        );
    }
    for more in ["{}", "}", "]", ",", "\"", "1", "\0", "null", "\u{feff}"] {
        assert!(
            json::read::<review::Decoded<'_>>(format!("{json}{more}").as_bytes()).is_err(),
            "{more:?}"
        );
    }
}
