//! Credentials on the wire: how they are presented, and which hosts get them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use testregistry::Request;

use super::*;
use crate::credentials::CredentialSettings;
use crate::registry::FailureClass;
use tolerarch_kubernetes::cluster::Caller;
use tolerarch_support::environment::Environment;

fn basic(user: &str, password: &str) -> Credential {
    Credential::Basic {
        user: user.into(),
        password: password.to_owned().into(),
    }
}

fn header(user: &str, password: &str) -> Option<String> {
    let encoded = BASE64.encode(format!("{user}:{password}"));
    Some(format!("Basic {encoded}"))
}

/// A registry with two repositories that require `auth`, and a client.
struct TestRegistry {
    remote: Remote,
    client: Registry,
    _dir: tempfile::TempDir,
}

impl TestRegistry {
    async fn new(auth: &Auth) -> Self {
        Self::with(auth, &[]).await
    }

    /// Starts the registry. `others` are configured as its token hosts.
    async fn with(auth: &Auth, others: &[&Remote]) -> Self {
        let remote = match others.first() {
            Some(other) => Remote::builder().pki(other.pki()).start().await,
            None => Remote::start().await,
        };
        for name in ["team/a", "team/b"] {
            let repo = remote.repo(name);
            repo.require(auth.clone());
            repo.index(Some("v1"), BOTH);
        }
        let dir = tempfile::tempdir().unwrap();
        let ca = dir.path().join("ca.crt");
        std::fs::write(&ca, remote.pki().ca_pem()).unwrap();
        let trusted = HostSettings {
            ca_file: Some(ca),
            ..HostSettings::default()
        };
        let token_hosts = others.iter().map(|other| other.address()).collect();
        let mut hosts: Vec<_> = others
            .iter()
            .map(|other| (other.address(), trusted.clone()))
            .collect();
        hosts.push((
            remote.address(),
            HostSettings {
                token_hosts,
                ..trusted
            },
        ));
        let guard = AddressGuard {
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            deny: vec![],
        };
        let client = Registry::new(hosts, guard, registry_metrics()).unwrap();
        Self {
            remote,
            client,
            _dir: dir,
        }
    }

    async fn lookup(&self, name: &str, credential: Option<&Credential>) -> String {
        let image = format!("{}/team/{name}:v1", self.remote.address());
        let image = image.parse().unwrap();
        let found = self.client.fetch(&image, credential).await;
        kind(&found.map(|found| found.support))
    }

    /// Returns the requests since the last call.
    fn new_requests(&self) -> Vec<Request> {
        let requests = self.remote.requests();
        self.remote.forget_requests();
        requests
    }

    /// Lists the requests since the last call: kind, method, and scheme of authorization.
    fn steps(&self) -> Vec<String> {
        let step = |request: Request| {
            let kind = match request.kind {
                Kind::Token => "token",
                _ => "manifest",
            };
            let authorization = request.authorization.as_deref().unwrap_or("-");
            let scheme = authorization.split(' ').next().unwrap();
            format!("{kind} {} {scheme}", request.method)
        };
        self.new_requests().into_iter().map(step).collect()
    }
}

fn ok() -> String {
    format!("{:?}", Support::Index(platforms(&BOTH)))
}

#[tokio::test]
async fn password_is_sent_after_a_challenge_and_then_at_once() {
    let test = TestRegistry::new(&Auth::basic("user", "pass:word")).await;
    let credential = basic("user", "pass:word");
    assert_eq!(test.lookup("a", Some(&credential)).await, ok());
    let [first, second] = test.new_requests().try_into().unwrap();
    assert_eq!(first.authorization, None);
    assert_eq!(second.authorization, header("user", "pass:word"));
    assert_eq!(test.lookup("b", Some(&credential)).await, ok());
    assert_eq!(test.steps(), ["manifest GET Basic"]);
    assert_eq!(test.lookup("b", None).await, "denied");
    assert_eq!(test.steps(), ["manifest GET -"]);
    assert_eq!(
        test.lookup("b", Some(&basic("user", "wrong"))).await,
        "denied"
    );
    assert_eq!(
        test.steps(),
        ["manifest GET Basic"],
        "a wrong password is sent only once"
    );
}

