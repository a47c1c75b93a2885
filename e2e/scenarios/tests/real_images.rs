//! Images of registries that have the names and the behaviour of real ones.

use std::path::Path;

use scenarios::{Cluster, Namespace, PodExt, pod, until};
use serde_json::{Value, json};
use testregistry::personality::{PASSWORD, Personality, USER};
use testregistry::{DOCKER_CONFIG, Internet, Leaf, Registry};
use tokio::process::Command;

pub(crate) async fn pods_get_the_toleration_for_images_of_real_registries(cluster: &Cluster) {
    let internet = Internet::start(cluster.local().pki.clone()).await;
    let kubernetes = Personality::named("registry.k8s.io");
    let _kubernetes_registry = kubernetes.start(&internet, false).await;
    let github = Personality::named("GitHub");
    let running = github.start(&internet, false).await;
    // An index whose entries are as ko and crane write them.
    let entries = ["linux/amd64", "linux/arm64"].map(|platform| {
        let mut entry = running.repo().entry(platform);
        entry["artifactType"] = DOCKER_CONFIG.into();
        entry
    });
    running.repo().index(Some("ko"), entries);
    let gitlab = Personality::named("GitLab, self-managed");
    let _gitlab_registry = gitlab.start(&internet, true).await;
    let directory = tempfile::tempdir().unwrap();
    let self_signed = Registry::builder()
        .leaf(certificate(directory.path()).await)
        .start()
        .await;
    self_signed
        .repo("team/app")
        .index(Some("multi"), ["linux/amd64", "linux/arm64"]);

    let trusted = json!({"caFile": directory.path().join("domain.crt")});
    let settings = json!({"registries": {"hosts": {self_signed.address(): trusted}}});
    let tolerarch = cluster.local().tolerarch_on(&internet, settings).await;
    let namespace = cluster.namespace_with("real-images", &tolerarch.url).await;
    namespace.apply(&pull_secret(gitlab.host())).await;

    let mut private = pod(&[&format!("{}:multi", gitlab.image)]);
    let without_secret = private.clone();
    private["spec"]["imagePullSecrets"] = json!([{"name": "gitlab"}]);
    for pod in [
        pod(&[&format!("{}:multi", kubernetes.image)]),
        pod(&[&format!("{}:ko", github.image)]),
        pod(&[&self_signed.repo("team/app").reference("multi")]),
        private,
    ] {
        assert_gets_toleration(&namespace, &pod).await;
    }
    assert!(!namespace.pod(&without_secret).await.tolerates_pool());
}

async fn assert_gets_toleration(namespace: &Namespace, pod: &Value) {
    let image = pod["spec"]["containers"][0]["image"].to_string();
    // The API server uses a new configuration only after some time.
    let what = format!("a Pod with {image} gets the toleration");
    until(&what, async || {
        let created = namespace.dry_run(pod).await.unwrap();
        created.tolerates_pool().then_some(())
    })
    .await;
    assert!(namespace.pod(pod).await.tolerates_pool(), "{image}");
}

fn pull_secret(host: &str) -> Value {
    let config = json!({"auths": {host: {"username": USER, "password": PASSWORD}}});
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "gitlab"},
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": config.to_string()},
    })
}

/// Makes a self-signed certificate by the commands of distribution's guide.
async fn certificate(directory: &Path) -> Leaf {
    let mut openssl = Command::new("openssl");
    openssl
        .current_dir(directory)
        .args(["req", "-newkey", "rsa:4096", "-nodes", "-sha256", "-x509"]);
    openssl.args([
        "-addext",
        "subjectAltName = IP:127.0.0.1",
        "-subj",
        "/CN=myregistry.domain.com",
    ]);
    openssl.args([
        "-days",
        "365",
        "-keyout",
        "domain.key",
        "-out",
        "domain.crt",
    ]);
    let made = openssl.output().await.unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
    Leaf {
        cert_pem: read("domain.crt"),
        key_pem: read("domain.key"),
    }
}
