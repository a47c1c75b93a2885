//! Invalid and oversized HTTP requests. Every refusal lets the API server go on at once.

use serde_json::{Value, json};
use testregistry::{Registry, Repo};

use super::program::Program;
use crate::support::https::request;
use crate::support::review::{Verdict, pod, post, review};

async fn program_with_an_image() -> (Registry, Repo, Program) {
    let registry = Registry::start().await;
    let repo = registry.repo("team/app");
    repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    let program = Program::start(&registry, json!({})).await;
    (registry, repo, program)
}

#[tokio::test]
async fn invalid_review_is_refused_and_the_connection_goes_on() {
    let (_registry, repo, program) = program_with_an_image().await;
    let good = review("u-1", &pod(&[&repo.reference("v1")]));
    let body = good.to_string();
    let json = [("Content-Type", "application/json")];
    let with_review =
        |method, path, headers: &[(&str, &str)]| request(method, path, headers, body.as_bytes());
    let post_body = |body: &str| request("POST", "/mutate", &json, body.as_bytes());
    let without = |pointer: &str, member: &str| {
        let mut review = good.clone();
        review
            .pointer_mut(pointer)
            .and_then(Value::as_object_mut)
            .unwrap()
            .remove(member);
        post_body(&review.to_string())
    };
    let cases = [
        ("GET", with_review("GET", "/mutate", &json), 405),
        ("PUT", with_review("PUT", "/mutate", &json), 405),
        ("no path", with_review("POST", "/", &json), 404),
        ("a longer path", with_review("POST", "/mutate/", &json), 404),
        (
            "an endpoint of the other port",
            with_review("GET", "/metrics", &json),
            404,
        ),
        (
            "text",
            with_review("POST", "/mutate", &[("Content-Type", "text/plain")]),
            415,
        ),
        ("no type", with_review("POST", "/mutate", &[]), 415),
        ("no body", post_body(""), 400),
        ("null", post_body("null"), 400),
        ("a list", post_body("[]"), 400),
        ("an empty object", post_body("{}"), 400),
        ("half a review", post_body(&body[..body.len() / 2]), 400),
        ("no version", without("", "apiVersion"), 400),
        ("no kind", without("", "kind"), 400),
        ("no request", without("", "request"), 400),
        ("no uid", without("/request", "uid"), 400),
    ];
    let mut connection = program.webhook.connect().await;
    for (case, request, status) in cases {
        let answer = connection.exchange(&request).await;
        assert_eq!(answer.status, status, "{case}");
        assert_eq!(answer.header("retry-after"), None, "{case}");
        // The same connection serves the next review, so no byte of the refused request is left.
        assert_eq!(
            Verdict::of(&connection.exchange(&post("/mutate", &good)).await).reason,
            "tolerated",
            "{case}"
        );
    }
}

#[tokio::test]
async fn media_type_may_have_capitals_and_parameters() {
    let (_registry, repo, program) = program_with_an_image().await;
    let body = review("u-1", &pod(&[&repo.reference("v1")])).to_string();
    for content_type in [
        "application/json; charset=utf-8",
        "Application/JSON",
        "application/json ;x=y",
    ] {
        let request = request(
            "POST",
            "/mutate",
            &[("Content-Type", content_type)],
            body.as_bytes(),
        );
        assert_eq!(
            Verdict::of(&program.webhook.exchange(&request).await).reason,
            "tolerated",
            "{content_type}"
        );
    }
}

#[tokio::test]
async fn oversized_or_malformed_http_is_refused_and_closed() {
    let (_registry, repo, program) = program_with_an_image().await;
    let body = vec![b' '; 9 << 20];
    // The announced length alone is refused.
    let announced = request(
        "POST",
        "/mutate",
        &[("Content-Type", "application/json")],
        &body,
    )[..1024]
        .to_vec();
    let chunked = [
        b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        format!("{:x}\r\n", body.len()).as_bytes(),
        &body,
        b"\r\n0\r\n\r\n",
    ]
    .concat();
    let long_head = request("POST", "/mutate", &[("X-Long", &"x".repeat(1 << 20))], b"");
    let cases = [
        ("the beginning of a large body", announced, 413),
        ("a large body in chunks", chunked, 413),
        ("a long head", long_head, 431),
        ("no HTTP", b"SSH-2.0-x\r\n\r\n".to_vec(), 400),
    ];
    for (case, request, status) in cases {
        let mut connection = program.webhook.connect().await;
        let answer = connection.exchange(&request).await;
        assert_eq!(
            (answer.status, answer.header("retry-after")),
            (status, None),
            "{case}"
        );
        assert!(answer.closes(), "{case}: {answer:?}");
        connection.end().await;
    }
    assert_eq!(
        program.review(&pod(&[&repo.reference("v1")])).await.reason,
        "tolerated"
    );
}

/// The API server accepts objects of 3 MiB, and a review may hold an old and a new one. Only Pods that etcd would store get
/// a patch.
#[tokio::test]
async fn largest_pods_are_answered() {
    let (_registry, repo, program) = program_with_an_image().await;
    let of_bytes = |bytes: usize| {
        let mut large = pod(&[&repo.reference("v1")]);
        large["spec"]["containers"][0]["args"] = json!(["x".repeat(bytes)]);
        large
    };
    let mut largest = review("u-1", &of_bytes(3 << 20));
    largest["request"]["oldObject"] = of_bytes(3 << 20);
    assert_eq!(
        Verdict::of(&program.webhook.exchange(&post("/mutate", &largest)).await).reason,
        "no-room"
    );
    let large = of_bytes(5 << 18);
    let verdict = program.review(&large).await;
    assert_eq!(verdict.reason, "tolerated");
    assert_eq!(
        verdict.applied_to(&large)["metadata"]["annotations"]["tolerarch.io/pools"],
        "multi-arch"
    );
}
