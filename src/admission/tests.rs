use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use testregistry::{Fault, Registry as Remote};
use tower_service::Service;

use super::*;
use crate::cluster::tests::ApiServer;
use crate::config::Config;
use crate::credentials::tests::with_cluster;
use crate::metrics::Metrics;
use crate::registry::{Guard, HostSettings, Registry};
use crate::resolver::ResolverMetrics;
use crate::testing::registry_metrics;

/// A webhook in front of a registry in this process, with the default pool.
struct Bench {
    remote: Remote,
    webhook: Webhook,
    metrics: Metrics,
}

impl Bench {
    async fn new() -> Self {
        Self::with(Credentials::default()).await
    }

    async fn with(credentials: Credentials) -> Self {
        let remote = Remote::builder().plain_http().start().await;
        let metrics = Metrics::new([]).unwrap();
        let guard = Guard { allow: vec!["127.0.0.0/8".parse().unwrap()], deny: vec![] };
        let plain = HostSettings { plain_http: true, ..HostSettings::default() };
        let registry = Registry::new([(remote.address(), plain)], guard, registry_metrics()).unwrap();
        let Config { policy, lookup, cache, .. } = Config::default();
        let budget = lookup.budget;
        let resolver = Resolver::new(registry, lookup, cache, ResolverMetrics::register(&metrics).unwrap());
        let reviews = ReviewMetrics::register(&metrics).unwrap();
        Self { remote, webhook: Webhook::new(policy, budget, credentials, resolver, reviews), metrics }
    }

    /// The reference of an image with these platforms.
    fn image(&self, name: &str, platforms: &[&str]) -> String {
        let repo = self.remote.repo(name);
        repo.index(Some("v1"), platforms.iter().copied());
        repo.reference("v1")
    }

    async fn ask(&self, pod: Value, timeout: Option<Duration>) -> Value {
        let body = review(pod).to_string();
        let answer = self.webhook.answer(body.as_bytes(), Instant::now(), timeout).await.unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(
            (&answer["response"]["uid"], &answer["response"]["allowed"]),
            (&json!("u-1"), &json!(true))
        );
        answer["response"].clone()
    }

    async fn reason(&self, images: &[&str]) -> String {
        self.ask(pod(images), None).await["auditAnnotations"]["reason"].as_str().unwrap().to_owned()
    }
}

fn pod(images: &[&str]) -> Value {
    let containers: Vec<Value> = images.iter().map(|image| json!({"image": image})).collect();
    json!({"metadata": {"generateName": "web-"}, "spec": {"containers": containers}})
}

fn review(pod: Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u-1", "operation": "CREATE", "namespace": "shop", "object": pod,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
    }})
}

const BOTH: [&str; 2] = ["linux/amd64", "linux/arm64"];

#[tokio::test]
async fn answers_with_a_patch_and_says_why_in_the_audit_log() {
    let bench = Bench::new().await;
    let (multi, amd) = (bench.image("multi", &BOTH), bench.image("amd", &["linux/amd64"]));
    let answer = bench.ask(pod(&[&multi]), None).await;
    assert_eq!(answer["auditAnnotations"], json!({"decision": "tolerated", "reason": "tolerated"}));
    let patch: Value = serde_json::from_slice(
        &base64::Engine::decode(
            &base64::engine::general_purpose::STANDARD,
            answer["patch"].as_str().unwrap(),
        )
        .unwrap(),
    )
    .unwrap();
    assert_eq!(patch[0]["path"], "/spec/tolerations");
    assert_eq!(patch[1]["value"], json!({"tolerarch.io/pools": "multi-arch"}));

    let answer = bench.ask(pod(&[&multi, &amd]), None).await;
    assert_eq!(
        answer["auditAnnotations"],
        json!({"decision": "unchanged", "reason": "platform-missing", "image": amd})
    );
    assert!(answer.get("patch").is_none());
}

#[tokio::test]
async fn pull_secrets_are_read_only_where_an_image_is_not_known_without_them() {
    let api = ApiServer::start().await;
    let bench = Bench::with(with_cluster(&api, &[])).await;
    let known = bench.image("known", &BOTH);
    assert_eq!(bench.reason(&[&known]).await, "tolerated");
    let with_secret = |images: &[&str]| {
        let mut pod = pod(images);
        pod["spec"]["imagePullSecrets"] = json!([{"name": "pull"}]);
        pod
    };
    let answer = bench.ask(with_secret(&[&known, &known]), None).await;
    assert_eq!((answer["auditAnnotations"]["reason"].as_str(), api.requests()), (Some("tolerated"), 0));
    let fresh = bench.image("fresh", &BOTH);
    let answer = bench.ask(with_secret(&[&known, &fresh]), None).await;
    assert_eq!((answer["auditAnnotations"]["reason"].as_str(), api.requests()), (Some("tolerated"), 1));
}

#[tokio::test]
async fn equal_images_are_looked_up_once() {
    let bench = Bench::new().await;
    let multi = bench.image("multi", &BOTH);
    assert_eq!(bench.reason(&[multi.as_str(); 100]).await, "tolerated");
    assert_eq!(bench.remote.requests().len(), 1);
    assert_eq!(bench.reason(&[multi.as_str(); 100]).await, "tolerated");
    assert_eq!(bench.remote.requests().len(), 1);
}

