//! Authentication: the challenge, the token endpoint, and what a token is good for.

use std::time::Duration;

use hyper::header::WWW_AUTHENTICATE;
use testregistry::{Auth, Fault, Kind, Registry};

use crate::client::{Answer, get, get_with, io_error, request, send};

const MANIFEST: &str = "/v2/team/app/manifests/v1";
const TOKEN: &str = "/token?service=s&scope=repository%3Ateam%2Fapp%3Apull";
/// `user:password`
const BASIC: (&str, &str) = ("Authorization", "Basic dXNlcjpwYXNzd29yZA==");
const WRONG: (&str, &str) = ("Authorization", "Basic dXNlcjp3cm9uZw==");

async fn guarded(auth: &Auth) -> Registry {
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
    get_with(
        registry,
        MANIFEST,
        &[("Authorization", &format!("Bearer {token}"))],
    )
    .await
    .status
}

#[tokio::test]
async fn gives_anonymous_tokens_for_one_repository() {
    let auth = Auth::bearer();
    let registry = guarded(&auth).await;
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
    assert_eq!(
        (
            auth.issued(),
            registry.count(|request| request.kind == Kind::Token)
        ),
        (2, 2)
    );
    auth.revoke_all();
    assert_eq!(pull(&registry, &token(&answer)).await, 401);
}

#[tokio::test]
async fn asks_for_credentials_at_the_token_endpoint() {
    let auth = Auth::bearer().credentials("user", "password");
    let registry = guarded(&auth).await;
    assert_eq!(get(&registry, TOKEN).await.status, 401);
    assert_eq!(get_with(&registry, TOKEN, &[WRONG]).await.status, 401);
    assert_eq!(
        pull(
            &registry,
            &token(&get_with(&registry, TOKEN, &[BASIC]).await)
        )
        .await,
        200
    );
    let auth = auth.or_anonymous();
    assert_eq!(
        pull(&registry, &token(&get(&registry, TOKEN).await)).await,
        200
    );
    assert_eq!(get_with(&registry, TOKEN, &[WRONG]).await.status, 401);
    assert_eq!(auth.issued(), 2);
}

#[tokio::test]
async fn gives_tokens_for_oauth_forms_when_told_to() {
    let auth = Auth::bearer().credentials("user", "password");
    let registry = guarded(&auth).await;
    let scope = "scope=repository:team/app:pull";
    let post = async |form: &str| {
        send(
            &registry,
            request("POST", "/token", &[], &format!("{form}&{scope}")),
        )
        .await
        .expect("an answer")
    };
    let password = "grant_type=password&username=user&password=password";
    assert_eq!(post(password).await.status, 405);
    auth.identity_token("identity");
    assert_eq!(pull(&registry, &token(&post(password).await)).await, 200);
    let refreshed = post("grant_type=refresh_token&refresh_token=identity").await;
    assert_eq!(pull(&registry, &token(&refreshed)).await, 200);
    assert_eq!(
        post("grant_type=refresh_token&refresh_token=other")
            .await
            .status,
        401
    );
}

#[tokio::test]
async fn asks_for_user_and_password_with_each_request() {
    let registry = guarded(&Auth::basic("user", "password")).await;
    let refused = get_with(&registry, MANIFEST, &[WRONG]).await;
    assert_eq!(refused.status, 401);
    assert!(
        refused
            .header("www-authenticate")
            .unwrap()
            .starts_with("Basic realm=")
    );
    assert_eq!(get_with(&registry, MANIFEST, &[BASIC]).await.status, 200);
}

#[tokio::test]
async fn bends_the_challenge() {
    let auth = Auth::bearer()
        .realm("/relative")
        .service("hub")
        .challenges(&[
            "Negotiate",
            "Bearer realm={realm},service={service},scope={scope}",
        ]);
    let registry = guarded(&auth).await;
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
    assert_eq!(
        get(&registry, MANIFEST).await.header("www-authenticate"),
        None
    );
}

#[tokio::test]
async fn bends_the_token() {
    let auth = Auth::bearer()
        .fields(&["token", "access_token"])
        .expires_in(None)
        .extra("issued_at", "never");
    let registry = guarded(&auth).await;
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
async fn breaks_the_token_endpoint_only() {
    let auth = Auth::bearer();
    let registry = guarded(&auth).await;
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
async fn serves_tokens_for_another_registry() {
    let auth = Auth::bearer();
    let registry = guarded(&auth).await;
    let tokens = Registry::start().await;
    let realm = tokens.serve_tokens(&auth);
    _ = auth.clone().realm(&realm);
    assert!(
        get(&registry, MANIFEST)
            .await
            .header("www-authenticate")
            .unwrap()
            .contains(&realm)
    );
    assert_eq!(
        pull(&registry, &token(&get(&tokens, TOKEN).await)).await,
        200
    );
}
