//! Tags of real repositories, and a comparison with the order of crate `semver`.

use proptest::prelude::*;
use semver::Version as Semantic;

use super::*;

fn newer(tag: &str, tags: &[&'static str]) -> Option<Vec<&'static str>> {
    newer_tags(tag, tags.iter().copied())
}

/// A tag, the newer tags in their order, and other tags of the repository.
type Case = (
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

#[test]
fn real_tags_are_ordered() {
    let cases: &[Case] = &[
        // alpine: edge has dates.
        (
            "3.18",
            &["3.19", "3.20"],
            &["3.17", "3.18", "3.18.4", "3", "20231219", "edge", "latest"],
        ),
        (
            "3.18.4",
            &["3.18.5", "3.19.0", "3.19.10"],
            &["3.19_alpha20231219", "20231219"],
        ),
        // nginx
        (
            "1.25.3",
            &["1.25.4", "1.26.0", "1.27.0"],
            &["1.25", "1", "1.25.4-alpine", "stable", "mainline-alpine"],
        ),
        (
            "1.25-alpine-slim",
            &["1.26-alpine-slim"],
            &["1.26-alpine", "1.26", "1.26.1-alpine-slim"],
        ),
        (
            "1.25.3-alpine3.18-perl",
            &[
                "1.25.3-alpine3.19-perl",
                "1.25.4-alpine3.18-perl",
                "1.26.0-alpine3.19-perl",
            ],
            &[
                "1.25.4-alpine3.17-perl",
                "1.26.0-alpine3.19",
                "1.26.0-alpine-perl",
            ],
        ),
        // bitnami
        (
            "15.4.0-debian-11-r5",
            &[
                "15.4.0-debian-11-r10",
                "15.4.0-debian-12-r0",
                "15.5.0-debian-12-r1",
                "16.0.0-debian-12-r0",
            ],
            &[
                "15.4.0-debian-11-r4",
                "15.4.0",
                "16.0.0-photon-5-r1",
                "15.5.0-debian-10-r77",
            ],
        ),
        // python
        (
            "3.11-slim",
            &["3.12-slim", "3.13-slim"],
            &[
                "3.13-rc-slim",
                "3.12-slim-bookworm",
                "3.12",
                "3.12.1-slim",
                "3.9-slim",
            ],
        ),
        (
            "3.12.0",
            &["3.12.1", "3.13.0"],
            &["3.13.0a1", "3.13.0b4", "3.13.0rc2", "3.14-rc"],
        ),
        (
            "3.13.0a6",
            &["3.13.0b1", "3.13.0rc2", "3.13.0", "3.14.0a1"],
            &["3.13.0a5", "3.13.0a6-slim", "3.12.9"],
        ),
        (
            "3.12-slim-bookworm",
            &["3.13-slim-bookworm"],
            &["3.13-slim-bullseye", "3.13-slim"],
        ),
        // node
        (
            "18-alpine",
            &["20-alpine", "21-alpine"],
            &[
                "20-alpine3.18",
                "lts-alpine",
                "20.1-alpine",
                "current-alpine",
            ],
        ),
        (
            "18.19.0-alpine3.18",
            &["18.19.0-alpine3.19", "20.10.0-alpine3.18"],
            &["20.10.0-alpine3.17", "20.10.0-alpine3"],
        ),
        // grafana
        (
            "10.2.2",
            &["10.2.3", "10.3.1", "11.0.0"],
            &["10.3.1-ubuntu", "11.0.0-preview", "main", "11.0.0-160315"],
        ),
        ("10.2.2-ubuntu", &["10.3.1-ubuntu"], &["10.3.1"]),
        // eclipse-temurin
        (
            "17-jdk",
            &["21-jdk", "22-jdk"],
            &["21-jre", "21-jdk-jammy", "21.0.1_12-jdk", "8u392-b08-jdk"],
        ),
        (
            "21.0.1_12-jdk-jammy",
            &["21.0.2_13-jdk-jammy", "22.0.1_8-jdk-jammy"],
            &["21_35-jdk-jammy", "21.0.2_13-jre-jammy"],
        ),
        (
            "8u392-b08-jre",
            &["8u392-b09-jre", "8u402-b06-jre"],
            &["8u382-b05-jre", "8u402-b06-jdk", "8-jre"],
        ),
        (
            "21.0.1_12-jdk-ubi9-minimal",
            &["21.0.2_13-jdk-ubi9-minimal"],
            &["21.0.2_13-jdk-ubi8-minimal", "21.0.2_13-jdk"],
        ),
        // openjdk
        (
            "22-ea-24-jdk-slim",
            &["22-ea-27-jdk-slim", "22-jdk-slim", "23-ea-1-jdk-slim"],
            &["22-ea-9-jdk-slim", "22-ea-27-jdk"],
        ),
        // jenkins: a JDK is no version of Jenkins.
        (
            "2.426.1-jdk17",
            &["2.426.2-jdk17", "2.440.1-jdk17"],
            &["2.426.2-jdk21", "2.426.1-jdk21", "2.426.2-lts-jdk17"],
        ),
        (
            "2.426.1-lts-jdk17",
            &["2.440.1-lts-jdk17"],
            &["2.440.1-lts-jdk21"],
        ),
        // rabbitmq
        (
            "3.12.10-management-alpine",
            &["3.12.11-management-alpine", "3.13.0-management-alpine"],
            &["3.13.0-rc.2-management-alpine", "3.13.0-management"],
        ),
        (
            "3.13.0-rc.2-management",
            &["3.13.0-rc.10-management", "3.13.0-management"],
            &["3.13.0-beta.9-management", "3.13.0-rc.3"],
        ),
        // php
        (
            "8.3.0RC6-fpm-alpine3.18",
            &["8.3.0-fpm-alpine3.18", "8.3.0-fpm-alpine3.19"],
            &["8.3.0beta3-fpm-alpine3.18", "8.3.0RC5-fpm-alpine3.18"],
        ),
        (
            "8.2-fpm",
            &["8.3-fpm"],
            &["8.4-rc-fpm", "8.3-fpm-alpine", "8.3-cli"],
        ),
        // golang, postgres, redis
        (
            "1.21.5-alpine3.18",
            &["1.22.0-alpine3.19"],
            &["1.22rc1-alpine3.19", "1.22.0-alpine"],
        ),
        (
            "16.1",
            &["16.2", "17.0"],
            &["17beta1", "17rc1", "16", "16.1.1"],
        ),
        (
            "7.2-rc3-bookworm",
            &["7.2-bookworm", "7.4-rc1-bookworm"],
            &["7.2-rc2-bookworm", "7.2-rc3"],
        ),
        // debian, ubuntu
        (
            "bookworm-20231120-slim",
            &["bookworm-20231218-slim"],
            &[
                "bookworm-20231030-slim",
                "trixie-20231218-slim",
                "bookworm-slim",
                "bookworm-20231218",
            ],
        ),
        (
            "jammy-20231128",
            &["jammy-20240111"],
            &["noble-20240111", "jammy", "jammy-20240111.1"],
        ),
        // minio, calendars
        (
            "RELEASE.2023-11-20T22-40-07Z",
            &[
                "RELEASE.2023-11-20T22-41-00Z",
                "RELEASE.2023-12-02T10-51-33Z",
                "RELEASE.2024-01-01T16-36-33Z",
            ],
            &[
                "RELEASE.2023-11-15T20-43-25Z",
                "RELEASE.2024-01-01T16-36-33Z-cpuv1",
                "RELEASE.2024-01-01T16-36-33Z.fips",
            ],
        ),
        (
            "2023.11.3",
            &["2023.12.0", "2024.1.1"],
            &["20240101", "2024.1", "9999.1.1", "5.0.0"],
        ),
        (
            "1.2.3",
            &["1.2.4"],
            &[
                "2023.11.3",
                "20240101",
                "1.2.20240101",
                "1.2.3.4",
                "1.2.4-4",
            ],
        ),
        (
            "20231120",
            &["20231121"],
            &["202311210000", "4", "99999999", "20231301"],
        ),
        // Kubernetes and those around it
        (
            "v1.28.4",
            &["v1.28.5", "v1.29.0"],
            &["v1.29.0-rc.1", "1.29.0", "v1.29", "v1.30.0-alpha.0"],
        ),
        (
            "v1.28.4-k3s1",
            &["v1.28.4-k3s2", "v1.29.0-k3s1"],
            &["v1.28.4-rc1-k3s1", "v1.28.4"],
        ),
        (
            "v1.15.1-eksbuild.1",
            &["v1.15.1-eksbuild.2", "v1.16.0-eksbuild.1"],
            &["v1.16.0"],
        ),
        (
            "1.20.0-distroless",
            &["1.20.1-distroless"],
            &["1.21.0-alpha.1-distroless", "1.21.0"],
        ),
        (
            "8.9-1137",
            &["8.9-1161", "8.10-901"],
            &["8.9-1108", "8.10", "8.10-901.1717584420"],
        ),
        (
            "release-v1.4",
            &["release-v1.5"],
            &["v1.5", "release-1.5", "release-v1.5-beta"],
        ),
        ("k8s-1.28.3", &["k8s-1.29.0"], &["k9s-1.29.0", "1.29.0"]),
        (
            "4.0.11.2697-ls212",
            &["4.0.11.2697-ls213", "4.0.12.1-ls9"],
            &["4.0.12.1", "version-4.0.12.1"],
        ),
        // Maven's words
        (
            "3.2.0.Final",
            &["3.2.1.Final"],
            &["3.3.0.CR1", "3.3.0.Beta2"],
        ),
        (
            "2.4.0-M1",
            &["2.4.0-M10", "2.4.0-RC1", "2.4.0"],
            &["2.4.0-SNAPSHOT-1a2b3c4", "2.3.9-M9"],
        ),
        (
            "2.4.0",
            &["2.5.0"],
            &[
                "2.5.0-SNAPSHOT",
                "2.6.0-dev",
                "2.6.0-nightly",
                "2.6.0-canary.4",
                "2.6.0-edge",
            ],
        ),
        // Each commit is a form of its own.
        (
            "v1.2.3-0a1b2c3",
            &["v1.2.4-0a1b2c3"],
            &["v1.2.4-9f8e7d6", "v1.2.4", "v1.2.4-1234567"],
        ),
        ("1.2.3-12b3456", &[], &["1.3.0-14b5678", "1.3.0"]),
        ("1.2.3-b123456", &[], &["1.2.3-b234567", "1.2.3", "1.3.0"]),
        (
            "master-20231120-0a1b2c3",
            &[],
            &["master-20231121-1a2b3c4", "master-20231121"],
        ),
    ];
    for &(tag, expected, others) in cases {
        let mut tags = [others, expected].concat();
        assert_eq!(newer(tag, &tags).as_deref(), Some(expected), "{tag}");
        tags.reverse();
        assert_eq!(
            newer(tag, &tags).as_deref(),
            Some(expected),
            "{tag}, reversed"
        );
        for newest in expected {
            let back = newer_tags(newest, [tag]);
            assert_eq!(back, Some(Vec::new()), "{tag} is not newer than {newest}");
        }
    }
}

#[test]
fn tag_without_a_version_has_no_newer_tags() {
    for tag in [
        "",
        "latest",
        "stable",
        "main",
        "edge",
        "lts-alpine",
        "alpine3.18",
        "jdk17",
        "lts-jdk17",
        "php8.2",
        "v",
        "vv1",
        "0a1b2c3",
        "4b82341",
        "1ea2345",
        "sha-4a12345",
        "1234567",
        "12345ab",
        "sha-1234567",
        "sha-0a1b2c3",
        "deadbeef",
        "e3b0c44298fc1c149afbf4c8996fb924",
        "20231301",
        "20230230x",
        "99999999",
        "1700000000",
        "-",
        ".",
        "_",
        "a.b",
        "k8s",
    ] {
        assert_eq!(
            newer(tag, &["1.2.3", "2", "20240101", "latest", "jdk21"]),
            None,
            "{tag}"
        );
    }
}

#[test]
fn numbers_have_any_length() {
    let nines = "9".repeat(120);
    let zeros = format!("1.{}", "0".repeat(120));
    let long = format!("1.0.0-rc.{nines}");
    assert_eq!(newer_tags("1.0.0-rc.1", [&*long]), Some(vec![&*long]));
    assert_eq!(newer_tags(&long, ["1.0.0-rc.1"]), Some(vec![]));
    for tag in [&nines, &zeros, &format!("1.{nines}")] {
        assert_eq!(newer_tags("1.1", [&**tag]), Some(vec![]), "{tag}");
    }
    assert_eq!(
        newer("1.08", &["1.8", "1.9", "1.09", "1.010"]),
        Some(vec!["1.09", "1.9", "1.010"])
    );
}

/// Semantic versions whose pre-releases have only words that always mean a pre-release.
fn semantic() -> impl Strategy<Value = String> {
    let number = || prop_oneof![0u64..3, 0u64..1000];
    let word =
        prop::sample::select(vec!["alpha", "beta", "dev", "rc", "pre"]).prop_map(str::to_owned);
    let any = prop_oneof![
        word.clone(),
        any::<u64>().prop_map(|number| number.to_string()),
        (0u64..3).prop_map(|number| number.to_string())
    ];
    let pre = (word, prop::collection::vec(any, 0..4)).prop_map(|(word, more)| {
        let all: Vec<String> = [word].into_iter().chain(more).collect();
        format!("-{}", all.join("."))
    });
    let pre = prop_oneof![Just(String::new()), pre];
    (number(), number(), number(), pre)
        .prop_map(|(major, minor, patch, pre)| format!("{major}.{minor}.{patch}{pre}"))
}

proptest! {
    #[test]
    fn semantic_versions_have_their_order(tag in semantic(), other in semantic()) {
        let given: Semantic = tag.parse().unwrap();
        let other_given: Semantic = other.parse().unwrap();
        let may_be = other_given.pre.is_empty() || !given.pre.is_empty();
        let is_newer = newer_tags(&tag, [&*other]) == Some(vec![&*other]);
        prop_assert_eq!(is_newer, may_be && other_given > given);
    }

    #[test]
    fn never_panics_on_a_tag(tag in "[a-zA-Z0-9_][a-zA-Z0-9._-]{0,40}", others in prop::collection::vec("[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}", 0..8)) {
        let others = others.iter().map(String::as_str);
        if let Some(newer) = newer_tags(&tag, others) {
            // The tags are ordered, and the given tag is newer than none of them.
            for pair in newer.windows(2) {
                prop_assert_ne!(newer_tags(pair[1], [pair[0]]), Some(vec![pair[0]]));
            }
            for newer in newer {
                prop_assert_eq!(newer_tags(newer, [&*tag]), Some(vec![]));
            }
        }
    }

    #[test]
    fn never_panics_on_other_text(tag in ".{0,40}", other in ".{0,40}") {
        newer_tags(&tag, [&*other]);
    }
}
