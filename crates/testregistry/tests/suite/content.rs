//! Content, the behaviour of repositories, and the record of requests.

use std::sync::Arc;

use serde_json::json;
use testregistry::{
    DOCKER_CONFIG, DOCKER_LIST, DOCKER_MANIFEST, Kind, OCI_CONFIG, OCI_INDEX, OCI_MANIFEST, Pki,
    Registry, sha256, sha512,
};

use crate::client::{connect, get, get_with, request, send};

#[tokio::test]
async fn index_is_served_by_tag_and_by_both_digests() {
    let registry = Registry::start().await;
    let repo = registry.repo("team/app");
    let index = repo.index(Some("v1"), ["linux/amd64", "linux/arm64/v8"]);
    let by_tag = get(&registry, "/v2/team/app/manifests/v1").await;
    assert_eq!(
        (by_tag.status, by_tag.header("content-type")),
        (200, Some(OCI_INDEX))
    );
    assert_eq!(
        by_tag.header("docker-content-digest"),
        index["digest"].as_str()
    );
    assert_eq!(index["size"], by_tag.body.len());
    assert_eq!(
        repo.digest_of("v1"),
        index["digest"].as_str().map(str::to_owned)
    );
    let manifests = &by_tag.json()["manifests"];
    assert_eq!(
        manifests[1]["platform"],
        json!({ "os": "linux", "architecture": "arm64", "variant": "v8" })
    );
    assert_ne!(manifests[0]["digest"], manifests[1]["digest"]);
    for digest in [sha256(&by_tag.body), sha512(&by_tag.body)] {
        let by_digest = get(&registry, &format!("/v2/team/app/manifests/{digest}")).await;
        assert_eq!(
            by_digest.header("docker-content-digest"),
            Some(digest.as_str())
        );
        assert_eq!(by_digest.body, by_tag.body);
    }
}

#[tokio::test]
async fn head_is_answered_with_the_length_but_no_body() {
    let registry = Registry::start().await;
    let repo = registry.repo("a");
    let image = repo.image("linux/amd64", Some("v1"));
    let mut connection = connect(&registry).await;
    for _ in 0..2 {
        let answer = connection
            .send_request(request("HEAD", "/v2/a/manifests/v1", &[], ""))
            .await
            .unwrap();
        assert_eq!(
            answer.headers()["content-length"],
            image["size"].to_string()
        );
        assert_eq!(
            answer.headers()["docker-content-digest"],
            image["digest"].as_str().unwrap()
        );
    }
    assert_eq!(registry.connections(), 1);
    repo.header("Content-Length", None);
    let answer = send(&registry, request("HEAD", "/v2/a/manifests/v1", &[], ""))
        .await
        .unwrap();
    assert_eq!(
        (answer.status, answer.header("content-length")),
        (200, None)
    );
    assert_eq!(registry.connections(), 2);
}

#[tokio::test]
async fn images_have_the_config_of_their_platform() {
    let registry = Registry::start().await;
    let repo = registry.repo("a");
    let oci = repo.image("linux/arm/v7", Some("oci"));
    let docker = repo.docker_image("linux/arm/v7", Some("docker"));
    assert_eq!(oci, repo.image("linux/arm/v7", None));
    assert_ne!(oci["digest"], docker["digest"]);
    for (tag, manifest, config) in [
        ("oci", OCI_MANIFEST, OCI_CONFIG),
        ("docker", DOCKER_MANIFEST, DOCKER_CONFIG),
    ] {
        let image = get(&registry, &format!("/v2/a/manifests/{tag}")).await;
        assert_eq!(image.header("content-type"), Some(manifest));
        let image = image.json();
        assert_eq!(image["config"]["mediaType"], config);
        let digest = image["config"]["digest"].as_str().unwrap();
        let blob = get(&registry, &format!("/v2/a/blobs/{digest}")).await;
        assert_eq!(image["config"]["size"], blob.body.len());
        let blob = blob.json();
        assert_eq!(
            json!([blob["os"], blob["architecture"], blob["variant"]]),
            json!(["linux", "arm", "v7"])
        );
    }
}

