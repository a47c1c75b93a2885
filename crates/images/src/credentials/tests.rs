//! The keyring as a whole: its candidates, their sources and their order. Files and programs are real.

use super::testing::{TestDir, environment, secret, with_cluster};
use super::*;
use tolerarch_kubernetes::cluster::testing::ApiServer;
use tolerarch_support::concurrency::Tenant;

mod faults;
mod plugins;
mod secrecy;
mod upstream;

fn load(
    dir: &TestDir,
    settings: &CredentialSettings,
    private: &[&str],
) -> Result<Credentials, ConnectError> {
    let private = private
        .iter()
        .map(|pattern| pattern.parse().unwrap())
        .collect();
    Credentials::load(settings, private, Caller::Service, &environment(dir), None)
}

fn image(name: &str) -> ImageRef {
    name.parse().unwrap()
}

/// Lists the credentials that the candidates would present in turn, each with the kind of its source.
async fn presented(candidates: &[CredentialCandidate]) -> Vec<String> {
    let mut presented = Vec::new();
    for candidate in candidates {
        for credential in candidate.credentials(&Tenant::Operator).await.unwrap() {
            let text = match credential.as_deref() {
                None => "-".to_owned(),
                Some(Credential::Basic { user, password }) => {
                    format!("{user}:{}", password.reveal())
                }
                Some(Credential::Identity(token)) => format!("identity:{}", token.reveal()),
                Some(Credential::Bearer(token)) => format!("bearer:{}", token.reveal()),
            };
            presented.push(format!("{} {text}", candidate.kind));
        }
    }
    presented
}

/// Encodes base64(user:password).
fn auth(user: &str, password: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"))
}

fn auths(entries: &[(&str, &str, &str)]) -> serde_json::Value {
    let entries = entries.iter().map(|(key, user, word)| {
        (
            key.to_string(),
            serde_json::json!({"auth": auth(user, word)}),
        )
    });
    serde_json::Value::Object(entries.collect())
}

const PLUGIN: &str = r#"cat >/dev/null
echo '{"apiVersion":"credentialprovider.kubelet.k8s.io/v1","kind":"CredentialProviderResponse","cacheKeyType":"Registry",
  "auth":{"a.b":{"username":"plugin","password":"1"},"a.b/team":{"username":"plugin","password":"2"}}}'"#;

const PROVIDERS: &str = r"
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
  - name: plugin
    apiVersion: credentialprovider.kubelet.k8s.io/v1
    matchImages: [a.b]
    defaultCacheDuration: 1h
";

#[tokio::test]
async fn empty_configuration_means_anonymous_access() {
    let credentials = Credentials::load(
        &CredentialSettings::default(),
        Vec::new(),
        Caller::Service,
        &Environment::default(),
        None,
    )
    .unwrap();
    let keyring = credentials.keyring("team", ["regcred"]).await;
    let candidates = keyring.candidates(&image("a.b/x"));
    assert!(matches!(&candidates, Cow::Borrowed([one]) if one.id == CredentialId::ANONYMOUS));
    assert!(credentials.of_host("a.b").is_empty());
    assert_eq!(
        presented(&Keyring::default().candidates(&image("a.b/x"))).await,
        ["anonymous -"]
    );
}

#[tokio::test]
async fn private_images_have_no_anonymous_candidate() {
    let dir = TestDir::new();
    let credentials = load(
        &dir,
        &CredentialSettings::default(),
        &["a.b", "*.example.com/team"],
    )
    .unwrap();
    let keyring = credentials.shared_keyring();
    for (name, candidates) in [
        ("a.b/x", 0),
        ("a.b:5000/x", 1),
        ("r.example.com/team/app", 0),
        ("r.example.com/other", 1),
        ("nginx", 1),
    ] {
        assert_eq!(keyring.candidates(&image(name)).len(), candidates, "{name}");
    }
}

