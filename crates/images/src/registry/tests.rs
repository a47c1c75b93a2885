//! Tests of the protocol against a registry in this process: answers, failures, and numbers of requests.

use std::time::Duration;

use serde_json::{Value, json};
use testregistry::{
    Auth, DOCKER_CONFIG, DOCKER_LIST, Fault, Kind, OCI_CONFIG, OCI_INDEX, OCI_MANIFEST,
    Registry as Remote, Reply, Repo,
};

use super::*;
use crate::credentials::Credential;
use crate::registry::testing::registry_metrics;
use crate::registry::trace::CREDENTIAL_KIND;
use tolerarch_core::image::{PlatformSet, Support};
use tolerarch_core::testing::platforms;
use tolerarch_support::metrics::Metrics;

mod cold;
mod connections;
mod endings;
mod endpoints;
mod gates;
mod heads;
mod indexes;
mod kept;
mod personalities;
mod realms;
mod redirects;
pub(super) mod short_key;
mod spare;
mod tags;
mod tokens;
mod trust;
mod unclear;
mod upstream;
mod verified;

const BOTH: [&str; 2] = ["linux/amd64", "linux/arm64"];

fn client_with(remote: &Remote, guard: AddressGuard) -> (Registry, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let ca = dir.path().join("ca.crt");
    std::fs::write(&ca, remote.pki().ca_pem()).unwrap();
    let settings = HostSettings {
        ca_file: Some(ca),
        plain_http: remote.url().starts_with("http:"),
        ..HostSettings::default()
    };
    let metrics = registry_metrics();
    (
        Registry::new([(remote.address(), settings)], guard, metrics).unwrap(),
        dir,
    )
}

fn client(remote: &Remote) -> (Registry, tempfile::TempDir) {
    client_with(
        remote,
        AddressGuard {
            allow: vec!["127.0.0.0/8".parse().unwrap()],
            deny: vec![],
        },
    )
}

async fn lookup(remote: &Remote, repo: &Repo, target: &str) -> Result<Support, Error> {
    let (client, _dir) = client(remote);
    let image = repo.reference(target).parse().unwrap();
    client.fetch(&image, None).await.map(|found| found.support)
}

/// Runs a lookup with a credential of a pull secret. Also returns the kinds of sources of the presented credentials.
async fn traced<T>(image: &ImageRef, lookup: impl Future<Output = T>) -> (T, Vec<&'static str>) {
    let traces = Traces::default();
    let lookup = CREDENTIAL_KIND.scope("pull secret", lookup);
    let outcome = trace::scope(Some(&traces), image, lookup).await;
    let requests = traces.trace_of(image).requests;
    let sources = requests
        .iter()
        .filter_map(|request| request.credential_kind);
    (outcome, sources.collect())
}

/// Returns the support, or the kind of an error in a word. For a bad manifest, that is the kind of its flaw.
fn kind(result: &Result<Support, Error>) -> String {
    match result {
        Ok(support) => format!("{support:?}"),
        Err(error) => match error.cause() {
            Error::BadManifest(error) => format!("{error:?}"),
            error => word(error).to_owned(),
        },
    }
}

fn word(error: &Error) -> &'static str {
    match error {
        Error::NotFound => "not-found",
        Error::Denied(_) | Error::NoCredential | Error::TokenHost { .. } => "denied",
        Error::Throttled(_) => "throttled",
        Error::Timeout => "timeout",
        Error::NoConnection(_) | Error::TlsSetup(_) | Error::Closed(_) | Error::Unreachable(_) => {
            "unreachable"
        }
        Error::Unexpected(_) => "unexpected",
        Error::Crowded => "crowded",
        Error::NotAllowed => "not-allowed",
        Error::AddressNotAllowed => "address-not-allowed",
        Error::BadManifest(_) => "bad-manifest",
        Error::Redirected { cause, .. } | Error::Partial { cause, .. } => word(cause),
    }
}

