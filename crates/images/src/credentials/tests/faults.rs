//! A fault says how to correct a file, quotes nothing of it, and costs no other file its credentials.

use super::*;

/// Returns a configuration with one plugin, and this text at its end.
fn provider(text: &str) -> String {
    format!(
        "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n  - name: plugin\n    apiVersion: credentialprovider.kubelet.k8s.io/v1\n    matchImages: [a.b]\n    defaultCacheDuration: 1h\n{text}"
    )
}

/// Checks that each file has one fault with the expected text, in which nothing is quoted.
fn check_faults(cases: Vec<(&str, String, &str)>) {
    let bin = TestDir::new();
    bin.program("bin/docker-credential-there", "");
    bin.program("bin/plugin", "");
    for (name, text, expected) in cases {
        let dir = TestDir::new();
        let file = dir.write(name, &text);
        let settings = match name {
            "config.json" => CredentialSettings {
                docker_configs: vec![file.clone()],
                ..Default::default()
            },
            "p.yaml" => CredentialSettings {
                providers: ProviderSettings {
                    config: Some(file.clone()),
                    bin_dir: Some(bin.path("bin")),
                },
                ..Default::default()
            },
            _ => CredentialSettings {
                directory: Some(dir.path("d")),
                ..Default::default()
            },
        };
        let credentials = load(&bin, &settings, &[]).unwrap();
        let [error] = credentials.faults() else {
            panic!("{name}: {:?}", credentials.faults())
        };
        let message = error
            .to_string()
            .replace(&file.display().to_string(), "FILE");
        assert!(message.contains(expected), "{name}: {message}");
        assert!(
            !format!("{message} {error:?}").contains("canary"),
            "{name}: {message}"
        );
    }
}

#[tokio::test]
async fn faults_of_docker_configs_name_the_entry_and_quote_nothing() {
    check_faults(vec![
        (
            "config.json",
            "canary".into(),
            "credentials.dockerConfigs: FILE: not JSON of docker's form, at line 1",
        ),
        (
            "config.json",
            r#"{"auths":{"a.b":{"auth":"canary"}}}"#.into(),
            "auths: an auth is not base64(user:password)",
        ),
        (
            "config.json",
            r#"{"auths":{"a.b":{"password":7,"username":"canary"}}}"#.into(),
            "at line 1, column",
        ),
        (
            "config.json",
            r#"{"credHelpers":{"a.b":"../../canary"}}"#.into(),
            "credHelpers: the name of a credential helper",
        ),
        (
            "config.json",
            r#"{"credHelpers":{"a.b":"missing"}}"#.into(),
            "credHelpers: docker-credential-missing is in no directory of the PATH",
        ),
        (
            "config.json",
            r#"{"credsStore":"missing"}"#.into(),
            "credsStore: docker-credential-missing is in no",
        ),
        (
            "config.json",
            "x".repeat((1 << 20) + 1),
            "cannot be read: larger than 1 MiB",
        ),
    ]);
}

#[tokio::test]
async fn faults_of_directory_files_name_the_line_and_quote_nothing() {
    check_faults(vec![
        (
            "d/a.b.toml",
            "user = \"canary\"\nsecret = canary".into(),
            "credentials.directory: FILE: line 2: write two lines",
        ),
        (
            "d/a.b.toml",
            "user = \"canary\"".into(),
            "write two lines, user =",
        ),
        (
            "d/a.b.toml",
            "user = \"u\"\nsecret = \"canary\"\nsecrte = \"canary\"".into(),
            "line 3: write two lines",
        ),
        (
            "d/a.b.toml",
            "user = \"\"\nsecret = \"canary\"".into(),
            "must not be empty",
        ),
        (
            "d/a.b.json",
            "canary".into(),
            "a file is called <host>.toml or <host>:<port>.toml",
        ),
        (
            "d/registry.toml",
            "canary".into(),
            "a file is called <host>.toml",
        ),
        (
            "d/*.b.toml",
            "canary".into(),
            "a file is called <host>.toml",
        ),
    ]);
}