#[tokio::test]
async fn candidates_are_ordered_by_source_then_by_path() {
    let dir = TestDir::new();
    let helper = |name: &str| {
        dir.program(
            &format!("bin/docker-credential-{name}"),
            &format!(r#"read server; echo "{{\"Username\":\"{name}\",\"Secret\":\"$server\"}}""#),
        );
    };
    helper("own");
    helper("store");
    let one = serde_json::json!({
        "auths": auths(&[("a.b", "one", "host"), ("https://a.b/v2/team", "one", "team"), ("c.d", "one", "other")]),
        "credHelpers": {"a.b": "own"},
        "credsStore": "store",
    });
    let two = serde_json::json!({"auths": auths(&[("a.b/team/app", "two", "app"), ("a.b", "one", "host")])});
    dir.program("bin/plugin", PLUGIN);
    let settings = CredentialSettings {
        pull_secrets: false,
        docker_configs: vec![
            dir.write("one.json", &one.to_string()),
            dir.write("two.json", &two.to_string()),
        ],
        directory: Some(dir.path("registries")),
        providers: ProviderSettings {
            config: Some(dir.write("providers.yaml", PROVIDERS)),
            bin_dir: Some(dir.path("bin")),
        },
    };
    dir.write(
        "registries/a.b.toml",
        "user = \"file\"\nsecret = \"word\"\n",
    );
    dir.write(
        "registries/c.d:5000.toml",
        "user = \"port\"\nsecret = \"word\"\n",
    );
    dir.write(
        "registries/docker.io.toml",
        "user = \"hub\"\nsecret = \"word\"\n",
    );
    dir.write("registries/..data/ignored", "");
    let credentials = load(&dir, &settings, &["c.d"]).unwrap();
    let keyring = credentials.keyring("team", ["regcred"]).await;
    assert_eq!(
        presented(&keyring.candidates(&image("a.b/team/app:1"))).await,
        [
            "credential helper own:a.b",
            "docker config two:app",
            "docker config one:team",
            "docker config one:host",
            "credential helper store:a.b",
            "credentials directory file:word",
            "credential provider plugin plugin:2",
            "credential provider plugin plugin:1",
            "anonymous -",
        ]
    );
    assert_eq!(
        presented(&keyring.candidates(&image("c.d/x"))).await,
        ["docker config one:other", "credential helper store:c.d"]
    );
    assert_eq!(
        presented(&keyring.candidates(&image("c.d:5000/x"))).await,
        [
            "credential helper store:c.d:5000",
            "credentials directory port:word",
            "anonymous -"
        ]
    );
    assert_eq!(
        presented(&keyring.candidates(&image("nginx"))).await,
        [
            "credential helper store:https://index.docker.io/v1/",
            "credentials directory hub:word",
            "anonymous -"
        ]
    );
    // A mirror gets the credentials for its host, and none for a part of it.
    assert_eq!(
        presented(&credentials.of_host("a.b")).await,
        [
            "credential helper own:a.b",
            "docker config one:host",
            "credential helper store:a.b",
            "credentials directory file:word"
        ]
    );
}

#[tokio::test]
async fn pull_secrets_come_first_and_serve_their_pod_only() {
    let api = ApiServer::start().await;
    api.answer(
        "team",
        "one",
        200,
        &secret(
            "dockerconfigjson",
            &serde_json::json!({"auths": auths(&[("a.b", "pod", "1"), ("x.y", "same", "3")])}),
        ),
    );
    api.answer(
        "team",
        "two",
        200,
        &secret("dockercfg", &auths(&[("https://a.b/v1/team", "pod", "2")])),
    );
    let dir = TestDir::new();
    let config = dir.write(
        "config.json",
        &serde_json::json!({"auths": auths(&[("a.b", "file", "4"), ("x.y", "same", "3")])})
            .to_string(),
    );
    let credentials = with_cluster(&api, &[config]);
    let keyring = credentials
        .keyring("team", ["one", "two", "one", "missing"])
        .await;
    assert_eq!(
        presented(&keyring.candidates(&image("a.b/team/app"))).await,
        [
            "pull secret pod:2",
            "pull secret pod:1",
            "docker config file:4",
            "anonymous -"
        ]
    );
    // Equal credentials appear once.
    assert_eq!(
        presented(&keyring.candidates(&image("x.y/z"))).await,
        ["pull secret same:3", "anonymous -"]
    );
    // Neither mirrors nor other Pods get the pull secrets.
    assert_eq!(
        presented(&credentials.of_host("a.b")).await,
        ["docker config file:4"]
    );
    for (namespace, names) in [("team", vec![]), ("other", vec!["one", "two"])] {
        let keyring = credentials.keyring(namespace, names).await;
        assert_eq!(
            presented(&keyring.candidates(&image("a.b/team/app"))).await,
            ["docker config file:4", "anonymous -"]
        );
    }
    let before = api.requests();
    credentials.keyring("team", []).await;
    assert_eq!(
        api.requests(),
        before,
        "without names there are no requests"
    );
}

#[tokio::test]
async fn only_the_first_of_many_credentials_are_tried() {
    let api = ApiServer::start().await;
    let dir = TestDir::new();
    let config = |who: &str| {
        let entries: Vec<_> = (0..pull_secrets::ENTRIES)
            .map(|n| (format!("a.b?{n}"), format!("{n}")))
            .collect();
        let entries: Vec<_> = entries
            .iter()
            .map(|(key, word)| (&**key, who, &**word))
            .collect();
        serde_json::json!({"auths": auths(&entries)})
    };
    let names: Vec<String> = (0..16).map(|n| format!("s{n}")).collect();
    for name in &names {
        api.answer(
            "team",
            name,
            200,
            &secret("dockerconfigjson", &config(name)),
        );
    }
    let credentials = with_cluster(
        &api,
        &[dir.write("config.json", &config("file").to_string())],
    );
    let keyring = credentials
        .keyring("team", names.iter().map(String::as_str))
        .await;
    let kinds = |candidates: &[CredentialCandidate]| {
        candidates
            .iter()
            .map(|candidate| candidate.kind)
            .collect::<Vec<_>>()
    };
    let tried = kinds(&keyring.candidates(&image("a.b/x")));
    let of_files = CANDIDATES - PULL_SECRET_CANDIDATES - 1;
    let expected = [
        vec!["pull secret"; PULL_SECRET_CANDIDATES],
        vec!["docker config"; of_files],
        vec!["anonymous"],
    ];
    assert_eq!(tried, expected.concat());
    assert_eq!(credentials.of_host("a.b").len(), CANDIDATES);
}

/// The same credential under several keys counts once.
#[tokio::test]
async fn equal_credentials_count_once() {
    let api = ApiServer::start().await;
    let keys: Vec<String> = (0..pull_secrets::ENTRIES - 1)
        .map(|n| format!("a.b?{n}"))
        .collect();
    let mut entries: Vec<_> = keys.iter().map(|key| (&**key, "same", "word")).collect();
    entries.push(("*.b", "other", "word"));
    let config = serde_json::json!({"auths": auths(&entries)});
    api.answer("team", "one", 200, &secret("dockerconfigjson", &config));
    let keyring = with_cluster(&api, &[]).keyring("team", ["one"]).await;
    assert_eq!(
        presented(&keyring.candidates(&image("a.b/x"))).await,
        [
            "pull secret same:word",
            "pull secret other:word",
            "anonymous -"
        ]
    );
}
