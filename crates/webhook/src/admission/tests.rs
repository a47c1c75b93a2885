use axum::body::Body;
use axum::http::Request;
use bytes::Bytes;
use serde_json::{Value, json};
use testregistry::Fault;
use tower_service::Service;

use super::*;
use tolerarch_core::policy::Policy;
use tolerarch_engine::decide::Snapshot;
use tolerarch_engine::decide::testing::{BOTH, TestEngine, pod};
use tolerarch_support::testing::StoppedClock;
use tolerarch_text::escape::SHORTENED;

/// A webhook in front of a registry in this process, with the default pool.
struct WebhookTest {
    engine: TestEngine,
    webhook: Arc<Webhook>,
}

impl WebhookTest {
    async fn new() -> Self {
        let engine = TestEngine::new().await;
        let reviews = ReviewMetrics::register(&engine.metrics).unwrap();
        let webhook = Webhook::new(engine.current.clone(), reviews);
        Self { engine, webhook }
    }

    /// Returns the reference of an image with these platforms.
    fn image(&self, name: &str, platforms: &[&str]) -> String {
        self.engine.image(name, platforms)
    }

    async fn answer(&self, body: String, timeout: Option<Duration>) -> Vec<u8> {
        let reservation = self.webhook.uploads.reserve(Instant::now());
        let body = Read {
            bytes: body.into(),
            reservation,
        };
        self.webhook
            .answer(body, None, Instant::now(), timeout)
            .await
            .unwrap()
    }

    async fn review(&self, pod: Value, timeout: Option<Duration>) -> Value {
        let body = review(pod).to_string();
        let answer = self.answer(body, timeout).await;
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(
            (&answer["response"]["uid"], &answer["response"]["allowed"]),
            (&json!("u-1"), &json!(true))
        );
        answer["response"].clone()
    }

    async fn reason(&self, images: &[&str]) -> String {
        self.review(pod(images), None).await["auditAnnotations"]["reason"]
            .as_str()
            .unwrap()
            .to_owned()
    }
}

fn review(pod: Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u-1", "operation": "CREATE", "namespace": "shop", "object": pod,
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
    }})
}

#[tokio::test]
async fn path_selects_the_profile() {
    let test = WebhookTest::new().await;
    let snapshot = test.engine.current.load_full();
    let policy = &snapshot.policy;
    let none = Policy {
        pools: Vec::new(),
        ..policy.clone()
    };
    test.engine.current.store(Arc::new(Snapshot {
        profiles: [
            ("none".to_owned(), none),
            ("all".to_owned(), policy.clone()),
        ]
        .into(),
        ..Snapshot::clone(&snapshot)
    }));
    let multi = test.image("multi", &BOTH);
    for (path, reason) in [
        ("/mutate?timeout=10s", "tolerated"),
        ("/mutate/all?timeout=10s", "tolerated"),
        ("/mutate/none", "already-tolerated"),
        ("/mutate/no-such-profile", "profile-unknown"),
        ("/mutate/all/x", "profile-unknown"),
        ("/mutate/%61ll", "profile-unknown"),
    ] {
        let request = Request::post(path).header(CONTENT_TYPE, JSON);
        let request = request
            .body(Body::from(review(pod(&[&multi])).to_string()))
            .unwrap();
        let answer = test.webhook.clone().router().call(request).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        let answer = answer.into_body().collect().await.unwrap().to_bytes();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["response"]["allowed"], true);
        assert_eq!(
            answer["response"]["auditAnnotations"]["reason"], reason,
            "{path}"
        );
    }
    let text = test.engine.metrics.render().unwrap();
    for counted in [
        r#"{decision="tolerated",profile="",reason="tolerated"} 1"#,
        r#"{decision="tolerated",profile="all",reason="tolerated"} 1"#,
        r#"{decision="unchanged",profile="none",reason="already-tolerated"} 1"#,
        r#"{decision="unchanged",profile="unknown",reason="profile-unknown"} 3"#,
    ] {
        assert!(text.contains(counted), "{counted}");
    }
}

