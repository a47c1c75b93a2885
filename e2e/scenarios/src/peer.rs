//! Other tools that act by what images support: their own webhooks, built from their sources, called as their own manifests say.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::cluster::{Cluster, TIMEOUT};
use crate::distribution::{Distribution, Push};
use crate::fixtures::Images;
use crate::namespace::Namespace;
use crate::process::{Process, fixed_port, free_port};
use crate::programs;

/// Gives a program the files that a Pod has of its service account, at the only place where client-go's `InClusterConfig` looks. The mount is
/// seen by this program alone.
const AS_IN_A_POD: &str = r#"accounts=/var/run/secrets/kubernetes.io/serviceaccount
mount -t tmpfs none /var/run && mkdir -p $accounts && cp token ca.crt $accounts && exec "$@""#;

/// A proxy for all but this machine, where nothing listens: controllers look up the images of all Pods, those of tolerarch, too.
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
    /// Every tool.
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

    /// Why it cannot be run here, if it cannot.
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
        let works = tried.is_ok_and(|status| status.success());
        (!works).then(|| {
            "it needs the files of a Pod, and unshare gets no mount of its own here".to_owned()
        })
    }

    /// Whether it uses the Kubernetes API, and that only from within a Pod.
    fn runs_as_in_a_pod(self) -> bool {
        match self {
            // Neither uses it, or uses it as KUBECONFIG says.
            Self::K8smultiarcher | Self::Noe => false,
            // registry_auth.go:92; cmd/webhook/main.go:32.
            Self::K8smultiarcherFork | Self::Archy => true,
        }
    }

    /// Whether it has to be called for changes of Pods, too.
    pub fn reviews_updates(self) -> bool {
        matches!(self, Self::K8smultiarcherFork | Self::Noe)
    }

    /// The name of its webhook configuration.
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

    /// Its webhook, but for the namespaces that it is called for. What a manifest leaves to the API server's defaults is left to them here.
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
            // What charts/noe/templates/webhook.yaml:101-103 sets with the values of the chart, and ports that are free.
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

/// A tool that runs. It is killed when it is dropped.
pub struct Peer {
    tool: Tool,
    url: String,
    /// Lock by which other runs leave the tool's port alone.
    _port: Option<File>,
    _process: Process,
}

impl Peer {
    /// Starts it with a certificate of the cluster's authority, which it trusts for the registry. go-containerregistry, with which archy reads images, takes
    /// 127.0.0.1 for a registry that may do without TLS; but it tries TLS before, and the others try nothing else.
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
        let mut started = program.clone();
        if tool.runs_as_in_a_pod() {
            environment.extend(local.control_plane.give_to_pod(&directory));
            started = "unshare".into();
            let around = [
                "--map-root-user",
                "--mount",
                "sh",
                "-c",
                AS_IN_A_POD,
                "sh",
                &program.display().to_string(),
            ];
            arguments.splice(0..0, around.map(str::to_owned));
        }
        let mut process =
            Process::start_with("peer", &started, &arguments, &environment, &directory).await;
        let listens = async || TcpStream::connect(("127.0.0.1", port)).await.ok().map(drop);
        process
            .until(&format!("{} listens", tool.name()), listens)
            .await;
        Self {
            tool,
            url: format!("https://127.0.0.1:{port}/mutate"),
            _port: locked,
            _process: process,
        }
    }

    /// Calls it for a namespace, by a configuration of this name. Gives the name of the webhook, by which the API server counts.
    pub async fn call(
        &self,
        cluster: &Cluster,
        namespace: &Namespace,
        configuration: &str,
    ) -> String {
        let mut webhook = self.tool.webhook();
        let own = webhook["name"].as_str().expect("a name");
        let name = format!("{}.{own}", namespace.name);
        webhook["name"] = name.clone().into();
        // A busy machine is no reason for another end.
        webhook["timeoutSeconds"] = TIMEOUT.into();
        cluster
            .add_webhook(namespace, configuration, webhook, &self.url)
            .await;
        name
    }
}

/// What archaware-controller needs, which is no webhook: it gives nodes their taints, and Pods their tolerations after their creation.
pub struct Archaware {
    /// The same images in a registry without TLS: of 127.0.0.1 it expects that.
    pub images: Images,
    /// What runs.
    pub process: Process,
    _registry: Distribution,
}

impl Archaware {
    /// The folder of its source in `E2E_PEERS`.
    pub const NAME: &str = "archaware-controller";

    /// Why it cannot be run here, if it cannot.
    pub fn missing() -> Option<String> {
        programs::missing_peer(Self::NAME)
    }

    /// Starts it in a cluster that has no other use.
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
