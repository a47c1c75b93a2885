use super::*;
use serde_json::json;
use tolerarch_core::policy::{Mode, PlacementRules};
use tolerarch_core::testing::{platforms, toleration};
use tolerarch_images::credentials::ProviderSettings;

fn faults(text: &str) -> Vec<String> {
    Config::parse(text)
        .unwrap_err()
        .iter()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn empty_file_is_the_default() {
    for text in ["", "# only a comment\n", "mode:\nlookup:\n", "{}"] {
        let config = Config::parse(text).unwrap();
        assert_eq!(
            format!("{config:?}"),
            format!("{:?}", Config::default()),
            "{text:?}"
        );
    }
}

#[test]
fn every_key_is_read() {
    let config = Config::parse(
        r#"
mode: observe
server: {listen: "127.0.0.1:1", certFile: /c, keyFile: /k, drain: 1s, maxConnections: 2}
admin: {listen: "[::1]:2"}
pools:
  - name: arm
    platforms: [linux/arm64, linux/aarch64]
    tolerations:
      - {key: kubernetes.io/arch, operator: Equal, value: arm64, effect: NoExecute, tolerationSeconds: 5}
      - {key: a, operator: Exists}
lookup: {budget: 1s, timeout: 2m, concurrency: 3, perRegistry: 2}
cache:
  capacity: 4
  tagTtl: 1h30m
  staleWhileRevalidate: 7s
  staleIfError: 8s
  negative: {notFound: 1s, denied: 2s, throttled: 3s, timeout: 4s, unreachable: 5s, badManifest: 6s}
registries:
  private: ["*.dkr.ecr.*.amazonaws.com", "a.b:5000/team"]
  allow: ["*.example.com", docker.io/library]
  deny: [Registry.example.com/evil]
  hostsDir: /certs.d
  hosts:
    docker.io:
    "Registry.example.com:5000":
      {caFile: /ca, clientCertFile: /cc, clientKeyFile: /ck, plainHttp: true, skipVerify: true,
       mirrors: [A.b:443, "https://c.d/hub/"], tokenHosts: ["Auth.example.com:443"]}
    "[::1]:5000": {caFile: ""}
credentials:
  pullSecrets: true
  dockerConfigs: [/one.json, /two.json]
  directory: /registries
  providers: {config: /providers.yaml, binDir: /bin}
network: {allow: [10.0.0.0/8, "::1"], deny: [192.168.0.1]}
log: {level: debug, format: text}
"#,
    )
    .unwrap();
    let seconds = Duration::from_secs;
    assert_eq!(config.policy.mode, Mode::Observe);
    assert_eq!(
        (config.server.listen.port(), config.server.admin.port()),
        (1, 2)
    );
    assert_eq!(
        (config.server.drain, config.server.max_connections),
        (seconds(1), 2)
    );
    assert_eq!(
        config.server.files,
        CertificateFiles {
            certificate: "/c".into(),
            key: "/k".into()
        }
    );
    let [pool] = config.policy.pools.as_slice() else {
        panic!("one pool")
    };
    assert_eq!(
        (pool.name.as_str(), pool.platforms),
        ("arm", platforms(&["linux/arm64"]))
    );
    assert_eq!(
        pool.tolerations,
        [
            toleration(
                &json!({"key": "kubernetes.io/arch", "operator": "Equal", "value": "arm64", "effect": "NoExecute", "tolerationSeconds": 5})
            ),
            toleration(&json!({"key": "a", "operator": "Exists"})),
        ]
    );
    let lookup = LookupSettings {
        budget: seconds(1),
        timeout: seconds(120),
        concurrency: 3,
        per_registry: 2,
    };
    assert_eq!(config.lookup, lookup);
    let cache = CacheSettings {
        capacity: 4,
        tag: seconds(5400),
        stale_while_revalidate: seconds(7),
        stale_if_error: seconds(8),
        not_found: seconds(1),
        denied: seconds(2),
        throttled: seconds(3),
        timeout: seconds(4),
        unreachable: seconds(5),
        bad_manifest: seconds(6),
    };
    assert_eq!(config.cache, cache);
    assert_eq!(
        config.registries.hosts.keys().collect::<Vec<_>>(),
        ["[::1]:5000", "docker.io", "registry.example.com:5000"]
    );
    let host = HostSettings {
        ca_file: Some("/ca".into()),
        client_cert_file: Some("/cc".into()),
        client_key_file: Some("/ck".into()),
        plain_http: true,
        skip_verify: true,
        mirrors: ["a.b", "c.d/hub"]
            .map(|mirror| mirror.parse().unwrap())
            .to_vec(),
        token_hosts: vec!["auth.example.com".into()],
    };
    let patterns =
        |texts: &[&str]| -> Vec<_> { texts.iter().map(|text| text.parse().unwrap()).collect() };
    let allowed = AllowedImages {
        allow: patterns(&["*.example.com", "docker.io/library"]),
        deny: patterns(&["registry.example.com/evil"]),
    };
    assert_eq!(config.registries.allowed, allowed);
    assert_eq!(config.registries.hosts_dir, Some("/certs.d".into()));
    assert_eq!(config.registries.hosts["registry.example.com:5000"], host);
    assert_eq!(
        config.registries.hosts["[::1]:5000"],
        HostSettings::default()
    );
    let private: Vec<&str> = config
        .registries
        .private
        .iter()
        .map(ImagePattern::as_str)
        .collect();
    assert_eq!(private, ["*.dkr.ecr.*.amazonaws.com", "a.b:5000/team"]);
    let credentials = CredentialSettings {
        pull_secrets: true,
        docker_configs: vec!["/one.json".into(), "/two.json".into()],
        directory: Some("/registries".into()),
        providers: ProviderSettings {
            config: Some("/providers.yaml".into()),
            bin_dir: Some("/bin".into()),
        },
    };
    assert_eq!(config.credentials, credentials);
    assert_eq!(config.network.allow.len(), 2);
    assert_eq!(config.network.deny, ["192.168.0.1/32".parse().unwrap()]);
    assert_eq!(
        config.log,
        Log {
            level: Level::Debug,
            format: Format::Text
        }
    );
}

#[test]
fn all_faults_are_reported_with_their_lines() {
    let text = "\
lookup:
  timeuot: 3s
  budget: banana
mode: enforced
server: 5
pools:
  - name: Multi Arch
    platforms: [linux/amd64, linux/arm46]
    tolerations: [{key: a, opertor: Exists}]
zzz: 1
";
    assert_eq!(
        faults(text),
        [
            "lookup.timeuot (line 2): unknown key; did you mean timeout?",
            "lookup.budget (line 3): found \"banana\", expected a duration such as 300ms, 15s, 5m, 1.5h, 7d or 1h30m, and at most 365d",
            "mode (line 4): found \"enforced\", expected enforce or observe",
            "server (line 5): found \"5\", expected a section with listen, certFile, keyFile, drain, maxConnections, failedImages",
            "pools[0].name (line 7): found \"Multi Arch\", expected a name of at most 63 lower-case letters, digits, '-' and '.'",
            "pools[0].platforms[1] (line 8): found \"linux/arm46\", expected a platform that nodes can have: linux/amd64, linux/arm64, \
             linux/arm/v5, linux/arm/v6, linux/arm/v7, linux/386, linux/loong64, linux/mips64le, linux/ppc64le, linux/riscv64, \
             linux/s390x, linux/mips64",
            "pools[0].tolerations[0].opertor (line 9): unknown key; did you mean operator?",
            "zzz (line 10): unknown key; known are mode, server, tls, admin, pools, discover, placement, \
             overrides, explain, daemonSets, podTemplates, verify, profiles, lookup, cache, registries, \
             credentials, network, controller, log",
        ]
    );
}

#[test]
fn faults_are_sorted_by_line() {
    let text = "\
mode: x
server:
  listen: x
  drain: x
tls: {mode: x}
pools:
  - {}
  - {name: a, platforms: [linux/arm64], tolerations: [{key: a, operator: x}]}
lookup:
  budget: x
  x: 1
registries:
  hosts:
    a/b: {}
log: []
";
    let faults = faults(text);
    let lines: Vec<&str> = faults
        .iter()
        .filter_map(|fault| fault.split_once("(line ")?.1.split_once(')'))
        .map(|(line, _)| line)
        .collect();
    assert_eq!(
        lines,
        [
            "1", "3", "4", "5", "7", "7", "7", "8", "10", "11", "14", "15"
        ],
        "{faults:#?}"
    );
}

#[test]
fn repeated_items_of_a_list_are_dropped() {
    let config =
        Config::parse("{network: {deny: [10.0.0.1, 10.0.0.1/32, '::1', 10.0.0.1]}}").unwrap();
    assert_eq!(
        config.network.deny,
        ["10.0.0.1/32".parse().unwrap(), "::1/128".parse().unwrap()]
    );
}

#[test]
fn repeated_key_hides_no_other_fault() {
    let text = "\
lookup: {budget: banana}
pools:
  - name: a
    platforms: [linux/arm64]
    tolerations: [{key: a, key: b, operator: Exists}]
registries:
  hosts:
    a.b: {}
    c.d: {}
    a.b: {}
lookup: {budget: 1s}
mdoe: observe
";
    let faults = faults(text);
    for (index, start) in [
        "lookup.budget (line 1): found \"banana\"",
        "pools[0].tolerations[0].key (line 5): it is repeated: the first one is on line 5",
        "registries.hosts[\"a.b\"] (line 10): it is repeated: the first one is on line 8",
        "lookup (line 11): it is repeated: the first one is on line 1",
        "mdoe (line 12): unknown key",
    ]
    .iter()
    .enumerate()
    {
        assert!(faults[index].starts_with(start), "{faults:?}");
    }
}

#[test]
fn toleration_of_the_empty_value_is_warned_about() {
    let warnings = |toleration: &str| -> Vec<String> {
        let text =
            format!("pools: [{{name: a, platforms: [linux/arm64], tolerations: [{toleration}]}}]");
        Sources::default()
            .read(&text)
            .unwrap()
            .warnings()
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    let expected = "pools[0].tolerations[0] (line 1): the toleration has no value, so it matches the taint a but not a=true; \
         write operator: Exists for any value";
    assert_eq!(warnings("{key: a}"), [expected]);
    assert_eq!(warnings("{key: a, operator: Equal, value: ''}"), [expected]);
    for fine in [
        "{key: a, operator: Exists}",
        "{key: a, value: b}",
        "{key: a, operator: Exists, effect: ''}",
    ] {
        assert_eq!(warnings(fine), [""; 0], "{fine}");
    }
    assert_eq!(Sources::default().read("").unwrap().warnings(), []);
}

#[test]
fn invalid_tolerations_are_refused() {
    let toleration = |text: &str| {
        faults(&format!(
            "pools: [{{name: a, platforms: [linux/arm64], tolerations: [{text}]}}]"
        ))
        .join("; ")
    };
    for (text, message) in [
        (
            "{key: a, operator: Exists, value: x}",
            "operator Exists has no value",
        ),
        ("{operator: Exists}", "has no key"),
        (
            "{key: a, operator: Lt, value: '5'}",
            "expected Exists or Equal",
        ),
        ("{key: a b, operator: Exists}", "expected a label key"),
        ("{key: /a, operator: Exists}", "expected a label key"),
        ("{key: A.b/c, operator: Exists}", "expected a label key"),
        ("{key: a, value: 'x y'}", "expected a label value"),
        (
            "{key: a, operator: Exists, effect: Never}",
            "expected NoSchedule",
        ),
        (
            "{key: a, operator: Exists, effect: NoSchedule, tolerationSeconds: 5}",
            "needs effect: NoExecute",
        ),
        (
            "{key: a, operator: Exists, tolerationSeconds: soon, effect: NoExecute}",
            "expected a number of seconds",
        ),
        ("[]", "expected a section"),
    ] {
        let faults = toleration(text);
        assert!(
            faults.contains(message) && faults.contains("pools[0].tolerations[0]"),
            "{text}: {faults}"
        );
    }
}

#[test]
fn invalid_values_are_refused() {
    for (text, message) in [
        ("pools: []", "there has to be a pool"),
        ("pools: [{}]", "no name"),
        ("pools: [{name: a}]", "no platforms"),
        (
            "pools: [{name: a, platforms: [linux/arm64], tolerations: []}]",
            "no tolerations",
        ),
        ("pools: {}", "expected a list"),
        (
            "pools: [&p {name: a, platforms: [linux/arm64], tolerations: [{key: a, operator: Exists}]}, *p]",
            "two pools are named \"a\"",
        ),
        (
            "overrides: [{match: ghcr.io/acme}]",
            "the override has no platforms",
        ),
        (
            "overrides: [{match: ghcr.io/acme, platforms: []}]",
            "the override has no platforms",
        ),
        (
            "overrides: [{platforms: [linux/amd64]}]",
            "the override has no match",
        ),
        (
            "overrides: [{match: nginx, platforms: [linux/amd64]}]",
            "expected host[/path]",
        ),
        ("lookup: {concurrency: 0}", "expected a number from 1"),
        ("lookup: {concurrency: -1}", "expected a number from 1"),
        ("lookup: {budget: 0s}", "expected a duration"),
        ("lookup: {budget: 5}", "expected a duration"),
        ("cache: {capacity: many}", "expected a number"),
        ("server: {listen: 8443}", "expected an address and a port"),
        ("network: {allow: [10.0.0.0/33]}", "expected a network"),
        ("network: {allow: 10.0.0.0/8}", "expected a list"),
        (
            "registries: {hosts: {'https://a.b': {}}}",
            "no registry host",
        ),
        ("registries: {hosts: {a.b/c: {}}}", "no registry host"),
        ("registries: {hosts: []}", "expected a section"),
        (
            "registries: {private: [https://a.b]}",
            "expected a pattern of images",
        ),
        (
            "registries: {private: ['a[0].b']}",
            "write one pattern for each host",
        ),
        ("lookup: {'': 1}", "lookup[\"\"]"),
        (
            "credentials: {pullSecrets: 'yes'}",
            "expected true or false",
        ),
        (
            "credentials: {dockerConfigs: /config.json}",
            "expected a list",
        ),
        (
            "credentials: {providers: {binDirectory: /bin}}",
            "known are config, binDir",
        ),
        (
            "credentials: {providers: {config: /p.yaml}}",
            "providers.config needs providers.binDir",
        ),
        (
            "credentials: {providers: {binDir: /bin}}",
            "providers.binDir needs providers.config",
        ),
        (
            "registries: {hosts: {a.b: {}, 'A.b:443': {plainHttp: true}}}",
            "a.b is repeated under another name with other settings",
        ),
        (
            "registries: {hosts: {docker.io: {plainHttp: true}, index.docker.io: {}}}",
            "docker.io is repeated under another name with other settings",
        ),
        (
            "registries: {hosts: {a.b: {plainHttp: 'yes'}}}",
            "expected true or false",
        ),
        (
            "registries: {hosts: {a.b: {mirrors: ['http://c.d']}}}",
            "expected host, host:port or https://host/prefix",
        ),
        (
            "registries: {hosts: {a.b: {mirrors: [c.d, c.e, c.f, c.g, c.h]}}}",
            "at most 4 mirrors",
        ),
        (
            "registries: {hosts: {a.b: {tokenHosts: ['https://c.d/']}}}",
            "expected host or host:port",
        ),
        (
            "registries: {hosts: {a.b: {clientKeyFile: /k}}}",
            "clientKeyFile needs clientCertFile",
        ),
        ("registries: {allow: [nginx]}", "expected host[/path]"),
        (
            "registries: {deny: ['ghcr.io/x:latest']}",
            "expected host[/path]",
        ),
        (
            "controller: {nodeTaints: [{selector: {a: b}, taint: {key: ToBeDeletedByClusterAutoscaler, effect: \
             NoSchedule}}]}",
            "ToBeDeletedByClusterAutoscaler is a key of the taints that Kubernetes",
        ),
        ("log: {level: loud}", "expected error, warn"),
        ("server: [unclosed", "not YAML"),
        (
            "mode: enforce\nmode: observe",
            "mode (line 2): it is repeated: the first one is on line 1",
        ),
        ("a: b\n---\nc: d", "a second document"),
        ("- a", "expected a section"),
    ] {
        let faults = faults(text).join("; ");
        assert!(faults.contains(message), "{text}: {faults}");
        assert!(faults.contains("line"), "{faults}");
    }
}

fn load(file: &str) -> Result<Loaded, ConfigError> {
    Sources {
        file: Some(file.into()),
        ..Sources::default()
    }
    .load()
}

#[test]
fn unreadable_file_is_named() {
    let error = load("/nonesuch.yaml").unwrap_err().to_string();
    assert!(error.contains("/nonesuch.yaml: cannot be read"), "{error}");
}

#[test]
fn shipped_file_is_valid() {
    load(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/manifests/config.yaml"
    ))
    .unwrap();
}

mod generated;
mod placement;
mod profiles;
mod sources;

#[test]
fn every_name_of_docker_hub_is_accepted() {
    for name in [
        "docker.io",
        "index.docker.io",
        "registry-1.docker.io",
        "https://index.docker.io/v1/",
        "Docker.IO",
    ] {
        let text = format!(
            "registries: {{hosts: {{'{name}': {{tokenHosts: ['{name}']}}}}, deny: ['{name}'], private: ['{name}']}}"
        );
        let registries = Config::parse(&text)
            .unwrap_or_else(|faults| panic!("{name}: {faults:?}"))
            .registries;
        assert_eq!(
            registries.hosts["docker.io"].token_hosts,
            ["docker.io"],
            "{name}"
        );
        assert!(
            !registries.allowed.admits(&"nginx".parse().unwrap()),
            "{name}"
        );
        assert!(
            registries.private[0].matches("docker.io/library/nginx"),
            "{name}"
        );
    }
    let below = Config::parse(
        "registries: {private: [index.docker.io/team, 'registry-1.docker.io/other/*']}",
    )
    .unwrap();
    let private = below.registries.private;
    assert!(
        private[0].matches("docker.io/team/app") && !private[0].matches("docker.io/library/nginx")
    );
    assert_eq!(private[1].as_str(), "docker.io/other/*");
    let fault = faults("registries: {hosts: {'https://a.b': {}}}").join("\n");
    assert!(fault.contains("without https://"), "{fault}");
    let twice = "registries: {hosts: {docker.io: {skipVerify: true}, registry-1.docker.io: {skipVerify: true}}}";
    assert!(Config::parse(twice).unwrap().registries.hosts["docker.io"].skip_verify);
}

#[test]
fn sentinel_url_is_refused_with_advice() {
    let [fault] = &*faults("cache: {shared: {url: 'redis+sentinel://a,b/main'}}") else {
        panic!("one fault")
    };
    assert!(fault.contains("cache.shared.url"), "{fault}");
    assert!(
        fault.contains("name the primary itself, or a Service that leads to it"),
        "{fault}"
    );
}

/// The check takes linear time: each section is visited once.
#[test]
fn thousands_of_faults_are_reported_once() {
    const MANY: usize = 3000;
    let empty = faults(&format!("pools:\n{}", "  - {}\n".repeat(MANY)));
    assert_eq!(empty.len(), 3 * MANY);
    let pool = |name: usize| {
        format!(
            "  - {{name: p{name}, platforms: [linux/amd64], tolerations: [{{key: k, operator: Exists}}]}}\n"
        )
    };
    let same: String = (0..MANY).map(|_| pool(0)).collect();
    assert_eq!(faults(&format!("pools:\n{same}")).len(), MANY - 1);
    let pools: String = (0..MANY).map(pool).collect();
    let profiles: String = (0..MANY)
        .map(|at| format!("  f{at}: {{pools: [other-{at}, p{at}]}}\n"))
        .collect();
    let unknown = faults(&format!("pools:\n{pools}profiles:\n{profiles}"));
    assert_eq!(unknown.len(), MANY);
    assert!(
        unknown
            .iter()
            .all(|fault| fault.contains("there is no pool") && fault.len() < 1000),
        "{}",
        unknown[0]
    );
}
