//! Endpoints of images: mirrors, directories of hosts, and what is sent to each.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::*;
use crate::credentials::CredentialSettings;
use tolerarch_kubernetes::cluster::Caller;
use tolerarch_support::environment::Environment;

/// Makes a client that has `mirrors` for the images of `host`, and trusts the authority that `remotes` share.
pub(super) fn client_of(
    host: &str,
    mirrors: &[&str],
    remotes: &[&Remote],
) -> (Registry, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca.crt");
    std::fs::write(&ca, remotes[0].pki().ca_pem()).unwrap();
    let mut hosts = BTreeMap::new();
    for remote in remotes {
        let settings = HostSettings {
            ca_file: Some(ca.clone()),
            plain_http: remote.url().starts_with("http:"),
            ..HostSettings::default()
        };
        hosts.insert(remote.address(), settings);
    }
    let settings = hosts.entry(host.to_owned()).or_default();
    for mirror in mirrors {
        settings.mirrors.push(mirror.parse().unwrap());
    }
    let guard = AddressGuard {
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        deny: vec![],
    };
    let client = Registry::new(hosts, guard, registry_metrics()).unwrap();
    (client, dir)
}

#[tokio::test]
async fn mirrors_are_tried_first_and_get_the_registrys_name() {
    let [a, b] = [
        Remote::start().await,
        Remote::builder().plain_http().start().await,
    ];
    b.repo("hub/library/nginx").index(Some("v1"), BOTH);
    let prefixed = format!("{}/hub", b.address());
    let (client, _dir) = client_of("docker.io", &[&a.address(), &prefixed], &[&a, &b]);
    let found = client
        .fetch(&"nginx:v1".parse().unwrap(), None)
        .await
        .unwrap();
    assert_eq!(found.support, Support::Index(platforms(&BOTH)));
    for (remote, path) in [
        (&a, "/v2/library/nginx/manifests/v1"),
        (&b, "/v2/hub/library/nginx/manifests/v1"),
    ] {
        let [request] = remote.requests().try_into().unwrap();
        assert_eq!(request.path, path);
        let namespace = request.query_value("ns");
        assert_eq!(namespace.as_deref(), Some("docker.io"));
    }
}

#[tokio::test]
async fn registrys_answer_takes_precedence_over_mirrors() {
    let mirror = Remote::start().await;
    let remote = Remote::builder().pki(mirror.pki()).start().await;
    let registry_repo = remote.repo("team/app");
    let mirror_repo = mirror.repo("team/app");
    registry_repo.index(Some("v1"), BOTH);
    mirror_repo.index(Some("v1"), ["linux/amd64"]);
    let ok = |names: &[&str]| format!("{:?}", Support::Index(platforms(names)));
    let garbage = || Fault::body("<html>", "text/html");
    for (at_mirror, at_registry, expected) in [
        (None, Some(Fault::status(500)), ok(&["linux/amd64"])),
        (Some(Fault::status(404)), None, ok(&BOTH)),
        (Some(Fault::status(401)), None, ok(&BOTH)),
        (Some(Fault::status(500)), None, ok(&BOTH)),
        (Some(Fault::reset()), None, ok(&BOTH)),
        (Some(garbage()), None, ok(&BOTH)),
        (
            Some(Fault::status(404)),
            Some(Fault::status(403)),
            "denied".into(),
        ),
        (
            Some(Fault::status(500)),
            Some(Fault::status(404)),
            "not-found".into(),
        ),
        (
            Some(Fault::status(429)),
            Some(Fault::status(404)),
            "not-found".into(),
        ),
        (
            Some(Fault::status(404)),
            Some(Fault::status(500)),
            "unexpected".into(),
        ),
        (
            Some(Fault::status(500)),
            Some(Fault::status(500)),
            "unreachable".into(),
        ),
        (Some(Fault::status(404)), Some(garbage()), "Json".into()),
    ] {
        let name = format!("{at_mirror:?}, {at_registry:?}");
        mirror_repo.fault(at_mirror);
        registry_repo.fault(at_registry);
        let (client, _dir) =
            client_of(&remote.address(), &[&mirror.address()], &[&remote, &mirror]);
        let image = registry_repo.reference("v1");
        assert_eq!(lookup_kind(&client, &image).await, expected, "{name}");
    }
}

