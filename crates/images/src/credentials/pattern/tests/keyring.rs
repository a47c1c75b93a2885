use super::*;

#[test]
fn normalises_keys_as_kubelet_does() {
    for (given, normal) in [
        ("quay.io", Some("quay.io")),
        ("https://quay.io", Some("quay.io")),
        ("http://quay.io/", Some("quay.io")),
        ("https://index.docker.io/v1/", Some("index.docker.io")),
        ("index.docker.io/v1/", Some("index.docker.io")),
        ("https://index.docker.io/v1", Some("index.docker.io/v1")),
        ("https://registry.io/v2/", Some("registry.io")),
        ("https://registry.io/v2/team", Some("registry.io/team")),
        (
            "registry.io:5000/v1/team/app",
            Some("registry.io:5000/team/app"),
        ),
        ("registry.io/v3/", Some("registry.io/v3/")),
        ("registry.io/team/", Some("registry.io/team/")),
        (
            "https://user:word@registry.io/team",
            Some("registry.io/team"),
        ),
        ("registry.io?a=b", Some("registry.io")),
        ("registry.io:/team", Some("registry.io:/team")),
        ("*.registry.io", Some("*.registry.io")),
        ("", None),
        ("https://", None),
        ("/v1/", None),
    ] {
        assert_eq!(
            normalized(given).as_ref().map(ImagePattern::as_str),
            normal,
            "{given}"
        );
    }
}

fn found<'r>(rings: &'r [DockerKeyring<&'r str>], name: &str) -> Vec<&'r str> {
    lookup(rings.iter(), name).into_iter().copied().collect()
}

#[test]
fn gives_all_that_match_most_specific_first() {
    let rings = [
        keyring([
            ("quay.io", "host"),
            ("quay.io/team", "team"),
            ("*.io", "glob"),
            ("quay.io/other", "no"),
        ]),
        keyring([
            ("quay.io/team/app", "app"),
            ("https://quay.io/v2/", "second host"),
        ]),
    ];
    assert_eq!(
        found(&rings, "quay.io/team/app"),
        ["app", "team", "host", "second host", "glob"]
    );
    assert_eq!(
        found(&rings, "quay.io/teamwork"),
        ["team", "host", "second host", "glob"]
    );
    assert_eq!(found(&rings, "quay.io"), ["host", "second host", "glob"]);
    assert_eq!(found(&rings, "docker.io/library/nginx"), ["glob"]);
    assert_eq!(found(&rings, "ghcr.io/team/app"), ["glob"]);
    assert!(found(&rings, "quay.com/team/app").is_empty());
}

/// kubelet: `isDefaultRegistryMatch` and `defaultRegistryHost`.
#[test]
fn docker_hub_has_a_key_of_its_own() {
    let hub = [keyring([("https://index.docker.io/v1/", "hub")])];
    assert_eq!(found(&hub, "docker.io/library/nginx"), ["hub"]);
    assert_eq!(found(&hub, "docker.io"), ["hub"]);
    assert!(found(&hub, "quay.io/library/nginx").is_empty());
    let direct = [
        keyring([("https://index.docker.io/v1/", "hub")]),
        keyring([("docker.io/library", "library"), ("docker.io", "direct")]),
    ];
    assert_eq!(
        found(&direct, "docker.io/library/nginx"),
        ["library", "direct"]
    );
    assert_eq!(found(&direct, "docker.io/team/app"), ["direct"]);
    let registry = [keyring([("registry-1.docker.io", "registry")])];
    assert!(found(&registry, "docker.io/library/nginx").is_empty());
    let path = [keyring([("https://index.docker.io/v1", "path")])];
    assert!(found(&path, "docker.io/library/nginx").is_empty());
}