#[tokio::test]
async fn faults_of_plugins_name_the_field_and_quote_nothing() {
    check_faults(vec![
        (
            "p.yaml",
            provider("    env: [canary]"),
            "credentials.providers.config: FILE: not a CredentialProviderConfig: providers[0].env[0]: a value of another kind",
        ),
        (
            "p.yaml",
            provider("    env: canary"),
            "providers[0].env: a value of another kind",
        ),
        ("p.yaml", "canary".into(), "a value of another kind"),
        (
            "p.yaml",
            provider("    enf: canary"),
            "providers[0].enf: unknown field `enf`",
        ),
        (
            "p.yaml",
            provider("    env: [{name: a, value: canary, extra: canary}]"),
            "providers[0].env[0].extra: unknown field `extra`",
        ),
        (
            "p.yaml",
            provider("    env: [{name: 'a=b', value: canary}]"),
            "providers[0].env[0]: no name and value",
        ),
        (
            "p.yaml",
            provider("").replace("1h", "canary"),
            "providers[0].defaultCacheDuration: write a duration",
        ),
        (
            "p.yaml",
            provider("").replace("    defaultCacheDuration: 1h\n", ""),
            "providers[0].defaultCacheDuration: is needed",
        ),
        (
            "p.yaml",
            provider("").replace("kubelet.k8s.io/v1\n", "kubelet.k8s.io/v2\n"),
            "providers[0].apiVersion: write one of",
        ),
        (
            "p.yaml",
            provider("").replace("config.k8s.io/v1\n", "config.k8s.io/v2\n"),
            "write kind: CredentialProviderConfig",
        ),
        (
            "p.yaml",
            provider("").replace("CredentialProviderConfig", "KubeletConfiguration"),
            "write kind: CredentialProviderConfig",
        ),
        (
            "p.yaml",
            provider("").replace("plugin", "../plugin"),
            "providers[0].name: the name of a program",
        ),
        (
            "p.yaml",
            provider("").replace("plugin", "missing"),
            "is no program that can be run",
        ),
        (
            "p.yaml",
            provider("").replace("[a.b]", "[]"),
            "providers[0].matchImages: at least one",
        ),
        (
            "p.yaml",
            provider("").replace("[a.b]", "['https://a.b']"),
            "matchImages[0]: \"https://a.b\": has a scheme",
        ),
        (
            "p.yaml",
            provider("  - name: plugin\n"),
            "providers[1].name: there is another",
        ),
        (
            "p.yaml",
            provider("").split("providers").next().unwrap().to_owned(),
            "providers: at least one is needed",
        ),
        (
            "p.yaml",
            "providers: {".into(),
            "credentials.providers.config",
        ),
    ]);
}

#[tokio::test]
async fn missing_files_are_faults() {
    let dir = TestDir::new();
    let missing = dir.path("missing");
    for settings in [
        CredentialSettings {
            docker_configs: vec![missing.clone()],
            ..Default::default()
        },
        CredentialSettings {
            directory: Some(missing.clone()),
            ..Default::default()
        },
        CredentialSettings {
            providers: ProviderSettings {
                config: Some(missing.clone()),
                bin_dir: Some(dir.root().into()),
            },
            ..Default::default()
        },
    ] {
        let credentials = load(&dir, &settings, &[]).unwrap();
        let [error] = credentials.faults() else {
            panic!("{:?}", credentials.faults())
        };
        assert!(
            error.file == missing && error.cause.starts_with("cannot be read: "),
            "{error}"
        );
        assert!(error.to_string().starts_with("credentials."), "{error}");
    }
    std::fs::create_dir(dir.path("empty")).unwrap();
    let config = Some(dir.path("empty"));
    let bin_dir = Some(dir.root().into());
    let empty = CredentialSettings {
        providers: ProviderSettings { config, bin_dir },
        ..Default::default()
    };
    let credentials = load(&dir, &empty, &[]).unwrap();
    assert!(
        credentials.faults()[0]
            .to_string()
            .contains("has no file that ends in")
    );
    let settings = CredentialSettings {
        docker_configs: vec![dir.root().into()],
        ..Default::default()
    };
    let credentials = load(&dir, &settings, &[]).unwrap();
    assert!(
        credentials.faults()[0]
            .to_string()
            .ends_with("cannot be read: not a regular file")
    );
}

