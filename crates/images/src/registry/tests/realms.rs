//! Realms at hosts with names: which realms get a credential, and the errors for the others.

use testregistry::Request;

use super::gates::proxy;
use super::*;
use crate::credentials::CredentialOwner;
use crate::registry::FailureClass;
use crate::registry::Pull;

const REGISTRY: &str = "registry.git.example.com";

/// A registry with many names, which a proxy finds under each name, and a client.
struct TestRegistry {
    remote: Remote,
    client: Registry,
    _dir: tempfile::TempDir,
}

impl TestRegistry {
    /// Starts the registry. `token_hosts` are configured for [`REGISTRY`].
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
        let mut hosts = BTreeMap::new();
        for port in ["", ":5050"] {
            for name in names {
                let mut settings = HostSettings {
                    ca_file: Some(ca.clone()),
                    ..HostSettings::default()
                };
                if *name == REGISTRY {
                    settings.token_hosts = token_hosts.iter().map(ToString::to_string).collect();
                }
                let host = format!("{name}{port}");
                change(&host, &mut settings);
                hosts.insert(host, settings);
            }
        }
        let proxy = |name: &str| (name == "HTTPS_PROXY").then(|| format!("http://{address}"));
        let settings = Settings {
            hosts,
            proxies: Proxies::of(proxy).unwrap(),
            ..Settings::default()
        };
        let client = Registry::load(settings, registry_metrics()).unwrap();
        Self {
            remote,
            client,
            _dir: dir,
        }
    }

    /// Looks up an image of `registry`, which names `realm`, with a password of this owner.
    async fn lookup(
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

    /// Returns the hosts that received the password since the last call.
    fn hosts_with_password(&self) -> Vec<String> {
        let mut requests = self.remote.requests();
        self.remote.forget_requests();
        requests.retain(has_password);
        requests.into_iter().map(|request| request.host).collect()
    }
}

fn has_password(request: &Request) -> bool {
    let authorization = request.authorization.as_deref().unwrap_or_default();
    authorization.starts_with("Basic") || request.form_value("password").is_some()
}

/// Self-managed GitLab, whose registry is at a neighbouring host or at another port of the same host.
#[tokio::test]
async fn pods_secret_is_used_for_tokens_from_the_registrys_domain() {
    let test = TestRegistry::new(&[REGISTRY, "git.example.com"], &[]).await;
    let ok = format!("{:?}", Support::Index(platforms(&BOTH)));
    let realm = "https://git.example.com/token";
    let support = test.lookup(REGISTRY, realm, CredentialOwner::Pod).await;
    assert_eq!(kind(&support), ok);
    assert_eq!(test.hosts_with_password(), ["git.example.com"]);
    for owner in [CredentialOwner::Operator, CredentialOwner::Pod] {
        let support = test.lookup("git.example.com:5050", realm, owner).await;
        assert_eq!(kind(&support), ok);
        assert_eq!(test.hosts_with_password(), ["git.example.com"]);
    }
    let refused = test
        .lookup(REGISTRY, realm, CredentialOwner::Operator)
        .await;
    let error = refused.unwrap_err();
    let line = r#"set registries.hosts."registry.git.example.com".tokenHosts: [git.example.com]"#;
    assert!(error.to_string().ends_with(line), "{error}");
    assert_eq!(error.class(), FailureClass::Refused);
    assert_eq!(test.hosts_with_password(), [""; 0]);
    let test = TestRegistry::new(&[REGISTRY, "git.example.com"], &["git.example.com"]).await;
    let support = test
        .lookup(REGISTRY, realm, CredentialOwner::Operator)
        .await;
    assert_eq!(kind(&support), ok, "with the setting that the error names");
}

/// Realms that an attacker may name.
#[tokio::test]
async fn no_realm_sends_a_credential_to_another_owner() {
    let names = [
        REGISTRY,
        "git.example.com",
        "evil.test",
        "a.github.io",
        "b.github.io",
        "acme.jfrog.io",
        "evil.jfrog.io",
    ];
    let test = TestRegistry::new(&names, &[]).await;
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
            let support = test.lookup(registry, realm, owner).await;
            assert_eq!(kind(&support), "denied", "{realm} of {registry}");
            assert_eq!(test.hosts_with_password(), [""; 0], "{realm} of {registry}");
        }
    }
}

/// No tenant may use the operator's certificate, even with the tenant's own password, because the tenant would get the
/// token.
#[tokio::test]
async fn no_realm_uses_the_operators_client_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let [cert, key] = ["c.crt", "c.key"].map(|name| dir.path().join(name));
    let leaf = testregistry::Pki::new().client_leaf();
    std::fs::write(&cert, &leaf.cert_pem).unwrap();
    std::fs::write(&key, &leaf.key_pem).unwrap();
    let test = TestRegistry::with(&[REGISTRY, "git.example.com"], &[], |name, settings| {
        if name == "git.example.com" {
            settings.client_cert_file = Some(cert.clone());
            settings.client_key_file = Some(key.clone());
        }
    })
    .await;
    for registry in [REGISTRY, "git.example.com:5050"] {
        for owner in [CredentialOwner::Operator, CredentialOwner::Pod] {
            let realm = "https://git.example.com/token";
            let support = test.lookup(registry, realm, owner).await;
            assert_eq!(kind(&support), "denied", "{registry}");
            for request in test.remote.requests() {
                assert!(request.host != "git.example.com", "{registry}");
            }
        }
    }
}

/// A registry that does not know of a TLS-terminating proxy in front of it writes its realm with `http`.
#[tokio::test]
async fn registrys_own_http_realm_is_requested_over_tls() {
    let test = TestRegistry::new(&["git.example.com"], &[]).await;
    let ok = format!("{:?}", Support::Index(platforms(&BOTH)));
    for registry in ["git.example.com", "git.example.com:5050"] {
        for realm in [
            "http://git.example.com/token",
            "http://git.example.com:8080/token",
        ] {
            assert_eq!(
                kind(
                    &test
                        .lookup(registry, realm, CredentialOwner::Operator)
                        .await
                ),
                ok,
                "{realm} of {registry}"
            );
            assert_eq!(test.hosts_with_password(), [registry]);
        }
    }
}
