//! Redirects of manifests and configs to other hosts: which are followed, what is sent along, and how failures are
//! reported.

use testregistry::Request;

use super::*;

/// A registry that redirects, registries to which it redirects, and a client that trusts all of them.
struct TestRegistries {
    source: Remote,
    targets: Vec<Remote>,
    client: Registry,
    _dir: tempfile::TempDir,
}

const PATH: &str = "/v2/team/app/manifests/v1";

impl TestRegistries {
    async fn new(targets: usize) -> Self {
        Self::with(targets, |_, _| {}).await
    }

    /// Starts the registries. `change` gets the index of each host, 0 for the source, and the settings of the host.
    async fn with(targets: usize, change: impl Fn(usize, &mut HostSettings)) -> Self {
        let source = Remote::start().await;
        let mut others = Vec::new();
        for _ in 0..targets {
            others.push(Remote::builder().pki(source.pki()).start().await);
        }
        let dir = tempfile::tempdir().unwrap();
        let ca = dir.path().join("ca.crt");
        std::fs::write(&ca, source.pki().ca_pem()).unwrap();
        let mut hosts = Vec::new();
        for (index, remote) in [&source].into_iter().chain(&others).enumerate() {
            let mut settings = HostSettings {
                ca_file: Some(ca.clone()),
                ..HostSettings::default()
            };
            change(index, &mut settings);
            hosts.push((remote.address(), settings));
        }
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

    async fn lookup(&self, credential: Option<&Credential>) -> String {
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

/// Lists the requests since the last call: kind, method, and scheme of authorization.
fn steps(remote: &Remote) -> Vec<String> {
    let step = |request: Request| {
        let authorization = request.authorization.as_deref().unwrap_or("-");
        let scheme = authorization.split(' ').next().unwrap();
        format!("{:?} {} {scheme}", request.kind, request.method)
    };
    let steps = remote.requests().into_iter().map(step).collect();
    remote.forget_requests();
    steps
}

/// Like registry.k8s.io (archeio): a prefix before the name, `/v2/` without a challenge, and no tokens.
#[tokio::test]
async fn manifest_may_be_at_another_registry_and_name() {
    let test = TestRegistries::new(1).await;
    let repo = test.targets[0].repo("k8s-artifacts-prod/images/team/app");
    let digest = repo.image("linux/amd64", Some("v1"))["digest"]
        .as_str()
        .unwrap()
        .to_owned();
    let url = test.targets[0].url();
    test.source
        .repo("team/app")
        .fault(Some(Fault::custom(move |request| {
            let path = request
                .path
                .replacen("/v2/", "/v2/k8s-artifacts-prod/images/", 1);
            Some(Fault::redirect(307, &format!("{url}{path}")))
        })));
    let single = format!("{:?}", Support::Single(platforms(&["linux/amd64"])));
    assert_eq!(test.lookup(None).await, single);
    assert_eq!(steps(&test.source), ["Manifest GET -", "Blob GET -"]);
    assert_eq!(steps(&test.targets[0]), ["Manifest GET -", "Blob GET -"]);
    let traces = Traces::default();
    let image = test.image();
    trace::scope(Some(&traces), &image, test.client.fetch(&image, None))
        .await
        .unwrap();
    let requests = traces.trace_of(&image).requests;
    let ports: Vec<_> = requests
        .iter()
        .filter_map(|request| request.url.port())
        .collect();
    assert_eq!(
        ports,
        [test.source.port(), test.targets[0].port()].repeat(2),
        "as inspect shows"
    );
    let head = test.client.head(&test.image(), None).await.unwrap();
    assert_eq!(head, Some(Digest::of_text(&digest)));
}

/// Like oci.external-secrets.io: a 301 to a registry that demands a token, for a repository of another name.
#[tokio::test]
async fn redirect_target_gets_its_own_anonymous_token() {
    let test = TestRegistries::new(1).await;
    let target = &test.targets[0];
    let auth = Auth::bearer();
    let repo = target.repo("vendor/app");
    repo.index(Some("v1"), BOTH);
    repo.require(auth.clone());
    test.redirect(301, &format!("{}/v2/vendor/app/manifests/v1", target.url()));
    let credential = password();
    for credential in [None, Some(&credential)] {
        assert_eq!(
            traced(&test.image(), test.lookup(credential)).await,
            (ok(), vec!["anonymous"])
        );
        assert_eq!(steps(&test.source), ["Manifest GET -"]);
        let scope = target.requests()[1].query_value("scope");
        assert_eq!(scope.as_deref(), Some("repository:vendor/app:pull"));
        assert_eq!(
            steps(target),
            ["Manifest GET -", "Token GET -", "Manifest GET Bearer"]
        );
    }
    let head = test.client.head(&test.image(), None).await.unwrap();
    assert!(head.is_some());
    steps(target);
    // Only lookups of the target's own images cache the target's scheme.
    let named = repo.reference("v1").parse().unwrap();
    test.client.fetch(&named, None).await.unwrap();
    assert_eq!(
        steps(target),
        ["Manifest GET -", "Token GET -", "Manifest GET Bearer"]
    );

    auth.refuse(true);
    assert_eq!(test.lookup(None).await, "denied");
    assert_eq!(
        steps(target),
        ["Manifest GET -", "Token GET -", "Manifest GET Bearer"],
        "once only"
    );
}

#[tokio::test]
async fn source_and_target_of_a_redirect_use_separate_tokens() {
    let test = TestRegistries::new(1).await;
    let repo = test.source.repo("team/app");
    repo.require(Auth::bearer().credentials("user", "word").oauth());
    test.targets[0].repo("team/app").index(Some("v1"), BOTH);
    test.targets[0].repo("team/app").require(Auth::bearer());
    test.redirect(307, &format!("{}{PATH}", test.targets[0].url()));
    assert_eq!(test.lookup(Some(&password())).await, ok());
    assert_eq!(
        steps(&test.source),
        ["Manifest GET -", "Token POST -", "Manifest GET Bearer"]
    );
    assert_eq!(
        steps(&test.targets[0]),
        ["Manifest GET -", "Token GET -", "Manifest GET Bearer"]
    );
}

/// Whatever a registry, a mirror or a CDN answers, no credential reaches another origin.
#[tokio::test]
async fn no_redirect_sends_a_credential_to_another_origin() {
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
                let test = TestRegistries::new(2).await;
                let [first, second] = &*test.targets else {
                    unreachable!()
                };
                test.source.repo("team/app").require(at_source.clone());
                test.redirect(status, &format!("{}{PATH}", first.url()));
                first.repo("team/app").fault(Some(Fault::redirect(
                    status,
                    &format!("{}{PATH}", second.url()),
                )));
                second.repo("team/app").index(Some("v1"), BOTH);
                second.repo("team/app").require(at_target());
                let answer = test.lookup(Some(&credential)).await;
                let expected = if name == "Bearer" {
                    ok()
                } else {
                    "denied".into()
                };
                assert_eq!(answer, expected, "{status}, {name}");
                let _ = test.client.head(&test.image(), Some(&credential)).await;
                assert!(
                    first.count(|request| request.method == "HEAD") > 0,
                    "{status}, {name}"
                );
                for remote in &test.targets {
                    for request in remote.requests() {
                        let authorization = request.authorization.unwrap_or_default();
                        assert!(!authorization.starts_with("Basic"), "{status}, {name}");
                        assert!(request.body.is_empty(), "{status}, {name}");
                        let may_have_token = name == "Bearer" && remote.port() == second.port();
                        assert!(authorization.is_empty() || may_have_token);
                    }
                }
            }
        }
    }
}

