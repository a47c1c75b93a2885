//! Authentication: the challenge, the token endpoint, and for what a token is valid.

use std::time::Duration;

use hyper::header::WWW_AUTHENTICATE;
use testregistry::{Auth, Fault, Kind, Registry};

use crate::client::{Answer, get, get_with, io_error, request, send};

const MANIFEST: &str = "/v2/team/app/manifests/v1";
const TOKEN: &str = "/token?service=s&scope=repository%3Ateam%2Fapp%3Apull";
/// `user:password`
const BASIC: (&str, &str) = ("Authorization", "Basic dXNlcjpwYXNzd29yZA==");
const WRONG: (&str, &str) = ("Authorization", "Basic dXNlcjp3cm9uZw==");

async fn registry_requiring(auth: &Auth) -> Registry {
    let registry = Registry::start().await;
    let repo = registry.repo("team/app");
    repo.image("linux/amd64", Some("v1"));
    repo.require(auth.clone());
    registry
}

fn token(answer: &Answer) -> String {
    answer.json()["token"].as_str().expect("a token").to_owned()
}

async fn pull(registry: &Registry, token: &str) -> u16 {
    let authorization = format!("Bearer {token}");
    let headers = [("Authorization", authorization.as_str())];
    get_with(registry, MANIFEST, &headers).await.status
}

#[tokio::test]
async fn anonymous_token_is_valid_for_one_repository() {
    let auth = Auth::bearer();
    let registry = registry_requiring(&auth).await;
    let refused = get(&registry, MANIFEST).await;
    let challenge = format!(
        r#"Bearer realm="{}/token",service="{}",scope="repository:team/app:pull""#,
        registry.url(),
        registry.address()
    );
    assert_eq!(
        (refused.status, refused.header("www-authenticate")),
        (401, Some(challenge.as_str()))
    );
    let answer = get(&registry, TOKEN).await;
    assert_eq!(answer.json()["expires_in"], 300);
    assert_eq!(pull(&registry, &token(&answer)).await, 200);
    let other = token(&get(&registry, &TOKEN.replace("pull", "push")).await);
    assert_eq!(pull(&registry, &other).await, 401);
    let token_requests = registry.count(|request| request.kind == Kind::Token);
    assert_eq!((auth.issued(), token_requests), (2, 2));
    auth.revoke_all();
    assert_eq!(pull(&registry, &token(&answer)).await, 401);
}

#[tokio::test]
async fn token_endpoint_requires_credentials() {
    let auth = Auth::bearer().credentials("user", "password");
    let registry = registry_requiring(&auth).await;
    assert_eq!(get(&registry, TOKEN).await.status, 401);
    assert_eq!(get_with(&registry, TOKEN, &[WRONG]).await.status, 401);
    let with_credentials = token(&get_with(&registry, TOKEN, &[BASIC]).await);
    assert_eq!(pull(&registry, &with_credentials).await, 200);
    let auth = auth.or_anonymous();
    let anonymous = token(&get(&registry, TOKEN).await);
    assert_eq!(pull(&registry, &anonymous).await, 200);
    assert_eq!(get_with(&registry, TOKEN, &[WRONG]).await.status, 401);
    assert_eq!(auth.issued(), 2);
}

#[tokio::test]
async fn oauth_forms_get_tokens_if_enabled() {
    let auth = Auth::bearer().credentials("user", "password");
    let registry = registry_requiring(&auth).await;
    let scope = "scope=repository:team/app:pull";
    let post = async |form: &str| {
        let form = format!("{form}&{scope}");
        send(&registry, request("POST", "/token", &[], &form))
            .await
            .expect("an answer")
    };
    let password = "grant_type=password&username=user&password=password";
    assert_eq!(post(password).await.status, 405);
    auth.identity_token("identity");
    assert_eq!(pull(&registry, &token(&post(password).await)).await, 200);
    let refreshed = post("grant_type=refresh_token&refresh_token=identity").await;
    assert_eq!(pull(&registry, &token(&refreshed)).await, 200);
    let wrong = post("grant_type=refresh_token&refresh_token=other").await;
    assert_eq!(wrong.status, 401);
}

