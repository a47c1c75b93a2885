//! Indexes that are not believed: `verify: config`.

use super::*;

async fn ask_verified(remote: &Remote, repo: &Repo, verified: &[&str]) -> Result<Support, Error> {
    let (client, _dir) = client(remote);
    let client = client.verifying(platforms(verified));
    let image = repo.reference("v1").parse().unwrap();
    client.fetch(&image, None, &Recorder::default()).await.map(|found| found.support)
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
async fn an_entry_counts_if_its_config_says_the_same() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    let amd64 = || claims(repo.image("linux/amd64", None), "linux/amd64");
    let both = platforms(&BOTH);
    let only = platforms(&["linux/amd64"]);
    let config = |config: Value| repo.image_of(repo.blob(config.to_string(), OCI_CONFIG), OCI_MANIFEST, None);
    let nested = |entry: Value| repo.index(None, [claims(entry, "linux/arm64")]);
    for (name, entry, expected) in [
        ("honest", repo.image("linux/arm64", None), both),
        ("a lie", repo.image("linux/amd64", None), only),
        ("another system", repo.image("windows/arm64", None), only),
        ("an alias", config(json!({"os": "linux", "architecture": "aarch64"})), both),
        ("with a variant", config(json!({"os": "linux", "architecture": "arm64", "variant": "v8"})), both),
        ("an architecture that no node has", config(json!({"os": "linux", "architecture": "vax"})), only),
        ("an honest one in an index", nested(repo.image("linux/arm64", None)), both),
        ("a lie in an index", nested(repo.image("linux/amd64", None)), only),
    ] {
        let is_index = entry["mediaType"].as_str().is_some_and(|media_type| media_type.contains("index"));
        let entry = if is_index { entry } else { claims(entry, "linux/arm64") };
        repo.index(Some("v1"), [amd64(), entry]);
        assert_eq!(ask_verified(&remote, &repo, &BOTH).await.unwrap(), Support::Index(expected), "{name}");
        assert_eq!(
            ask_verified(&remote, &repo, &[]).await.unwrap(),
            Support::Index(both),
            "{name}, believed"
        );
    }
    // A config that leaves out the variant of an arm image says enough.
    let arm = config(json!({"os": "linux", "architecture": "arm"}));
    repo.index(Some("v1"), [claims(arm, "linux/arm/v6")]);
    let expected = platforms(&["linux/arm/v6", "linux/arm/v7"]);
    let verified = ["linux/arm/v6", "linux/arm/v7"];
    assert_eq!(ask_verified(&remote, &repo, &verified).await.unwrap(), Support::Index(expected));
}

#[tokio::test]
async fn what_cannot_be_read_is_unknown_and_what_no_pool_needs_is_not_read() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    let (amd64, lie) = (repo.image("linux/amd64", None), repo.image("linux/amd64", None));
    let entries = [claims(amd64, "linux/amd64"), claims(lie, "linux/s390x")];
    repo.index(Some("v1"), entries.clone());
    let before = remote.requests().len();
    let support = ask_verified(&remote, &repo, &["linux/amd64"]).await.unwrap();
    assert_eq!(support, Support::Index(platforms(&["linux/amd64", "linux/s390x"])));
    let asked = remote.requests().len() - before;
    assert_eq!(asked, 3, "the index, one manifest, one config");

    let missing =
        json!({"mediaType": OCI_MANIFEST, "digest": format!("sha256:{}", "0".repeat(64)), "size": 2});
    repo.index(Some("v1"), [entries[0].clone(), claims(missing, "linux/arm64")]);
    assert_eq!(kind(&ask_verified(&remote, &repo, &BOTH).await), "Missing");
}
