//! What nodes have for their registries, and tolerarch takes over as it is: `hosts.toml` with a mirror and a private authority,
//! and a credential plugin of the kubelet. Each once right and once wrong.

use std::fs;
use std::path::Path;

use scenarios::{Cluster, Kind, PodExt, deployment, pod};
use serde_json::{Value, json};
use testregistry::Pki;

use crate::nodes::{container, is_not_pulled, runs};

/// The values by which the chart takes them over.
const VALUES: &str = "--set hostMounts.containerdCertsDir=/etc/containerd/certs.d \
    --set hostMounts.credentialProviderConfig=/etc/providers/config/providers.yaml \
    --set hostMounts.credentialProviderBinDir=/etc/providers/bin";
/// For the kubelet.
const FLAGS: &str = "--image-credential-provider-config=/etc/providers/config/providers.yaml \
    --image-credential-provider-bin-dir=/etc/providers/bin";
/// The registry with the private authority, by its two names: what is trusted is a setting of a host.
const MIRRORS: [&str; 2] = ["tolerarch-e2e-mirror", "tolerarch-e2e-mirror-too"];
/// Registries that only `hosts.toml` leads to: by the mirror, and by the other name of it without its authority.
const TRUSTED: &str = "trusted.example.invalid";
const DISTRUSTED: &str = "distrusted.example.invalid";
/// The private registry by another name, for which the plugin has a wrong password.
const WRONG: &str = "tolerarch-e2e-private:443";

/// They are read; a password goes to a registry without TLS only where tolerarch is told so itself.
pub(crate) fn values(kind: &Kind) -> String {
    let plain = json!({&kind.private_registry: {"plainHttp": true}, WRONG: {"plainHttp": true}});
    format!("{VALUES} --set-json 'config.registries.hosts={plain}'")
}

/// Writes them to the nodes, and starts what they lead to.
pub(crate) async fn write(cluster: &Cluster) {
    let kind = cluster.kind();
    let pki = Pki::new();
    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str, content: &str| {
        let path = directory.path().join("etc").join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        fs::write(path, content).expect("a file");
    };
    for (host, mirror, authority) in [
        (TRUSTED, MIRRORS[0], "ca = \"ca.crt\"\n"),
        (DISTRUSTED, MIRRORS[1], ""),
    ] {
        // Both, as its own name leads nowhere, which takes a resolver a minute to find out.
        let hosts = format!(
            "server = \"https://{mirror}\"\n[host.\"https://{mirror}\"]\n\
             capabilities = [\"pull\", \"resolve\"]\n{authority}"
        );
        file(&format!("containerd/certs.d/{host}/hosts.toml"), &hosts);
        file(&format!("containerd/certs.d/{host}/ca.crt"), &pki.ca_pem());
    }
    file(
        &format!("containerd/certs.d/{WRONG}/hosts.toml"),
        &format!("server = \"http://{WRONG}\"\n"),
    );
    let providers = [
        provider("right", &kind.private_registry, Kind::PASSWORD),
        provider("wrong", WRONG, "guessed"),
    ];
    let providers = json!({
        "apiVersion": "kubelet.config.k8s.io/v1",
        "kind": "CredentialProviderConfig",
        "providers": providers,
    });
    // JSON is YAML.
    file("providers/config/providers.yaml", &providers.to_string());
    for name in ["right", "wrong"] {
        file(&format!("providers/bin/{name}"), "");
        let to = directory.path().join("etc/providers/bin").join(name);
        fs::copy(kind.program().await, to).expect("the program");
    }
    for node in cluster.node_names() {
        give(kind, node, &directory.path().join("etc")).await;
    }
    kind.start_registry(MIRRORS, &pki).await;
}

/// An answer of the program for one registry.
fn provider(name: &str, registry: &str, password: &str) -> Value {
    let version = "credentialprovider.kubelet.k8s.io/v1";
    let answer = json!({
        "apiVersion": version,
        "kind": "CredentialProviderResponse",
        "cacheKeyType": "Registry",
        "auth": {registry: {"username": Kind::USER, "password": password}},
    });
    json!({
        "name": name,
        "apiVersion": version,
        "matchImages": [registry],
        "defaultCacheDuration": "1m",
        "args": [answer.to_string()],
    })
}

async fn give(kind: &Kind, node: &str, etc: &Path) {
    kind.docker(&[
        "cp",
        &format!("{}/.", etc.display()),
        &format!("{node}:/etc"),
    ])
    .await;
    set_flags(kind, node, &format!("s|^KUBELET_EXTRA_ARGS=|&{FLAGS} |")).await;
}

/// Takes the plugin away from the kubelets again: it would open the private registry to whoever comes next.
pub(crate) async fn take_away(cluster: &Cluster) {
    for node in cluster.node_names() {
        set_flags(cluster.kind(), node, &format!("s|{FLAGS} ||g")).await;
    }
}

async fn set_flags(kind: &Kind, node: &str, edit: &str) {
    let set = format!("sed -i '{edit}' /etc/default/kubelet && systemctl restart kubelet");
    kind.docker(&["exec", node, "bash", "-euc", &set]).await;
}

/// Where the kubelet pulls, tolerarch decides; where it does not, tolerarch does not either.
pub(crate) async fn are_taken_over(cluster: &Cluster) {
    let kind = cluster.kind();
    let namespace = cluster.namespace("taken-over").await;
    let run = async |name: &str, image: &str, node: &str| {
        let mut pod = pod(&[image]);
        pod["spec"]["nodeSelector"] = json!({"e2e.tolerarch.io/node": node});
        namespace.apply(&deployment(name, 1, &pod)).await;
    };
    let at = |registry: &str| kind.private.in_registry(registry).program("multi");
    let right = [TRUSTED, &kind.private_registry];
    let wrong = [DISTRUSTED, WRONG];
    for (number, registry) in right.into_iter().enumerate() {
        run(&format!("right-{number}"), &at(registry), "multi-arch").await;
    }
    for (number, registry) in wrong.into_iter().enumerate() {
        run(&format!("wrong-{number}"), &at(registry), "plain").await;
    }
    for (number, registry) in right.into_iter().enumerate() {
        let pods = namespace
            .until_pods(&format!("right-{number}"), 1, runs)
            .await;
        assert!(
            pods.iter()
                .all(|pod| pod.tolerates_pool() && namespace.is_in_pool(pod)),
            "{registry}"
        );
    }
    for (number, registry) in wrong.into_iter().enumerate() {
        let fails = |pod: &_| container(pod).is_some_and(is_not_pulled);
        let pods = namespace
            .until_pods(&format!("wrong-{number}"), 1, fails)
            .await;
        assert!(pods.iter().all(|pod| !pod.tolerates_pool()), "{registry}");
    }
}
