//! Redirects of manifests and configs to other hosts: which are followed, what is sent to them, and how they are
//! reported.

use testregistry::Request;

use super::*;

/// A registry that redirects, others that it redirects to, and a client that trusts all of them.
struct Bench {
    source: Remote,
    targets: Vec<Remote>,
    client: Registry,
    _dir: tempfile::TempDir,
}

const PATH: &str = "/v2/team/app/manifests/v1";

impl Bench {
    async fn new(targets: usize) -> Self {
        Self::with(targets, |_, _| {}).await
    }

    /// Starts a bench with changed settings of hosts, by their places; 0 is the source.
    async fn with(targets: usize, change: impl Fn(usize, &mut HostSettings)) -> Self {
        let source = Remote::start().await;
        let mut others = Vec::new();
        for _ in 0..targets {
            others.push(Remote::builder().pki(source.pki()).start().await);
        }
        let dir = tempfile::tempdir().unwrap();
        let ca = dir.path().join("ca.crt");
        std::fs::write(&ca, source.pki().ca_pem()).unwrap();
        let hosts = [&source]
            .into_iter()
            .chain(&others)
            .enumerate()
            .map(|(place, remote)| {
                let mut settings = HostSettings {
                    ca_file: Some(ca.clone()),
                    ..HostSettings::default()
                };
                change(place, &mut settings);
                (remote.address(), settings)
            });
        let guard = AddressGuard {
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            deny: vec![],
        };
        let client = Registry::new(hosts, guard, registry_metrics()).unwrap();
        Self {
            source,
            targets: others,
            client,
            _dir: dir,
        }
    }

    fn image(&self) -> ImageRef {
        self.source
            .repo("team/app")
            .reference("v1")
            .parse()
            .unwrap()
    }

    /// Has the source redirect its manifests to this location.
    fn redirect(&self, status: u16, location: &str) {
        self.source
            .repo("team/app")
            .fault(Some(Fault::redirect(status, location).only_manifests()));
    }

    async fn fetch(&self, credential: Option<&Credential>) -> Result<Support, Error> {
        self.client
            .fetch(&self.image(), credential)
            .await
            .map(|found| found.support)
    }

    async fn ask(&self, credential: Option<&Credential>) -> String {
        kind(&self.fetch(credential).await)
    }
}

fn password() -> Credential {
    Credential::Basic {
        user: "user".into(),
        password: "word".to_owned().into(),
    }
}

fn ok() -> String {
    format!("{:?}", Support::Index(platforms(&BOTH)))
}

/// Lists requests: kind, method, and scheme of authorisation.
fn steps(remote: &Remote) -> Vec<String> {
    let step = |request: Request| {
        let shown = request
            .authorization
            .as_deref()
            .and_then(|text| text.split(' ').next())
            .unwrap_or("-");
        format!("{:?} {} {shown}", request.kind, request.method)
    };
    let steps = remote.requests().into_iter().map(step).collect();
    remote.forget_requests();
    steps
}

/// registry.k8s.io (archeio): a prefix before the name, `/v2/` without a challenge, no token anywhere.
#[tokio::test]
async fn a_manifest_may_be_at_another_registry_under_another_name() {
    let bench = Bench::new(1).await;
    let repo = bench.targets[0].repo("k8s-artifacts-prod/images/team/app");
    let digest = repo.image("linux/amd64", Some("v1"))["digest"]
        .as_str()
        .unwrap()
        .to_owned();
    let url = bench.targets[0].url();
    bench
        .source
        .repo("team/app")
        .fault(Some(Fault::custom(move |request| {
            let path = request
                .path
                .replacen("/v2/", "/v2/k8s-artifacts-prod/images/", 1);
            Some(Fault::redirect(307, &format!("{url}{path}")))
        })));
    let single = format!("{:?}", Support::Single(platforms(&["linux/amd64"])));
    assert_eq!(bench.ask(None).await, single);
    assert_eq!(steps(&bench.source), ["Manifest GET -", "Blob GET -"]);
    assert_eq!(steps(&bench.targets[0]), ["Manifest GET -", "Blob GET -"]);
    let traces = Traces::default();
    let image = bench.image();
    trace::scope(Some(&traces), &image, bench.client.fetch(&image, None))
        .await
        .unwrap();
    let asked: Vec<_> = traces
        .of(&image)
        .requests
        .iter()
        .filter_map(|request| request.url.port())
        .collect();
    assert_eq!(
        asked,
        [bench.source.port(), bench.targets[0].port()].repeat(2),
        "as inspect shows"
    );
    let head = bench.client.head(&bench.image(), None).await.unwrap();
    assert_eq!(head, Some(Digest::of_text(&digest)));
}

