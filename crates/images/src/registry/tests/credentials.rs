//! Credentials on the wire: how they are presented, to whom, and to whom not.

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
    Some(format!(
        "Basic {}",
        BASE64.encode(format!("{user}:{password}"))
    ))
}

/// A registry with two repositories behind `auth`, and a client.
struct Bench {
    remote: Remote,
    client: Registry,
    _dir: tempfile::TempDir,
}

impl Bench {
    async fn new(auth: &Auth) -> Self {
        Self::with(auth, &[]).await
    }

    /// Starts a bench with these hosts as token hosts.
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

    async fn ask(&self, name: &str, credential: Option<&Credential>) -> String {
        let image = format!("{}/team/{name}:v1", self.remote.address())
            .parse()
            .unwrap();
        kind(
            &self
                .client
                .fetch(&image, credential)
                .await
                .map(|found| found.support),
        )
    }

    fn seen(&self) -> Vec<Request> {
        let requests = self.remote.requests();
        self.remote.forget_requests();
        requests
    }

    /// Lists the requests since the last call: kind, method, and scheme of authorisation.
    fn steps(&self) -> Vec<String> {
        let step = |request: Request| {
            let kind = if request.kind == Kind::Token {
                "token"
            } else {
                "manifest"
            };
            let shown = request
                .authorization
                .as_deref()
                .and_then(|text| text.split(' ').next())
                .unwrap_or("-");
            format!("{kind} {} {shown}", request.method)
        };
        self.seen().into_iter().map(step).collect()
    }
}

fn ok() -> String {
    format!("{:?}", Support::Index(platforms(&BOTH)))
}

#[tokio::test]
async fn a_password_is_shown_where_it_is_asked_for_and_then_at_once() {
    let bench = Bench::new(&Auth::basic("user", "pass:word")).await;
    let credential = basic("user", "pass:word");
    assert_eq!(bench.ask("a", Some(&credential)).await, ok());
    let shown: Vec<_> = bench
        .seen()
        .into_iter()
        .map(|request| request.authorization)
        .collect();
    assert_eq!(shown, [None, header("user", "pass:word")]);
    assert_eq!(bench.ask("b", Some(&credential)).await, ok());
    assert_eq!(bench.steps(), ["manifest GET Basic"]);
    assert_eq!(bench.ask("b", None).await, "denied");
    assert_eq!(bench.steps(), ["manifest GET -"]);
    assert_eq!(
        bench.ask("b", Some(&basic("user", "wrong"))).await,
        "denied"
    );
    assert_eq!(
        bench.steps(),
        ["manifest GET Basic"],
        "and a wrong one once only"
    );
}

#[tokio::test]
async fn a_token_for_a_password_is_posted_for_and_remembered() {
    let auth = Auth::bearer()
        .credentials("user", "p&w=rd")
        .oauth()
        .fields(&["access_token"])
        .service("the service");
    let bench = Bench::new(&auth).await;
    let credential = basic("user", "p&w=rd");
    assert_eq!(bench.ask("a", Some(&credential)).await, ok());
    let requests = bench.seen();
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
    assert_eq!(
        (
            requests[1].authorization.as_ref(),
            requests[1].query.as_str()
        ),
        (None, "")
    );
    assert_eq!(bench.ask("a", Some(&credential)).await, ok());
    assert_eq!(bench.steps(), ["manifest GET Bearer"]);
    assert_eq!(bench.ask("b", Some(&credential)).await, ok());
    assert_eq!(bench.steps(), ["token POST -", "manifest GET Bearer"]);
    auth.revoke_all();
    assert_eq!(bench.ask("b", Some(&credential)).await, ok());
    assert_eq!(
        bench.steps(),
        ["manifest GET Bearer", "token POST -", "manifest GET Bearer"]
    );
}

