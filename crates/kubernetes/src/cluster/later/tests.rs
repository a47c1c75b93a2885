use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::cluster::testing::{FakeApi, Reply};
use crate::cluster::{ClusterError, PatchType};

/// Starts an API that refuses the first requests with this reply. Also returns its counter of requests.
async fn api(refusals: usize, refusal: fn() -> Reply) -> (FakeApi, Arc<AtomicUsize>) {
    let requests = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&requests);
    let api = FakeApi::start(move |_| {
        if counter.fetch_add(1, Ordering::SeqCst) < refusals {
            refusal()
        } else {
            Reply::of(200, json!({"a": 1}))
        }
    });
    (api.await, requests)
}

#[test]
fn pauses_agree_with_client_go() {
    for (status, value, seconds) in [
        (429, Some("1"), Some(1)),
        (429, Some("0"), Some(0)),
        (429, None, None),
        (500, Some("2"), Some(2)),
        (503, Some("30"), Some(30)),
        (504, Some("1"), Some(1)),
        (429, Some("Wed, 21 Oct 2026 07:28:00 GMT"), None),
        (429, Some("1.5"), None),
        (429, Some(""), None),
        (403, Some("1"), None),
        (409, Some("1"), None),
        (200, Some("1"), None),
    ] {
        let mut answer = Response::builder().status(status);
        if let Some(value) = value {
            answer = answer.header(RETRY_AFTER, value);
        }
        let pause = pause_of(&answer.body(()).unwrap());
        assert_eq!(
            pause,
            seconds.map(Duration::from_secs),
            "{status} {value:?}"
        );
    }
}

#[tokio::test]
async fn refused_request_is_sent_again_after_the_pause() {
    for refusal in [|| Reply::later(429, 0), || Reply::later(503, 0)] {
        let (api, requests) = api(2, refusal).await;
        assert_eq!(
            api.client().get::<Value>("/version").await.unwrap(),
            json!({"a": 1})
        );
        assert_eq!(requests.load(Ordering::SeqCst), 3);
        let (api, requests) = self::api(2, refusal).await;
        assert!(api.client().text("/metrics").await.is_ok());
        let posted = api
            .client()
            .post::<Value>("/things", &json!({"b": 2}))
            .await
            .0;
        assert_eq!(
            (posted.unwrap(), requests.load(Ordering::SeqCst)),
            (json!({"a": 1}), 4)
        );
        let (api, requests) = self::api(2, refusal).await;
        assert_eq!(
            api.cluster()
                .get::<Value>("/api/v1/nodes/a")
                .await
                .unwrap()
                .object,
            json!({"a": 1})
        );
        assert_eq!(requests.load(Ordering::SeqCst), 3);
        let (api, requests) = self::api(2, refusal).await;
        api.cluster()
            .patch("/api/v1/nodes/a", PatchType::MERGE, &json!({}))
            .await
            .unwrap();
        api.cluster()
            .create("/api/v1/nodes", &json!({}))
            .await
            .unwrap();
        assert_eq!(requests.load(Ordering::SeqCst), 4);
    }
}

#[tokio::test]
async fn retries_are_bounded_by_number_and_time() {
    let (api, requests) = api(usize::MAX, || Reply::later(429, 0)).await;
    let error = api.client().get::<Value>("/version").await.unwrap_err();
    assert_eq!(error.to_string(), "storage is (re)initializing (429)");
    assert_eq!(requests.load(Ordering::SeqCst), 1 + TRIES);
    let (api, requests) = self::api(usize::MAX, || Reply::later(429, 3600)).await;
    assert!(api.client().get::<Value>("/version").await.is_err());
    assert_eq!(
        api.cluster().get::<Value>("/version").await.unwrap_err(),
        ClusterError::Status
    );
    assert_eq!(
        requests.load(Ordering::SeqCst),
        2,
        "no request waits for an hour"
    );
}

/// The budget of a review leaves no time for a pause.
#[tokio::test]
async fn secret_of_a_review_is_requested_once() {
    let (api, requests) = api(usize::MAX, || Reply::later(429, 0)).await;
    let secret = api.cluster().secret::<Value>("team", "there").await;
    assert_eq!(secret.unwrap_err(), ClusterError::Status);
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn broken_connection_is_retried_for_reads_only() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let accepted = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&accepted);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let is_first = counter.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
            let _ = stream.read(&mut [0; 4096]).await;
            if !is_first {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
                stream.write_all(answer).await.unwrap();
            }
        }
    });
    let client = crate::cluster::UserClient::new(kube::Config::new(url.parse().unwrap())).unwrap();
    assert_eq!(client.get::<Value>("/version").await.unwrap(), json!({}));
    assert_eq!(accepted.load(Ordering::SeqCst), 2);
    assert!(client.post::<Value>("/things", &json!({})).await.0.is_err());
    assert_eq!(accepted.load(Ordering::SeqCst), 3);
}