#[tokio::test]
async fn indexes_lists_and_single_manifests_are_read() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    repo.index(Some("index"), BOTH);
    repo.docker_list(Some("list"), BOTH);
    repo.image("linux/arm64/v8", Some("single"));
    repo.docker_image("linux/amd64", Some("docker"));
    repo.index(
        Some("odd"),
        [
            "windows/amd64",
            "linux/amd64/v3",
            "linux/arm64/v9",
            "wasip1/wasm",
        ],
    );
    repo.index(Some("empty"), [""; 0]);
    for (tag, expected) in [
        ("index", Support::Index(platforms(&BOTH))),
        ("list", Support::Index(platforms(&BOTH))),
        ("single", Support::Single(platforms(&["linux/arm64"]))),
        ("docker", Support::Single(platforms(&["linux/amd64"]))),
        ("odd", Support::Index(PlatformSet::EMPTY)),
        ("empty", Support::Index(PlatformSet::EMPTY)),
    ] {
        assert_eq!(
            lookup(&remote, &repo, tag).await.unwrap(),
            expected,
            "{tag}"
        );
        let digest = repo.digest_of(tag).unwrap();
        assert_eq!(
            lookup(&remote, &repo, &digest).await.unwrap(),
            expected,
            "{tag} by digest"
        );
    }
}

#[tokio::test]
async fn documents_that_runtimes_refuse_are_refused() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    let amd64 = repo.entry("linux/amd64");
    let index = |manifests: Value| json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests});
    let config = json!({"mediaType": OCI_CONFIG, "digest": testregistry::sha256(b"x"), "size": 1});
    let many: Vec<Value> = (0..=manifest::ENTRIES).map(|_| amd64.clone()).collect();
    let deep = (0..4).fold(amd64.clone(), |entry, _| repo.index(None, [entry]));
    let odd_arch = json!({"mediaType": OCI_MANIFEST, "digest": amd64["digest"], "platform": {"os": "linux", "architecture": 64}});
    for (name, document, content_type, expected) in [
        ("no JSON", json!("x"), OCI_INDEX, "Json"),
        ("an array", json!([]), OCI_INDEX, "Json"),
        (
            "manifests that are no list",
            index(json!({})),
            OCI_INDEX,
            "Json",
        ),
        (
            "an architecture that is a number",
            index(json!([odd_arch])),
            OCI_INDEX,
            "Json",
        ),
        (
            "contradiction",
            index(json!([])),
            OCI_MANIFEST,
            "Contradiction",
        ),
        (
            "both",
            json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [], "config": config}),
            OCI_INDEX,
            "Both",
        ),
        (
            "both, too",
            json!({"manifests": [], "config": config}),
            OCI_MANIFEST,
            "Both",
        ),
        (
            "schema 1",
            json!({"schemaVersion": 1, "fsLayers": []}),
            "application/vnd.docker.distribution.manifest.v1+prettyjws",
            "Schema1",
        ),
        (
            "schema 1 in disguise",
            json!({"schemaVersion": 2, "fsLayers": []}),
            OCI_MANIFEST,
            "Schema1",
        ),
        (
            "no media type at all",
            json!({"manifests": []}),
            "application/json",
            "MediaType",
        ),
        ("another media type", json!({}), "text/html", "MediaType"),
        (
            "no config",
            json!({"schemaVersion": 2}),
            OCI_MANIFEST,
            "Descriptor",
        ),
        (
            "a digest that is a path",
            json!({"config": {"mediaType": OCI_CONFIG, "digest": "sha256:../../x"}}),
            OCI_MANIFEST,
            "Descriptor",
        ),
        (
            "too many entries",
            index(Value::from(many)),
            OCI_INDEX,
            "Entries",
        ),
        ("too deep", index(json!([deep])), OCI_INDEX, "Nesting"),
        (
            "a missing config",
            json!({"config": config}),
            OCI_MANIFEST,
            "Missing",
        ),
    ] {
        repo.manifest(document.to_string(), content_type, Some("v1"));
        assert_eq!(
            kind(&lookup(&remote, &repo, "v1").await),
            expected,
            "{name}"
        );
    }
}

#[tokio::test]
async fn config_decides_the_platform_of_a_single_manifest() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    let nowhere = Support::Single(PlatformSet::EMPTY);
    for (config, media_type, expected) in [
        (
            json!({"os": "linux", "architecture": "arm64"}),
            DOCKER_CONFIG,
            format!("{:?}", Support::Single(platforms(&["linux/arm64"]))),
        ),
        (
            json!({"os": "windows", "architecture": "amd64"}),
            OCI_CONFIG,
            format!("{nowhere:?}"),
        ),
        (json!({"os": "linux"}), OCI_CONFIG, "NoPlatform".into()),
        (
            json!({"os": "", "architecture": "amd64"}),
            OCI_CONFIG,
            "NoPlatform".into(),
        ),
        (json!(["linux", "arm64"]), OCI_CONFIG, "Json".into()),
        (
            json!({"name": "chart"}),
            "application/vnd.cncf.helm.config.v1+json",
            "Artifact".into(),
        ),
        (
            json!({}),
            "application/vnd.oci.empty.v1+json",
            "Artifact".into(),
        ),
    ] {
        let config = repo.blob(config.to_string(), media_type);
        repo.image_of(config, OCI_MANIFEST, Some("v1"));
        assert_eq!(
            kind(&lookup(&remote, &repo, "v1").await),
            expected,
            "{media_type}"
        );
    }
}