#[tokio::test]
async fn docker_list_mixes_platforms_and_descriptors() {
    let registry = Registry::start().await;
    let repo = registry.repo("a");
    let image = repo.docker_image("linux/amd64", None);
    let attestation = repo.attestation(image["digest"].as_str().unwrap());
    repo.docker_list(
        Some("v1"),
        [
            image.into(),
            attestation.into(),
            testregistry::Entry::from("linux/s390x"),
        ],
    );
    let list = get(&registry, "/v2/a/manifests/v1").await;
    assert_eq!(list.header("content-type"), Some(DOCKER_LIST));
    let entries = list.json()["manifests"].clone();
    assert_eq!(entries[0].get("platform"), None);
    assert_eq!(
        entries[1]["platform"],
        json!({ "os": "unknown", "architecture": "unknown" })
    );
    assert_eq!(
        entries[1]["annotations"]["vnd.docker.reference.type"],
        "attestation-manifest"
    );
    assert_eq!(entries[2]["mediaType"], DOCKER_MANIFEST);
    for entry in entries.as_array().unwrap() {
        let path = format!("/v2/a/manifests/{}", entry["digest"].as_str().unwrap());
        assert_eq!(get(&registry, &path).await.status, 200);
    }
}

#[tokio::test]
async fn missing_content_is_answered_with_its_error_code() {
    let registry = Registry::start().await;
    let repo = registry.repo("a");
    let config = repo.blob("{}", OCI_CONFIG);
    let blob = format!("/v2/a/blobs/{}", config["digest"].as_str().unwrap());
    assert_eq!(get(&registry, &blob).await.status, 200);
    repo.delete_blobs();
    repo.tag("dangling", &sha256(b"nothing"));
    for (path, code) in [
        ("/v2/b/manifests/v1", "NAME_UNKNOWN"),
        ("/v2/a/manifests/v1", "MANIFEST_UNKNOWN"),
        ("/v2/a/manifests/dangling", "MANIFEST_UNKNOWN"),
        (&blob, "BLOB_UNKNOWN"),
        ("/v2/b/tags/list", "NAME_UNKNOWN"),
        ("/v2/a/referrers/x", "NOT_FOUND"),
        ("/token", "NOT_FOUND"),
    ] {
        let answer = get(&registry, path).await;
        assert_eq!(
            (answer.status, &answer.json()["errors"][0]["code"]),
            (404, &json!(code)),
            "{path}"
        );
    }
    let put = send(&registry, request("PUT", "/v2/a/manifests/v1", &[], "{}"))
        .await
        .unwrap();
    assert_eq!((put.status, put.header("allow")), (405, Some("GET, HEAD")));
    assert_eq!(get(&registry, "/v2/").await.status, 200);
}

#[tokio::test]
async fn headers_change_and_old_registries_negotiate() {
    let registry = Registry::start().await;
    let repo = registry.repo("a");
    repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    repo.negotiates(true);
    let images = get_with(&registry, "/v2/a/manifests/v1", &[("Accept", OCI_MANIFEST)]).await;
    assert_eq!(
        images.header("docker-content-digest"),
        repo.entry("linux/amd64")["digest"].as_str()
    );
    let lists = get_with(&registry, "/v2/a/manifests/v1", &[("Accept", OCI_INDEX)]).await;
    assert_eq!(lists.header("content-type"), Some(OCI_INDEX));
    repo.header("Docker-Content-Digest", None);
    repo.header("Content-Type", Some("text/plain"));
    repo.header("RateLimit-Remaining", Some("7;w=21600"));
    let changed = get_with(&registry, "/v2/a/manifests/v1", &[("Accept", OCI_INDEX)]).await;
    assert_eq!(changed.header("docker-content-digest"), None);
    assert_eq!(changed.header("content-type"), Some("text/plain"));
    assert_eq!(changed.header("ratelimit-remaining"), Some("7;w=21600"));
}