#[tokio::test]
async fn basic_authentication_is_required_for_each_request() {
    let registry = registry_requiring(&Auth::basic("user", "password")).await;
    let refused = get_with(&registry, MANIFEST, &[WRONG]).await;
    assert_eq!(refused.status, 401);
    let challenge = refused.header("www-authenticate").unwrap();
    assert!(challenge.starts_with("Basic realm="), "{challenge}");
    assert_eq!(get_with(&registry, MANIFEST, &[BASIC]).await.status, 200);
}

#[tokio::test]
async fn challenge_can_be_changed() {
    let auth = Auth::bearer()
        .realm("/relative")
        .service("hub")
        .challenges(&[
            "Negotiate",
            "Bearer realm={realm},service={service},scope={scope}",
        ]);
    let registry = registry_requiring(&auth).await;
    let refused = get(&registry, MANIFEST).await;
    let values: Vec<_> = refused.headers.get_all(WWW_AUTHENTICATE).iter().collect();
    assert_eq!(
        values,
        [
            "Negotiate",
            "Bearer realm=/relative,service=hub,scope=repository:team/app:pull"
        ]
    );
    auth.challenges(&[]);
    let refused = get(&registry, MANIFEST).await;
    assert_eq!(refused.header("www-authenticate"), None);
}

#[tokio::test]
async fn token_can_be_changed() {
    let auth = Auth::bearer()
        .fields(&["token", "access_token"])
        .expires_in(None)
        .extra("issued_at", "never");
    let registry = registry_requiring(&auth).await;
    let answer = get(&registry, TOKEN).await.json();
    assert_eq!(answer["token"], answer["access_token"]);
    assert_eq!(
        (answer.get("expires_in"), &answer["issued_at"]),
        (None, &"never".into())
    );
    let auth = auth.token_text("a\r\nb").padding(3);
    assert_eq!(get(&registry, TOKEN).await.json()["token"], "a\r\nbxxx");
    let auth = auth.token_text("t").padding(0).lifetime(Duration::ZERO);
    assert_eq!(token(&get(&registry, TOKEN).await), "t");
    assert_eq!(pull(&registry, "t").await, 401);
    let auth = auth.lifetime(Duration::from_secs(3600));
    get(&registry, TOKEN).await;
    assert_eq!(pull(&registry, "t").await, 200);
    auth.refuse(true);
    assert_eq!(get(&registry, TOKEN).await.status, 200);
    assert_eq!(pull(&registry, "t").await, 401);
}

#[tokio::test]
async fn fault_of_auth_affects_only_the_token_endpoint() {
    let auth = Auth::bearer();
    let registry = registry_requiring(&auth).await;
    let good = token(&get(&registry, TOKEN).await);
    auth.fault(Some(Fault::status(503)));
    assert_eq!(get(&registry, TOKEN).await.status, 503);
    assert_eq!(pull(&registry, &good).await, 200);
    auth.fault(Some(Fault::reset()));
    let error = send(&registry, request("GET", TOKEN, &[], ""))
        .await
        .unwrap_err();
    assert_eq!(io_error(&error), Some(std::io::ErrorKind::ConnectionReset));
    auth.fault(None);
    assert_eq!(get(&registry, TOKEN).await.status, 200);
}

#[tokio::test]
async fn tokens_can_be_served_by_another_registry() {
    let auth = Auth::bearer();
    let registry = registry_requiring(&auth).await;
    let tokens = Registry::start().await;
    let realm = tokens.serve_tokens(&auth);
    _ = auth.clone().realm(&realm);
    let refused = get(&registry, MANIFEST).await;
    let challenge = refused.header("www-authenticate").unwrap();
    assert!(challenge.contains(&realm), "{challenge}");
    let token = token(&get(&tokens, TOKEN).await);
    assert_eq!(pull(&registry, &token).await, 200);
}
