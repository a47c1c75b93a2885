mod reader;

use super::*;
use proptest::prelude::*;
use serde_json::json;

use crate::image::LookupError;

fn review(change: impl FnOnce(&mut Value)) -> String {
    let mut review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "u-1", "operation": "CREATE", "namespace": "shop",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "object": {"metadata": {"name": "web"}, "spec": {"containers": [{"image": "nginx"}]}},
            "oldObject": null, "dryRun": null, "futureField": [{}],
        },
    });
    change(&mut review);
    review.to_string()
}

fn subject(body: &str) -> &'static str {
    let review = decode(body.as_bytes()).unwrap();
    assert_eq!(review.uid.as_str(), "u-1");
    match review.subject {
        Subject::Pod(_) => "pod",
        Subject::Template(_) => "template",
        Subject::Skipped(Reason::Malformed) => "malformed",
        Subject::Skipped(Reason::NotApplicable) => "other",
        Subject::Skipped(reason) => reason.as_str(),
    }
}

#[test]
fn creation_of_a_pod_is_decoded() {
    let body = review(|_| {});
    let review = decode(body.as_bytes()).unwrap();
    assert_eq!(
        (review.uid.as_str(), review.namespace.as_str()),
        ("u-1", "shop")
    );
    let Subject::Pod(pod) = review.subject else {
        panic!("a Pod")
    };
    assert_eq!(pod.images()[0].given, "nginx");
}

#[test]
fn other_requests_are_not_applicable() {
    for (place, value) in [
        ("/request/operation", json!("UPDATE")),
        ("/request/operation", json!("DELETE")),
        ("/request/operation", Value::Null),
        ("/request/kind/kind", json!("Deployment")),
        ("/request/kind/group", json!("apps")),
        ("/request/kind", Value::Null),
        ("/request/resource/resource", json!("deployments")),
        ("/request/resource/group", json!("apps")),
        ("/request/resource/version", json!("v2")),
        ("/request/resource", Value::Null),
    ] {
        let body = review(|review| *review.pointer_mut(place).unwrap() = value.clone());
        assert_eq!(subject(&body), "other", "{place} {value}");
    }
    for subresource in [
        "binding",
        "ephemeralcontainers",
        "eviction",
        "resize",
        "status",
    ] {
        for operation in ["CREATE", "UPDATE"] {
            let body = review(|review| {
                review["request"]["subResource"] = subresource.into();
                review["request"]["operation"] = operation.into();
            });
            assert_eq!(subject(&body), "other", "{operation} {subresource}");
        }
    }
    assert_eq!(
        subject(&review(|r| r["request"]["subResource"] = "".into())),
        "pod"
    );
}

#[test]
fn malformed_pod_still_gets_an_answer() {
    for object in [
        Value::Null,
        json!([]),
        json!(1),
        json!({"spec": {"containers": [{"image": 7}]}}),
    ] {
        assert_eq!(
            subject(&review(|r| r["request"]["object"] = object.clone())),
            "malformed",
            "{object}"
        );
    }
    let odd_deployment = review(|r| {
        r["request"]["kind"]["kind"] = "Deployment".into();
        r["request"]["object"] = json!({"spec": 3});
    });
    assert_eq!(subject(&odd_deployment), "other");
    assert_eq!(
        subject(&review(|r| r["request"]["object"] = json!({}))),
        "pod"
    );
    assert_eq!(
        subject(&review(|r| r["request"]["oldObject"] = json!([{"spec": 7}]))),
        "pod"
    );
}

#[test]
fn unanswerable_body_is_refused_without_a_quote() {
    let error = |body: &str| decode(body.as_bytes()).unwrap_err().to_string();
    for body in [
        String::new(),
        "null".into(),
        "[]".into(),
        r#"{"kind":"AdmissionReview","apiVersion"#.into(),
        format!(r#"{{"a":{}"#, "[".repeat(200_000)),
        review(|r| r["request"] = Value::Null),
        review(|r| r["request"] = json!("canary-secret")),
        review(|r| r["request"]["uid"] = "".into()),
        review(|r| r["request"]["uid"] = json!(7)),
        review(|r| r["kind"] = "Canary-secret".into()),
        review(|r| r["apiVersion"] = "admission.k8s.io/v1beta1".into()),
    ] {
        let text = error(&body);
        assert!(
            text.contains("AdmissionReview") && !text.contains("anary"),
            "{text}"
        );
    }
    assert!(decode(b"{\"kind\":\"Admission\xff\xfeReview\"}").is_err());
}

#[test]
fn answer_has_both_patch_and_type_or_neither() {
    let decision = Decision::unchanged(Reason::Tolerated);
    let answer: Value = serde_json::from_slice(&encode("u-1", "[]", &decision)).unwrap();
    assert_eq!(
        answer,
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": {
            "uid": "u-1", "allowed": true, "patchType": "JSONPatch", "patch": "W10=",
            "auditAnnotations": {"decision": "tolerated", "reason": "tolerated"},
        }})
    );
    let answer: Value = serde_json::from_slice(&encode("u-1", "", &decision)).unwrap();
    assert!(
        answer["response"].get("patch").is_none() && answer["response"].get("patchType").is_none()
    );
}

