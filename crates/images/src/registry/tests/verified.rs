//! Verification of indexes: `verify: manifests` and `verify: config`.

use super::*;

async fn lookup_verified(remote: &Remote, repo: &Repo, configs: &[&str]) -> Result<Support, Error> {
    let configs = platforms(configs);
    lookup_with(
        remote,
        repo,
        VerifiedPlatforms {
            configs,
            ..VerifiedPlatforms::default()
        },
    )
    .await
}

async fn lookup_existing(
    remote: &Remote,
    repo: &Repo,
    manifests: &[&str],
) -> Result<Support, Error> {
    let manifests = platforms(manifests);
    lookup_with(
        remote,
        repo,
        VerifiedPlatforms {
            manifests,
            ..VerifiedPlatforms::default()
        },
    )
    .await
}

async fn lookup_with(
    remote: &Remote,
    repo: &Repo,
    verified: VerifiedPlatforms,
) -> Result<Support, Error> {
    let (client, _dir) = client(remote);
    let client = client.verifying(verified);
    let image = repo.reference("v1").parse().unwrap();
    client.fetch(&image, None).await.map(|found| found.support)
}

fn claims(mut entry: Value, platform: &str) -> Value {
    let mut parts = platform.split('/');
    entry["platform"] = json!({"os": parts.next(), "architecture": parts.next()});
    if let Some(variant) = parts.next() {
        entry["platform"]["variant"] = json!(variant);
    }
    entry
}

#[tokio::test]
async fn entry_is_supported_only_if_its_config_agrees() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    let amd64 = || claims(repo.image("linux/amd64", None), "linux/amd64");
    let both = platforms(&BOTH);
    let amd64_only = platforms(&["linux/amd64"]);
    let config = |config: Value| {
        repo.image_of(
            repo.blob(config.to_string(), OCI_CONFIG),
            OCI_MANIFEST,
            None,
        )
    };
    let nested = |entry: Value| repo.index(None, [claims(entry, "linux/arm64")]);
    for (name, entry, expected) in [
        ("honest", repo.image("linux/arm64", None), both),
        ("a lie", repo.image("linux/amd64", None), amd64_only),
        (
            "another system",
            repo.image("windows/arm64", None),
            amd64_only,
        ),
        (
            "an alias",
            config(json!({"os": "linux", "architecture": "aarch64"})),
            both,
        ),
        (
            "with a variant",
            config(json!({"os": "linux", "architecture": "arm64", "variant": "v8"})),
            both,
        ),
        (
            "an architecture that no node has",
            config(json!({"os": "linux", "architecture": "vax"})),
            amd64_only,
        ),
        (
            "an honest one in an index",
            nested(repo.image("linux/arm64", None)),
            both,
        ),
        (
            "a lie in an index",
            nested(repo.image("linux/amd64", None)),
            amd64_only,
        ),
    ] {
        let is_index = entry["mediaType"]
            .as_str()
            .is_some_and(|media_type| media_type.contains("index"));
        let entry = if is_index {
            entry
        } else {
            claims(entry, "linux/arm64")
        };
        repo.index(Some("v1"), [amd64(), entry]);
        assert_eq!(
            lookup_verified(&remote, &repo, &BOTH).await.unwrap(),
            Support::Index(expected),
            "{name}"
        );
        assert_eq!(
            lookup_verified(&remote, &repo, &[]).await.unwrap(),
            Support::Index(both),
            "{name}, without verification"
        );
    }
    // A config may leave out the variant of an arm image.
    let arm = config(json!({"os": "linux", "architecture": "arm"}));
    repo.index(Some("v1"), [claims(arm, "linux/arm/v6")]);
    let expected = platforms(&["linux/arm/v6", "linux/arm/v7"]);
    let verified = ["linux/arm/v6", "linux/arm/v7"];
    assert_eq!(
        lookup_verified(&remote, &repo, &verified).await.unwrap(),
        Support::Index(expected)
    );
}

#[tokio::test]
async fn only_needed_configs_are_read_and_failures_are_unknown() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    let amd64 = repo.image("linux/amd64", None);
    let lie = repo.image("linux/amd64", None);
    let entries = [claims(amd64, "linux/amd64"), claims(lie, "linux/s390x")];
    repo.index(Some("v1"), entries.clone());
    remote.forget_requests();
    let support = lookup_verified(&remote, &repo, &["linux/amd64"])
        .await
        .unwrap();
    assert_eq!(
        support,
        Support::Index(platforms(&["linux/amd64", "linux/s390x"]))
    );
    let count = remote.requests().len();
    assert_eq!(count, 3, "the index, one manifest, one config");

    let gone = claims(gone(), "linux/arm64");
    repo.index(Some("v1"), [entries[0].clone(), gone]);
    assert_eq!(
        lookup_verified(&remote, &repo, &BOTH).await.unwrap(),
        Support::Index(platforms(&["linux/amd64"])),
        "nodes cannot pull a missing manifest"
    );
    repo.fault(Some(at(&entries[0], || Fault::status(503))));
    assert_eq!(
        partial(lookup_verified(&remote, &repo, &BOTH).await),
        ("none".into(), "linux/amd64".into(), "unreachable")
    );
}

