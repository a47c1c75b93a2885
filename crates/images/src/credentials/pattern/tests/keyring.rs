use super::*;

#[test]
fn keys_are_normalized_as_by_kubelet() {
    for (key, normal) in [
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
            normalized(key).as_ref().map(ImagePattern::as_str),
            normal,
            "{key}"
        );
    }
}

fn matching<'r>(rings: &'r [DockerKeyring<&'r str>], name: &str) -> Vec<&'r str> {
    lookup(rings.iter(), name).into_iter().copied().collect()
}

#[test]
fn most_specific_match_comes_first() {
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
        matching(&rings, "quay.io/team/app"),
        ["app", "team", "host", "second host", "glob"]
    );
    assert_eq!(
        matching(&rings, "quay.io/teamwork"),
        ["team", "host", "second host", "glob"]
    );
    assert_eq!(matching(&rings, "quay.io"), ["host", "second host", "glob"]);
    assert_eq!(matching(&rings, "docker.io/library/nginx"), ["glob"]);
    assert_eq!(matching(&rings, "ghcr.io/team/app"), ["glob"]);
    assert!(matching(&rings, "quay.com/team/app").is_empty());
}

/// kubelet: `isDefaultRegistryMatch` and `defaultRegistryHost`.
#[test]
fn docker_hub_falls_back_to_the_key_of_its_index() {
    let hub = [keyring([("https://index.docker.io/v1/", "hub")])];
    assert_eq!(matching(&hub, "docker.io/library/nginx"), ["hub"]);
    assert_eq!(matching(&hub, "docker.io"), ["hub"]);
    assert!(matching(&hub, "quay.io/library/nginx").is_empty());
    let direct = [
        keyring([("https://index.docker.io/v1/", "hub")]),
        keyring([("docker.io/library", "library"), ("docker.io", "direct")]),
    ];
    assert_eq!(
        matching(&direct, "docker.io/library/nginx"),
        ["library", "direct"]
    );
    assert_eq!(matching(&direct, "docker.io/team/app"), ["direct"]);
    let registry = [keyring([("registry-1.docker.io", "registry")])];
    assert!(matching(&registry, "docker.io/library/nginx").is_empty());
    let path = [keyring([("https://index.docker.io/v1", "path")])];
    assert!(matching(&path, "docker.io/library/nginx").is_empty());
}