/// Also for redirects of a mirror, with the headers of its `hosts.toml`, and for a `Bearer` token in a Pod's secret.
#[tokio::test]
async fn no_redirect_sends_headers_to_another_origin() {
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
            let directory = dir.path().join(&name);
            std::fs::create_dir(&directory).unwrap();
            std::fs::write(
                directory.join("hosts.toml"),
                format!("ca = 'ca.crt'\n{text}"),
            )
            .unwrap();
            std::fs::write(directory.join("ca.crt"), source.pki().ca_pem()).unwrap();
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
            for request in source.requests() {
                assert_eq!(request.headers["x-a"], "source");
            }
            for request in target.requests() {
                let headers = &request.headers;
                assert!(!headers.contains_key("x-a"), "{headers:?}");
                assert!(!headers.contains_key("x-b"), "{headers:?}");
                assert_eq!(request.authorization, None, "{status}");
            }
        }
        // The source does not get its own headers either, when a later redirect leads back to it.
        source.forget_requests();
        target
            .repo("team/app")
            .fault(Some(Fault::redirect(status, &back)));
        assert!(client.fetch(&image, None).await.is_err());
        let returned = source.requests().pop().unwrap();
        assert_eq!(returned.path, "/back");
        assert_eq!(returned.authorization, None);
        assert!(!returned.headers.contains_key("x-a"));
    }
}