/// oci.external-secrets.io: 301 to a registry that demands a token, for a repository of another name.
#[tokio::test]
async fn a_target_that_asks_for_a_token_gets_its_own_for_anybody() {
    let bench = Bench::new(1).await;
    let target = &bench.targets[0];
    let auth = Auth::bearer();
    let repo = target.repo("vendor/app");
    repo.index(Some("v1"), BOTH);
    repo.require(auth.clone());
    bench.redirect(301, &format!("{}/v2/vendor/app/manifests/v1", target.url()));
    let credential = password();
    for credential in [None, Some(&credential)] {
        assert_eq!(
            traced(&bench.image(), bench.ask(credential)).await,
            (ok(), vec!["anonymous"])
        );
        assert_eq!(steps(&bench.source), ["Manifest GET -"]);
        let scope = target.requests()[1].query_value("scope");
        assert_eq!(scope.as_deref(), Some("repository:vendor/app:pull"));
        assert_eq!(
            steps(target),
            ["Manifest GET -", "Token GET -", "Manifest GET Bearer"]
        );
    }
    let head = bench.client.head(&bench.image(), None).await.unwrap();
    assert!(head.is_some());
    steps(target);
    // The target's scheme is learned from images of the target only.
    let named = repo.reference("v1").parse().unwrap();
    bench.client.fetch(&named, None).await.unwrap();
    assert_eq!(
        steps(target),
        ["Manifest GET -", "Token GET -", "Manifest GET Bearer"]
    );

    auth.refuse(true);
    assert_eq!(bench.ask(None).await, "denied");
    assert_eq!(
        steps(target),
        ["Manifest GET -", "Token GET -", "Manifest GET Bearer"],
        "once only"
    );
}

#[tokio::test]
async fn a_registry_with_a_token_may_redirect_to_one_with_another() {
    let bench = Bench::new(1).await;
    let repo = bench.source.repo("team/app");
    repo.require(Auth::bearer().credentials("user", "word").oauth());
    bench.targets[0].repo("team/app").index(Some("v1"), BOTH);
    bench.targets[0].repo("team/app").require(Auth::bearer());
    bench.redirect(307, &format!("{}{PATH}", bench.targets[0].url()));
    assert_eq!(bench.ask(Some(&password())).await, ok());
    assert_eq!(
        steps(&bench.source),
        ["Manifest GET -", "Token POST -", "Manifest GET Bearer"]
    );
    assert_eq!(
        steps(&bench.targets[0]),
        ["Manifest GET -", "Token GET -", "Manifest GET Bearer"]
    );
}

