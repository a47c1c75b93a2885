use super::*;
use crate::config::shape::{Content, Describe};
use tolerarch_support::environment::Environment;

/// Makes a file in a directory, which is deleted when it is dropped.
fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.yaml");
    std::fs::write(&path, text).unwrap();
    (directory, path)
}

fn load(text: &str, environment: &[(&str, &str)], flags: &[Flag]) -> Result<Loaded, ConfigError> {
    let (_directory, file) = file(text);
    let environment = environment.iter().copied().collect();
    Sources {
        file: Some(file),
        environment,
        flags: flags.to_vec(),
        tolerant: false,
    }
    .load()
}

fn listen(value: &str) -> Flag {
    Flag {
        name: "--listen",
        path: "server.listen",
        value: value.into(),
    }
}

#[test]
fn flags_override_environment_and_environment_overrides_file() {
    let file = "cache: {tagTtl: 1h, staleIfError: 2h}\nserver: {listen: '[::]:1', drain: 1s}\n";
    let loaded = load(
        file,
        &[
            ("TOLERARCH_CACHE__TAG_TTL", "30m"),
            ("TOLERARCH_CACHE__NEGATIVE__NOT_FOUND", "7s"),
            ("TOLERARCH_MODE", "observe"),
            ("TOLERARCH_SERVER__LISTEN", "[::]:2"),
            ("TOLERARCH_NETWORK__ALLOW", "10.0.0.0/8, ::1"),
            ("TOLERARCH_LOG__LEVEL", "debug"),
            ("HOME", "/root"),
        ],
        &[listen("[::]:3")],
    );
    let config = loaded.unwrap().config;
    assert_eq!(config.cache.tag, Duration::from_secs(1800));
    assert_eq!(config.cache.stale_if_error, Duration::from_secs(7200));
    assert_eq!(config.cache.not_found, Duration::from_secs(7));
    assert_eq!(config.policy.mode, Mode::Observe);
    assert_eq!(
        (config.server.listen.port(), config.server.drain),
        (3, Duration::from_secs(1))
    );
    assert_eq!(
        config.network.allow,
        ["10.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()]
    );
    assert_eq!(config.log.level, Level::Debug);
}

#[test]
fn service_link_variables_are_no_faults() {
    let links = [
        "TOLERARCH_SERVICE_HOST",
        "TOLERARCH_SERVICE_PORT",
        "TOLERARCH_SERVICE_PORT_HTTPS",
        "TOLERARCH_PORT",
        "TOLERARCH_PORT_443_TCP",
        "TOLERARCH_PORT_443_TCP_PROTO",
        "TOLERARCH_PORT_443_TCP_PORT",
        "TOLERARCH_PORT_443_TCP_ADDR",
        "TOLERARCH_WEBHOOK_SERVICE_HOST",
        "TOLERARCH_METRICS_PORT_8080_TCP_ADDR",
    ];
    let environment: Vec<_> = links
        .iter()
        .map(|name| (*name, "tcp://10.0.0.1:443"))
        .collect();
    assert_eq!(
        load("", &environment, &[]).unwrap().config,
        Config::default()
    );
}

#[test]
fn faults_of_all_sources_are_reported_together() {
    let error = load(
        "lookup:\n  budget: banana\n",
        &[
            ("TOLERARCH_CACHE__TAG_TLL", "1h"),
            ("TOLERARCH_CACHE__TAG_TTL", "soon"),
            ("TOLERARCH_NETWORK__DENY", "10.0.0.0/8,all"),
            ("TOLERARCH_POOLS", "[]"),
            ("TOLERARCH_REGISTRIES__HOSTS", "x"),
        ],
        &[listen("8443")],
    );
    let text = error.unwrap_err().to_string();
    let faults: Vec<&str> = text.lines().skip(1).map(str::trim).collect();
    assert!(text.contains("config.yaml is not valid:"), "{text}");
    assert_eq!(
        faults,
        [
            "lookup.budget (line 2): found \"banana\", expected a duration such as 300ms, 15s, 5m, 1.5h, 7d or 1h30m, and at most 365d",
            "TOLERARCH_CACHE__TAG_TLL: no key has this variable; did you mean TOLERARCH_CACHE__TAG_TTL?",
            "cache.tagTtl (TOLERARCH_CACHE__TAG_TTL): found \"soon\", expected a duration such as 300ms, 15s, 5m, 1.5h, 7d or 1h30m, and at most 365d",
            "network.deny (TOLERARCH_NETWORK__DENY): found \"all\", expected a network such as 10.0.0.0/8",
            "TOLERARCH_POOLS: no key has this variable; pools and hosts are set in the file",
            "TOLERARCH_REGISTRIES__HOSTS: no key has this variable; pools and hosts are set in the file",
            "server.listen (--listen): found \"8443\", expected an address and a port such as \"[::]:8443\"",
        ]
    );
}

#[test]
fn printed_configuration_names_sources_and_parses_again() {
    let file = r#"
mode: observe
pools:
  - {preset: gke, name: arm}
  - {name: "5", platforms: [linux/s390x], tolerations: [{key: "true", value: "1.0"}, {key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 5}]}
lookup: {budget: 1500ms, timeout: 1m1.005ms}
registries: {hosts: {"Registry.example.com:5000": {caFile: "/with space/ca: #.crt", plainHttp: true}, docker.io: }}
network: {allow: [10.0.0.0/8, "::1"]}
"#;
    let loaded = load(
        file,
        &[("TOLERARCH_CACHE__TAG_TTL", "90s")],
        &[listen("127.0.0.1:5")],
    )
    .unwrap();
    let yaml = loaded.to_yaml();
    assert_eq!(
        Config::parse(&yaml)
            .map_err(|faults| format!("{faults:?}\n{yaml}"))
            .unwrap(),
        loaded.config
    );
    for (key, location) in [
        ("mode: observe", "config.yaml:2"),
        ("listen: \"127.0.0.1:5\"", "--listen"),
        ("listen: \"[::]:8080\"", "default"),
        ("tagTtl: 90s", "TOLERARCH_CACHE__TAG_TTL"),
        ("name: arm", "config.yaml:4"),
        ("value: arm64", "preset"),
        ("budget: 1500ms", "config.yaml:6"),
        ("plainHttp: true", "config.yaml:7"),
        ("allow: [10.0.0.0/8, \"::1/128\"]", "config.yaml:8"),
    ] {
        let line = yaml
            .lines()
            .find(|line| line.contains(key))
            .unwrap_or_else(|| panic!("{key} in\n{yaml}"));
        assert!(line.ends_with(location), "{line}");
    }
    let default = Sources::default().load().unwrap();
    assert_eq!(
        Config::parse(&default.to_yaml()).unwrap(),
        Config::default()
    );
}

#[test]
fn presets_set_the_unset_keys_of_a_pool() {
    let pools = |text: &str| {
        Config::parse(&format!("pools: [{text}]"))
            .unwrap()
            .policy
            .pools
    };
    let [gke] = pools("{preset: gke}").try_into().unwrap();
    assert_eq!(
        (gke.name.as_str(), gke.platforms),
        ("gke", platforms(&["linux/arm64"]))
    );
    assert_eq!(
        gke.tolerations,
        [toleration(
            &json!({"key": "kubernetes.io/arch", "operator": "Equal", "value": "arm64", "effect": "NoSchedule"})
        )]
    );
    let [both] = pools("{platforms: [linux/amd64, linux/arm64], name: both, preset: gke}")
        .try_into()
        .unwrap();
    assert_eq!(
        (both.name.as_str(), both.platforms),
        ("both", PlatformSet::AMD64_AND_ARM64)
    );
    assert_eq!(both.tolerations, gke.tolerations);
    let [karpenter] = pools("{preset: karpenter}").try_into().unwrap();
    assert_eq!(
        karpenter.tolerations,
        Config::default().policy.pools[0].tolerations
    );
    let [class] = pools("{preset: gke-compute-class}").try_into().unwrap();
    assert_eq!(class.platforms, PlatformSet::AMD64_AND_ARM64);
    assert_eq!(class.tolerations.len(), 2);
    let label = (
        "cloud.google.com/compute-class".to_owned(),
        "multi-arch".to_owned(),
    );
    assert_eq!(class.select, [label].into());
    let [selected] = pools("{preset: gke-compute-class, select: {labels: {a.b/c: d}}}")
        .try_into()
        .unwrap();
    let label = ("a.b/c".to_owned(), "d".to_owned());
    assert_eq!(selected.select, [label].into());
    let wrong = faults("pools: [{preset: eks}, {preset: gke}, {preset: gke}]").join("; ");
    assert!(
        wrong.contains("expected gke, gke-compute-class or karpenter")
            && wrong.contains("two pools are named"),
        "{wrong}"
    );
}

#[test]
fn keys_that_need_a_restart_are_kept_and_named() {
    let old = Config::parse("cache: {capacity: 5, tagTtl: 1h}").unwrap();
    let text = "cache: {capacity: 6, tagTtl: 2h}\nserver: {listen: '[::]:1', certFile: /x}\nmode: observe\nlog: {format: text, level: debug}";
    let mut new = Config::parse(text).unwrap();
    assert_eq!(
        new.restore_restart_keys(&old),
        [
            "server.listen",
            "server.certFile",
            "cache.capacity",
            "log.format"
        ]
    );
    assert_eq!(
        (&new.server, new.cache.capacity, new.log.format),
        (&old.server, 5, Format::Json)
    );
    assert_eq!(
        (new.policy.mode, new.cache.tag),
        (Mode::Observe, Duration::from_secs(7200))
    );
    assert_eq!(new.log.level, Level::Debug);
    let mut new = Config::parse("tls: {webhookConfigurations: [a, b], mode: managed}").unwrap();
    assert_eq!(
        new.restore_restart_keys(&old),
        ["tls.mode", "tls.webhookConfigurations", "cache.capacity"]
    );
    assert_eq!(new.tls, old.tls);
}

#[test]
fn short_lifetimes_of_certificates_are_refused() {
    let wrong = |text: &str| faults(&format!("tls: {{{text}}}")).join("; ");
    for (text, expected) in [
        ("leafLifetime: 599s", "leafLifetime must be at least 600s"),
        (
            "leafLifetime: 1h, caLifetime: 2h",
            "caLifetime must be at least three times leafLifetime",
        ),
        (
            "mode: managed, webhookConfigurations: []",
            "mode managed needs a name in webhookConfigurations",
        ),
        (
            "secret: ../other",
            "expected the name of a Kubernetes object",
        ),
        (
            "webhookConfigurations: [Zz]",
            "expected the name of a Kubernetes object",
        ),
        ("mode: file", "expected files or managed"),
    ] {
        assert!(wrong(text).contains(expected), "{text}: {}", wrong(text));
    }
    assert!(Config::parse("tls: {mode: managed, leafLifetime: 10m, caLifetime: 30m}").is_ok());
}

/// A change of another part that needs a restart would be lost without a message.
#[test]
fn only_values_need_a_restart() {
    Config::default()
        .describe()
        .walk("", &mut |path, description| {
            assert!(
                !description.at_start || matches!(description.content, Content::Value(_)),
                "{path}"
            );
        });
}

#[test]
fn files_of_the_configuration_are_listed() {
    let text = "registries: {hosts: {a.b: {caFile: /b}, c.d: {caFile: /a}, e.f: {caFile: /b}, g.h: {caFile: ''}}}";
    assert_eq!(
        Config::parse(text).unwrap().files(),
        [PathBuf::from("/b"), "/a".into(), "/b".into()]
    );
    assert!(
        Config::default().files().is_empty(),
        "the certificate is followed by itself"
    );
}

#[test]
fn possible_passwords_are_not_quoted() {
    let file = r#"
mode: https://user:canary@a
https://user:canary@b: 1
registries:
  private: [https://user:canary@c]
  hosts:
    https://user:canary@d: {}
    e: {mirrors: ["https://user:canary@f"]}
    https://user:canary@d: {}
"#;
    let environment = [
        (
            "TOLERARCH_REGISTRIES__PRIVATE",
            "https://user:canary,canary@g",
        ),
        ("TOLERARCH_SERVER__LISTEN", "canary@h"),
    ];
    let error = load(file, &environment, &[listen("canary@i")])
        .unwrap_err()
        .to_string();
    assert!(!error.contains("canary"), "{error}");
    assert!(error.lines().count() >= 10, "{error}");
}

#[test]
fn unknown_variable_is_a_fault_or_a_warning() {
    let environment = Environment::from_iter([("TOLERARCH_CACHE__TAG_TLT", "1h")]);
    let mut sources = Sources {
        environment,
        ..Sources::default()
    };
    let faults = sources.read("").unwrap_err();
    sources.tolerant = true;
    let loaded = sources.read("").unwrap();
    assert_eq!(loaded.warnings(), faults);
    assert!(
        faults[0]
            .to_string()
            .contains("did you mean TOLERARCH_CACHE__TAG_TTL"),
        "{faults:?}"
    );
    // An invalid value is a fault for both.
    sources.environment = Environment::from_iter([("TOLERARCH_CACHE__TAG_TTL", "1M")]);
    let faults = sources.read("").unwrap_err();
    assert!(
        faults[0].message.ends_with("; did you mean 1m?"),
        "{faults:?}"
    );
}
