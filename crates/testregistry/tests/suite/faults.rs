//! Faults as a client sees them. To show that an answer is missing and not late, tests wait for the answer of another
//! request.

use std::io::ErrorKind;
use std::pin::pin;
use std::time::Duration;

use http_body_util::BodyExt;
use testregistry::{Fault, OCI_CONFIG, Registry, Reply, Repo};
use tokio::time::Instant;

use crate::client::{connect, get, head_of, io_error, request, send};

const MANIFEST: &str = "/v2/a/manifests/v1";

async fn registry() -> (Registry, Repo) {
    let registry = Registry::start().await;
    let repo = registry.repo("a");
    repo.image("linux/amd64", Some("v1"));
    (registry, repo)
}

#[tokio::test]
async fn hang_lasts_until_the_registry_is_dropped() {
    let (registry, repo) = registry().await;
    repo.fault(Some(Fault::hang().first(1)));
    let mut connection = connect(&registry).await;
    let mut hung = pin!(connection.send_request(request("GET", MANIFEST, &[], "")));
    tokio::select! {
        biased;
        answer = &mut hung => panic!("an answer: {answer:?}"),
        () = registry.wait_until(|requests| requests.len() == 1) => {}
    }
    tokio::select! {
        biased;
        answer = &mut hung => panic!("an answer: {answer:?}"),
        answer = get(&registry, MANIFEST) => assert_eq!(answer.status, 200),
    }
    drop(registry);
    assert!(hung.await.is_err());
}

#[tokio::test]
async fn hang_body_stops_after_half_of_the_body() {
    let (registry, repo) = registry().await;
    let whole = get(&registry, MANIFEST).await.body;
    repo.fault(Some(Fault::hang_body().first(1)));
    let answer = head_of(&registry, request("GET", MANIFEST, &[], ""))
        .await
        .unwrap();
    assert_eq!(answer.headers()["content-length"], whole.len().to_string());
    let mut body = answer.into_body();
    let mut half = Vec::new();
    while half.len() < whole.len() / 2 {
        half.extend(body.frame().await.unwrap().unwrap().into_data().unwrap());
    }
    assert_eq!(half, whole[..whole.len() / 2]);
    tokio::select! {
        biased;
        frame = body.frame() => panic!("more: {frame:?}"),
        answer = get(&registry, MANIFEST) => assert_eq!(answer.body, whole),
    }
    registry.stop().await;
    assert!(body.frame().await.unwrap().is_err());
}

#[tokio::test]
async fn drip_sends_one_byte_per_period() {
    let (registry, repo) = registry().await;
    let blob = repo.blob("twenty bytes of blob", OCI_CONFIG);
    repo.fault(Some(Fault::drip(Duration::from_millis(5))));
    let started = Instant::now();
    let path = format!("/v2/a/blobs/{}", blob["digest"].as_str().unwrap());
    let answer = get(&registry, &path).await;
    assert_eq!(answer.body, "twenty bytes of blob");
    assert!(started.elapsed() >= Duration::from_millis(19 * 5));
}

#[tokio::test]
async fn reset_and_close_end_the_connection() {
    let (registry, repo) = registry().await;
    repo.fault(Some(Fault::reset()));
    for method in ["GET", "HEAD"] {
        let error = send(&registry, request(method, MANIFEST, &[], ""))
            .await
            .unwrap_err();
        assert_eq!(
            io_error(&error),
            Some(ErrorKind::ConnectionReset),
            "{error:?}"
        );
    }
    repo.fault(Some(Fault::close()));
    let error = send(&registry, request("GET", MANIFEST, &[], ""))
        .await
        .unwrap_err();
    assert_eq!(
        io_error(&error),
        Some(ErrorKind::UnexpectedEof),
        "TLS without an end: {error:?}"
    );

    let plain = Registry::builder().plain_http().start().await;
    let repo = plain.repo("a");
    repo.fault(Some(Fault::close()));
    let error = send(&plain, request("GET", MANIFEST, &[], ""))
        .await
        .unwrap_err();
    assert!(error.is_incomplete_message(), "{error:?}");
    repo.fault(Some(Fault::reset()));
    let error = send(&plain, request("GET", MANIFEST, &[], ""))
        .await
        .unwrap_err();
    assert_eq!(
        io_error(&error),
        Some(ErrorKind::ConnectionReset),
        "{error:?}"
    );
}