/// The attackers' table: whatever a registry, a mirror or a CDN answers, no credential arrives at another origin.
#[tokio::test]
async fn no_redirect_leads_a_credential_to_another_origin() {
    let credential = password();
    type Wants = (&'static str, fn() -> Auth);
    let wants: [Wants; 4] = [
        ("Basic", || Auth::basic("user", "word")),
        ("Bearer and Basic", || {
            Auth::basic("user", "word")
                .challenges(&[r#"Bearer realm="{realm}""#, r#"Basic realm="x""#])
        }),
        ("Bearer for a password", || {
            Auth::bearer().credentials("user", "word").oauth()
        }),
        ("Bearer", Auth::bearer),
    ];
    for status in [301, 302, 303, 307, 308] {
        for at_source in [
            Auth::basic("user", "word"),
            Auth::bearer().credentials("user", "word").oauth(),
        ] {
            for (name, at_target) in wants {
                let bench = Bench::new(2).await;
                let [first, second] = &*bench.targets else {
                    unreachable!()
                };
                bench.source.repo("team/app").require(at_source.clone());
                bench.redirect(status, &format!("{}{PATH}", first.url()));
                first.repo("team/app").fault(Some(Fault::redirect(
                    status,
                    &format!("{}{PATH}", second.url()),
                )));
                second.repo("team/app").index(Some("v1"), BOTH);
                second.repo("team/app").require(at_target());
                let answer = bench.ask(Some(&credential)).await;
                let expected = if name == "Bearer" {
                    ok()
                } else {
                    "denied".into()
                };
                assert_eq!(answer, expected, "{status}, {name}");
                let _ = bench.client.head(&bench.image(), Some(&credential)).await;
                assert!(
                    first.count(|request| request.method == "HEAD") > 0,
                    "{status}, {name}"
                );
                for remote in &bench.targets {
                    for request in remote.requests() {
                        let shown = request.authorization.unwrap_or_default();
                        assert!(
                            !shown.starts_with("Basic") && request.body.is_empty(),
                            "{status}, {name}"
                        );
                        assert!(
                            shown.is_empty() || name == "Bearer" && remote.port() == second.port()
                        );
                    }
                }
            }
        }
    }
}

/// Also redirects of a mirror, with the headers of its `hosts.toml`; and a `Bearer` that a Pod's secret holds.
#[tokio::test]
async fn no_redirect_leads_headers_to_another_origin() {
    for status in [301, 302, 303, 307, 308] {
        let source = Remote::start().await;
        let target = Remote::builder().pki(source.pki()).start().await;
        let dir = tempfile::tempdir().unwrap();
        let hosts = [
            (
                source.address(),
                "[header]\nAuthorization = 'Basic eDp5'\nx-a = 'source'\n",
            ),
            (
                target.address(),
                "[header]\nAuthorization = 'Basic b3A6b3A='\nx-b = 'target'\n",
            ),
        ];
        for (name, text) in hosts {
            let own = dir.path().join(&name);
            std::fs::create_dir(&own).unwrap();
            std::fs::write(own.join("hosts.toml"), format!("ca = 'ca.crt'\n{text}")).unwrap();
            std::fs::write(own.join("ca.crt"), source.pki().ca_pem()).unwrap();
        }
        let guard = AddressGuard {
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            deny: vec![],
        };
        let settings = Settings {
            hosts_dir: Some(dir.path().into()),
            guard,
            ..Settings::default()
        };
        let client = Registry::load(settings, registry_metrics()).unwrap();
        let repo = source.repo("team/app");
        let back = format!("{}/back", source.url());
        repo.fault(Some(
            Fault::redirect(status, &format!("{}{PATH}", target.url())).only_manifests(),
        ));
        target.repo("team/app").index(Some("v1"), BOTH);
        let image: ImageRef = repo.reference("v1").parse().unwrap();
        let token = Credential::Bearer("the-token".to_owned().into());
        for credential in [None, Some(&token)] {
            client.fetch(&image, credential).await.unwrap();
            assert!(
                source
                    .requests()
                    .iter()
                    .all(|request| request.headers["x-a"] == "source")
            );
            for request in target.requests() {
                let headers = &request.headers;
                assert!(
                    !headers.contains_key("x-a") && !headers.contains_key("x-b"),
                    "{headers:?}"
                );
                assert_eq!(request.authorization, None, "{status}");
            }
        }
        // Nor does the source get its own headers when a later redirect comes back.
        source.forget_requests();
        target
            .repo("team/app")
            .fault(Some(Fault::redirect(status, &back)));
        assert!(client.fetch(&image, None).await.is_err());
        let returned = source.requests().pop().unwrap();
        assert_eq!(
            (returned.path.as_str(), returned.authorization),
            ("/back", None)
        );
        assert!(!returned.headers.contains_key("x-a"));
    }
}

#[tokio::test]
async fn what_comes_back_comes_without_its_authorization() {
    let bench = Bench::new(1).await;
    let repo = bench.source.repo("team/app");
    let url = bench.source.url();
    repo.require(Auth::basic("user", "word"));
    bench.redirect(307, &format!("{}{PATH}", bench.targets[0].url()));
    let public = bench.source.repo("public/app");
    public.index(Some("v1"), BOTH);
    public.require(Auth::basic("user", "word"));
    let back = Fault::redirect(307, &format!("{url}/v2/public/app/manifests/v1"));
    bench.targets[0].repo("team/app").fault(Some(back));
    assert_eq!(bench.ask(Some(&password())).await, "denied");
    let shown: Vec<_> = public
        .requests()
        .into_iter()
        .map(|request| request.authorization)
        .collect();
    assert_eq!(shown, [None]);
    public.require_nothing();
    assert_eq!(bench.ask(Some(&password())).await, ok());
    public.require(Auth::bearer());
    assert_eq!(
        bench.ask(Some(&password())).await,
        ok(),
        "by a token for anybody"
    );
}

#[tokio::test]
async fn a_client_certificate_is_presented_only_where_that_is_configured() {
    let dir = tempfile::tempdir().unwrap();
    let [cert, key] = ["c.crt", "c.key"].map(|name| dir.path().join(name));
    let leaf = testregistry::Pki::new().client_leaf();
    std::fs::write(&cert, &leaf.cert_pem).unwrap();
    std::fs::write(&key, &leaf.key_pem).unwrap();
    let of_place = |presenting: usize| {
        let cert = cert.clone();
        let key = key.clone();
        move |place: usize, settings: &mut HostSettings| {
            if place == presenting {
                settings.client_cert_file = Some(cert.clone());
                settings.client_key_file = Some(key.clone());
            }
        }
    };
    for status in [301, 302, 303, 307, 308] {
        // The target's certificate: refused before a connection is made.
        let bench = Bench::with(1, of_place(1)).await;
        let source = &bench.source;
        let target = &bench.targets[0];
        bench.redirect(status, &format!("{}{PATH}", target.url()));
        let error = bench.fetch(None).await.unwrap_err();
        let line = format!(
            "registries.hosts.{:?}.tokenHosts: [{}]",
            source.address(),
            target.address()
        );
        assert!(
            matches!(error, Error::Unexpected(_)) && error.to_string().ends_with(&line),
            "{error}"
        );
        assert_eq!(target.connections(), 0, "{status}");
        // Nor does a chain of redirects end at a target with a certificate.
        let bench = Bench::with(2, of_place(2)).await;
        bench.redirect(status, &format!("{}{PATH}", bench.targets[0].url()));
        let onward = Fault::redirect(status, &format!("{}{PATH}", bench.targets[1].url()));
        bench.targets[0].repo("team/app").fault(Some(onward));
        assert_eq!(bench.ask(None).await, "unexpected", "{status}");
        assert_eq!(bench.targets[1].connections(), 0, "{status}");
        // The source's own certificate: not when another origin redirects back to the source.
        let bench = Bench::with(1, of_place(0)).await;
        bench.redirect(status, &format!("{}{PATH}", bench.targets[0].url()));
        let back = Fault::redirect(status, &format!("{}/back", bench.source.url()));
        bench.targets[0].repo("team/app").fault(Some(back));
        assert_eq!(bench.ask(None).await, "unexpected", "{status}");
        assert_eq!(steps(&bench.source), ["Manifest GET -"], "{status}");
    }
}

/// A target's realm is trusted as little as a registry's.
#[tokio::test]
async fn a_target_cannot_borrow_what_the_source_has() {
    let bench = Bench::new(1).await;
    let auth = Auth::bearer()
        .credentials("user", "word")
        .oauth()
        .or_anonymous();
    bench.source.repo("team/app").require(auth.clone());
    bench.redirect(307, &format!("{}{PATH}", bench.targets[0].url()));
    let realm = format!("{}/token", bench.source.url());
    bench.targets[0]
        .repo("team/app")
        .require(Auth::bearer().realm(&realm));
    assert_eq!(bench.ask(Some(&password())).await, "denied");
    let tokens: Vec<_> = bench
        .source
        .requests()
        .into_iter()
        .filter(|request| request.kind == Kind::Token)
        .collect();
    let methods: Vec<_> = tokens
        .iter()
        .map(|request| request.method.as_str())
        .collect();
    assert_eq!(
        methods,
        ["POST", "GET"],
        "for the target a token for anybody"
    );
    assert_eq!(tokens[1].authorization, None);
    let shown: Vec<_> = bench.targets[0]
        .requests()
        .into_iter()
        .filter_map(|request| request.authorization)
        .collect();
    let own: Vec<_> = bench
        .source
        .requests()
        .into_iter()
        .filter_map(|request| request.authorization)
        .collect();
    assert!(shown.iter().all(|shown| !own.contains(shown)));
}

/// Object stores sign URLs for one method, lose the type, and know no digests; their errors are XML.
#[tokio::test]
async fn an_object_store_may_have_the_manifest() {
    let bench = Bench::new(1).await;
    let repo = bench.targets[0].repo("team/app");
    repo.index(Some("v1"), BOTH);
    repo.header("content-type", Some("binary/octet-stream"));
    repo.header("docker-content-digest", None);
    let page = Reply::new(302)
        .header(
            "location",
            &format!("{}{PATH}?X-Amz-Signature=abc", bench.targets[0].url()),
        )
        .header("content-encoding", "gzip")
        .header("docker-content-digest", &testregistry::sha256(b"other"))
        .body("<html>");
    bench
        .source
        .repo("team/app")
        .fault(Some(Fault::reply(page)));
    assert_eq!(bench.ask(None).await, ok());
    let head = async || bench.client.head(&bench.image(), None).await;
    assert_eq!(head().await.unwrap(), None, "without a digest");
    for status in [401, 403, 404, 405] {
        repo.fault(Some(Fault::status(status).only_head()));
        assert_eq!(head().await.unwrap(), None, "{status}");
        assert_eq!(bench.ask(None).await, ok());
    }
    for (status, expected) in [(500, "unreachable"), (429, "throttled")] {
        repo.fault(Some(Fault::status(status).only_head()));
        assert_eq!(word(&head().await.unwrap_err()), expected);
    }
}

#[tokio::test]
async fn an_error_names_the_host_where_it_happened() {
    let bench = Bench::new(1).await;
    let source = bench.source.address();
    let target = bench.targets[0].address();
    let repo = bench.targets[0].repo("team/app");
    bench.redirect(307, &format!("{}{PATH}", bench.targets[0].url()));
    for (fault, expected) in [
        (Fault::status(404), "not-found"),
        (Fault::status(403), "denied"),
        (Fault::status(401), "denied"),
        (Fault::status(429), "throttled"),
        (Fault::status(503), "unreachable"),
        (Fault::reset(), "unreachable"),
        (Fault::body("<html>", "text/html"), "Json"),
        (Fault::redirect(307, "ftp://x/"), "unexpected"),
    ] {
        let name = format!("{fault:?}");
        repo.fault(Some(fault));
        let error = bench.fetch(None).await.unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with(&format!("{source} redirects to {target}: ")),
            "{error}"
        );
        assert_eq!(kind(&Err(error)), expected, "{name}");
    }
    bench.redirect(307, "https://127.0.0.1:1/x");
    let error = bench.fetch(None).await.unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("{source} redirects to 127.0.0.1:1: ")),
        "{error}"
    );
    bench.redirect(307, "https://169.254.169.254/x");
    let error = bench.fetch(None).await.unwrap_err();
    assert_eq!(word(&error), "address-not-allowed");
    assert!(
        error
            .to_string()
            .contains(" redirects to 169.254.169.254: "),
        "{error}"
    );
    bench
        .source
        .repo("team/app")
        .fault(Some(Fault::status(403)));
    assert!(
        !bench
            .fetch(None)
            .await
            .unwrap_err()
            .to_string()
            .contains("redirects")
    );
}

