//! Replicas that share a cache. They work without its server, too.

use serde_json::{Value, json};
use testregistry::{Kind, Pki, Registry};

use super::program::{self, Program};
use crate::support::redis::Redis;
use crate::support::review::pod;
use crate::support::until;

/// Returns settings with this server as the shared cache.
fn shared(redis: &Redis) -> Value {
    json!({"cache": {"shared": {"url": redis.url(), "timeout": "20s"}}})
}

/// Waits until the program uses the server.
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
async fn two_replicas_send_one_request_in_total() {
    let Some(mut redis) = Redis::start(&[]).await else {
        return;
    };
    let registry = Registry::start().await;
    let repo = registry.repo("team/app");
    repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    repo.index(Some("v2"), ["linux/amd64", "linux/arm64"]);
    let image = pod(&[&repo.reference("v1")]);
    let first = Program::start(&registry, shared(&redis)).await;
    connected(&first).await;
    assert_eq!(first.review(&image).await.reason, "tolerated");
    first.logged(KEYLESS).await;
    until("the writes", async || first.metric(SET).await == "2").await;
    let second = Program::start(&registry, shared(&redis)).await;
    connected(&second).await;
    assert_eq!(second.review(&image).await.reason, "tolerated");
    assert_eq!(
        repo.count(|request| request.method == "GET" && request.kind == Kind::Manifest),
        1
    );

    redis.kill().await;
    assert_eq!(
        second.review(&pod(&[&repo.reference("v2")])).await.reason,
        "tolerated"
    );
    until("the loss", async || {
        let ready = second.admin.get("/readyz?verbose").await;
        assert_eq!(ready.status, 200, "it is ready all the same");
        ready
            .text()
            .contains("[-]shared-cache failed: no server answers")
    })
    .await;
    redis.restart().await;
    connected(&second).await;
}

#[tokio::test]
async fn password_in_the_url_is_refused_and_not_shown() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.yaml");
    std::fs::write(&file, r#"cache: {shared: {url: "redis://:canary@host"}}"#).unwrap();
    let (status, output) = program::run(&["config", "--config", file.to_str().unwrap()]).await;
    assert_ne!(status, Some(0));
    assert!(
        output.contains("usernameFile and passwordFile") && !output.contains("canary"),
        "{output}"
    );
}

#[tokio::test]
async fn missing_password_is_reported_and_reviews_go_on() {
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
    let program = Program::start(&registry, settings).await;
    assert_eq!(
        program.review(&pod(&[&repo.reference("v1")])).await.reason,
        "tolerated"
    );
    let line = program
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
    connected(&program).await;
    let written = program.written().await;
    assert!(
        !written.contains("canary")
            && !written.contains("0123456789abcdef")
            && !written.contains(KEYLESS)
    );
}

/// Authorities of the system do not count, even if they cannot be read. The same is so for servers of a cluster.
#[tokio::test]
async fn only_authorities_of_the_file_are_trusted() {
    let pki = Pki::new();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    pki.leaf(&["127.0.0.1"]).write(directory.path()).unwrap();
    std::fs::write(path("ca.crt"), pki.ca_pem()).unwrap();
    std::fs::write(path("other.crt"), Pki::new().ca_pem()).unwrap();
    let reserved = testregistry::reserve(([127, 0, 0, 1], 0).into()).unwrap();
    let port = reserved.port().to_string();
    let [certificate, key, authorities] = ["tls.crt", "tls.key", "ca.crt"].map(path);
    let tls_arguments = [
        "--tls-port",
        &port,
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
    ];
    let ca_arguments = [
        "--tls-ca-cert-file",
        &authorities,
        "--tls-auth-clients",
        "no",
    ];
    let cluster_arguments = ["--cluster-enabled", "yes", "--tls-cluster", "yes"];
    let Some(redis) =
        Redis::start(&[&tls_arguments[..], &ca_arguments, &cluster_arguments].concat()).await
    else {
        return;
    };
    redis.cli(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
    let registry = Registry::start().await;
    for scheme in ["rediss", "rediss+cluster"] {
        // A single server with all slots is a complete cluster_arguments.
        let url = format!("{scheme}://127.0.0.1:{port}");
        let shared = json!({"url": url, "timeout": "20s", "caFile": authorities});
        let settings = json!({"cache": {"shared": shared}});
        let unreadable_system = [("SSL_CERT_FILE", "/nowhere/ca.crt")];
        connected(&Program::start_with(&registry, settings, &unreadable_system).await).await;
        // The system trusts the server's authority, and the file does not.
        let shared = json!({"url": url, "timeout": "20s", "caFile": path("other.crt")});
        let trusting_system = [("SSL_CERT_FILE", &*authorities)];
        let program = Program::start_with(
            &registry,
            json!({"cache": {"shared": shared}}),
            &trusting_system,
        )
        .await;
        until("the refusal", async || {
            let ready = program.admin.get("/readyz?verbose").await;
            ready
                .text()
                .contains("[-]shared-cache failed: the TLS handshake with the server fails")
        })
        .await;
        // Without a file, authorities of the system count.
        let settings = json!({"cache": {"shared": {"url": url, "timeout": "20s"}}});
        connected(&Program::start_with(&registry, settings, &trusting_system).await).await;
    }
}