#[tokio::test]
async fn token_for_a_password_is_requested_by_post_and_cached() {
    let auth = Auth::bearer()
        .credentials("user", "p&w=rd")
        .oauth()
        .fields(&["access_token"])
        .service("the service");
    let test = TestRegistry::new(&auth).await;
    let credential = basic("user", "p&w=rd");
    assert_eq!(test.lookup("a", Some(&credential)).await, ok());
    let requests = test.new_requests();
    let form = |key: &str| requests[1].form_value(key).unwrap();
    assert_eq!(
        [
            "grant_type",
            "username",
            "password",
            "client_id",
            "service",
            "scope"
        ]
        .map(form),
        [
            "password",
            "user",
            "p&w=rd",
            "tolerarch",
            "the service",
            "repository:team/a:pull"
        ]
    );
    assert_eq!(
        requests[1].headers["content-type"],
        "application/x-www-form-urlencoded"
    );
    assert_eq!(requests[1].authorization, None);
    assert_eq!(requests[1].query, "");
    assert_eq!(test.lookup("a", Some(&credential)).await, ok());
    assert_eq!(test.steps(), ["manifest GET Bearer"]);
    assert_eq!(test.lookup("b", Some(&credential)).await, ok());
    assert_eq!(test.steps(), ["token POST -", "manifest GET Bearer"]);
    auth.revoke_all();
    assert_eq!(test.lookup("b", Some(&credential)).await, ok());
    assert_eq!(
        test.steps(),
        ["manifest GET Bearer", "token POST -", "manifest GET Bearer"]
    );
}

#[tokio::test]
async fn token_is_requested_by_get_if_post_is_refused() {
    for status in [400, 401, 403, 404, 405, 501] {
        let auth = Auth::bearer().credentials("user", "word");
        auth.fault(Some(Fault::custom(move |request| {
            (request.method == "POST").then(|| Fault::status(status))
        })));
        let test = TestRegistry::new(&auth).await;
        let credential = basic("user", "word");
        assert_eq!(test.lookup("a", Some(&credential)).await, ok(), "{status}");
        let steps = test.steps();
        assert_eq!(
            steps,
            [
                "manifest GET -",
                "token POST -",
                "token GET Basic",
                "manifest GET Bearer"
            ],
            "{status}"
        );
        assert_eq!(test.lookup("b", Some(&credential)).await, ok(), "{status}");
        assert_eq!(
            test.steps(),
            ["token GET Basic", "manifest GET Bearer"],
            "{status}"
        );
    }
    for (status, expected) in [
        (418, "denied"),
        (429, "throttled"),
        (500, "unreachable"),
        (307, "unexpected"),
    ] {
        let auth = Auth::bearer().credentials("user", "word");
        auth.fault(Some(Fault::status(status)));
        let test = TestRegistry::new(&auth).await;
        assert_eq!(
            test.lookup("a", Some(&basic("user", "word"))).await,
            expected
        );
        assert_eq!(test.steps(), ["manifest GET -", "token POST -"], "{status}");
    }
}