/// Returns the credentials for an image of this host.
async fn of(credentials: &Credentials, host: &str) -> Vec<String> {
    presented(
        &credentials
            .shared_keyring()
            .candidates(&image(&format!("{host}/x"))),
    )
    .await
}

#[tokio::test]
async fn faulty_file_leaves_other_files_in_use() {
    let dir = TestDir::new();
    let helped = serde_json::json!({"credHelpers": {"h.b": "missing"}, "auths": auths(&[("a.b", "a", "1")])});
    let settings = CredentialSettings {
        docker_configs: vec![
            dir.write("broken.json", "{"),
            dir.path("missing.json"),
            dir.write("helped.json", &helped.to_string()),
        ],
        directory: Some(dir.path("d")),
        providers: ProviderSettings {
            config: Some(dir.write("p.yaml", "providers: {")),
            bin_dir: Some(dir.path("bin")),
        },
        ..Default::default()
    };
    let entry = |user: &str| format!("user = \"{user}\"\nsecret = \"2\"");
    dir.write("d/broken.b.toml", "canary");
    dir.write("d/c.b.toml", &entry("c"));
    dir.write("d/notes.txt", "canary");
    let credentials = load(&dir, &settings, &[]).unwrap();
    let faults: Vec<_> = credentials
        .faults()
        .iter()
        .map(|fault| (fault.from, fault.is_kept))
        .collect();
    let [configs, directory, providers] = CredentialSource::ALL.map(|source| (source, false));
    assert_eq!(
        faults,
        [configs, configs, configs, directory, directory, providers]
    );
    assert_eq!(
        of(&credentials, "a.b").await,
        ["docker config a:1", "anonymous -"]
    );
    assert_eq!(
        of(&credentials, "c.b").await,
        ["credentials directory c:2", "anonymous -"]
    );
    assert_eq!(of(&credentials, "broken.b").await, ["anonymous -"]);

    dir.write("d/broken.b.toml", &entry("mended"));
    let credentials = load(&dir, &settings, &[]).unwrap();
    assert_eq!(
        of(&credentials, "broken.b").await,
        ["credentials directory mended:2", "anonymous -"]
    );
}

