//! HTTP at its edges. Whatever is refused is refused so that the API server goes on at once.

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
async fn refuses_what_is_no_review_and_goes_on() {
    let (_registry, repo, program) = program_with_an_image().await;
    let good = review("u-1", &pod(&[&repo.reference("v1")]));
    let body = good.to_string();
    let json = [("Content-Type", "application/json")];
    let asked =
        |method, path, headers: &[(&str, &str)]| request(method, path, headers, body.as_bytes());
    let posted = |body: &str| request("POST", "/mutate", &json, body.as_bytes());
    let without = |place: &str, member: &str| {
        let mut review = good.clone();
        review
            .pointer_mut(place)
            .and_then(Value::as_object_mut)
            .unwrap()
            .remove(member);
        posted(&review.to_string())
    };
    let cases = [
        ("GET", asked("GET", "/mutate", &json), 405),
        ("PUT", asked("PUT", "/mutate", &json), 405),
        ("no path", asked("POST", "/", &json), 404),
        ("a longer path", asked("POST", "/mutate/", &json), 404),
        (
            "an endpoint of the other port",
            asked("GET", "/metrics", &json),
            404,
        ),
        (
            "text",
            asked("POST", "/mutate", &[("Content-Type", "text/plain")]),
            415,
        ),
        ("no type", asked("POST", "/mutate", &[]), 415),
        ("no body", posted(""), 400),
        ("null", posted("null"), 400),
        ("a list", posted("[]"), 400),
        ("an empty object", posted("{}"), 400),
        ("half a review", posted(&body[..body.len() / 2]), 400),
        ("no version", without("", "apiVersion"), 400),
        ("no kind", without("", "kind"), 400),
        ("no request", without("", "request"), 400),
        ("no uid", without("/request", "uid"), 400),
    ];
    let mut connection = program.webhook.connect().await;
    for (what, request, status) in cases {
        let answer = connection.ask(&request).await;
        assert_eq!(answer.status, status, "{what}");
        assert_eq!(answer.header("retry-after"), None, "{what}");
        // On the same connection: nothing is left over of what was refused.
        assert_eq!(
            Verdict::of(&connection.ask(&post("/mutate", &good)).await).reason,
            "tolerated",
            "{what}"
        );
    }
}

#[tokio::test]
async fn takes_media_types_as_http_writes_them() {
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
            Verdict::of(&program.webhook.ask(&request).await).reason,
            "tolerated",
            "{content_type}"
        );
    }
}

#[tokio::test]
async fn refuses_what_is_too_large_and_what_is_not_http() {
    let (_registry, repo, program) = program_with_an_image().await;
    let body = vec![b' '; 9 << 20];
    // Its length alone is enough.
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
    for (what, request, status) in cases {
        let mut connection = program.webhook.connect().await;
        let answer = connection.ask(&request).await;
        assert_eq!(
            (answer.status, answer.header("retry-after")),
            (status, None),
            "{what}"
        );
        assert!(answer.closes(), "{what}: {answer:?}");
        connection.end().await;
    }
    assert_eq!(
        program.review(&pod(&[&repo.reference("v1")])).await.reason,
        "tolerated"
    );
}

/// The API server takes objects of 3 MiB, and a review may hold an old and a new one. Only what etcd takes gets anything.
#[tokio::test]
async fn answers_for_the_largest_pods() {
    let (_registry, repo, program) = program_with_an_image().await;
    let of_bytes = |bytes: usize| {
        let mut large = pod(&[&repo.reference("v1")]);
        large["spec"]["containers"][0]["args"] = json!(["x".repeat(bytes)]);
        large
    };
    let mut largest = review("u-1", &of_bytes(3 << 20));
    largest["request"]["oldObject"] = of_bytes(3 << 20);
    assert_eq!(
        Verdict::of(&program.webhook.ask(&post("/mutate", &largest)).await).reason,
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