#[tokio::test]
async fn truncate_ends_before_the_content_length() {
    let (registry, repo) = registry().await;
    for size in [10, 5_000_000] {
        let blob = repo.blob(vec![b'x'; size], OCI_CONFIG);
        repo.fault(Some(Fault::truncate()));
        let path = format!("/v2/a/blobs/{}", blob["digest"].as_str().unwrap());
        let answer = head_of(&registry, request("GET", &path, &[], ""))
            .await
            .unwrap();
        assert_eq!(answer.headers()["content-length"], (size + 100).to_string());
        let mut body = answer.into_body();
        let mut received = 0;
        let error = loop {
            match body.frame().await {
                Some(Ok(frame)) => received += frame.into_data().unwrap().len(),
                Some(Err(error)) => break error,
                None => panic!("the body ends without an error"),
            }
        };
        assert!(std::error::Error::source(&error).is_some(), "{error:?}");
        assert!(
            received == size || size > 10 && received > size / 2,
            "{received} of {size}"
        );
    }
}

#[tokio::test]
async fn huge_bodies_are_sent_and_counted() {
    let (registry, repo) = registry().await;
    repo.fault(Some(Fault::huge(200_000)));
    let answer = get(&registry, MANIFEST).await;
    assert_eq!(
        (answer.body.len(), answer.header("content-length")),
        (200_000, None)
    );
    assert_eq!(repo.bytes_sent(), 200_000);
    repo.fault(Some(Fault::huge(1 << 40)));
    let mut body = head_of(&registry, request("GET", MANIFEST, &[], ""))
        .await
        .unwrap()
        .into_body();
    let mut received = 0;
    while received < 1 << 20 {
        let frame = body.frame().await.unwrap().unwrap();
        received += frame.into_data().unwrap().len();
    }
    drop(body);
    registry.stop().await;
    let sent = repo.bytes_sent() - 200_000;
    assert!(sent >= received as u64 && sent < 1 << 30, "{sent}");
}

#[tokio::test]
async fn reply_replaces_the_answer() {
    let (registry, repo) = registry().await;
    let limited = Reply::new(429).header("Retry-After", "7").body("slow down");
    repo.fault(Some(Fault::reply(limited)));
    let answer = get(&registry, MANIFEST).await;
    assert_eq!(
        (answer.status, answer.header("retry-after")),
        (429, Some("7"))
    );
    assert_eq!(answer.body, "slow down");
    repo.fault(Some(Fault::status(429)));
    assert_eq!(
        get(&registry, MANIFEST).await.json()["errors"][0]["code"],
        "TOOMANYREQUESTS"
    );
    repo.fault(Some(Fault::body("<html>", "text/html")));
    let answer = get(&registry, MANIFEST).await;
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (200, Some("text/html"))
    );
    repo.fault(Some(Fault::redirect(302, "http://169.254.169.254/")));
    let answer = get(&registry, MANIFEST).await;
    assert_eq!(
        (answer.status, answer.header("location")),
        (302, Some("http://169.254.169.254/"))
    );
    repo.fault(None);
    assert_eq!(get(&registry, MANIFEST).await.status, 200);
}

#[tokio::test]
async fn faults_are_limited_to_matching_requests() {
    let (registry, repo) = registry().await;
    let blob = format!(
        "/v2/a/blobs/{}",
        repo.blob("{}", OCI_CONFIG)["digest"].as_str().unwrap()
    );
    let status = async |method: &str, path: &str| {
        send(&registry, request(method, path, &[], ""))
            .await
            .expect("an answer")
            .status
    };
    repo.fault(Some(
        Fault::status(503).only_manifests().only_head().first(1),
    ));
    assert_eq!(status("HEAD", &blob).await, 200);
    assert_eq!(status("GET", MANIFEST).await, 200);
    assert_eq!(status("HEAD", MANIFEST).await, 503);
    assert_eq!(status("HEAD", MANIFEST).await, 200);
    repo.fault(Some(Fault::status(503).only_blobs().only_get()));
    assert_eq!(status("GET", MANIFEST).await, 200);
    assert_eq!(status("GET", &blob).await, 503);
    let second = Fault::status(500).first(1);
    repo.fault(Some(Fault::custom(move |request| {
        let is_v1 = request.reference.as_deref() == Some("v1");
        is_v1.then(|| second.clone())
    })));
    assert_eq!(status("GET", &blob).await, 200);
    assert_eq!(status("GET", MANIFEST).await, 500);
    assert_eq!(status("GET", MANIFEST).await, 200);
}