proptest! {
    #[test]
    fn any_answer_parses_as_encoded(uid in any::<String>(), image in any::<Option<String>>(), patch in any::<String>(), warnings in any::<Vec<String>>()) {
        let decision = Decision { image: image.as_deref(), warnings, ..Decision::unchanged(Reason::Unknown(LookupError::NotFound)) };
        let answer: Value = serde_json::from_slice(&encode(&uid, &patch, &decision)).unwrap();
        let response = &answer["response"];
        let sent: Option<Vec<String>> = serde_json::from_value(response["warnings"].clone()).unwrap();
        prop_assert_eq!(sent.unwrap_or_default(), decision.warnings);
        prop_assert_eq!(response["uid"].as_str(), Some(uid.as_str()));
        let audit = &response["auditAnnotations"];
        prop_assert_eq!((&audit["decision"], &audit["reason"]), (&json!("unchanged"), &json!("not-found")));
        prop_assert_eq!(audit["image"].as_str(), image.as_deref().map(shortened));
        let sent = response["patch"].as_str().map(|text| BASE64.decode(text).unwrap());
        prop_assert_eq!(sent.unwrap_or_default(), patch.into_bytes());
    }

    #[test]
    fn never_panics_on_any_bytes(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&body);
    }

    #[test]
    fn never_panics_on_a_damaged_review(place in 0usize..400, byte in any::<u8>()) {
        let mut body = review(|_| {}).into_bytes();
        let place = place % body.len();
        body[place] = byte;
        let _ = decode(&body);
    }
}

#[test]
fn creations_and_updates_of_daemonsets_are_decoded() {
    let template = json!({"spec": {"containers": [{"image": "nginx"}]}});
    let set = json!({"metadata": {"name": "agent"}, "spec": {"template": template}});
    let change = |review: &mut Value| {
        let request = &mut review["request"];
        request["kind"] = json!({"group": "apps", "version": "v1", "kind": "DaemonSet"});
        request["resource"] = json!({"group": "apps", "version": "v1", "resource": "daemonsets"});
        request["operation"] = "UPDATE".into();
        (request["object"], request["oldObject"]) = (set.clone(), set.clone());
    };
    let body = review(change);
    let Subject::Template(set) = decode(body.as_bytes()).unwrap().subject else {
        panic!("{body}")
    };
    assert_eq!(set.template.pod.described(), "DaemonSet/agent");
    assert_eq!(set.previous.unwrap().value(), Some(template));

    let with = |place: &str, value: Value| {
        review(|review| {
            change(review);
            *review.pointer_mut(place).unwrap() = value;
        })
    };
    assert_eq!(
        subject(&with("/request/operation", json!("CREATE"))),
        "template"
    );
    assert_eq!(
        subject(&with("/request/oldObject/spec", json!(null))),
        "malformed"
    );
    for odd in [
        json!(null),
        json!([]),
        json!({}),
        json!({"template": null}),
        json!({"template": {"spec": []}}),
    ] {
        assert_eq!(
            subject(&with("/request/object/spec", odd.clone())),
            "malformed",
            "{odd}"
        );
    }
    assert_eq!(
        subject(&with("/request/operation", json!("DELETE"))),
        "other"
    );
    assert_eq!(
        subject(&with("/request/resource/resource", json!("deployments"))),
        "other"
    );
}

#[test]
fn creations_and_updates_of_pod_templates_are_decoded() {
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"image": "nginx"}]}});
    let object = json!({"metadata": {"name": "web"}, "template": template});
    let with = |place: &str, value: Value| {
        review(|review| {
            let request = &mut review["request"];
            request["kind"] = json!({"group": "", "version": "v1", "kind": "PodTemplate"});
            request["resource"] = json!({"group": "", "version": "v1", "resource": "podtemplates"});
            request["operation"] = "UPDATE".into();
            (request["object"], request["oldObject"]) = (object.clone(), object.clone());
            *review.pointer_mut(place).unwrap() = value;
        })
    };
    let body = with("/request/dryRun", json!(false));
    let subject_of = decode(body.as_bytes()).unwrap().subject;
    assert_eq!(subject_of.pod().unwrap().0, "/template");
    let Subject::Template(change) = subject_of else {
        panic!("{body}")
    };
    assert_eq!(change.template.pod.described(), "PodTemplate/web");
    assert_eq!(change.template.pod.workload(), ("PodTemplate", "web"));
    assert_eq!(change.previous.unwrap().value(), Some(template));

    for (place, value, expected) in [
        ("/request/operation", json!("CREATE"), "template"),
        ("/request/operation", json!("DELETE"), "other"),
        ("/request/kind/group", json!("apps"), "other"),
        ("/request/resource/resource", json!("pods"), "other"),
        ("/request/object", json!(null), "malformed"),
        ("/request/object/template", json!(null), "malformed"),
        ("/request/object/template/spec", json!([]), "malformed"),
        ("/request/object/metadata/name", json!(7), "malformed"),
        ("/request/oldObject/template", json!(null), "template"),
    ] {
        assert_eq!(
            subject(&with(place, value.clone())),
            expected,
            "{place} {value}"
        );
    }
}