/// OpenShift's token server reads only Basic authorization, and treats a form as an anonymous request.
#[tokio::test]
async fn refused_token_by_post_is_requested_again_by_get() {
    let auth = Auth::bearer().credentials("user", "word");
    auth.fault(Some(Fault::custom(|request| {
        let token = Fault::body(r#"{"token": "anonymous"}"#, "application/json");
        (request.method == "POST").then_some(token)
    })));
    let test = TestRegistry::new(&auth).await;
    let credential = basic("user", "word");
    assert_eq!(test.lookup("a", Some(&credential)).await, ok());
    let posted = ["manifest GET -", "token POST -", "manifest GET Bearer"];
    assert_eq!(
        test.steps(),
        [&posted[..], &["token GET Basic", "manifest GET Bearer"]].concat()
    );
    assert_eq!(test.lookup("b", Some(&credential)).await, ok());
    assert_eq!(
        test.steps(),
        ["token GET Basic", "manifest GET Bearer"],
        "the use of GET is cached"
    );
    auth.revoke_all();
    assert_eq!(test.lookup("a", Some(&credential)).await, ok());
    assert_eq!(
        test.steps(),
        [
            "manifest GET Bearer",
            "token GET Basic",
            "manifest GET Bearer"
        ]
    );

    let test = TestRegistry::new(&auth).await;
    assert_eq!(
        test.lookup("a", Some(&basic("user", "wrong"))).await,
        "denied"
    );
    assert_eq!(test.steps(), [&posted[..], &["token GET Basic"]].concat());
    auth.fault(None);
    let test = TestRegistry::new(&auth.refuse(true)).await;
    assert_eq!(test.lookup("a", Some(&credential)).await, "denied");
    assert_eq!(
        test.steps(),
        [&posted[..2], &["token GET Basic", "manifest GET Bearer"]].concat(),
        "once"
    );
}

#[tokio::test]
async fn identity_token_is_exchanged_and_registry_token_is_sent() {
    let auth = Auth::bearer().identity_token("refresh-me");
    let test = TestRegistry::new(&auth).await;
    let identity = |token: &str| Credential::Identity(token.to_owned().into());
    let credential = identity("refresh-me");
    assert_eq!(test.lookup("a", Some(&credential)).await, ok());
    let requests = test.new_requests();
    let form = |key: &str| requests[1].form_value(key).unwrap();
    assert_eq!(
        ["grant_type", "refresh_token"].map(form),
        ["refresh_token", "refresh-me"]
    );
    let credential = identity("other");
    assert_eq!(test.lookup("a", Some(&credential)).await, "denied");

    let auth = Auth::bearer().token_text("the-token");
    let test = TestRegistry::new(&auth).await;
    assert_eq!(test.lookup("a", None).await, ok(), "so that it is issued");
    test.new_requests();
    assert_eq!(
        test.lookup(
            "a",
            Some(&Credential::Bearer("the-token".to_owned().into()))
        )
        .await,
        ok()
    );
    assert_eq!(
        test.new_requests()[0].authorization.as_deref(),
        Some("Bearer the-token")
    );
    for token in ["another", "two words", ""] {
        assert_eq!(
            test.lookup("a", Some(&Credential::Bearer(token.to_owned().into())))
                .await,
            "denied"
        );
    }
    assert!(
        test.new_requests()
            .iter()
            .all(|request| request.kind != Kind::Token),
        "no token is requested for a registry token"
    );
}

#[tokio::test]
async fn token_serves_only_its_own_credential() {
    let auth = Auth::bearer()
        .credentials("a", "a")
        .credentials("b", "b")
        .oauth()
        .or_anonymous();
    let test = TestRegistry::new(&auth).await;
    let mut tokens = Vec::new();
    for credential in [
        Some(basic("a", "a")),
        None,
        Some(basic("b", "b")),
        Some(basic("a", "a")),
    ] {
        assert_eq!(test.lookup("a", credential.as_ref()).await, ok());
        tokens.push(test.new_requests().pop().unwrap().authorization.unwrap());
    }
    assert_eq!(tokens[0], tokens[3]);
    assert!(tokens[0] != tokens[1] && tokens[1] != tokens[2] && tokens[0] != tokens[2]);
    assert_eq!(auth.issued(), 3);
    assert_eq!(test.lookup("a", Some(&basic("a", "wrong"))).await, "denied");
}

#[tokio::test]
async fn credentials_go_only_to_the_registrys_token_server() {
    let elsewhere = Remote::start().await;
    let auth = Auth::bearer().credentials("user", "word").or_anonymous();
    let auth = auth.clone().realm(&elsewhere.serve_tokens(&auth));
    let image = |test: &TestRegistry| {
        format!("{}/team/a:v1", test.remote.address())
            .parse()
            .unwrap()
    };

    let test = TestRegistry::with(&auth, &[]).await;
    let error = test
        .client
        .fetch(&image(&test), Some(&basic("user", "word")))
        .await
        .unwrap_err();
    let Error::TokenHost { registry, host } = &error else {
        panic!("{error}")
    };
    assert_eq!(
        (registry, host),
        (&test.remote.address(), &elsewhere.address())
    );
    assert!(
        error.to_string().contains("tokenHosts") && error.class() == FailureClass::Refused,
        "{error}"
    );
    assert_eq!(elsewhere.connections(), 0);

    let test = TestRegistry::with(&auth, &[&elsewhere]).await;
    assert_eq!(
        test.lookup("a", Some(&basic("user", "word"))).await,
        ok(),
        "with tokenHosts"
    );
    assert_eq!(
        elsewhere.count(|request| request.authorization.is_some()),
        1
    );
}

#[tokio::test]
async fn cached_foreign_realm_gets_no_credentials() {
    let elsewhere = Remote::start().await;
    let auth = Auth::bearer().credentials("user", "word").or_anonymous();
    let auth = auth.clone().realm(&elsewhere.serve_tokens(&auth));
    let test = TestRegistry::new(&auth).await;
    // The client does not trust the host's certificate. Here only matters whether a connection is opened.
    assert_eq!(
        test.lookup("a", None).await,
        "unreachable",
        "an anonymous token may be requested there"
    );
    assert_eq!(elsewhere.connections(), 1);
    for _ in 0..2 {
        assert_eq!(
            test.lookup("a", Some(&basic("user", "word"))).await,
            "denied"
        );
    }
    assert_eq!(elsewhere.connections(), 1);
    assert_eq!(
        test.remote.count(|request| request.authorization.is_some()),
        0
    );
}

#[tokio::test]
async fn best_usable_challenge_is_answered() {
    let usual = r#"Bearer realm="{realm}",service="{service}""#;
    let foreign = r#"Bearer realm="https://127.0.0.2:1/token""#;
    for (challenges, bearer, expected) in [
        (vec![r#"Basic realm="x""#, usual], true, "token POST -"),
        (
            vec![r#"Basic realm=x, Bearer service={service} realm="{realm}""#],
            true,
            "token POST -",
        ),
        (
            vec!["Negotiate, Basic realm=x,Bearer realm=\"/token\""],
            true,
            "token POST -",
        ),
        (vec![foreign, usual], true, "token POST -"),
        (vec![foreign, "Basic realm=x"], false, "manifest GET Basic"),
        (
            vec!["Bearer realm=\"http://127.0.0.2:1/token\", Basic"],
            false,
            "manifest GET Basic",
        ),
    ] {
        let auth = if bearer {
            Auth::bearer().credentials("u", "p").oauth()
        } else {
            Auth::basic("u", "p")
        };
        let test = TestRegistry::new(&auth.challenges(&challenges)).await;
        assert_eq!(
            test.lookup("a", Some(&basic("u", "p"))).await,
            ok(),
            "{challenges:?}"
        );
        assert_eq!(test.steps()[1], expected, "{challenges:?}");
    }
    let test = TestRegistry::new(&Auth::basic("u", "p").challenges(&[foreign])).await;
    assert_eq!(test.lookup("a", Some(&basic("u", "p"))).await, "denied");
    let test = TestRegistry::new(&Auth::basic("u", "p").challenges(&["Digest realm=x"])).await;
    assert_eq!(test.lookup("a", Some(&basic("u", "p"))).await, "denied");
    assert_eq!(test.steps(), ["manifest GET -"]);
}

/// GitHub's rate limit answers 403, and a GET after each POST would double the number of requests.
#[tokio::test]
async fn throttled_form_is_not_repeated_by_get() {
    let text = r#"{"message": "You have exceeded a secondary rate limit."}"#;
    let auth = Auth::bearer().credentials("user", "word").oauth();
    auth.fault(Some(Fault::reply(Reply::new(403).body(text))));
    let test = TestRegistry::new(&auth).await;
    assert_eq!(
        test.lookup("a", Some(&basic("user", "word"))).await,
        "throttled"
    );
    assert_eq!(test.steps(), ["manifest GET -", "token POST -"]);
}

#[tokio::test]
async fn no_redirect_of_a_token_server_sends_a_credential() {
    let elsewhere = Remote::start().await;
    let url = elsewhere.url();
    for status in [301, 302, 303, 307, 308] {
        let auth = Auth::bearer().credentials("user", "word").oauth();
        auth.fault(Some(Fault::redirect(status, &format!("{url}/token"))));
        let test = TestRegistry::with(&auth, &[&elsewhere]).await;
        assert_eq!(
            test.lookup("a", Some(&basic("user", "word"))).await,
            "unexpected",
            "{status}"
        );
        // A request by GET has the password in a header.
        let away = format!("{url}/token");
        auth.fault(Some(Fault::custom(move |request| {
            let by_post = request.method == "POST";
            Some(if by_post {
                Fault::status(405)
            } else {
                Fault::redirect(status, &away)
            })
        })));
        let test = TestRegistry::with(&auth, &[&elsewhere]).await;
        assert_eq!(
            test.lookup("a", Some(&basic("user", "word"))).await,
            "unexpected",
            "{status}"
        );
        assert_eq!(
            test.steps(),
            ["manifest GET -", "token POST -", "token GET Basic"],
            "{status}"
        );
    }
    assert_eq!(elsewhere.connections(), 0);

    let test = TestRegistry::with(&Auth::basic("user", "word"), &[&elsewhere]).await;
    let repo = test.remote.repo("team/a");
    repo.image("linux/amd64", Some("v1"));
    repo.redirect_blobs_to(&elsewhere.cdn_of(&repo));
    let single = format!("{:?}", Support::Single(platforms(&["linux/amd64"])));
    assert_eq!(test.lookup("a", Some(&basic("user", "word"))).await, single);
    let [request] = elsewhere.requests().try_into().unwrap();
    assert_eq!(request.authorization, None);
}

/// Neither the operator's credential for the mirror, nor that for the host to which the mirror redirects.
#[tokio::test]
async fn no_redirect_of_a_mirror_sends_operators_credentials() {
    let mirror = Remote::start().await;
    let dir = tempfile::tempdir().unwrap();
    let target = Remote::builder().pki(mirror.pki()).start().await;
    let [ca, file] = ["ca.crt", "config.json"].map(|name| dir.path().join(name));
    std::fs::write(&ca, mirror.pki().ca_pem()).unwrap();
    let auth = BASE64.encode("operator:o");
    let auths =
        json!({"auths": {mirror.address(): {"auth": auth}, target.address(): {"auth": auth}}});
    std::fs::write(&file, auths.to_string()).unwrap();
    let settings = CredentialSettings {
        docker_configs: vec![file],
        ..CredentialSettings::default()
    };
    let environment = Environment::default();
    let credentials = Credentials::load(&settings, vec![], Caller::Service, &environment, None);
    let credentials = credentials.unwrap();
    mirror
        .repo("team/app")
        .require(Auth::basic("operator", "o"));
    target.repo("team/app").index(Some("v1"), BOTH);
    target
        .repo("team/app")
        .require(Auth::basic("operator", "o"));
    for status in [301, 302, 303, 307, 308] {
        let to = format!("{}/v2/team/app/manifests/v1", target.url());
        mirror
            .repo("team/app")
            .fault(Some(Fault::redirect(status, &to).only_manifests()));
        let trusted = HostSettings {
            ca_file: Some(ca.clone()),
            ..HostSettings::default()
        };
        let mirrors = vec![mirror.address().parse().unwrap()];
        let hosts = [
            (mirror.address(), trusted.clone()),
            (target.address(), trusted),
            (
                "127.0.0.3:1".to_owned(),
                HostSettings {
                    mirrors,
                    ..HostSettings::default()
                },
            ),
        ];
        let guard = AddressGuard {
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            deny: vec![],
        };
        let client = Registry::new(hosts, guard, registry_metrics()).unwrap();
        let client = Registry {
            credentials: credentials.clone(),
            ..client
        };
        let image: ImageRef = "127.0.0.3:1/team/app:v1".parse().unwrap();
        assert!(client.fetch(&image, None).await.is_err(), "{status}");
        assert!(!target.requests().is_empty(), "{status}");
        assert_eq!(
            target.count(|request| request.authorization.is_some()),
            0,
            "{status}"
        );
        target.forget_requests();
    }
    assert!(mirror.count(|request| request.authorization == header("operator", "o")) > 0);
}

#[tokio::test]
async fn errors_quote_no_credential() {
    let basic = basic("canary-user", "canary-word");
    let others = [
        Credential::Identity("canary-token".to_owned().into()),
        Credential::Bearer("canary\n".to_owned().into()),
    ];
    for auth in [
        Auth::basic("u", "p"),
        Auth::bearer().credentials("u", "p"),
        Auth::bearer().token_text("canary\u{7f}"),
    ] {
        for fault in [
            None,
            Some(Fault::reset()),
            Some(Fault::status(500)),
            Some(Fault::body("canary", "x/y")),
        ] {
            auth.fault(fault);
            let test = TestRegistry::new(&auth).await;
            for credential in others.iter().chain([&basic]) {
                let image = format!("{}/team/a:v1", test.remote.address())
                    .parse()
                    .unwrap();
                let error = test
                    .client
                    .fetch(&image, Some(credential))
                    .await
                    .unwrap_err();
                let text = format!("{error} {error:?}");
                assert!(!text.contains("canary"), "{text}");
                assert!(!text.contains("Basic "), "{text}");
            }
        }
    }
}