#[tokio::test]
async fn blobs_are_redirected_to_another_registry() {
    let pki = Arc::new(Pki::new());
    let registry = Registry::builder().pki(pki.clone()).start().await;
    let cdn = Registry::builder()
        .pki(pki)
        .names(&["cdn.test"])
        .start()
        .await;
    let repo = registry.repo("a");
    let blob = repo.blob("{}", OCI_CONFIG);
    let digest = blob["digest"].as_str().unwrap();
    repo.redirect_blobs_to(&cdn.cdn_of(&repo));
    let answer = get(&registry, &format!("/v2/a/blobs/{digest}")).await;
    let location = format!("{}/cdn/{digest}", cdn.url());
    assert_eq!(
        (answer.status, answer.header("location")),
        (307, Some(location.as_str()))
    );
    assert_eq!(get(&cdn, &format!("/cdn/{digest}")).await.body, "{}");
    assert_eq!(cdn.count(|request| request.kind == Kind::Cdn), 1);
}

#[tokio::test]
async fn requests_are_recorded_and_wake_waiting_tests() {
    let registry = Registry::builder().plain_http().start().await;
    let repo = registry.repo("team/app");
    assert_eq!(
        repo.reference("v1"),
        format!("127.0.0.1:{}/team/app:v1", registry.port())
    );
    assert_eq!(
        repo.reference("sha256:0"),
        format!("{}/team/app@sha256:0", registry.address())
    );
    let headers = [
        ("Authorization", "Basic eDp5"),
        ("Accept", OCI_INDEX),
        ("Accept", OCI_MANIFEST),
    ];
    let path = "/mirror/v2/team/app/manifests/v1?ns=docker.io%2F";
    let recorded = registry.wait_until(|requests| requests.len() == 2);
    let sent = async {
        get_with(&registry, path, &headers).await;
        get(&registry, "/v2/other/blobs/sha256:0").await;
    };
    tokio::join!(recorded, sent);
    let requests = repo.requests();
    let [recorded] = requests.as_slice() else {
        panic!("one request: {requests:?}")
    };
    assert_eq!(recorded.method, "GET");
    assert_eq!(
        (recorded.path.as_str(), recorded.kind),
        ("/mirror/v2/team/app/manifests/v1", Kind::Manifest)
    );
    assert_eq!(recorded.query_value("ns").as_deref(), Some("docker.io/"));
    assert_eq!(recorded.host, "registry.test");
    assert_eq!(recorded.authorization.as_deref(), Some("Basic eDp5"));
    assert_eq!(recorded.accept, Some(format!("{OCI_INDEX},{OCI_MANIFEST}")));
    assert_eq!(
        (recorded.repo.as_deref(), recorded.reference.as_deref()),
        (Some("team/app"), Some("v1"))
    );
    assert_eq!(registry.requests()[1].kind, Kind::Blob);
    registry.forget_requests();
    assert_eq!(registry.count(|_| true), 0);
}

#[tokio::test]
async fn stopped_registry_refuses_connections_until_restarted() {
    let registry = Registry::start().await;
    let address = registry.socket_addr();
    let pki = registry.pki();
    let mut connection = connect(&registry).await;
    registry.stop().await;
    let ping = request("GET", "/v2/", &[], "");
    assert!(connection.send_request(ping).await.is_err());
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
    let registry = Registry::builder().listen(address).pki(pki).start().await;
    assert_eq!(get(&registry, "/v2/").await.status, 200);
}

#[tokio::test]
async fn tags_are_listed_page_by_page() {
    let registry = Registry::start().await;
    let repo = registry.repo("team/app");
    for tag in ["v10", "v1", "v2"] {
        repo.image("linux/amd64", Some(tag));
    }
    let path = "/v2/team/app/tags/list";
    let all = get(&registry, path).await;
    assert_eq!(
        all.json(),
        json!({"name": "team/app", "tags": ["v1", "v10", "v2"]})
    );
    assert_eq!(all.header("link"), None);
    let first = get(&registry, &format!("{path}?n=2")).await;
    assert_eq!(first.json()["tags"], json!(["v1", "v10"]));
    let next = "</v2/team/app/tags/list?last=v10&n=2>; rel=\"next\"";
    assert_eq!(first.header("link"), Some(next));
    let last = get(&registry, &format!("{path}?last=v10&n=2")).await;
    assert_eq!(last.json()["tags"], json!(["v2"]));
    assert_eq!(last.header("link"), None);
    assert_eq!(repo.count(|request| request.kind == Kind::Tags), 3);
}