#[tokio::test]
async fn token_servers_that_know_no_post_are_asked_by_get_and_remembered() {
    for status in [400, 401, 403, 404, 405, 501] {
        let auth = Auth::bearer().credentials("user", "word");
        auth.fault(Some(Fault::custom(move |request| {
            (request.method == "POST").then(|| Fault::status(status))
        })));
        let bench = Bench::new(&auth).await;
        let credential = basic("user", "word");
        assert_eq!(bench.ask("a", Some(&credential)).await, ok(), "{status}");
        let steps = bench.steps();
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
        assert_eq!(bench.ask("b", Some(&credential)).await, ok(), "{status}");
        assert_eq!(
            bench.steps(),
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
        let bench = Bench::new(&auth).await;
        assert_eq!(bench.ask("a", Some(&basic("user", "word"))).await, expected);
        assert_eq!(
            bench.steps(),
            ["manifest GET -", "token POST -"],
            "{status}"
        );
    }
}

/// OpenShift's token server reads Basic only, and takes a form for a request by nobody.
#[tokio::test]
async fn a_token_by_post_that_is_refused_is_asked_for_once_more_by_get() {
    let auth = Auth::bearer().credentials("user", "word");
    auth.fault(Some(Fault::custom(|request| {
        let token = Fault::body(r#"{"token": "anonymous"}"#, "application/json");
        (request.method == "POST").then_some(token)
    })));
    let bench = Bench::new(&auth).await;
    let credential = basic("user", "word");
    assert_eq!(bench.ask("a", Some(&credential)).await, ok());
    let posted = ["manifest GET -", "token POST -", "manifest GET Bearer"];
    assert_eq!(
        bench.steps(),
        [&posted[..], &["token GET Basic", "manifest GET Bearer"]].concat()
    );
    assert_eq!(bench.ask("b", Some(&credential)).await, ok());
    assert_eq!(
        bench.steps(),
        ["token GET Basic", "manifest GET Bearer"],
        "and remembered"
    );
    auth.revoke_all();
    assert_eq!(bench.ask("a", Some(&credential)).await, ok());
    assert_eq!(
        bench.steps(),
        [
            "manifest GET Bearer",
            "token GET Basic",
            "manifest GET Bearer"
        ]
    );

    let bench = Bench::new(&auth).await;
    assert_eq!(
        bench.ask("a", Some(&basic("user", "wrong"))).await,
        "denied"
    );
    assert_eq!(bench.steps(), [&posted[..], &["token GET Basic"]].concat());
    auth.fault(None);
    let bench = Bench::new(&auth.refuse(true)).await;
    assert_eq!(bench.ask("a", Some(&credential)).await, "denied");
    assert_eq!(
        bench.steps(),
        [&posted[..2], &["token GET Basic", "manifest GET Bearer"]].concat(),
        "once"
    );
}

#[tokio::test]
async fn an_identity_token_is_exchanged_and_a_registry_token_is_sent_as_it_is() {
    let auth = Auth::bearer().identity_token("refresh-me");
    let bench = Bench::new(&auth).await;
    assert_eq!(
        bench
            .ask(
                "a",
                Some(&Credential::Identity("refresh-me".to_owned().into()))
            )
            .await,
        ok()
    );
    let requests = bench.seen();
    let form = |key: &str| requests[1].form_value(key).unwrap();
    assert_eq!(
        ["grant_type", "refresh_token"].map(form),
        ["refresh_token", "refresh-me"]
    );
    assert_eq!(
        bench
            .ask("a", Some(&Credential::Identity("other".to_owned().into())))
            .await,
        "denied"
    );

    let auth = Auth::bearer().token_text("the-token");
    let bench = Bench::new(&auth).await;
    assert_eq!(bench.ask("a", None).await, ok(), "so that it is issued");
    bench.seen();
    assert_eq!(
        bench
            .ask(
                "a",
                Some(&Credential::Bearer("the-token".to_owned().into()))
            )
            .await,
        ok()
    );
    assert_eq!(
        bench.seen()[0].authorization.as_deref(),
        Some("Bearer the-token")
    );
    for token in ["another", "two words", ""] {
        assert_eq!(
            bench
                .ask("a", Some(&Credential::Bearer(token.to_owned().into())))
                .await,
            "denied"
        );
    }
    assert!(
        bench
            .seen()
            .iter()
            .all(|request| request.kind != Kind::Token),
        "it is all that there is to show"
    );
}

#[tokio::test]
async fn a_token_serves_only_those_whose_credential_it_was_got_with() {
    let auth = Auth::bearer()
        .credentials("a", "a")
        .credentials("b", "b")
        .oauth()
        .or_anonymous();
    let bench = Bench::new(&auth).await;
    let mut tokens = Vec::new();
    for credential in [
        Some(basic("a", "a")),
        None,
        Some(basic("b", "b")),
        Some(basic("a", "a")),
    ] {
        assert_eq!(bench.ask("a", credential.as_ref()).await, ok());
        tokens.push(bench.seen().pop().unwrap().authorization.unwrap());
    }
    assert_eq!(tokens[0], tokens[3]);
    assert!(tokens[0] != tokens[1] && tokens[1] != tokens[2] && tokens[0] != tokens[2]);
    assert_eq!(auth.issued(), 3);
    assert_eq!(bench.ask("a", Some(&basic("a", "wrong"))).await, "denied");
}

#[tokio::test]
async fn credentials_go_to_no_token_server_but_the_registrys_own() {
    let elsewhere = Remote::start().await;
    let auth = Auth::bearer().credentials("user", "word").or_anonymous();
    let auth = auth.clone().realm(&elsewhere.serve_tokens(&auth));
    let image = |bench: &Bench| {
        format!("{}/team/a:v1", bench.remote.address())
            .parse()
            .unwrap()
    };

    let bench = Bench::with(&auth, &[]).await;
    let error = bench
        .client
        .fetch(&image(&bench), Some(&basic("user", "word")))
        .await
        .unwrap_err();
    let Error::TokenHost { registry, host } = &error else {
        panic!("{error}")
    };
    assert_eq!(
        (registry, host),
        (&bench.remote.address(), &elsewhere.address())
    );
    assert!(
        error.to_string().contains("tokenHosts") && error.class() == FailureClass::Refused,
        "{error}"
    );
    assert_eq!(elsewhere.connections(), 0, "not even without a password");

    let bench = Bench::with(&auth, &[&elsewhere]).await;
    assert_eq!(
        bench.ask("a", Some(&basic("user", "word"))).await,
        ok(),
        "as tokenHosts says"
    );
    assert_eq!(
        elsewhere.count(|request| request.authorization.is_some()),
        1
    );
}

#[tokio::test]
async fn a_remembered_realm_gets_no_credentials_either() {
    let elsewhere = Remote::start().await;
    let auth = Auth::bearer().credentials("user", "word").or_anonymous();
    let auth = auth.clone().realm(&elsewhere.serve_tokens(&auth));
    let bench = Bench::new(&auth).await;
    // The host is not trusted: what matters is that nothing is sent to it.
    assert_eq!(
        bench.ask("a", None).await,
        "unreachable",
        "anonymously it may be asked"
    );
    assert_eq!(elsewhere.connections(), 1);
    for _ in 0..2 {
        assert_eq!(bench.ask("a", Some(&basic("user", "word"))).await, "denied");
    }
    assert_eq!(elsewhere.connections(), 1);
    assert_eq!(
        bench
            .remote
            .count(|request| request.authorization.is_some()),
        0
    );
}

#[tokio::test]
async fn the_best_challenge_that_may_be_answered_is() {
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
        let bench = Bench::new(&auth.challenges(&challenges)).await;
        assert_eq!(
            bench.ask("a", Some(&basic("u", "p"))).await,
            ok(),
            "{challenges:?}"
        );
        assert_eq!(bench.steps()[1], expected, "{challenges:?}");
    }
    let bench = Bench::new(&Auth::basic("u", "p").challenges(&[foreign])).await;
    assert_eq!(bench.ask("a", Some(&basic("u", "p"))).await, "denied");
    let bench = Bench::new(&Auth::basic("u", "p").challenges(&["Digest realm=x"])).await;
    assert_eq!(bench.ask("a", Some(&basic("u", "p"))).await, "denied");
    assert_eq!(bench.steps(), ["manifest GET -"]);
}

/// GitHub limits by a 403, and a GET for each POST would double what it limits.
#[tokio::test]
async fn a_throttled_form_is_not_sent_again_by_get() {
    let text = r#"{"message": "You have exceeded a secondary rate limit."}"#;
    let auth = Auth::bearer().credentials("user", "word").oauth();
    auth.fault(Some(Fault::reply(Reply::new(403).body(text))));
    let bench = Bench::new(&auth).await;
    assert_eq!(
        bench.ask("a", Some(&basic("user", "word"))).await,
        "throttled"
    );
    assert_eq!(bench.steps(), ["manifest GET -", "token POST -"]);
}

#[tokio::test]
async fn no_redirect_leads_a_credential_anywhere() {
    let elsewhere = Remote::start().await;
    let url = elsewhere.url();
    for status in [301, 302, 303, 307, 308] {
        let auth = Auth::bearer().credentials("user", "word").oauth();
        auth.fault(Some(Fault::redirect(status, &format!("{url}/token"))));
        let bench = Bench::with(&auth, &[&elsewhere]).await;
        assert_eq!(
            bench.ask("a", Some(&basic("user", "word"))).await,
            "unexpected",
            "{status}"
        );
        // By GET, where the password is in the header.
        let away = format!("{url}/token");
        auth.fault(Some(Fault::custom(move |request| {
            let by_post = request.method == "POST";
            Some(if by_post {
                Fault::status(405)
            } else {
                Fault::redirect(status, &away)
            })
        })));
        let bench = Bench::with(&auth, &[&elsewhere]).await;
        assert_eq!(
            bench.ask("a", Some(&basic("user", "word"))).await,
            "unexpected",
            "{status}"
        );
        assert_eq!(
            bench.steps(),
            ["manifest GET -", "token POST -", "token GET Basic"],
            "{status}"
        );
    }
    assert_eq!(elsewhere.connections(), 0);

    let bench = Bench::with(&Auth::basic("user", "word"), &[&elsewhere]).await;
    let repo = bench.remote.repo("team/a");
    repo.image("linux/amd64", Some("v1"));
    repo.redirect_blobs_to(&elsewhere.cdn_of(&repo));
    let single = format!("{:?}", Support::Single(platforms(&["linux/amd64"])));
    assert_eq!(bench.ask("a", Some(&basic("user", "word"))).await, single);
    assert_eq!(elsewhere.requests().len(), 1);
    assert!(
        elsewhere
            .requests()
            .iter()
            .all(|request| request.authorization.is_none())
    );
}

/// Neither the operator's credential for a mirror, nor that for the host that the mirror names.
#[tokio::test]
async fn no_redirect_of_a_mirror_leads_the_operators_credential_anywhere() {
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
    let of_operator = Credentials::load(
        &settings,
        vec![],
        Caller::Service,
        &Environment::default(),
        None,
    );
    let of_operator = of_operator.unwrap();
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
            credentials: of_operator.clone(),
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
async fn no_error_shows_a_credential() {
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
            let bench = Bench::new(&auth).await;
            for credential in others.iter().chain([&basic]) {
                let image = format!("{}/team/a:v1", bench.remote.address())
                    .parse()
                    .unwrap();
                let error = bench
                    .client
                    .fetch(&image, Some(credential))
                    .await
                    .unwrap_err();
                let text = format!("{error} {error:?}");
                assert!(
                    !text.contains("canary") && !text.contains("Basic "),
                    "{text}"
                );
            }
        }
    }
}
