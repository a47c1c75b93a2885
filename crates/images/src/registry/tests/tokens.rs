//! Tokens for anonymous access: they are fetched, cached, and sent to no other host.

use futures_util::FutureExt;
use testregistry::Request;

use super::*;

#[tokio::test]
async fn token_is_cached_by_repository() {
    let remote = Remote::start().await;
    let auth = Auth::bearer();
    for name in ["team/a", "team/b"] {
        let repo = remote.repo(name);
        repo.require(auth.clone());
        repo.index(Some("v1"), BOTH);
        repo.index(Some("v2"), BOTH);
    }
    let (client, _dir) = client(&remote);
    let lookup = async |reference: &str| {
        client
            .fetch(
                &format!("{}/{reference}", remote.address()).parse().unwrap(),
                None,
            )
            .await
    };
    let new_requests = || {
        let mut kinds = Vec::new();
        for request in remote.requests() {
            kinds.push(match request.kind {
                Kind::Token => "token",
                _ => "manifest",
            });
        }
        remote.forget_requests();
        kinds
    };
    lookup("team/a:v1").await.unwrap();
    assert_eq!(new_requests(), ["manifest", "token", "manifest"]);
    lookup("team/a:v2").await.unwrap();
    assert_eq!(new_requests(), ["manifest"]);
    lookup("team/b:v1").await.unwrap();
    assert_eq!(
        new_requests(),
        ["token", "manifest"],
        "the challenge is cached by host, the token by repository"
    );
    auth.revoke_all();
    lookup("team/a:v1").await.unwrap();
    assert_eq!(new_requests(), ["manifest", "token", "manifest"]);
    assert_eq!(remote.connections(), 1);
}

/// After a refusal, no token is requested before the registry has named the realm again, because the realm may have
/// moved.
#[tokio::test]
async fn refused_password_keeps_the_tokens_of_other_credentials() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    repo.require(Auth::bearer().credentials("user", "word").or_anonymous());
    repo.index(Some("v1"), BOTH);
    let (client, _dir) = client(&remote);
    let image: ImageRef = repo.reference("v1").parse().unwrap();
    client.fetch(&image, None).await.unwrap();
    let wrong = Credential::Basic {
        user: "user".into(),
        password: "wrong".to_owned().into(),
    };
    let refused = client.fetch(&image, Some(&wrong)).await;
    assert!(matches!(refused, Err(Error::Denied(_))), "{refused:?}");
    let other = remote.repo("team/other");
    other.require(Auth::bearer());
    other.index(Some("v1"), BOTH);
    let other: ImageRef = other.reference("v1").parse().unwrap();
    let challenged = [Kind::Manifest, Kind::Token, Kind::Manifest];
    for (image, expected) in [(&image, &challenged[..1]), (&other, &challenged)] {
        remote.forget_requests();
        client.fetch(image, None).await.unwrap();
        let requests = remote.requests();
        let kinds: Vec<Kind> = requests.iter().map(|request| request.kind).collect();
        assert_eq!(kinds, expected, "{image}");
    }
}