#[tokio::test]
async fn media_types_are_read_leniently() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    repo.index(Some("v1"), BOTH);
    for content_type in [
        "application/vnd.oci.image.index.v1+json; charset=utf-8",
        "Application/vnd.OCI.image.index.v1+JSON",
        DOCKER_LIST,
        "application/json",
    ] {
        repo.header("content-type", Some(content_type));
        assert_eq!(
            lookup(&remote, &repo, "v1").await.unwrap(),
            Support::Index(platforms(&BOTH)),
            "{content_type}"
        );
    }
    repo.header("content-type", None);
    repo.header("docker-content-digest", None);
    assert!(lookup(&remote, &repo, "v1").await.is_ok());
    repo.header("docker-content-digest", Some("odd"));
    assert!(lookup(&remote, &repo, "v1").await.is_ok());
    repo.header(
        "docker-content-digest",
        Some(&testregistry::sha256(b"other")),
    );
    assert_eq!(kind(&lookup(&remote, &repo, "v1").await), "Digest");
    let old = remote.repo("team/old");
    old.negotiates(true);
    old.docker_list(Some("v1"), BOTH);
    assert_eq!(
        lookup(&remote, &old, "v1").await.unwrap(),
        Support::Index(platforms(&BOTH))
    );
}

#[tokio::test]
async fn content_must_match_its_digest() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    let digest = repo.index(Some("v1"), BOTH)["digest"]
        .as_str()
        .unwrap()
        .to_owned();
    let forged = json!({"schemaVersion": 2, "manifests": []}).to_string();
    repo.fault(Some(Fault::body(forged, OCI_INDEX).only_manifests()));
    assert_eq!(kind(&lookup(&remote, &repo, &digest).await), "Digest");
    repo.image("linux/amd64", Some("single"));
    repo.fault(Some(
        Fault::body(
            r#"{"os":"linux","architecture":"arm64"}"#,
            "application/json",
        )
        .only_blobs(),
    ));
    assert_eq!(kind(&lookup(&remote, &repo, "single").await), "Digest");
}

#[tokio::test]
async fn statuses_and_broken_answers_are_classified() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    repo.index(Some("v1"), BOTH);
    let retry = |value: &str| {
        Fault::reply(Reply::error(429, "TOOMANYREQUESTS").header("retry-after", value))
    };
    for (fault, expected) in [
        (Fault::status(403), "denied"),
        (Fault::status(401), "denied"),
        (Fault::status(404), "not-found"),
        (Fault::status(418), "unexpected"),
        (Fault::status(500), "unreachable"),
        (Fault::status(503), "unreachable"),
        (Fault::reset(), "unreachable"),
        (Fault::close(), "unreachable"),
        (Fault::truncate(), "unreachable"),
        (retry("7"), "throttled"),
        (
            Fault::reply(
                Reply::new(403)
                    .body("You have exceeded a secondary rate limit. Please wait a few minutes"),
            ),
            "throttled",
        ),
        (
            Fault::reply(Reply::new(403).body("no rate, no limit")),
            "denied",
        ),
        (
            Fault::redirect(302, "/v2/team/app/manifests/v1"),
            "unexpected",
        ),
        (Fault::redirect(307, "https://127.0.0.2:1/x"), "unreachable"),
        (Fault::redirect(307, "http://127.0.0.1:1/x"), "unexpected"),
        (Fault::redirect(307, "::"), "unexpected"),
        (Fault::redirect(300, "https://127.0.0.2:1/x"), "unexpected"),
        (Fault::redirect(304, "https://127.0.0.2:1/x"), "unexpected"),
        (Fault::redirect(305, "https://127.0.0.2:1/x"), "unexpected"),
        (Fault::redirect(306, "https://127.0.0.2:1/x"), "unexpected"),
        (Fault::huge(64 << 20), "TooLarge"),
        (
            Fault::reply(
                Reply::new(200)
                    .header("content-type", OCI_INDEX)
                    .header("content-encoding", "gzip")
                    .body("x"),
            ),
            "Encoding",
        ),
    ] {
        let name = format!("{fault:?}");
        repo.fault(Some(fault));
        assert_eq!(
            kind(&lookup(&remote, &repo, "v1").await),
            expected,
            "{name}"
        );
    }
    let sent = repo.bytes_sent();
    assert!(sent < 32 << 20, "{sent} bytes were read");
    repo.fault(None);
    assert_eq!(kind(&lookup(&remote, &repo, "v2").await), "not-found");
    assert!(lookup(&remote, &repo, "v1").await.is_ok());
}

