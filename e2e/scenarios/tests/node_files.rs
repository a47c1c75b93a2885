//! Files of nodes that tolerarch uses as they are: `hosts.toml` with a mirror and a private authority, and a credential
//! plugin of the kubelet. Each is tested with a right and a wrong configuration.

use std::fs;
use std::path::Path;

use scenarios::{Cluster, Kind, PodExt, deployment, pod};
use serde_json::{Value, json};
use testregistry::Pki;

use crate::nodes::{container, is_not_pulled, runs};

/// The values of the chart that mount these files.
const VALUES: &str = "--set hostMounts.containerdCertsDir=/etc/containerd/certs.d \
    --set hostMounts.credentialProviderConfig=/etc/providers/config/providers.yaml \
    --set hostMounts.credentialProviderBinDir=/etc/providers/bin";
/// The flags of the kubelet.
const FLAGS: &str = "--image-credential-provider-config=/etc/providers/config/providers.yaml \
    --image-credential-provider-bin-dir=/etc/providers/bin";
/// Two names of the registry with the private authority. Trust is a setting of a host.
const MIRRORS: [&str; 2] = ["tolerarch-e2e-mirror", "tolerarch-e2e-mirror-too"];
/// A registry for which `hosts.toml` names the mirror and its authority.
const TRUSTED: &str = "trusted.example.invalid";
/// A registry for which `hosts.toml` names the mirror's other name, without the authority.
const DISTRUSTED: &str = "distrusted.example.invalid";
/// Another name of the private registry, for which the plugin has a wrong password.
const WRONG: &str = "tolerarch-e2e-private:443";

/// Returns the values of the chart. tolerarch sends a password without TLS only if its own configuration allows it.
pub(crate) fn values(kind: &Kind) -> String {
    let plain = json!({&kind.private_registry: {"plainHttp": true}, WRONG: {"plainHttp": true}});
    format!("{VALUES} --set-json 'config.registries.hosts={plain}'")
}

/// Writes the files to the nodes, and starts the registry that they name.
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
        // Also as `server`: a resolver would take a minute to find that the registry's own name does not exist.
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
        copy_to_node(kind, node, &directory.path().join("etc")).await;
    }
    kind.start_registry(MIRRORS, &pki).await;
}

/// Returns a credential provider that runs the program with its answer for one registry.
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

/// Copies the files to a node, and makes its kubelet use the plugin.
async fn copy_to_node(kind: &Kind, node: &str, etc: &Path) {
    kind.docker(&[
        "cp",
        &format!("{}/.", etc.display()),
        &format!("{node}:/etc"),
    ])
    .await;
    set_flags(kind, node, &format!("s|^KUBELET_EXTRA_ARGS=|&{FLAGS} |")).await;
}

/// Removes the plugin from the kubelets: it would give later scenarios access to the private registry.
pub(crate) async fn remove_plugin(cluster: &Cluster) {
    for node in cluster.node_names() {
        set_flags(cluster.kind(), node, &format!("s|{FLAGS} ||g")).await;
    }
}

async fn set_flags(kind: &Kind, node: &str, edit: &str) {
    let set = format!("sed -i '{edit}' /etc/default/kubelet && systemctl restart kubelet");
    kind.docker(&["exec", node, "bash", "-euc", &set]).await;
}

/// Asserts that tolerarch can look up exactly the images that the kubelet can pull.
pub(crate) async fn assert_files_are_used(cluster: &Cluster) {
    let kind = cluster.kind();
    let namespace = cluster.namespace("node-files").await;
    let deploy = async |name: &str, image: &str, node: &str| {
        let mut pod = pod(&[image]);
        pod["spec"]["nodeSelector"] = json!({"e2e.tolerarch.io/node": node});
        namespace.apply(&deployment(name, 1, &pod)).await;
    };
    let at = |registry: &str| kind.private.in_registry(registry).program("multi");
    let right = [TRUSTED, &kind.private_registry];
    let wrong = [DISTRUSTED, WRONG];
    for (number, registry) in right.into_iter().enumerate() {
        deploy(&format!("right-{number}"), &at(registry), "multi-arch").await;
    }
    for (number, registry) in wrong.into_iter().enumerate() {
        deploy(&format!("wrong-{number}"), &at(registry), "plain").await;
    }
    for (number, registry) in right.into_iter().enumerate() {
        let pods = namespace
            .until_pods(&format!("right-{number}"), 1, runs)
            .await;
        for pod in &pods {
            let is_in_pool = pod.tolerates_pool() && namespace.is_in_pool(pod);
            assert!(is_in_pool, "{registry}");
        }
    }
    for (number, registry) in wrong.into_iter().enumerate() {
        let fails = |pod: &_| container(pod).is_some_and(is_not_pulled);
        let pods = namespace
            .until_pods(&format!("wrong-{number}"), 1, fails)
            .await;
        assert!(pods.iter().all(|pod| !pod.tolerates_pool()), "{registry}");
    }
}