/// A new workload with many images of one repository starts as many lookups at once.
#[tokio::test]
async fn concurrent_lookups_of_a_repository_share_one_token() {
    for (name, auth, credential) in [
        ("anonymous", Auth::bearer(), None),
        (
            "by GET",
            Auth::bearer().credentials("user", "password"),
            Some(("user", "password")),
        ),
        (
            "by POST",
            Auth::bearer().credentials("user", "password").oauth(),
            Some(("user", "password")),
        ),
    ] {
        let remote = Remote::start().await;
        let repo = remote.repo("team/app");
        repo.require(auth.clone());
        let tags: Vec<String> = (0..20).map(|tag| format!("v{tag}")).collect();
        tags.iter()
            .for_each(|tag| drop(repo.index(Some(tag), BOTH)));
        let (client, _dir) = client(&remote);
        let credential = credential.map(|(user, secret)| Credential::Basic {
            user: user.into(),
            password: secret.to_owned().into(),
        });
        let lookup = async || {
            let images: Vec<ImageRef> = tags
                .iter()
                .map(|tag| repo.reference(tag).parse().unwrap())
                .collect();
            let lookups = images
                .iter()
                .map(|image| client.fetch(image, credential.as_ref()));
            futures_util::future::try_join_all(lookups).await.unwrap();
            let tokens = remote.count(|request| request.kind == Kind::Token);
            let manifests = remote.requests().len() - tokens;
            remote.forget_requests();
            (tokens, manifests)
        };
        // If a server refuses POST, GET follows.
        let expected = if name == "by GET" { 2 } else { 1 };
        let (tokens, manifests) = lookup().await;
        assert_eq!(tokens, expected, "{name}");
        assert!((21..=40).contains(&manifests), "{name}: {manifests}");
        assert_eq!(lookup().await, (0, 20), "{name}");
        auth.revoke_all();
        let (tokens, manifests) = lookup().await;
        assert_eq!(tokens, 1, "{name}, after its tokens were revoked");
        assert!((21..=40).contains(&manifests), "{name}: {manifests}");
    }
}

#[tokio::test]
async fn waiting_lookup_takes_over_a_cancelled_token_fetch() {
    let remote = Remote::start().await;
    let auth = Auth::bearer();
    let images = ["team/first:v1", "team/app:v1", "team/app:v2"].map(|reference| {
        let (repo, tag) = reference.split_once(':').unwrap();
        let repo = remote.repo(repo);
        repo.require(auth.clone());
        repo.index(Some(tag), BOTH);
        repo.reference(tag).parse::<ImageRef>().unwrap()
    });
    let (client, _dir) = client(&remote);
    let lookup = |image| Box::pin(client.fetch(image, None));
    // Caches the registry's scheme, so that the next lookups begin with a token.
    lookup(&images[0]).await.unwrap();
    remote.forget_requests();
    auth.fault(Some(Fault::hang()));
    let tokens = |requests: &[Request]| {
        let tokens = requests
            .iter()
            .filter(|request| request.kind == Kind::Token);
        tokens.count()
    };
    let mut cancelled = lookup(&images[1]);
    tokio::select! {
        result = &mut cancelled => panic!("{result:?}"),
        () = remote.wait_until(|requests| tokens(requests) == 1) => {}
    }
    let mut waiting = lookup(&images[2]);
    assert!(waiting.as_mut().now_or_never().is_none());
    auth.fault(None);
    drop(cancelled);
    waiting.await.unwrap();
    assert_eq!(tokens(&remote.requests()), 2);
}

#[tokio::test]
async fn malformed_token_lifetime_is_an_error() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    repo.index(Some("v1"), BOTH);
    for life in [json!("3600"), json!(3600.0), json!(0.5), json!(1e20)] {
        repo.require(Auth::bearer().extra("expires_in", life.clone()));
        let error = lookup(&remote, &repo, "v1").await.unwrap_err();
        assert!(matches!(error, Error::Denied(_)), "{life}: {error}");
        let text = error.to_string();
        assert!(
            text.contains("expires_in is a whole number"),
            "{life}: {text}"
        );
    }
}