#[tokio::test]
async fn retry_after_is_parsed_in_both_forms() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    let date = httpdate::fmt_http_date(std::time::SystemTime::now() + Duration::from_secs(3600));
    for (value, expected) in [
        ("7", 7..=7),
        (" 8 ", 8..=8),
        (date.as_str(), 3000..=3600),
        ("soon", 0..=0),
        ("-1", 0..=0),
    ] {
        repo.fault(Some(Fault::reply(
            Reply::error(429, "TOOMANYREQUESTS").header("retry-after", value),
        )));
        let Err(Error::Throttled(after)) = lookup(&remote, &repo, "v1").await else {
            panic!("throttled")
        };
        let seconds = after.unwrap_or_default().as_secs();
        assert!(expected.contains(&seconds), "{value}: {after:?}");
    }
}

#[tokio::test]
async fn guard_refuses_before_a_connection_is_made() {
    let remote = Remote::start().await;
    let repo = remote.repo("team/app");
    repo.index(Some("v1"), BOTH);
    let image: ImageRef = repo.reference("v1").parse().unwrap();
    let named: ImageRef = format!("localhost:{}/team/app:v1", remote.port())
        .parse()
        .unwrap();
    let embedded: ImageRef = format!("[64:ff9b::7f00:1]:{}/team/app:v1", remote.port())
        .parse()
        .unwrap();
    let (client, _dir) = client_with(&remote, AddressGuard::default());
    for image in [&image, &named, &embedded] {
        assert_eq!(
            kind(&client.fetch(image, None).await.map(|found| found.support)),
            "address-not-allowed",
            "{image}"
        );
    }
    assert_eq!(remote.connections(), 0);
}

#[tokio::test]
async fn guard_judges_redirects_and_realms() {
    let remote = Remote::start().await;
    let other = Remote::builder()
        .listen("127.0.0.2:0".parse().unwrap())
        .start()
        .await;
    let guard = AddressGuard {
        allow: vec!["127.0.0.1/32".parse().unwrap()],
        deny: vec![],
    };
    let (client, _dir) = client_with(&remote, guard);
    let repo = remote.repo("team/app");
    repo.image("linux/amd64", Some("v1"));
    let elsewhere = format!("https://127.0.0.2:{}", other.port());
    let image = repo.reference("v1").parse().unwrap();
    repo.redirect_blobs_to(&elsewhere);
    let error = client.fetch(&image, None).await.unwrap_err();
    assert_eq!(word(&error), "address-not-allowed");
    repo.require(Auth::bearer().realm(&format!("{elsewhere}/token")));
    let error = client.fetch(&image, None).await.unwrap_err();
    assert_eq!(word(&error), "address-not-allowed");
    assert_eq!(other.connections(), 0);
}

#[tokio::test]
async fn certificates_are_verified_unless_plain_http_is_configured() {
    let remote = Remote::start().await;
    let untrusted = Remote::start().await;
    let plain = Remote::builder().plain_http().start().await;
    for registry in [&remote, &untrusted, &plain] {
        registry.repo("team/app").index(Some("v1"), BOTH);
    }
    let expired = remote.pki().leaf_until(
        &["127.0.0.1"],
        std::time::SystemTime::now() - Duration::from_secs(60),
    );
    let expired = Remote::builder()
        .pki(remote.pki())
        .leaf(expired)
        .start()
        .await;
    let (trusting, _dir) = client(&remote);
    let lookup = async |client: &Registry, registry: &Remote| {
        let image = registry.repo("team/app").reference("v1").parse().unwrap();
        let support = client.fetch(&image, None).await.map(|found| found.support);
        kind(&support)
    };
    assert_eq!(lookup(&trusting, &untrusted).await, "unreachable");
    assert_eq!(lookup(&trusting, &plain).await, "unreachable");
    assert_eq!(lookup(&client(&expired).0, &expired).await, "unreachable");
    assert_eq!(
        lookup(&client(&plain).0, &plain).await,
        format!("{:?}", Support::Index(platforms(&BOTH)))
    );
}

mod credentials;