#[tokio::test]
async fn different_images_are_looked_up_at_once() {
    let bench = Bench::new().await;
    let images = ["a", "b", "c"].map(|name| bench.image(name, &BOTH));
    for name in ["a", "b", "c"] {
        bench.remote.repo(name).fault(Some(Fault::hang()));
    }
    let images: Vec<&str> = images.iter().map(String::as_str).collect();
    tokio::select! {
        reason = bench.reason(&images) => panic!("they hang: {reason}"),
        () = bench.remote.wait_until(|seen| seen.len() == 3) => {}
    }
}

#[tokio::test]
async fn a_pod_without_room_for_the_annotation_stays_as_it_is() {
    let bench = Bench::new().await;
    let image = bench.image("app", &BOTH);
    let room = (256 << 10) - "tolerarch.io/pools".len() - "multi-arch".len();
    for (size, reason) in [(room, "tolerated"), (room + 1, "no-room")] {
        let mut pod = pod(&[&image]);
        pod["metadata"]["annotations"] = json!({"k": "v".repeat(size - 1)});
        let answer = bench.ask(pod, None).await;
        assert_eq!(answer["auditAnnotations"]["reason"], reason);
    }
}

#[tokio::test]
async fn too_many_images_are_not_looked_up() {
    let bench = Bench::new().await;
    let images: Vec<String> = (0..=IMAGES).map(|i| format!("{}/app:{i}", bench.remote.address())).collect();
    let images: Vec<&str> = images.iter().map(String::as_str).collect();
    assert_eq!(bench.reason(&images).await, "too-many-images");
    assert_eq!(bench.remote.requests().len(), 0);
}

#[tokio::test]
async fn what_is_lost_anyway_is_not_waited_for() {
    let bench = Bench::new().await;
    let (hanging, amd) = (bench.image("hanging", &BOTH), bench.image("amd", &["linux/amd64"]));
    bench.remote.repo("hanging").fault(Some(Fault::hang()));
    let begun = Instant::now();
    assert_eq!(bench.reason(&[&hanging, &amd]).await, "platform-missing");
    assert_eq!(bench.reason(&[&hanging, "Bad Image"]).await, "image-invalid");
    assert!(begun.elapsed() < Duration::from_secs(3), "it did not take the budget");
}

#[tokio::test]
async fn a_pod_waits_no_longer_than_the_api_server_and_the_lookup_goes_on() {
    let bench = Bench::new().await;
    let image = bench.image("app", &BOTH);
    bench.remote.repo("app").fault(Some(Fault::hang()));
    let one_second = Some(Duration::from_secs(1));
    let answer = bench.ask(pod(&[&image]), one_second).await;
    assert_eq!(answer["auditAnnotations"]["reason"], "budget-exceeded");
    assert!(bench.metrics.render().unwrap().contains("tolerarch_lookups_in_flight 1"));
}

#[tokio::test]
async fn a_panic_costs_nothing_but_the_change() {
    let bench = Bench::new().await;
    let body = review(json!({"spec": {"containers": [{"image": "x"}]}})).to_string();
    let review = review::decode(body.as_bytes()).unwrap();
    let answer = bench.webhook.answer_with(&review, Instant::now(), async { panic!("a defect") }).await;
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["response"]["allowed"], true);
    assert_eq!(
        answer["response"]["auditAnnotations"],
        json!({"decision": "unchanged", "reason": "internal"})
    );
    assert_eq!(bench.reason(&["Bad Image"]).await, "image-invalid");
}

#[tokio::test]
async fn long_images_are_shortened_for_the_audit_log() {
    let bench = Bench::new().await;
    let long = "é".repeat(100_000);
    let answer = bench.ask(pod(&[&long]), None).await;
    assert_eq!(answer["auditAnnotations"]["image"].as_str().unwrap().chars().count(), SHOWN);
}

#[tokio::test]
async fn http_says_what_is_wrong_and_never_to_come_back() {
    let bench = Bench::new().await;
    let good = review(pod(&["Bad Image"])).to_string();
    let json = "application/json";
    for (method, path, content_type, body, status) in [
        ("POST", "/mutate", json, good.clone(), 200),
        ("POST", "/mutate?timeout=banana", json, good.clone(), 200),
        ("POST", "/mutate", "application/json; charset=utf-8", good.clone(), 200),
        ("POST", "/mutate", " Application/JSON ;x", good.clone(), 200),
        ("POST", "/mutate", "text/plain", good.clone(), 415),
        ("POST", "/mutate", "", good.clone(), 415),
        ("POST", "/mutate", json, String::new(), 400),
        ("POST", "/mutate", json, "{}".into(), 400),
        ("POST", "/mutate", json, " ".repeat(BODY_LIMIT + 1), 413),
        ("GET", "/mutate", json, String::new(), 405),
        ("PUT", "/mutate", json, good.clone(), 405),
        ("POST", "/other", json, good.clone(), 404),
    ] {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(CONTENT_TYPE, content_type)
            .body(Body::from(body))
            .unwrap();
        let answer = bench.webhook.clone().router().call(request).await.unwrap();
        assert_eq!(answer.status().as_u16(), status, "{method} {path} {content_type}");
        assert!(answer.headers().get("retry-after").is_none());
    }
}

#[test]
fn reads_the_api_servers_timeout() {
    let seconds = |n| Some(Duration::from_secs(n));
    for (query, expected) in [
        (None, None),
        (Some("timeout=10s"), seconds(10)),
        (Some("a=b&timeout=1m30s"), seconds(90)),
        (Some("timeout=banana"), None),
        (Some("timeout=-5s"), None),
        (Some("timeout=99999999999999999999s"), None),
        (Some("timeout=%00"), None),
        (Some("timeout="), None),
        (Some("timeouts=10s"), None),
    ] {
        assert_eq!(timeout_of(query), expected, "{query:?}");
    }
}
