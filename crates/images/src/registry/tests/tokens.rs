//! Tokens for anonymous access: fetched, cached, and sent to no other host.

use futures_util::FutureExt;
use testregistry::Request;

use super::*;

#[tokio::test]
async fn a_token_is_fetched_once_and_remembered() {
    let remote = Remote::start().await;
    let auth = Auth::bearer();
    for name in ["team/a", "team/b"] {
        let repo = remote.repo(name);
        repo.require(auth.clone());
        repo.index(Some("v1"), BOTH);
        repo.index(Some("v2"), BOTH);
    }
    let (client, _dir) = client(&remote);
    let ask = async |reference: &str| {
        client
            .fetch(
                &format!("{}/{reference}", remote.address()).parse().unwrap(),
                None,
            )
            .await
    };
    let seen = || {
        let kinds: Vec<&str> = remote
            .requests()
            .iter()
            .map(|r| {
                if r.kind == Kind::Token {
                    "token"
                } else {
                    "manifest"
                }
            })
            .collect();
        remote.forget_requests();
        kinds
    };
    ask("team/a:v1").await.unwrap();
    assert_eq!(seen(), ["manifest", "token", "manifest"]);
    ask("team/a:v2").await.unwrap();
    assert_eq!(seen(), ["manifest"]);
    ask("team/b:v1").await.unwrap();
    assert_eq!(
        seen(),
        ["token", "manifest"],
        "the challenge is remembered by host, the token by repository"
    );
    auth.revoke_all();
    ask("team/a:v1").await.unwrap();
    assert_eq!(seen(), ["manifest", "token", "manifest"]);
    assert_eq!(remote.connections(), 1, "all of it over one connection");
}

/// Without a token the realm is not asked before the registry has named it again, as it may have moved.
#[tokio::test]
async fn a_refused_password_costs_no_other_credential_its_token() {
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
async fn many_tags_at_once_cost_one_token() {
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
        let ask = async || {
            let images: Vec<ImageRef> = tags
                .iter()
                .map(|tag| repo.reference(tag).parse().unwrap())
                .collect();
            let asked = images
                .iter()
                .map(|image| client.fetch(image, credential.as_ref()));
            for found in futures_util::future::join_all(asked).await {
                found.unwrap();
            }
            let asked = remote.requests();
            remote.forget_requests();
            let tokens = asked
                .iter()
                .filter(|request| request.kind == Kind::Token)
                .count();
            (tokens, asked.len() - tokens)
        };
        // A server that does not take POST is asked by GET then.
        let one = if name == "by GET" { 2 } else { 1 };
        let (tokens, manifests) = ask().await;
        assert_eq!(tokens, one, "{name}");
        assert!((21..=40).contains(&manifests), "{name}: {manifests}");
        assert_eq!(ask().await, (0, 20), "{name}");
        auth.revoke_all();
        let (tokens, manifests) = ask().await;
        assert_eq!(tokens, 1, "{name}, after its tokens were revoked");
        assert!((21..=40).contains(&manifests), "{name}: {manifests}");
    }
}

#[tokio::test]
async fn who_waits_for_a_token_goes_on_where_its_fetch_is_cut_off() {
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
    let ask = |image| Box::pin(client.fetch(image, None));
    // From now on the cache knows that a token is demanded.
    ask(&images[0]).await.unwrap();
    remote.forget_requests();
    auth.fault(Some(Fault::hang()));
    let tokens = |seen: &[Request]| {
        seen.iter()
            .filter(|request| request.kind == Kind::Token)
            .count()
    };
    let mut cut_off = ask(&images[1]);
    tokio::select! {
        found = &mut cut_off => panic!("{found:?}"),
        () = remote.wait_until(|seen| tokens(seen) == 1) => {}
    }
    let mut waits = ask(&images[2]);
    assert!(waits.as_mut().now_or_never().is_none());
    auth.fault(None);
    drop(cut_off);
    waits.await.unwrap();
    assert_eq!(tokens(&remote.requests()), 2);
}

#[tokio::test]
async fn a_lifetime_that_nodes_refuse_is_refused_by_its_name() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    repo.index(Some("v1"), BOTH);
    for life in [json!("3600"), json!(3600.0), json!(0.5), json!(1e20)] {
        repo.require(Auth::bearer().extra("expires_in", life.clone()));
        let error = ask(&remote, &repo, "v1").await.unwrap_err();
        assert!(matches!(error, Error::Denied(_)), "{life}: {error}");
        assert!(
            error.to_string().contains("expires_in as a whole number"),
            "{life}: {error}"
        );
    }
}

#[tokio::test]
async fn token_servers_may_be_odd() {
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
        assert_eq!(kind(&ask(&remote, &repo, "v1").await), expected, "{name}");
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
        assert_eq!(kind(&ask(&remote, &repo, "v1").await), expected, "{name}");
    }
}

#[tokio::test]
async fn a_token_never_follows_to_another_host() {
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
    assert_eq!(cdn.requests().len(), 1);
    assert!(
        cdn.requests()
            .iter()
            .all(|request| request.authorization.is_none())
    );
}