#[tokio::test]
async fn hanging_mirror_delays_only_one_lookup() {
    let mirror = Remote::start().await;
    let remote = Remote::builder().pki(mirror.pki()).start().await;
    let registry_repo = remote.repo("team/app");
    let mirror_repo = mirror.repo("team/app");
    registry_repo.image("linux/amd64", Some("v1"));
    mirror_repo.fault(Some(Fault::hang()));
    let (client, _dir) = client_of(&remote.address(), &[&mirror.address()], &[&remote, &mirror]);
    let image: ImageRef = registry_repo.reference("v1").parse().unwrap();
    for _ in 0..3 {
        client.fetch(&image, None).await.unwrap();
    }
    assert_eq!(
        mirror.requests().len(),
        1,
        "it is tried last, for the config and by the next lookups"
    );
}

/// Makes a client with a directory of hosts: for each name, the text of its `hosts.toml`, with the authority of
/// `remote` as `ca.crt` beside it.
pub(super) fn client_of_directory(
    remote: &Remote,
    files: &[(&str, &str)],
) -> (Registry, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let directory = dir.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(directory.join("hosts.toml"), text).unwrap();
        std::fs::write(directory.join("ca.crt"), remote.pki().ca_pem()).unwrap();
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
    (Registry::load(settings, registry_metrics()).unwrap(), dir)
}

pub(super) async fn lookup_kind(client: &Registry, image: &str) -> String {
    let found = client.fetch(&image.parse().unwrap(), None).await;
    kind(&found.map(|found| found.support))
}

#[tokio::test]
async fn hosts_toml_decides_which_hosts_are_tried() {
    let remote = Remote::start().await;
    let both = format!("{:?}", Support::Index(platforms(&BOTH)));
    let index = remote.repo("library/nginx").index(Some("v1"), BOTH);
    remote.repo("proxy/library/nginx").index(Some("v1"), BOTH);
    let digest = format!("nginx@{}", index["digest"].as_str().unwrap());
    let by_address = format!("127.0.0.1:{}/library/nginx:v1", remote.port());
    let url = remote.url();
    let nowhere = "server = 'https://127.0.0.3:1'\n";
    for (name, host, text, image, expected) in [
        (
            "a server alone",
            "docker.io",
            format!("server = '{url}'\nca = 'ca.crt'"),
            "nginx:v1",
            &*both,
        ),
        (
            "the default directory",
            "_default",
            format!("server = '{url}'\nca = 'ca.crt'"),
            "nginx:v1",
            &both,
        ),
        (
            "a mirror",
            "docker.io",
            format!("{nowhere}[host.'{url}']\nca = 'ca.crt'"),
            "nginx:v1",
            &both,
        ),
        (
            "a mirror with a path",
            "docker.io",
            format!("{nowhere}[host.'{url}/v2/proxy']\noverride_path = true\nca = ['ca.crt']"),
            "nginx:v1",
            &both,
        ),
        (
            "not trusted with tags",
            "docker.io",
            format!("{nowhere}[host.'{url}']\ncapabilities = ['pull']\nca = 'ca.crt'"),
            "nginx:v1",
            "unreachable",
        ),
        (
            "not trusted with tags, but with digests",
            "docker.io",
            format!("{nowhere}[host.'{url}']\ncapabilities = ['pull']\nca = 'ca.crt'"),
            &digest,
            &both,
        ),
        (
            "no endpoint",
            "docker.io",
            format!("server = '{url}'\nca = 'ca.crt'\ncapabilities = ['push']"),
            "nginx:v1",
            "unexpected",
        ),
        (
            "no verification",
            "docker.io",
            format!("server = '{url}'\nskip_verify = true"),
            "nginx:v1",
            &both,
        ),
        (
            "an unknown authority",
            "docker.io",
            format!("server = '{url}'"),
            "nginx:v1",
            "unreachable",
        ),
        (
            "itself",
            &*remote.address(),
            "ca = 'ca.crt'".into(),
            &by_address,
            &both,
        ),
        (
            "itself by default",
            "_default",
            "ca = 'ca.crt'".into(),
            &by_address,
            &both,
        ),
        (
            "an invalid file beside certificates",
            &*remote.address(),
            "ca = [".into(),
            &by_address,
            &both,
        ),
    ] {
        let (client, _dir) = client_of_directory(&remote, &[(host, &text)]);
        assert_eq!(lookup_kind(&client, image).await, expected, "{name}");
    }
    let (client, _dir) = client_of_directory(
        &remote,
        &[
            ("_default", "ca = 'ca.crt'"),
            (&remote.address(), "server = ''"),
        ],
    );
    assert_eq!(
        lookup_kind(&client, &by_address).await,
        "unreachable",
        "the registry's directory takes precedence over the default"
    );
}