#[tokio::test]
async fn answers_of_unusual_token_servers_are_classified() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    repo.index(Some("v1"), BOTH);
    let ok = format!("{:?}", Support::Index(platforms(&BOTH)));
    let quoted = r#"Negotiate, Bearer service={service} realm="{realm}""#;
    for (name, auth, expected) in [
        (
            "access_token",
            Auth::bearer().fields(&["access_token"]),
            ok.as_str(),
        ),
        (
            "both names",
            Auth::bearer().fields(&["token", "access_token"]),
            &ok,
        ),
        ("neither name", Auth::bearer().fields(&[]), "denied"),
        ("no lifetime", Auth::bearer().expires_in(None), &ok),
        (
            "relative realm",
            Auth::bearer().challenges(&[r#"Bearer realm="/token",service="s""#]),
            &ok,
        ),
        (
            "several challenges",
            Auth::bearer().challenges(&["Basic realm=\"x\"", quoted]),
            &ok,
        ),
        ("no challenge", Auth::bearer().challenges(&[]), "denied"),
        (
            "a realm without TLS",
            Auth::bearer().challenges(&[r#"Bearer realm="http://127.0.0.2:1/token""#]),
            "denied",
        ),
        (
            "its own realm without TLS",
            Auth::bearer().challenges(&[r#"Bearer realm="http://127.0.0.1:1/token""#]),
            &ok,
        ),
        (
            "a realm with a user",
            Auth::bearer().challenges(&[r#"Bearer realm="https://u:p@127.0.0.1/token""#]),
            "denied",
        ),
        (
            "control characters",
            Auth::bearer().token_text("a\r\nX-Evil: 1"),
            "denied",
        ),
        ("a long token", Auth::bearer().padding(20 << 10), "denied"),
        (
            "a huge token",
            Auth::bearer().padding(100 << 10),
            "TooLarge",
        ),
        (
            "a long realm",
            Auth::bearer().challenges(&[&format!("Bearer realm=\"/{}\"", "x".repeat(3000))]),
            "denied",
        ),
        ("refused tokens", Auth::bearer().refuse(true), "denied"),
        (
            "credentials wanted",
            Auth::bearer().credentials("u", "p"),
            "denied",
        ),
        ("basic", Auth::basic("u", "p"), "denied"),
    ] {
        repo.require(auth);
        assert_eq!(
            kind(&lookup(&remote, &repo, "v1").await),
            expected,
            "{name}"
        );
    }
    let again = |status| {
        Fault::custom(move |request| {
            Some(Fault::redirect(
                status,
                &format!("/token?{}", request.query),
            ))
        })
    };
    for (fault, expected) in [
        (Fault::status(500), "unreachable"),
        (Fault::status(429), "throttled"),
        (Fault::status(404), "denied"),
        (again(302).first(1), "unexpected"),
        (again(307), "unexpected"),
        (again(308).first(3), "unexpected"),
        (again(301).first(2), &ok),
        (
            Fault::redirect(307, "https://127.0.0.2:1/token"),
            "unexpected",
        ),
        (
            Fault::redirect(307, "http://127.0.0.1:1/token"),
            "unexpected",
        ),
        (Fault::reset(), "unreachable"),
        (Fault::body("no JSON", "application/json"), "denied"),
    ] {
        let auth = Auth::bearer();
        let name = format!("{fault:?}");
        auth.fault(Some(fault));
        repo.require(auth);
        assert_eq!(
            kind(&lookup(&remote, &repo, "v1").await),
            expected,
            "{name}"
        );
    }
}

#[tokio::test]
async fn token_is_not_sent_to_another_host() {
    let remote = Remote::start().await;
    let cdn = Remote::builder().pki(remote.pki()).start().await;
    let repo = remote.repo("team/app");
    repo.require(Auth::bearer());
    repo.image("linux/amd64", Some("v1"));
    repo.redirect_blobs_to(&cdn.cdn_of(&repo));
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca.crt");
    std::fs::write(&ca, remote.pki().ca_pem()).unwrap();
    let settings = HostSettings {
        ca_file: Some(ca),
        ..HostSettings::default()
    };
    let guard = AddressGuard {
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        deny: vec![],
    };
    let hosts = [remote.address(), cdn.address()].map(|host| (host, settings.clone()));
    let client = Registry::new(hosts, guard, registry_metrics()).unwrap();
    let support = client
        .fetch(&repo.reference("v1").parse().unwrap(), None)
        .await
        .unwrap()
        .support;
    assert_eq!(support, Support::Single(platforms(&["linux/amd64"])));
    assert!(
        remote
            .requests()
            .iter()
            .any(|request| request.authorization.is_some())
    );
    let [request] = cdn.requests().try_into().unwrap();
    assert_eq!(request.authorization, None);
}