#[tokio::test]
async fn unusable_file_keeps_its_content_until_it_is_deleted() {
    let dir = TestDir::new();
    dir.program("bin/plugin", "cat >/dev/null; echo '{}'");
    let provider = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n  - name: plugin\n    apiVersion: credentialprovider.kubelet.k8s.io/v1\n    matchImages: [p.b]\n    defaultCacheDuration: 1h\n";
    let files = [
        ("config.json", ""),
        ("d/c.b.toml", "user = \"c\"\nsecret = \"2\""),
        ("p.yaml", provider),
    ];
    files
        .iter()
        .for_each(|(name, text)| drop(dir.write(name, text)));
    dir.write(
        "config.json",
        &serde_json::json!({"auths": auths(&[("a.b", "a", "1")])}).to_string(),
    );
    let settings = CredentialSettings {
        docker_configs: vec![dir.path("config.json")],
        directory: Some(dir.path("d")),
        providers: ProviderSettings {
            config: Some(dir.path("p.yaml")),
            bin_dir: Some(dir.path("bin")),
        },
        ..Default::default()
    };
    let again = |before: &Credentials| {
        let caller = Caller::Service;
        let environment = environment(&dir);
        Credentials::load(&settings, Vec::new(), caller, &environment, Some(before)).unwrap()
    };
    let first = load(&dir, &settings, &[]).unwrap();
    assert_eq!(first.faults(), []);
    files
        .iter()
        .for_each(|(name, _)| drop(dir.write(name, "{")));
    let broken = again(&again(&first));
    assert_eq!(
        broken
            .faults()
            .iter()
            .map(|fault| fault.is_kept)
            .collect::<Vec<_>>(),
        [true; 3]
    );
    assert_eq!(
        of(&broken, "a.b").await,
        ["docker config a:1", "anonymous -"]
    );
    assert_eq!(
        of(&broken, "c.b").await,
        ["credentials directory c:2", "anonymous -"]
    );
    assert_eq!(
        broken.sources.as_ref().unwrap().of_plugins("p.b/x").count(),
        1
    );
    files
        .iter()
        .for_each(|(name, _)| std::fs::remove_file(dir.path(name)).unwrap());
    let deleted = again(&broken);
    assert!(deleted.faults().iter().all(|fault| !fault.is_kept));
    for host in ["a.b", "c.b"] {
        assert_eq!(
            of(&deleted, host).await,
            ["anonymous -"],
            "a deleted credential"
        );
    }
    assert_eq!(
        deleted
            .sources
            .as_ref()
            .unwrap()
            .of_plugins("p.b/x")
            .count(),
        0
    );
}

/// Its former credential is not tried either: a replica that starts later does not have that.
#[tokio::test]
async fn second_file_for_a_registry_is_ignored_after_reload() {
    let dir = TestDir::new();
    let entry = |user: &str| format!("user = \"{user}\"\nsecret = \"2\"");
    let settings = CredentialSettings {
        directory: Some(dir.path("d")),
        ..Default::default()
    };
    dir.write("d/index.docker.io.toml", &entry("old"));
    let first = load(&dir, &settings, &[]).unwrap();
    assert_eq!(
        of(&first, "docker.io").await,
        ["credentials directory old:2", "anonymous -"]
    );
    dir.write("d/docker.io.toml", &entry("new"));
    let caller = Caller::Service;
    let environment = environment(&dir);
    let next =
        Credentials::load(&settings, Vec::new(), caller, &environment, Some(&first)).unwrap();
    assert_eq!(
        of(&next, "docker.io").await,
        ["credentials directory new:2", "anonymous -"]
    );
    let causes: Vec<_> = next
        .faults()
        .iter()
        .map(|fault| (&*fault.cause, fault.is_kept))
        .collect();
    assert_eq!(causes, [("another file is for the same registry", false)]);
}

#[tokio::test]
async fn pull_secrets_without_a_cluster_fail_for_services_only() {
    let of = |caller| {
        let missing = kube::config::Config::incluster_env().unwrap_err();
        PullSecrets::of(caller, Err(ConnectError::ServiceAccount(missing)))
    };
    let error = of(Caller::Service).err().unwrap();
    let message = error.to_string();
    assert!(message.starts_with("no service account"), "{message}");
    assert_eq!(
        message.matches("environment variable").count(),
        2,
        "the text of kube, and its meaning: {message}"
    );
    assert!(
        std::error::Error::source(&error).is_none(),
        "the source is in the message"
    );
    // A person without a service account has no pull secrets, and no error.
    let pull_secrets = of(Caller::Person).unwrap();
    let files = Files::default();
    let sources = Sources {
        pull_secrets,
        files,
        private: Vec::new(),
    };
    let keyring = Credentials {
        sources: Some(Arc::new(sources)),
    }
    .keyring("team", ["regcred"])
    .await;
    assert_eq!(
        presented(&keyring.candidates(&image("a.b/x"))).await,
        ["anonymous -"]
    );
}