#[tokio::test]
async fn tls_is_tried_first_for_http_with_tls_settings() {
    let secure = Remote::start().await;
    let plain = Remote::builder().plain_http().start().await;
    for remote in [&secure, &plain] {
        remote.repo("library/nginx").index(Some("v1"), BOTH);
        let text = format!("server = 'http://{}'\nca = 'ca.crt'", remote.address());
        let (client, _dir) = client_of_directory(remote, &[("docker.io", &text)]);
        assert_eq!(
            lookup_kind(&client, "nginx:v1").await,
            format!("{:?}", Support::Index(platforms(&BOTH)))
        );
    }
    secure.repo("library/nginx").fault(Some(Fault::status(403)));
    let text = format!("server = 'http://{}'\nca = 'ca.crt'", secure.address());
    let (client, _dir) = client_of_directory(&secure, &[("docker.io", &text)]);
    secure.forget_requests();
    assert_eq!(lookup_kind(&client, "nginx:v1").await, "denied");
    assert_eq!(
        secure.requests().len(),
        1,
        "an answer over TLS is not requested again without TLS"
    );
}

#[tokio::test]
async fn http_in_a_hosts_toml_sends_no_password() {
    let plain = Remote::builder().plain_http().start().await;
    let repo = plain.repo("team/app");
    repo.index(Some("v1"), BOTH);
    repo.require(Auth::basic("user", "word"));
    let text = format!("server = 'http://{}'\nca = 'ca.crt'", plain.address());
    let (client, _dir) = client_of_directory(&plain, &[(&plain.address(), &text)]);
    let password = Credential::Basic {
        user: "user".into(),
        password: "word".to_owned().into(),
    };
    let image = repo.reference("v1").parse().unwrap();
    let found = client.fetch(&image, Some(&password)).await;
    assert_eq!(kind(&found.map(|found| found.support)), "denied");
    let [request] = plain.requests().try_into().unwrap();
    assert_eq!(request.authorization, None);
}

#[tokio::test]
async fn headers_are_sent_only_to_their_host() {
    let remote = Remote::start().await;
    let cdn = Remote::builder().pki(remote.pki()).start().await;
    let repo = remote.repo("library/nginx");
    repo.image("linux/amd64", Some("v1"));
    repo.redirect_blobs_to(&cdn.cdn_of(&repo));
    let text = format!(
        "server = '{}'\nca = 'ca.crt'\n[header]\nAuthorization = 'Basic eDp5'\nx-a = ['1', '2']",
        remote.url()
    );
    let (client, _dir) = client_of_directory(
        &remote,
        &[("docker.io", &text), (&cdn.address(), "ca = 'ca.crt'")],
    );
    client
        .fetch(&"nginx:v1".parse().unwrap(), None)
        .await
        .unwrap();
    for request in remote.requests() {
        assert_eq!(request.authorization.as_deref(), Some("Basic eDp5"));
        assert_eq!(request.headers.get_all("x-a").iter().count(), 2);
    }
    let [request] = cdn.requests().try_into().unwrap();
    assert!(request.authorization.is_none() && !request.headers.contains_key("x-a"));
}

#[tokio::test]
async fn settings_take_precedence_over_directories() {
    let remote = Remote::start().await;
    remote.repo("library/nginx").index(Some("v1"), BOTH);
    let (_, dir) = client_of_directory(&remote, &[("docker.io", "server = 'https://127.0.0.3:1'")]);
    let ca = dir.path().join("docker.io/ca.crt");
    let mirrors = vec![remote.address().parse().unwrap()];
    let trusted = HostSettings {
        ca_file: Some(ca),
        ..HostSettings::default()
    };
    let hub = HostSettings {
        mirrors,
        ..HostSettings::default()
    };
    let settings = Settings {
        hosts: [(remote.address(), trusted), ("docker.io".into(), hub)].into(),
        hosts_dir: Some(dir.path().into()),
        guard: AddressGuard {
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            deny: vec![],
        },
        ..Settings::default()
    };
    let client = Registry::load(settings, registry_metrics()).unwrap();
    assert_eq!(
        lookup_kind(&client, "nginx:v1").await,
        format!("{:?}", Support::Index(platforms(&BOTH)))
    );
}

#[test]
fn unreadable_hosts_directory_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings {
        hosts_dir: Some(dir.path().join("absent")),
        ..Settings::default()
    };
    let error = Registry::load(settings, registry_metrics())
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("registries.hostsDir"), "{error}");
}