/// Returns the descriptor of a manifest that nobody pushed.
fn gone() -> Value {
    json!({"mediaType": OCI_MANIFEST, "digest": format!("sha256:{}", "0".repeat(64)), "size": 2})
}

/// Makes a fault that concerns only requests for this manifest.
fn at(entry: &Value, fault: impl Fn() -> Fault + Send + Sync + 'static) -> Fault {
    let digest = entry["digest"].as_str().unwrap().to_owned();
    Fault::custom(move |request| (request.reference.as_ref() == Some(&digest)).then(&fault))
}

/// Returns the platforms on which an image runs, those for which that is unknown, and the failure.
fn partial(result: Result<Support, Error>) -> (String, String, &'static str) {
    match result {
        Err(Error::Partial {
            runs,
            unknown,
            cause,
        }) => (runs.to_string(), unknown.to_string(), word(&cause)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn entry_without_a_manifest_is_not_supported() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    let amd64 = repo.entry("linux/amd64");
    let nested = repo.index(None, [claims(gone(), "linux/arm64")]);
    for (name, entry) in [
        ("missing", claims(gone(), "linux/arm64")),
        ("missing in an index", claims(nested, "linux/arm64")),
        (
            "a missing index",
            json!({"mediaType": OCI_INDEX, "digest": gone()["digest"], "size": 2}),
        ),
        ("missing, without a platform", gone()),
    ] {
        repo.index(Some("v1"), [amd64.clone(), entry]);
        let support = lookup_existing(&remote, &repo, &BOTH).await.unwrap();
        assert_eq!(
            support,
            Support::Index(platforms(&["linux/amd64"])),
            "{name}"
        );
    }
    // Nodes that choose an entry without a manifest do not fall back to the next one.
    repo.index(
        Some("v1"),
        [
            amd64.clone(),
            claims(gone(), "linux/arm64"),
            repo.entry("linux/arm64"),
        ],
    );
    let support = lookup_existing(&remote, &repo, &BOTH).await.unwrap();
    assert_eq!(support, Support::Index(platforms(&["linux/amd64"])));
}

#[tokio::test]
async fn each_chosen_entry_is_requested_once_by_head() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    repo.index(
        Some("v1"),
        ["linux/amd64", "linux/arm64", "linux/s390x", "linux/arm/v6"],
    );
    let methods = async |platforms: &[&str]| {
        remote.forget_requests();
        lookup_existing(&remote, &repo, platforms).await.unwrap();
        remote
            .requests()
            .iter()
            .map(|request| request.method.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(methods(&[]).await, ["GET"]);
    assert_eq!(methods(&BOTH).await, ["GET", "HEAD", "HEAD"]);
    // Nodes of both variants choose the same entry.
    assert_eq!(
        methods(&["linux/arm/v6", "linux/arm/v7"]).await,
        ["GET", "HEAD"]
    );
}

#[tokio::test]
async fn failed_request_makes_only_its_platform_unknown() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    let [amd64, arm64] = BOTH.map(|platform| repo.entry(platform));
    repo.index(Some("v1"), [amd64, arm64.clone()]);
    for (status, why) in [
        (401, "denied"),
        (403, "denied"),
        (429, "throttled"),
        (500, "unreachable"),
        (503, "unreachable"),
    ] {
        repo.fault(Some(at(&arm64, move || Fault::status(status))));
        let result = partial(lookup_existing(&remote, &repo, &BOTH).await);
        assert_eq!(
            result,
            ("linux/amd64".into(), "linux/arm64".into(), why),
            "{status}"
        );
        let unverified = lookup_existing(&remote, &repo, &["linux/amd64"])
            .await
            .unwrap();
        assert_eq!(
            unverified,
            Support::Index(platforms(&BOTH)),
            "{status}, for a platform that is not verified"
        );
    }
    // If a registry does not support HEAD, GET follows.
    for status in [401, 403, 405] {
        repo.fault(Some(at(&arm64, move || Fault::status(status).only_head())));
        let support = lookup_existing(&remote, &repo, &BOTH).await;
        assert_eq!(
            kind(&support),
            kind(&Ok(Support::Index(platforms(&BOTH)))),
            "{status}"
        );
    }
}
