use serde_json::json;

use super::super::secret::Credential;
use super::super::tests::secret;
use super::*;
use crate::cluster::tests::ApiServer;

fn config(password: &str) -> serde_json::Value {
    json!({"auths": {"a.b": {"username": "user", "password": password}}})
}

/// The passwords that these secrets give.
async fn passwords(secrets: &Arc<PullSecrets>, names: &[&str]) -> Vec<String> {
    let read = secrets.read("team", names.iter().copied()).await;
    let credentials = read.iter().flat_map(|secret| secret.ring.values());
    credentials
        .map(|kept| match &*kept.credential {
            Credential::Basic { password, .. } => password.reveal().to_owned(),
            other => format!("{other:?}"),
        })
        .collect()
}

#[tokio::test]
async fn one_that_cannot_be_used_does_not_spoil_the_others() {
    let api = ApiServer::start().await;
    let good = secret("dockerconfigjson", &config("good"));
    let with = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut changed = good.clone();
        change(&mut changed);
        changed
    };
    for (name, status, body) in [
        ("good", 200, good.clone()),
        ("older", 200, secret("dockercfg", &json!({"a.b": {"username": "user", "password": "older"}}))),
        ("forbidden", 403, json!({})),
        ("garbage", 200, json!("canary")),
        ("opaque", 200, with(&|it| it["type"] = json!("Opaque"))),
        ("untyped", 200, with(&|it| it["type"] = json!(null))),
        // Type and key belong together.
        ("crossed", 200, with(&|it| it["type"] = json!("kubernetes.io/dockercfg"))),
        ("empty", 200, with(&|it| it["data"] = json!(null))),
        ("not-base64", 200, with(&|it| it["data"][".dockerconfigjson"] = json!("canary!"))),
        ("not-json", 200, with(&|it| it["data"][".dockerconfigjson"] = json!("Y2FuYXJ5"))),
        ("list", 200, json!([1])),
        (
            "half",
            200,
            secret(
                "dockerconfigjson",
                &json!({"auths": {"c.d": {"auth": "canary"}, "a.b": {"username": "user", "password": "half"}}}),
            ),
        ),
    ] {
        api.answer("team", name, status, &body);
    }
    let secrets = PullSecrets::new(api.cluster());
    let bad =
        ["forbidden", "garbage", "opaque", "untyped", "crossed", "empty", "not-base64", "not-json", "list"];
    for name in bad {
        assert!(passwords(&secrets, &[name]).await.is_empty(), "{name}");
    }
    let all: Vec<_> = bad.into_iter().chain(["good", "older", "", "missing", "../good", "half"]).collect();
    assert_eq!(passwords(&secrets, &all).await, ["good", "older", "half"]);
}

#[tokio::test]
async fn remembers_for_a_while_what_is_there_and_for_less_what_is_not() {
    let api = ApiServer::start().await;
    api.answer("team", "there", 200, &secret("dockerconfigjson", &config("old")));
    let secrets = PullSecrets::new(api.cluster());
    // Only now, as connections do not go together with paused time.
    assert_eq!(passwords(&secrets, &["there", "missing"]).await, ["old"]);
    tokio::time::pause();
    tokio::time::advance(NOTHING / 2).await;
    assert_eq!(passwords(&secrets, &["there", "missing"]).await, ["old"]);
    assert_eq!(api.requests(), 2);
    tokio::time::advance(NOTHING).await;
    tokio::time::resume();
    assert_eq!(passwords(&secrets, &["there", "missing"]).await, ["old"]);
    assert_eq!(api.requests(), 3, "only the missing one");
    api.answer("team", "there", 200, &secret("dockerconfigjson", &config("new")));
    tokio::time::pause();
    tokio::time::advance(FOUND).await;
    tokio::time::resume();
    assert_eq!(passwords(&secrets, &["there"]).await, ["new"]);
}

#[tokio::test]
async fn many_pods_at_once_ask_once() {
    let api = ApiServer::start().await;
    api.answer("team", "there", 200, &secret("dockerconfigjson", &config("word")));
    let secrets = PullSecrets::new(api.cluster());
    let all = join_all((0..50).map(|_| passwords(&secrets, &["there", "there"]))).await;
    assert!(all.iter().all(|own| own == &["word"]));
    assert_eq!(api.requests(), 1);
}

#[tokio::test]
async fn a_pod_with_many_is_read_in_part() {
    let api = ApiServer::start().await;
    let names: Vec<String> = (0..100).map(|place| format!("s{place}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    passwords(&PullSecrets::new(api.cluster()), &names).await;
    assert_eq!(api.requests(), PER_POD);
}

#[tokio::test]
async fn an_api_server_that_hangs_is_not_waited_for_again_at_once() {
    let api = ApiServer::start().await;
    api.answer("team", "hanging", 0, &json!(""));
    let secrets = PullSecrets::new(api.impatient(Duration::from_secs(1)));
    assert!(passwords(&secrets, &["hanging"]).await.is_empty());
    assert!(passwords(&secrets, &["hanging"]).await.is_empty());
    assert_eq!(api.requests(), 1);
}

#[tokio::test]
async fn a_refused_secret_is_read_again_but_not_at_once() {
    let api = ApiServer::start().await;
    api.answer("team", "there", 200, &secret("dockerconfigjson", &config("old")));
    let secrets = PullSecrets::new(api.cluster());
    let read = secrets.read("team", ["there"].into_iter()).await;
    api.answer("team", "there", 200, &secret("dockerconfigjson", &config("new")));
    let key = "a.b".parse().unwrap();
    let is_old =
        |found: Vec<Kept>| found.iter().map(|kept| kept.id).eq(read[0].ring.under(&key).map(|kept| kept.id));
    assert!(is_old(read[0].again(&key).await), "it was read a moment ago");
    assert_eq!(api.requests(), 1);
    tokio::time::pause();
    tokio::time::advance(AGAIN).await;
    tokio::time::resume();
    assert!(!is_old(read[0].again(&key).await));
    assert_eq!(passwords(&secrets, &["there"]).await, ["new"]);
    assert_eq!(api.requests(), 2);
    assert!(read[0].again(&"c.d".parse().unwrap()).await.is_empty());
}