#[tokio::test]
async fn mirror_gets_only_its_own_operators_credential() {
    let mirror = Remote::start().await;
    let remote = Remote::builder().pki(mirror.pki()).start().await;
    let registry_repo = remote.repo("team/app");
    let mirror_repo = mirror.repo("team/app");
    for repo in [&registry_repo, &mirror_repo] {
        repo.index(Some("v1"), BOTH);
    }
    registry_repo.require(Auth::basic("pod", "p"));
    mirror_repo.require(Auth::basic("operator", "o"));
    let pods = Credential::Basic {
        user: "pod".into(),
        password: "p".to_owned().into(),
    };
    let image = registry_repo.reference("v1").parse().unwrap();
    let header = |text: &str| format!("Basic {}", BASE64.encode(text));
    let authorizations = |remote: &Remote| {
        let requests = remote.requests();
        remote.forget_requests();
        let mut authorizations: Vec<_> = requests
            .into_iter()
            .filter_map(|request| request.authorization)
            .collect();
        authorizations.dedup();
        authorizations
    };
    let operators = vec![header("operator:o")];
    for (key, at_mirror, at_registry, source) in [
        (mirror.address(), operators, vec![], "docker config"),
        (
            remote.address(),
            vec![],
            vec![header("pod:p")],
            "pull secret",
        ),
    ] {
        let (client, dir) = client_of(&remote.address(), &[&mirror.address()], &[&remote, &mirror]);
        let file = dir.path().join("config.json");
        let auths = json!({"auths": {key: {"auth": BASE64.encode("operator:o")}}});
        std::fs::write(&file, auths.to_string()).unwrap();
        let settings = CredentialSettings {
            docker_configs: vec![file],
            ..CredentialSettings::default()
        };
        let environment = Environment::default();
        let credentials = Credentials::load(&settings, vec![], Caller::Service, &environment, None);
        let client = Registry {
            credentials: credentials.unwrap(),
            ..client
        };
        let (found, sources) = traced(&image, client.fetch(&image, Some(&pods))).await;
        assert_eq!(found.unwrap().support, Support::Index(platforms(&BOTH)));
        assert_eq!(authorizations(&mirror), at_mirror);
        assert_eq!(authorizations(&remote), at_registry);
        assert_eq!(sources, [source]);
    }
}

#[tokio::test]
async fn no_image_uses_the_operators_headers_for_another_host() {
    let mirror = Remote::start().await;
    let evil = Remote::builder().pki(mirror.pki()).start().await;
    let auth = Auth::bearer().credentials("op", "word");
    let realm = mirror.serve_tokens(&auth);
    let cached = mirror.repo("library/nginx");
    cached.require(auth);
    cached.index(Some("v1"), BOTH);
    let hub = format!(
        "server = 'https://127.0.0.3:1'\n[host.'{0}']\nca = 'ca.crt'\n[host.'{0}'.header]\nAuthorization = 'Basic {1}'",
        mirror.url(),
        BASE64.encode("op:word")
    );
    let files = [("docker.io", &*hub), (&*evil.address(), "ca = 'ca.crt'")];
    let (client, dir) = client_of_directory(&evil, &files);
    let repo = evil.repo("team/app");
    repo.image("linux/amd64", Some("v1"));
    repo.redirect_blobs_to(&format!("{}/any/path", mirror.url()));
    assert_eq!(
        lookup_kind(&client, &repo.reference("v1")).await,
        "Missing",
        "a redirect"
    );
    let challenge = format!("Bearer realm=\"{realm}?scope=repository:secret/app:pull\"");
    repo.require(Auth::basic("x", "y").challenges(&[&challenge]));
    assert_eq!(
        lookup_kind(&client, &repo.reference("v1")).await,
        "denied",
        "a realm"
    );
    let bare = |request: &testregistry::Request| request.authorization.is_none();
    assert!(mirror.requests().iter().all(bare));

    assert_eq!(
        lookup_kind(&client, "nginx:v1").await,
        format!("{:?}", Support::Index(platforms(&BOTH)))
    );
    mirror.forget_requests();
    assert_eq!(
        lookup_kind(&client, &cached.reference("v1")).await,
        "denied",
        "by its own name"
    );
    assert!(
        mirror.requests().iter().all(bare),
        "the token is not sent either"
    );

    // Even as a configured token server, the host gets a request without its headers.
    let settings = Settings {
        hosts: [(
            evil.address(),
            HostSettings {
                token_hosts: vec![mirror.address()],
                ..HostSettings::default()
            },
        )]
        .into(),
        hosts_dir: Some(dir.path().into()),
        guard: AddressGuard {
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            deny: vec![],
        },
        ..Settings::default()
    };
    let client = Registry::load(settings, registry_metrics()).unwrap();
    mirror.forget_requests();
    assert_eq!(lookup_kind(&client, &repo.reference("v1")).await, "denied");
    assert_eq!(
        mirror.count(|request| request.kind == Kind::Token && request.authorization.is_none()),
        1
    );
}