#[tokio::test]
async fn redirect_back_to_the_source_has_no_authorization() {
    let test = TestRegistries::new(1).await;
    let repo = test.source.repo("team/app");
    let url = test.source.url();
    repo.require(Auth::basic("user", "word"));
    test.redirect(307, &format!("{}{PATH}", test.targets[0].url()));
    let public = test.source.repo("public/app");
    public.index(Some("v1"), BOTH);
    public.require(Auth::basic("user", "word"));
    let back = Fault::redirect(307, &format!("{url}/v2/public/app/manifests/v1"));
    test.targets[0].repo("team/app").fault(Some(back));
    assert_eq!(test.lookup(Some(&password())).await, "denied");
    let [request] = public.requests().try_into().unwrap();
    assert_eq!(request.authorization, None);
    public.require_nothing();
    assert_eq!(test.lookup(Some(&password())).await, ok());
    public.require(Auth::bearer());
    assert_eq!(
        test.lookup(Some(&password())).await,
        ok(),
        "with an anonymous token"
    );
}

#[tokio::test]
async fn redirects_present_no_client_certificate_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let [cert, key] = ["c.crt", "c.key"].map(|name| dir.path().join(name));
    let leaf = testregistry::Pki::new().client_leaf();
    std::fs::write(&cert, &leaf.cert_pem).unwrap();
    std::fs::write(&key, &leaf.key_pem).unwrap();
    let with_certificate = |host: usize| {
        let cert = cert.clone();
        let key = key.clone();
        move |index: usize, settings: &mut HostSettings| {
            if index == host {
                settings.client_cert_file = Some(cert.clone());
                settings.client_key_file = Some(key.clone());
            }
        }
    };
    for status in [301, 302, 303, 307, 308] {
        // The target's certificate: refused before a connection is made.
        let test = TestRegistries::with(1, with_certificate(1)).await;
        let source = &test.source;
        let target = &test.targets[0];
        test.redirect(status, &format!("{}{PATH}", target.url()));
        let error = test.fetch(None).await.unwrap_err();
        let line = format!(
            "registries.hosts.{:?}.tokenHosts: [{}]",
            source.address(),
            target.address()
        );
        assert!(matches!(error, Error::Unexpected(_)), "{error}");
        assert!(error.to_string().ends_with(&line), "{error}");
        assert_eq!(target.connections(), 0, "{status}");
        // A chain of redirects may not end at a target with a certificate either.
        let test = TestRegistries::with(2, with_certificate(2)).await;
        test.redirect(status, &format!("{}{PATH}", test.targets[0].url()));
        let onward = Fault::redirect(status, &format!("{}{PATH}", test.targets[1].url()));
        test.targets[0].repo("team/app").fault(Some(onward));
        assert_eq!(test.lookup(None).await, "unexpected", "{status}");
        assert_eq!(test.targets[1].connections(), 0, "{status}");
        // The source's certificate is not used when another origin redirects back to the source.
        let test = TestRegistries::with(1, with_certificate(0)).await;
        test.redirect(status, &format!("{}{PATH}", test.targets[0].url()));
        let back = Fault::redirect(status, &format!("{}/back", test.source.url()));
        test.targets[0].repo("team/app").fault(Some(back));
        assert_eq!(test.lookup(None).await, "unexpected", "{status}");
        assert_eq!(steps(&test.source), ["Manifest GET -"], "{status}");
    }
}

