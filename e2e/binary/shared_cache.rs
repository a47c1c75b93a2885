//! Two replicas that share what they know, and a server between them that does not have to be there.

use serde_json::{Value, json};
use testregistry::{Kind, Pki, Registry};

use super::program::{self, Program};
use crate::support::redis::Redis;
use crate::support::review::pod;
use crate::support::until;

fn shared(redis: &Redis) -> Value {
    json!({"cache": {"shared": {"url": redis.url(), "timeout": "20s"}}})
}

/// Waits until the server is in use.
async fn connected(program: &Program) {
    until("the server", async || {
        program
            .admin
            .get("/readyz?verbose")
            .await
            .text()
            .contains("[+]shared-cache ok")
    })
    .await;
}

const KEYLESS: &str = "cache.shared has no keyFile: anyone who can write to its server can open pools to images that do not run there";

const SET: &str = r#"tolerarch_shared_cache_requests_total{operation="set",result="ok"}"#;

#[tokio::test]
async fn two_replicas_send_one_request_in_sum() {
    let Some(mut redis) = Redis::start(&[]).await else {
        return;
    };
    let registry = Registry::start().await;
    let repo = registry.repo("team/app");
    repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    repo.index(Some("v2"), ["linux/amd64", "linux/arm64"]);
    let image = pod(&[&repo.reference("v1")]);
    let one = Program::start(&registry, shared(&redis)).await;
    connected(&one).await;
    assert_eq!(one.review(&image).await.reason, "tolerated");
    one.logged(KEYLESS).await;
    until("the writes", async || one.metric(SET).await == "2").await;
    let two = Program::start(&registry, shared(&redis)).await;
    connected(&two).await;
    assert_eq!(two.review(&image).await.reason, "tolerated");
    assert_eq!(
        repo.count(|request| request.method == "GET" && request.kind == Kind::Manifest),
        1
    );

    redis.kill().await;
    assert_eq!(
        two.review(&pod(&[&repo.reference("v2")])).await.reason,
        "tolerated"
    );
    until("the loss", async || {
        let ready = two.admin.get("/readyz?verbose").await;
        assert_eq!(ready.status, 200, "it is ready all the same");
        ready
            .text()
            .contains("[-]shared-cache failed: no server answers")
    })
    .await;
    redis.restart().await;
    connected(&two).await;
}

#[tokio::test]
async fn a_password_in_the_url_is_refused_and_not_shown() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.yaml");
    std::fs::write(&file, r#"cache: {shared: {url: "redis://:canary@host"}}"#).unwrap();
    let (status, told) = program::run(&["config", "--config", file.to_str().unwrap()]).await;
    assert_ne!(status, Some(0));
    assert!(
        told.contains("usernameFile and passwordFile") && !told.contains("canary"),
        "{told}"
    );
}

#[tokio::test]
async fn a_missing_password_is_said_and_lived_with() {
    let Some(redis) = Redis::start(&["--requirepass", "canary"]).await else {
        return;
    };
    let registry = Registry::start().await;
    let repo = registry.repo("team/app");
    repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("password");
    let mut settings = shared(&redis);
    settings["cache"]["shared"]["passwordFile"] = json!(file);
    let key = directory.path().join("key");
    std::fs::write(&key, "0123456789abcdef0123456789abcdef").unwrap();
    settings["cache"]["shared"]["keyFile"] = json!(key);
    let one = Program::start(&registry, settings).await;
    assert_eq!(
        one.review(&pod(&[&repo.reference("v1")])).await.reason,
        "tolerated"
    );
    let line = one
        .logged("the shared cache is not used as it should be; registries are asked instead")
        .await;
    assert!(
        line["error"]
            .as_str()
            .unwrap()
            .contains("cache.shared.passwordFile"),
        "{line}"
    );
    std::fs::write(&file, "canary\n").unwrap();
    connected(&one).await;
    let written = one.written().await;
    assert!(
        !written.contains("canary")
            && !written.contains("0123456789abcdef")
            && !written.contains(KEYLESS)
    );
}

/// Of a cluster as well, whatever the system trusts, and even if that cannot be read.
#[tokio::test]
async fn only_the_authorities_of_the_file_count() {
    let pki = Pki::new();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    pki.leaf(&["127.0.0.1"]).write(directory.path()).unwrap();
    std::fs::write(path("ca.crt"), pki.ca_pem()).unwrap();
    std::fs::write(path("other.crt"), Pki::new().ca_pem()).unwrap();
    let reserved = testregistry::reserve(([127, 0, 0, 1], 0).into()).unwrap();
    let port = reserved.port().to_string();
    let [certificate, key, authorities] = ["tls.crt", "tls.key", "ca.crt"].map(path);
    let tls = [
        "--tls-port",
        &port,
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
    ];
    let more = [
        "--tls-ca-cert-file",
        &authorities,
        "--tls-auth-clients",
        "no",
    ];
    let cluster = ["--cluster-enabled", "yes", "--tls-cluster", "yes"];
    let Some(redis) = Redis::start(&[&tls[..], &more, &cluster].concat()).await else {
        return;
    };
    redis.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    let registry = Registry::start().await;
    for scheme in ["rediss", "rediss+cluster"] {
        // A single server of a cluster with all slots answers as one.
        let url = format!("{scheme}://127.0.0.1:{port}");
        let shared = json!({"url": url, "timeout": "20s", "caFile": authorities});
        let settings = json!({"cache": {"shared": shared}});
        let broken = [("SSL_CERT_FILE", "/nowhere/ca.crt")];
        connected(&Program::start_with(&registry, settings, &broken).await).await;
        // The system trusts it, and the file does not.
        let shared = json!({"url": url, "timeout": "20s", "caFile": path("other.crt")});
        let trusted = [("SSL_CERT_FILE", &*authorities)];
        let program =
            Program::start_with(&registry, json!({"cache": {"shared": shared}}), &trusted).await;
        until("the refusal", async || {
            let ready = program.admin.get("/readyz?verbose").await;
            ready
                .text()
                .contains("[-]shared-cache failed: the TLS handshake with the server fails")
        })
        .await;
        // Without a file the system's count.
        let settings = json!({"cache": {"shared": {"url": url, "timeout": "20s"}}});
        connected(&Program::start_with(&registry, settings, &trusted).await).await;
    }
}