#[tokio::test]
async fn answer_has_a_patch_and_audit_annotations() {
    let test = WebhookTest::new().await;
    let multi = test.image("multi", &BOTH);
    let amd = test.image("amd", &["linux/amd64"]);
    let answer = test.review(pod(&[&multi]), None).await;
    assert_eq!(
        answer["auditAnnotations"],
        json!({"decision": "tolerated", "reason": "tolerated"})
    );
    let patch: Value = serde_json::from_slice(
        &base64::Engine::decode(
            &base64::engine::general_purpose::STANDARD,
            answer["patch"].as_str().unwrap(),
        )
        .unwrap(),
    )
    .unwrap();
    assert_eq!(patch[0]["path"], "/spec/tolerations");
    assert_eq!(
        patch[1]["value"],
        json!({"tolerarch.io/pools": "multi-arch"})
    );

    let answer = test.review(pod(&[&multi, &amd]), None).await;
    assert_eq!(
        answer["auditAnnotations"],
        json!({"decision": "unchanged", "reason": "platform-missing", "image": amd})
    );
    assert!(answer.get("patch").is_none());
}

#[tokio::test]
async fn pod_without_room_for_the_annotation_is_unchanged() {
    let test = WebhookTest::new().await;
    let image = test.image("app", &BOTH);
    let room = (256 << 10) - "tolerarch.io/pools".len() - "multi-arch".len();
    for (size, reason) in [(room, "tolerated"), (room + 1, "no-room")] {
        let mut pod = pod(&[&image]);
        pod["metadata"]["annotations"] = json!({"k": "v".repeat(size - 1)});
        let answer = test.review(pod, None).await;
        assert_eq!(answer["auditAnnotations"]["reason"], reason);
    }
}