#[tokio::test]
async fn no_image_uses_a_client_certificate_for_another_host() {
    let inner = Remote::start().await;
    let evil = Remote::builder().pki(inner.pki()).start().await;
    let repo = evil.repo("team/app");
    let dir = tempfile::tempdir().unwrap();
    let [ca, cert, key] = ["ca.crt", "c.crt", "c.key"].map(|name| dir.path().join(name));
    let leaf = inner.pki().client_leaf();
    std::fs::write(&ca, inner.pki().ca_pem()).unwrap();
    std::fs::write(&cert, &leaf.cert_pem).unwrap();
    std::fs::write(&key, &leaf.key_pem).unwrap();
    let trusted = HostSettings {
        ca_file: Some(ca),
        ..HostSettings::default()
    };
    let with_certificate = HostSettings {
        client_cert_file: Some(cert),
        client_key_file: Some(key),
        ..trusted.clone()
    };
    let guard = AddressGuard {
        allow: vec!["127.0.0.0/8".parse().unwrap()],
        deny: vec![],
    };
    let hosts = [
        (evil.address(), trusted),
        (inner.address(), with_certificate),
    ];
    let client = Registry::new(hosts, guard, registry_metrics()).unwrap();
    repo.image("linux/amd64", Some("v1"));
    repo.redirect_blobs_to(&inner.url());
    assert_eq!(
        lookup_kind(&client, &repo.reference("v1")).await,
        "unexpected"
    );
    repo.require(Auth::bearer().realm(&format!("{}/token", inner.url())));
    assert_eq!(lookup_kind(&client, &repo.reference("v1")).await, "denied");
    assert_eq!(inner.connections(), 0);
}

#[tokio::test]
async fn mirror_that_fails_for_one_image_serves_the_others() {
    let mirror = Remote::start().await;
    let remote = Remote::builder().pki(mirror.pki()).start().await;
    let text = format!("[host.'{}']\nca = 'ca.crt'", mirror.url());
    let (client, _dir) = client_of_directory(
        &remote,
        &[("_default", &text), (&remote.address(), "ca = 'ca.crt'")],
    );
    mirror.repo("team/odd").fault(Some(Fault::status(500)));
    mirror.repo("team/app").index(Some("v1"), BOTH);
    for _ in 0..3 {
        assert_eq!(
            lookup_kind(&client, "127.0.0.3:1/team/odd:v1").await,
            "unreachable"
        );
    }
    let count = mirror.requests().len();
    assert_eq!(count, 3, "it is tried last, but is tried");
    assert_eq!(
        lookup_kind(&client, "127.0.0.3:1/team/app:v1").await,
        format!("{:?}", Support::Index(platforms(&BOTH)))
    );
    assert_eq!(mirror.requests().len(), 4);
}

/// A mirror may relay the realm of a registry that a tenant has chosen.
#[tokio::test]
async fn unreachable_token_server_leaves_its_mirror_healthy() {
    let mirror = Remote::start().await;
    let remote = Remote::builder().pki(mirror.pki()).start().await;
    let odd = mirror.repo("team/odd");
    odd.require(Auth::bearer().realm("https://127.0.0.3:1/token"));
    for name in ["team/odd", "team/app"] {
        remote.repo(name).index(Some("v1"), ["linux/amd64"]);
        mirror.repo(name).index(Some("v1"), BOTH);
    }
    let (client, _dir) = client_of(&remote.address(), &[&mirror.address()], &[&remote, &mirror]);
    let index = |names: &[&str]| format!("{:?}", Support::Index(platforms(names)));
    let at_registry = index(&["linux/amd64"]);
    let at_mirror = index(&BOTH);
    for (name, expected) in [("team/odd", at_registry), ("team/app", at_mirror)] {
        let image = remote.repo(name).reference("v1");
        assert_eq!(lookup_kind(&client, &image).await, expected, "{name}");
    }
}