/// The realm that a redirect's target names is not trusted more than one that a registry names.
#[tokio::test]
async fn redirect_target_cannot_get_the_sources_token() {
    let test = TestRegistries::new(1).await;
    let auth = Auth::bearer()
        .credentials("user", "word")
        .oauth()
        .or_anonymous();
    test.source.repo("team/app").require(auth.clone());
    test.redirect(307, &format!("{}{PATH}", test.targets[0].url()));
    let realm = format!("{}/token", test.source.url());
    test.targets[0]
        .repo("team/app")
        .require(Auth::bearer().realm(&realm));
    assert_eq!(test.lookup(Some(&password())).await, "denied");
    let tokens: Vec<_> = test
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
        "for the target an anonymous token"
    );
    assert_eq!(tokens[1].authorization, None);
    let authorizations = |remote: &Remote| -> Vec<String> {
        let requests = remote.requests().into_iter();
        requests
            .filter_map(|request| request.authorization)
            .collect()
    };
    let at_source = authorizations(&test.source);
    for authorization in authorizations(&test.targets[0]) {
        assert!(!at_source.contains(&authorization));
    }
}

/// Object stores sign URLs for one method only, lose the media type, and send no digests and XML errors.
#[tokio::test]
async fn object_store_may_serve_the_manifest() {
    let test = TestRegistries::new(1).await;
    let repo = test.targets[0].repo("team/app");
    repo.index(Some("v1"), BOTH);
    repo.header("content-type", Some("binary/octet-stream"));
    repo.header("docker-content-digest", None);
    let page = Reply::new(302)
        .header(
            "location",
            &format!("{}{PATH}?X-Amz-Signature=abc", test.targets[0].url()),
        )
        .header("content-encoding", "gzip")
        .header("docker-content-digest", &testregistry::sha256(b"other"))
        .body("<html>");
    test.source.repo("team/app").fault(Some(Fault::reply(page)));
    assert_eq!(test.lookup(None).await, ok());
    let head = async || test.client.head(&test.image(), None).await;
    assert_eq!(head().await.unwrap(), None, "without a digest");
    for status in [401, 403, 404, 405] {
        repo.fault(Some(Fault::status(status).only_head()));
        assert_eq!(head().await.unwrap(), None, "{status}");
        assert_eq!(test.lookup(None).await, ok());
    }
    for (status, expected) in [(500, "unreachable"), (429, "throttled")] {
        repo.fault(Some(Fault::status(status).only_head()));
        assert_eq!(word(&head().await.unwrap_err()), expected);
    }
}

#[tokio::test]
async fn errors_name_the_redirect_target_that_failed() {
    let test = TestRegistries::new(1).await;
    let source = test.source.address();
    let target = test.targets[0].address();
    let repo = test.targets[0].repo("team/app");
    test.redirect(307, &format!("{}{PATH}", test.targets[0].url()));
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
        let error = test.fetch(None).await.unwrap_err();
        let begin = format!("{source} redirects to {target}: ");
        assert!(error.to_string().starts_with(&begin), "{error}");
        assert_eq!(kind(&Err(error)), expected, "{name}");
    }
    test.redirect(307, "https://127.0.0.1:1/x");
    let error = test.fetch(None).await.unwrap_err().to_string();
    let begin = format!("{source} redirects to 127.0.0.1:1: ");
    assert!(error.starts_with(&begin), "{error}");
    test.redirect(307, "https://169.254.169.254/x");
    let error = test.fetch(None).await.unwrap_err();
    assert_eq!(word(&error), "address-not-allowed");
    let error = error.to_string();
    assert!(error.contains(" redirects to 169.254.169.254: "), "{error}");
    test.source.repo("team/app").fault(Some(Fault::status(403)));
    let error = test.fetch(None).await.unwrap_err().to_string();
    assert!(!error.contains("redirects"), "{error}");
}

#[tokio::test]
async fn configured_plain_http_storage_serves_blobs() {
    let test = TestRegistries::new(0).await;
    let storage = Remote::builder().plain_http().start().await;
    let repo = test.source.repo("team/app");
    repo.image("linux/amd64", Some("v1"));
    repo.redirect_blobs_to(&storage.cdn_of(&repo));
    repo.require(Auth::basic("user", "word"));
    assert_eq!(test.lookup(Some(&password())).await, "unexpected");
    assert_eq!(storage.connections(), 0);

    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca.crt");
    std::fs::write(&ca, test.source.pki().ca_pem()).unwrap();
    let hosts = [
        (
            test.source.address(),
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
        .fetch(&test.image(), Some(&password()))
        .await
        .unwrap();
    assert_eq!(found.support, Support::Single(platforms(&["linux/amd64"])));
    assert_eq!(steps(&storage), ["Cdn GET -"]);
}