#[tokio::test]
async fn a_storage_without_tls_serves_what_has_a_digest() {
    let bench = Bench::new(0).await;
    let storage = Remote::builder().plain_http().start().await;
    let repo = bench.source.repo("team/app");
    repo.image("linux/amd64", Some("v1"));
    repo.redirect_blobs_to(&storage.cdn_of(&repo));
    repo.require(Auth::basic("user", "word"));
    assert_eq!(bench.ask(Some(&password())).await, "unexpected");
    assert_eq!(storage.connections(), 0);

    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca.crt");
    std::fs::write(&ca, bench.source.pki().ca_pem()).unwrap();
    let hosts = [
        (
            bench.source.address(),
            HostSettings {
                ca_file: Some(ca),
                ..HostSettings::default()
            },
        ),
        (
            storage.address(),
            HostSettings {
                plain_http: true,
                ..HostSettings::default()
            },
        ),
    ];
    let guard = AddressGuard {
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        deny: vec![],
    };
    let client = Registry::new(hosts, guard, registry_metrics()).unwrap();
    let found = client
        .fetch(&bench.image(), Some(&password()))
        .await
        .unwrap();
    assert_eq!(found.support, Support::Single(platforms(&["linux/amd64"])));
    assert_eq!(steps(&storage), ["Cdn GET -"]);
}
