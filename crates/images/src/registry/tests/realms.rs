//! Realms at hosts with names: which of them get a credential, and the errors of the others.

use testregistry::Request;

use super::gates::proxy;
use super::*;
use crate::credentials::CredentialOwner;
use crate::registry::FailureClass;
use crate::registry::Pull;

const REGISTRY: &str = "registry.git.example.com";

/// One server under many names, behind a proxy that finds it under each.
struct Bench {
    remote: Remote,
    client: Registry,
    _dir: tempfile::TempDir,
}

impl Bench {
    /// Starts a bench with token hosts of the registry.
    async fn new(names: &[&str], token_hosts: &[&str]) -> Self {
        Self::with(names, token_hosts, |_, _| ()).await
    }

    async fn with(
        names: &[&str],
        token_hosts: &[&str],
        change: impl Fn(&str, &mut HostSettings),
    ) -> Self {
        let remote = Remote::builder().names(names).start().await;
        let (address, _) = proxy(remote.address()).await;
        let dir = tempfile::tempdir().unwrap();
        let ca = dir.path().join("ca.crt");
        std::fs::write(&ca, remote.pki().ca_pem()).unwrap();
        let hosts = ["", ":5050"]
            .into_iter()
            .flat_map(|port| names.iter().map(move |name| (name, port)));
        let hosts = hosts.map(|(name, port)| {
            let token_hosts = if *name == REGISTRY { token_hosts } else { &[] };
            let token_hosts = token_hosts.iter().map(ToString::to_string).collect();
            let ca_file = Some(ca.clone());
            let mut settings = HostSettings {
                ca_file,
                token_hosts,
                ..HostSettings::default()
            };
            let name = format!("{name}{port}");
            change(&name, &mut settings);
            (name, settings)
        });
        let proxies =
            Proxies::of(|name| (name == "HTTPS_PROXY").then(|| format!("http://{address}")))
                .unwrap();
        let settings = Settings {
            hosts: hosts.collect(),
            proxies,
            ..Settings::default()
        };
        let client = Registry::load(settings, registry_metrics()).unwrap();
        Self {
            remote,
            client,
            _dir: dir,
        }
    }

    /// Looks up an image of this registry, whose realm is `realm`, with a password of this owner.
    async fn ask(
        &self,
        registry: &str,
        realm: &str,
        owner: CredentialOwner,
    ) -> Result<Support, Error> {
        let repo = self.remote.repo("team/app");
        repo.require(
            Auth::bearer()
                .credentials("user", "word")
                .oauth()
                .realm(realm),
        );
        repo.index(Some("v1"), BOTH);
        let image: ImageRef = format!("{registry}/team/app:v1").parse().unwrap();
        let credential = Credential::Basic {
            user: "user".into(),
            password: "word".to_owned().into(),
        };
        let pull = Pull {
            image: &image,
            credential: Some(&credential),
            owner,
            namespace: 0,
            reached: None,
        };
        self.client.find(pull).await.map(|found| found.support)
    }

    /// Returns the hosts that saw the password since the last call.
    fn informed(&self) -> Vec<String> {
        let saw = |request: &Request| {
            let shown = request
                .authorization
                .as_deref()
                .is_some_and(|text| text.starts_with("Basic"));
            shown || request.form_value("password").is_some()
        };
        let requests = self.remote.requests();
        self.remote.forget_requests();
        requests
            .into_iter()
            .filter(saw)
            .map(|request| request.host)
            .collect()
    }
}

