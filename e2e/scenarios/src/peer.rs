//! Other tools that read the architectures of images. They are built from their sources, and called as their manifests say.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::cluster::{Cluster, TIMEOUT};
use crate::distribution::{Distribution, Push};
use crate::fixtures::Images;
use crate::namespace::Namespace;
use crate::process::{Process, fixed_port, free_port};
use crate::programs;

/// Mounts the files of a Pod's service account at the only place where client-go's `InClusterConfig` reads them. Only the
/// started program sees the mount.
const AS_IN_A_POD: &str = r#"accounts=/var/run/secrets/kubernetes.io/serviceaccount
mount -t tmpfs none /var/run && mkdir -p $accounts && cp token ca.crt $accounts && exec "$@""#;

/// A proxy that does not exist, for all addresses but this machine's: controllers also look up the images of tolerarch's
/// Pods.
const NOWHERE: &str = "http://127.0.0.1:9";

/// One of the tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// github.com/arturhoo/k8smultiarcher
    K8smultiarcher,
    /// github.com/programmerq/k8smultiarcher
    K8smultiarcherFork,
    /// github.com/adevinta/noe
    Noe,
    /// github.com/lsdopen/archy
    Archy,
}

impl Tool {
    /// All tools.
    pub const ALL: [Self; 4] = [
        Self::K8smultiarcher,
        Self::K8smultiarcherFork,
        Self::Noe,
        Self::Archy,
    ];

    /// The folder of its source in `E2E_PEERS`.
    pub fn name(self) -> &'static str {
        match self {
            Self::K8smultiarcher => "k8smultiarcher",
            Self::K8smultiarcherFork => "k8smultiarcher-fork",
            Self::Noe => "noe",
            Self::Archy => "archy",
        }
    }

    /// Returns why the tool cannot run on this machine; `None` if it can.
    pub fn missing(self) -> Option<String> {
        if let Some(why) = programs::missing_peer(self.name()) {
            return Some(why);
        }
        if !self.runs_as_in_a_pod() {
            return None;
        }
        let mount = ["mount", "-t", "tmpfs", "none", "/var/run"];
        let tried = Command::new("unshare")
            .args(["--map-root-user", "--mount"])
            .args(mount)
            .stderr(Stdio::null())
            .status();
        if tried.is_ok_and(|status| status.success()) {
            return None;
        }
        Some("it needs the files of a Pod, and unshare may not mount them here".to_owned())
    }

    /// Whether the tool finds the Kubernetes API only in a Pod.
    fn runs_as_in_a_pod(self) -> bool {
        match self {
            // These do not use the API, or use it by KUBECONFIG.
            Self::K8smultiarcher | Self::Noe => false,
            // registry_auth.go:92; cmd/webhook/main.go:32.
            Self::K8smultiarcherFork | Self::Archy => true,
        }
    }

    /// Whether the tool must also be called for updates of Pods.
    pub fn reviews_updates(self) -> bool {
        matches!(self, Self::K8smultiarcherFork | Self::Noe)
    }

    /// The name of the tool's webhook configuration.
    pub fn configuration(self) -> &'static str {
        match self {
            // manifests/k8smultiarcher-kind.yaml:87 and :127.
            Self::K8smultiarcher | Self::K8smultiarcherFork => "k8smultiarcher-webhook",
            // charts/noe/templates/mutatingWebhook.yaml:5, as release noe in the namespace noe.
            Self::Noe => "noe-noe",
            // chart/templates/mutatingwebhookconfiguration.yaml:5, as release archy.
            Self::Archy => "archy",
        }
    }

    /// The tool's webhook without a namespace selector. Fields that its manifest omits are omitted here.
    fn webhook(self) -> Value {
        let pods = |operations: &[&str]| json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": operations, "resources": ["pods"]});
        match self {
            // manifests/k8smultiarcher-kind.yaml:91-105.
            Self::K8smultiarcher => json!({
                "name": "k8smultiarcher.k8smultiarcher.svc",
                "admissionReviewVersions": ["v1"],
                "rules": [pods(&["CREATE"])],
                "failurePolicy": "Ignore",
                "sideEffects": "None",
            }),
            // manifests/k8smultiarcher-kind.yaml:131-151.
            Self::K8smultiarcherFork => json!({
                "name": "k8smultiarcher.k8smultiarcher.svc",
                "admissionReviewVersions": ["v1"],
                "rules": [
                    pods(&["CREATE", "UPDATE"]),
                    {"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["daemonsets"]},
                ],
                "failurePolicy": "Ignore",
                "reinvocationPolicy": "IfNeeded",
                "sideEffects": "None",
            }),
            // charts/noe/templates/mutatingWebhook.yaml:17-38.
            Self::Noe => {
                let mut rule = pods(&["CREATE", "UPDATE"]);
                rule["scope"] = "Namespaced".into();
                json!({
                    "name": "noe.noe.svc",
                    "admissionReviewVersions": ["v1beta1"],
                    "rules": [rule],
                    "failurePolicy": "Ignore",
                    "sideEffects": "None",
                })
            }
            // chart/templates/mutatingwebhookconfiguration.yaml:13-38, chart/values.yaml:106-107.
            Self::Archy => json!({
                "name": "archy.archy.svc.cluster.local",
                "admissionReviewVersions": ["v1"],
                "rules": [pods(&["CREATE"])],
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "objectSelector": {"matchExpressions": [
                    {"key": "app.kubernetes.io/name", "operator": "NotIn", "values": ["archy"]},
                ]},
            }),
        }
    }

    fn arguments(self, directory: &Path, port: u16) -> Vec<String> {
        let file = |name: &str| directory.join(name).display().to_string();
        match self {
            Self::K8smultiarcher | Self::K8smultiarcherFork => Vec::new(),
            // As charts/noe/templates/webhook.yaml:101-103 with the chart's values, but with free ports.
            Self::Noe => vec![
                "--registry-proxies=".to_owned(),
                "--cluster-schedulable-archs=".to_owned(),
                format!("--cert-dir={}", directory.display()),
                format!("--metrics-addr=127.0.0.1:{}", free_port()),
                format!("--health-probe-addr=127.0.0.1:{}", free_port()),
            ],
            Self::Archy => vec![
                format!("-port={port}"),
                format!("-tls-cert={}", file("tls.crt")),
                format!("-tls-key={}", file("tls.key")),
            ],
        }
    }

    fn environment(self, directory: &Path, port: u16) -> Vec<(&'static str, String)> {
        let file = |name: &str| directory.join(name).display().to_string();
        match self {
            Self::K8smultiarcher | Self::K8smultiarcherFork => vec![
                ("TLS_ENABLED", "true".to_owned()),
                ("CERT_PATH", file("tls.crt")),
                ("KEY_PATH", file("tls.key")),
                ("HOST", "127.0.0.1".to_owned()),
                ("PORT", port.to_string()),
            ],
            Self::Noe | Self::Archy => Vec::new(),
        }
    }
}