/// etcd would refuse a larger Pod, and the Pod would not be created.
#[tokio::test]
async fn pod_that_would_become_too_large_is_unchanged() {
    let test = WebhookTest::new().await;
    let multi = test.image("multi", &BOTH);
    let amd = test.image("amd", &["linux/amd64"]);
    let reason = async |image: &str, size: usize, opened: bool| {
        let mut pod = pod(&[image]);
        pod["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "v".repeat(size)}]);
        if opened {
            let managed = json!({"key": "tolerarch.io/multi-arch", "operator": "Exists", "effect": "NoSchedule"});
            pod["spec"]["tolerations"] = json!([managed]);
            pod["metadata"]["annotations"] = json!({"tolerarch.io/pools": "multi-arch"});
        }
        let answer = test.review(pod, None).await;
        answer["auditAnnotations"]["reason"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    const ETCD: usize = 3 << 19;
    assert_eq!(reason(&multi, ETCD - (20 << 10), false).await, "tolerated");
    for size in [ETCD - (16 << 10), ETCD - 600, ETCD, 2 << 20] {
        assert_eq!(reason(&multi, size, false).await, "no-room", "{size}");
        assert_eq!(
            reason(&multi, size, true).await,
            "already-tolerated",
            "{size}"
        );
        assert_eq!(reason(&amd, size, true).await, "retracted", "{size}");
    }
}

/// Texts count with their length as JSON; objects and their members count with more than that.
#[tokio::test]
async fn pod_is_limited_by_its_size_in_etcd_not_as_json() {
    let test = WebhookTest::new().await;
    let image = test.image("app", &BOTH);
    for (text, count, reason) in [
        (r"\u003c", 250_000, "tolerated"),
        (r"\u003c", 300_000, "no-room"),
        (r"\u0001", 1_390_000, "no-room"),
    ] {
        let mut body = review(pod(&[&image]));
        body["request"]["object"]["spec"]["containers"][0]["env"] =
            json!([{"name": "A", "value": "TEXT"}]);
        let body = body.to_string().replace("TEXT", &text.repeat(count));
        let answer = test.answer(body, None).await;
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(
            answer["response"]["auditAnnotations"]["reason"], reason,
            "{count}"
        );
    }
    for (entries, reason) in [(10_000, "tolerated"), (40_000, "no-room")] {
        let mut many = pod(&[&image]);
        let env =
            (0..entries).map(|i| json!({"name": format!("A{i}"), "value": "twenty bytes of text"}));
        many["spec"]["containers"][0]["env"] = env.collect();
        assert_eq!(
            test.review(many, None).await["auditAnnotations"]["reason"],
            reason
        );
    }
}

#[tokio::test]
async fn lookup_outlives_the_api_servers_timeout() {
    let test = WebhookTest::new().await;
    let image = test.image("app", &BOTH);
    test.engine.remote.repo("app").fault(Some(Fault::hang()));
    let two_seconds = Some(Duration::from_secs(2));
    let pod = pod(&[&image]);
    let _clock = StoppedClock::stop();
    let answering = test.review(pod, two_seconds);
    tokio::pin!(answering);
    // One of the two seconds is reserved for the way back.
    for _ in 0..9 {
        assert!(futures_util::poll!(&mut answering).is_pending());
        tokio::time::advance(Duration::from_millis(100)).await;
    }
    assert!(futures_util::poll!(&mut answering).is_pending());
    tokio::time::advance(Duration::from_millis(101)).await;
    let answer = answering.await;
    assert_eq!(answer["auditAnnotations"]["reason"], "budget-exceeded");
    assert!(
        test.engine
            .metrics
            .render()
            .unwrap()
            .contains("tolerarch_lookups_in_flight 1")
    );
}

#[tokio::test]
async fn panic_leaves_the_pod_unchanged() {
    let test = WebhookTest::new().await;
    let body = review(json!({"spec": {"containers": [{"image": "x"}]}})).to_string();
    let review = review::decode(body.as_bytes()).unwrap();
    let answer = test
        .webhook
        .answer_with(&review, None, Instant::now(), async { panic!("a defect") })
        .await;
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer["response"]["allowed"], true);
    assert_eq!(
        answer["response"]["auditAnnotations"],
        json!({"decision": "unchanged", "reason": "internal"})
    );
    assert_eq!(test.reason(&["Bad Image"]).await, "image-invalid");
}

#[tokio::test]
async fn long_images_are_shortened_for_the_audit_log() {
    let test = WebhookTest::new().await;
    let long = "é".repeat(100_000);
    let answer = test.review(pod(&[&long]), None).await;
    assert_eq!(
        answer["auditAnnotations"]["image"]
            .as_str()
            .unwrap()
            .chars()
            .count(),
        SHORTENED
    );
}

#[tokio::test]
async fn http_errors_have_reasons_and_no_retry_after() {
    let test = WebhookTest::new().await;
    let good = review(pod(&["Bad Image"])).to_string();
    let json = "application/json";
    for (method, path, content_type, body, status) in [
        ("POST", "/mutate", json, good.clone(), 200),
        ("POST", "/mutate?timeout=banana", json, good.clone(), 200),
        (
            "POST",
            "/mutate",
            "application/json; charset=utf-8",
            good.clone(),
            200,
        ),
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
        let answer = test.webhook.clone().router().call(request).await.unwrap();
        assert_eq!(
            answer.status().as_u16(),
            status,
            "{method} {path} {content_type}"
        );
        assert!(answer.headers().get("retry-after").is_none());
    }
}

#[test]
fn timeout_of_the_api_server_is_parsed() {
    let seconds = |n| Some(Duration::from_secs(n));
    for (query, expected) in [
        (None, None),
        (Some("timeout=10s"), seconds(10)),
        (Some("a=b&timeout=1m30s"), seconds(90)),
        (Some("timeout=1.5s"), Some(Duration::from_millis(1500))),
        (Some("timeout=5min"), None),
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

/// Webhook like that of [`WebhookTest`], but with small budgets. The registry of its Pod's image hangs.
struct LimitedWebhook {
    webhook: Arc<Webhook>,
    pod: Value,
    base: WebhookTest,
    _clock: StoppedClock,
}

impl LimitedWebhook {
    async fn new(uploads: usize, waiting: usize) -> Self {
        let test = WebhookTest::new().await;
        let pod = pod(&[&test.image("app", &BOTH)]);
        test.engine.remote.repo("app").fault(Some(Fault::hang()));
        let Webhook {
            current, metrics, ..
        } = &*test.webhook;
        let uploads = Budget::new(uploads);
        let waiting = Budget::new(waiting);
        let webhook = Webhook {
            current: current.clone(),
            metrics: metrics.clone(),
            uploads,
            waiting,
        };
        Self {
            webhook: Arc::new(webhook),
            pod,
            base: test,
            _clock: StoppedClock::stop(),
        }
    }

    /// Returns the result of these reviews; their time ends after the registry has a request.
    async fn after_timeout<T>(&self, reviews: impl Future<Output = T>) -> T {
        let late = async {
            self.base
                .engine
                .remote
                .wait_until(|seen| !seen.is_empty())
                .await;
            tokio::time::advance(Duration::from_secs(5)).await;
        };
        tokio::join!(reviews, late).0
    }

    async fn send(&self, body: Body) -> Response {
        let request = Request::post("/mutate?timeout=5s")
            .header(CONTENT_TYPE, JSON)
            .body(body)
            .unwrap();
        self.webhook.clone().router().call(request).await.unwrap()
    }

    async fn reason(&self, pod: &Value) -> String {
        let answer = self.send(Body::from(review(pod.clone()).to_string())).await;
        assert_eq!(answer.status(), 200);
        let answer = answer.into_body().collect().await.unwrap().to_bytes();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["response"]["allowed"], true);
        answer["response"]["auditAnnotations"]["reason"]
            .as_str()
            .unwrap()
            .to_owned()
    }
}

#[tokio::test]
async fn evicted_review_is_answered_at_once() {
    let webhook = LimitedWebhook::new(1 << 20, 100 << 10).await;
    let mut waiting = webhook.pod.clone();
    // A toleration, as annotations are not held.
    waiting["spec"]["tolerations"] = json!([{"key": "x".repeat(60 << 10), "operator": "Exists"}]);
    let second = async {
        tokio::time::advance(Duration::from_millis(1)).await;
        webhook.reason(&waiting).await
    };
    let both = async { tokio::join!(webhook.reason(&waiting), second) };
    let (first, second) = webhook.after_timeout(both).await;
    assert_eq!([&*first, &*second], ["overloaded", "budget-exceeded"]);
}

#[tokio::test]
async fn waiting_reviews_hold_only_their_decoded_parts() {
    let webhook = LimitedWebhook::new(200 << 10, 100 << 10).await;
    let mut large = webhook.pod.clone();
    large["metadata"]["annotations"] = json!({"padding": "x".repeat(70 << 10)});
    let mut in_pieces = webhook.pod.clone();
    in_pieces["metadata"]["annotations"] = json!({"padding": "x".repeat(FREE)});
    let upload = async {
        // It begins late, and soon is so large that it is evicted.
        webhook
            .base
            .engine
            .remote
            .wait_until(|seen| !seen.is_empty())
            .await;
        let piece = || Ok::<_, std::io::Error>(Bytes::from(vec![b' '; 32 << 10]));
        let pieces = futures_util::stream::iter((0..6).map(move |_| piece()));
        let body = Body::from_stream(futures_util::StreamExt::chain(
            pieces,
            futures_util::stream::pending(),
        ));
        webhook.send(body).await.status()
    };
    let waiting = futures_util::future::join_all(
        (0..20).map(|i| webhook.reason([&large, &in_pieces][i % 2])),
    );
    let (reasons, status) = webhook
        .after_timeout(futures_util::future::join(waiting, upload))
        .await;
    assert_eq!(reasons, ["budget-exceeded"; 20]);
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
}

/// A review that is small as JSON may be large in memory: one for each possible connection would take 1 GiB.
#[tokio::test]
async fn small_reviews_are_charged_for_their_decoded_size() {
    let webhook = LimitedWebhook::new(1 << 20, 1 << 20).await;
    let mut swelling = webhook.pod.clone();
    swelling["spec"]["tolerations"] = json!(vec![json!({}); 2000]);
    assert!(review(swelling.clone()).to_string().len() <= FREE);
    let reviews = futures_util::future::join_all((0..8).map(|_| webhook.reason(&swelling)));
    let reasons = webhook.after_timeout(reviews).await;
    let overloaded = reasons
        .iter()
        .filter(|reason| *reason == "overloaded")
        .count();
    assert!((1..8).contains(&overloaded), "{reasons:?}");
}
