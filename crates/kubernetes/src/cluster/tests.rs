use serde::Deserialize;
use serde_json::json;

use super::testing::ApiServer;
use super::*;
use tolerarch_support::testing::StoppedClock;

#[derive(Debug, PartialEq, Deserialize)]
struct Thing {
    r#type: String,
}

async fn read(cluster: &Cluster, name: &str) -> Result<Thing, ClusterError> {
    cluster.secret("team", name).await
}

#[tokio::test]
async fn secret_is_read_or_its_error_returned() {
    let api = ApiServer::start().await;
    api.answer("team", "there", 200, &json!({"type": "x"}));
    api.answer("team", "forbidden", 403, &json!({"message": "canary"}));
    api.answer("team", "failing", 500, &json!("canary"));
    api.answer("team", "throttled", 429, &json!("canary"));
    api.answer("team", "garbage", 200, &json!("canary"));
    api.answer("team", "another", 200, &json!({"kind": "canary"}));
    api.answer("team", "huge", 200, &json!({"type": "x".repeat(BODY)}));
    let cluster = api.cluster();
    assert_eq!(
        read(&cluster, "there").await,
        Ok(Thing { r#type: "x".into() })
    );
    for (name, error) in [
        ("forbidden", ClusterError::Forbidden),
        ("missing", ClusterError::NotFound),
        ("failing", ClusterError::Status),
        ("throttled", ClusterError::Status),
        ("garbage", ClusterError::Malformed),
        ("another", ClusterError::Malformed),
        ("huge", ClusterError::TooLarge),
    ] {
        let before = api.requests();
        assert_eq!(read(&cluster, name).await, Err(error), "{name}");
        assert_eq!(api.requests(), before + 1, "{name}: nothing is retried");
    }
}

#[tokio::test]
async fn secret_request_times_out() {
    let api = ApiServer::start().await;
    api.answer("team", "hanging", 0, &json!(""));
    let cluster = api.impatient(Duration::from_millis(100));
    assert_eq!(read(&cluster, "hanging").await, Err(ClusterError::Timeout));
}

#[tokio::test]
async fn unanswered_secret_request_starts_a_back_off() {
    let api = ApiServer::start().await;
    api.answer("team", "hanging", 0, &json!(""));
    api.answer("team", "there", 200, &json!({"type": "x"}));
    let cluster = api.impatient(Duration::from_millis(500));
    let _clock = StoppedClock::stop();
    let late = async {
        while api.requests() == 0 {
            tokio::task::yield_now().await;
        }
        tokio::time::advance(Duration::from_secs(1)).await;
    };
    let (hanging, ()) = tokio::join!(read(&cluster, "hanging"), late);
    assert_eq!(hanging, Err(ClusterError::Timeout));
    assert_eq!(read(&cluster, "there").await, Err(ClusterError::Resting));
    assert_eq!(api.requests(), 1);
    tokio::time::advance(REST).await;
    assert!(read(&cluster, "there").await.is_ok());
}

#[tokio::test]
async fn missing_api_server_is_unreachable() {
    let api = ApiServer::start().await;
    let cluster = api.cluster();
    api.stop().await;
    assert_eq!(
        read(&cluster, "there").await,
        Err(ClusterError::Unreachable)
    );
}

#[tokio::test]
async fn rotated_token_is_used() {
    let api = ApiServer::start().await;
    api.answer("team", "there", 200, &json!({"type": "x"}));
    let cluster = api.cluster();
    assert!(read(&cluster, "there").await.is_ok());
    api.rotate("second");
    assert!(read(&cluster, "there").await.is_ok());
    assert_eq!(api.requests(), 3, "one was refused");
    assert!(read(&cluster, "there").await.is_ok());
    assert_eq!(api.requests(), 4);
    api.revoke("third");
    assert_eq!(
        read(&cluster, "there").await,
        Err(ClusterError::Unauthorized)
    );
}

/// The author of a Pod names its pull secrets, and the API server checks these names only after admission.
#[tokio::test]
async fn invalid_name_is_never_requested() {
    let api = ApiServer::start().await;
    let cluster = api.cluster();
    let long = "x".repeat(254);
    let invalid = [
        "",
        ".",
        "..",
        "../../other/secrets/there",
        "a/b",
        "a?b",
        "a#b",
        "a%2fb",
        "A",
        "a b",
        "a\n",
        "a..b",
    ];
    for name in invalid.into_iter().chain(["-a", "a-", "é", &long]) {
        assert_eq!(
            read(&cluster, name).await,
            Err(ClusterError::Name),
            "{name:?}"
        );
        let result: Result<Thing, _> = cluster.secret(name, "there").await;
        assert_eq!(result, Err(ClusterError::Name), "{name:?}");
    }
    assert_eq!(api.requests(), 0);
    for name in ["a", "regcred", "my.reg-cred.1", &long[1..]] {
        assert_eq!(
            read(&cluster, name).await,
            Err(ClusterError::NotFound),
            "{name}"
        );
    }
}