/// Self-managed GitLab: its registry beside it, or at another port of it.
#[tokio::test]
async fn a_pods_secret_opens_a_registry_whose_tokens_come_from_its_own_domain() {
    let bench = Bench::new(&[REGISTRY, "git.example.com"], &[]).await;
    let ok = format!("{:?}", Support::Index(platforms(&BOTH)));
    assert_eq!(
        kind(
            &bench
                .ask(
                    REGISTRY,
                    "https://git.example.com/token",
                    CredentialOwner::Pod
                )
                .await
        ),
        ok
    );
    assert_eq!(bench.informed(), ["git.example.com"]);
    for owner in [CredentialOwner::Operator, CredentialOwner::Pod] {
        let found = bench
            .ask(
                "git.example.com:5050",
                "https://git.example.com/token",
                owner,
            )
            .await;
        assert_eq!(kind(&found), ok);
        assert_eq!(bench.informed(), ["git.example.com"]);
    }
    let error = bench
        .ask(
            REGISTRY,
            "https://git.example.com/token",
            CredentialOwner::Operator,
        )
        .await
        .unwrap_err();
    let line = r#"set registries.hosts."registry.git.example.com".tokenHosts: [git.example.com]"#;
    assert!(
        error.to_string().ends_with(line) && error.class() == FailureClass::Refused,
        "{error}"
    );
    assert_eq!(bench.informed(), [""; 0]);
    let bench = Bench::new(&[REGISTRY, "git.example.com"], &["git.example.com"]).await;
    assert_eq!(
        kind(
            &bench
                .ask(
                    REGISTRY,
                    "https://git.example.com/token",
                    CredentialOwner::Operator
                )
                .await
        ),
        ok,
        "as the line says"
    );
}

/// The attackers' table of realms.
#[tokio::test]
async fn no_realm_leads_a_credential_to_another_owner() {
    let names = [
        REGISTRY,
        "git.example.com",
        "evil.test",
        "a.github.io",
        "b.github.io",
        "acme.jfrog.io",
        "evil.jfrog.io",
    ];
    let bench = Bench::new(&names, &[]).await;
    for (registry, realm) in [
        (REGISTRY, "https://evil.test/token"),
        (REGISTRY, "https://evil.test:5050/token"),
        (REGISTRY, "https://registry.git.example.com@evil.test/token"),
        (REGISTRY, "https://git.example.com.evil.test/token"),
        (REGISTRY, "http://git.example.com/token"),
        (REGISTRY, "//evil.test/token"),
        ("a.github.io", "https://b.github.io/token"),
        ("acme.jfrog.io", "https://evil.jfrog.io/token"),
    ] {
        for owner in [CredentialOwner::Operator, CredentialOwner::Pod] {
            let found = bench.ask(registry, realm, owner).await;
            assert_eq!(kind(&found), "denied", "{realm} of {registry}");
            assert_eq!(bench.informed(), [""; 0], "{realm} of {registry}");
        }
    }
}

/// The operator's certificate is no tenant's to use, even with the tenant's own password: the token would be the
/// tenant's.
#[tokio::test]
async fn no_realm_borrows_a_client_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let [cert, key] = ["c.crt", "c.key"].map(|name| dir.path().join(name));
    let leaf = testregistry::Pki::new().client_leaf();
    std::fs::write(&cert, &leaf.cert_pem).unwrap();
    std::fs::write(&key, &leaf.key_pem).unwrap();
    let bench = Bench::with(&[REGISTRY, "git.example.com"], &[], |name, settings| {
        if name == "git.example.com" {
            settings.client_cert_file = Some(cert.clone());
            settings.client_key_file = Some(key.clone());
        }
    })
    .await;
    for registry in [REGISTRY, "git.example.com:5050"] {
        for owner in [CredentialOwner::Operator, CredentialOwner::Pod] {
            let found = bench
                .ask(registry, "https://git.example.com/token", owner)
                .await;
            assert_eq!(kind(&found), "denied", "{registry}");
            let asked = bench
                .remote
                .requests()
                .into_iter()
                .any(|request| request.host == "git.example.com");
            assert!(!asked, "{registry}");
        }
    }
}

/// Registries that do not know of the proxy before them, which ends TLS, write their realm with `http`.
#[tokio::test]
async fn a_realm_of_its_own_without_tls_is_asked_over_tls() {
    let bench = Bench::new(&["git.example.com"], &[]).await;
    let ok = format!("{:?}", Support::Index(platforms(&BOTH)));
    for registry in ["git.example.com", "git.example.com:5050"] {
        for realm in [
            "http://git.example.com/token",
            "http://git.example.com:8080/token",
        ] {
            assert_eq!(
                kind(&bench.ask(registry, realm, CredentialOwner::Operator).await),
                ok,
                "{realm} of {registry}"
            );
            assert_eq!(bench.informed(), [registry]);
        }
    }
}