/// A running tool. Dropping it kills the process.
pub struct Peer {
    tool: Tool,
    url: String,
    /// The lock that keeps other runs from the tool's port.
    _port: Option<File>,
    _process: Process,
}

impl Peer {
    /// Starts the tool with a certificate of the cluster's authority, and lets it trust that authority for the registry.
    /// archy uses go-containerregistry, which may use 127.0.0.1 without TLS, but tries TLS first. The others use TLS only.
    pub async fn start(tool: Tool, cluster: &Cluster) -> Self {
        let program = programs::peer(tool.name()).await;
        let local = cluster.local();
        let number = local.started.fetch_add(1, Ordering::Relaxed);
        let directory = local.directory.join(format!("{}-{number}", tool.name()));
        fs::create_dir(&directory).unwrap();
        local.pki.leaf(&["127.0.0.1"]).write(&directory).unwrap();
        let authority = directory.join("ca.crt");
        fs::write(&authority, local.pki.ca_pem()).unwrap();
        let (port, locked) = match tool {
            // cmd/noe/main.go:75.
            Tool::Noe => (8443, Some(fixed_port(8443).await)),
            _ => (free_port(), None),
        };
        let mut arguments = tool.arguments(&directory, port);
        let mut environment = tool.environment(&directory, port);
        environment.push(("SSL_CERT_FILE", authority.display().to_string()));
        environment.push(("HTTPS_PROXY", NOWHERE.to_owned()));
        environment.push(("KUBECONFIG", local.kubeconfig().display().to_string()));
        let mut command = program.clone();
        if tool.runs_as_in_a_pod() {
            environment.extend(local.control_plane.write_service_account(&directory));
            command = "unshare".into();
            let wrapper = [
                "--map-root-user",
                "--mount",
                "sh",
                "-c",
                AS_IN_A_POD,
                "sh",
                &program.display().to_string(),
            ];
            arguments.splice(0..0, wrapper.map(str::to_owned));
        }
        let mut process =
            Process::start_with("peer", &command, &arguments, &environment, &directory).await;
        process.until_listening(tool.name(), port).await;
        Self {
            tool,
            url: format!("https://127.0.0.1:{port}/mutate"),
            _port: locked,
            _process: process,
        }
    }

    /// Calls the tool for a namespace, by a configuration whose name begins with `configuration`. Returns the name of the
    /// webhook, which the API server's metrics have as a label.
    pub async fn call(
        &self,
        cluster: &Cluster,
        namespace: &Namespace,
        configuration: &str,
    ) -> String {
        let mut webhook = self.tool.webhook();
        let manifest_name = webhook["name"].as_str().expect("a name");
        let name = format!("{}.{manifest_name}", namespace.name);
        webhook["name"] = name.clone().into();
        // Long, so that a busy machine does not change the result.
        webhook["timeoutSeconds"] = TIMEOUT.into();
        cluster
            .add_webhook(namespace, configuration, webhook, &self.url)
            .await;
        name
    }
}

/// A running archaware-controller. It is no webhook: it taints nodes, and adds tolerations to Pods after their creation.
pub struct Archaware {
    /// The images in a registry without TLS, which it expects at 127.0.0.1.
    pub images: Images,
    /// The running process.
    pub process: Process,
    _registry: Distribution,
}

impl Archaware {
    /// The folder of its source in `E2E_PEERS`.
    pub const NAME: &str = "archaware-controller";

    /// Returns why it cannot run on this machine; `None` if it can.
    pub fn missing() -> Option<String> {
        programs::missing_peer(Self::NAME)
    }

    /// Starts it in a cluster that nothing else uses.
    pub async fn start(cluster: &Cluster) -> Self {
        let program = programs::peer(Self::NAME).await;
        let local = cluster.local();
        let registry = Distribution::start_plain(&local.directory).await;
        let images = Images::push(&Push::plain(&registry.address), &registry.address).await;
        let environment = [
            ("HTTPS_PROXY", NOWHERE.to_owned()),
            ("KUBECONFIG", local.kubeconfig().display().to_string()),
        ];
        let process =
            Process::start_with("peer", &program, &[], &environment, &local.directory).await;
        Self {
            images,
            process,
            _registry: registry,
        }
    }
}
