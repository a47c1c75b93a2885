//! Entries of an index: which are supported, and for which nodes.

use super::*;

const SBOM: &str = "application/spdx+json";

#[tokio::test]
async fn entries_of_an_index_are_supported_by_kind() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    let amd64 = || repo.entry("linux/amd64");
    let with = |mut entry: Value, key: &str, value: Value| {
        entry[key] = value;
        entry
    };
    let arm64 = repo.image("linux/arm64", None);
    let nested = repo.index(None, ["linux/arm64"]);
    let both = platforms(&BOTH);
    let amd64_only = platforms(&["linux/amd64"]);
    let attestation = repo.attestation(arm64["digest"].as_str().unwrap());
    let empty = repo.blob("{}", "application/vnd.oci.empty.v1+json");
    let artifact = with(
        repo.image_of(empty, OCI_MANIFEST, None),
        "platform",
        json!({"os": "linux", "architecture": "arm64"}),
    );
    for (name, entry, expected) in [
        ("without a platform", arm64.clone(), both),
        (
            "with a null platform",
            with(arm64.clone(), "platform", Value::Null),
            both,
        ),
        (
            "with an empty platform",
            with(arm64.clone(), "platform", json!({})),
            amd64_only,
        ),
        ("an attestation", attestation.clone(), amd64_only),
        (
            "an attestation that claims a platform",
            with(
                attestation,
                "platform",
                json!({"os": "linux", "architecture": "arm64"}),
            ),
            amd64_only,
        ),
        (
            "for nodes with a feature",
            with(
                arm64.clone(),
                "platform",
                json!({"os": "linux", "architecture": "arm64", "os.features": ["erofs"]}),
            ),
            amd64_only,
        ),
        (
            "with its config's type as artifactType",
            with(repo.entry("linux/arm64"), "artifactType", json!(OCI_CONFIG)),
            both,
        ),
        (
            "with the type of Docker's configs",
            with(
                repo.entry("linux/arm64"),
                "artifactType",
                json!(DOCKER_CONFIG),
            ),
            both,
        ),
        (
            "an image that is called an artifact",
            with(repo.entry("linux/arm64"), "artifactType", json!(SBOM)),
            both,
        ),
        (
            "an artifact",
            with(artifact.clone(), "artifactType", json!(SBOM)),
            amd64_only,
        ),
        (
            "of no image type",
            with(
                repo.entry("linux/arm64"),
                "mediaType",
                json!("application/x"),
            ),
            amd64_only,
        ),
        ("nested", nested.clone(), both),
        (
            "nested for another platform",
            with(
                nested,
                "platform",
                json!({"os": "linux", "architecture": "s390x"}),
            ),
            amd64_only,
        ),
        (
            "aliased",
            with(
                arm64.clone(),
                "platform",
                json!({"os": "Linux", "architecture": "AArch64"}),
            ),
            both,
        ),
    ] {
        repo.index(Some("v1"), [amd64(), entry]);
        assert_eq!(
            lookup(&remote, &repo, "v1").await.unwrap(),
            Support::Index(expected),
            "{name}"
        );
    }
}

#[tokio::test]
async fn node_gets_only_the_entry_that_it_chooses() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    let for_platform = |mut entry: Value, architecture: &str| {
        entry["platform"] = json!({"os": "linux", "architecture": architecture});
        entry
    };
    let amd64 = repo.entry("linux/amd64");
    let arm64 = repo.entry("linux/arm64");
    let bare = |platform: &str| repo.image(platform, None);
    let nested = |platform: &str| for_platform(repo.index(None, [repo.entry(platform)]), "arm64");
    let feature = json!({"os": "linux", "architecture": "arm64", "os.features": ["erofs"]});
    let config = repo.blob(feature.to_string(), OCI_CONFIG);
    let with_feature = repo.image_of(config, OCI_MANIFEST, None);
    let mut attestation = repo.attestation(arm64["digest"].as_str().unwrap());
    attestation["platform"] = json!({"os": "linux", "architecture": "arm64"});
    for (name, entries, expected) in [
        (
            "two without a platform",
            vec![bare("linux/arm64"), bare("linux/amd64")],
            &["linux/arm64"][..],
        ),
        (
            "one without a platform, chosen after one with a platform",
            vec![bare("linux/arm64"), amd64.clone()],
            &BOTH,
        ),
        (
            "one without a platform, for the same nodes",
            vec![bare("linux/amd64"), amd64.clone()],
            &["linux/amd64"],
        ),
        (
            "an index that lacks it, first",
            vec![nested("linux/s390x"), arm64.clone(), amd64.clone()],
            &["linux/amd64"],
        ),
        (
            "an index that lacks it, second",
            vec![arm64.clone(), nested("linux/s390x"), amd64.clone()],
            &BOTH,
        ),
        (
            "an index that has it",
            vec![nested("linux/arm64"), amd64.clone()],
            &BOTH,
        ),
        (
            "an attestation first",
            vec![attestation.clone(), arm64.clone(), amd64.clone()],
            &["linux/amd64"],
        ),
        (
            "an attestation second",
            vec![arm64.clone(), attestation, amd64.clone()],
            &BOTH,
        ),
        (
            "a config with features",
            vec![with_feature, amd64.clone()],
            &["linux/amd64"],
        ),
        (
            "a 32-bit image, chosen before one without a platform",
            vec![bare("linux/amd64"), repo.entry("linux/386")],
            &["linux/386"],
        ),
    ] {
        repo.index(Some("v1"), entries);
        assert_eq!(
            lookup(&remote, &repo, "v1").await.unwrap(),
            Support::Index(platforms(expected)),
            "{name}"
        );
    }
}

#[tokio::test]
async fn only_chosen_entries_with_an_artifact_type_are_fetched() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    let called = |mut entry: Value, kind: &str| {
        entry["artifactType"] = kind.into();
        entry
    };
    let amd64 = repo.entry("linux/amd64");
    let arm64 = repo.entry("linux/arm64");
    let image = |entry: &Value| called(entry.clone(), OCI_CONFIG);
    let soci = || called(arm64.clone(), "application/vnd.amazon.soci.index.v2+json");
    for (entries, requests) in [
        (vec![image(&amd64), image(&arm64)], 1),
        (vec![amd64.clone(), arm64.clone(), soci()], 1),
        (vec![amd64.clone(), soci(), arm64.clone()], 3),
    ] {
        repo.index(Some("v1"), entries);
        remote.forget_requests();
        let both = Support::Index(platforms(&BOTH));
        assert_eq!(lookup(&remote, &repo, "v1").await.unwrap(), both);
        assert_eq!(remote.requests().len(), requests);
    }
}
