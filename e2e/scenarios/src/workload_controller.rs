//! Controllers of other workloads, built from the Go proxy, with their definitions and the webhooks of their
//! kustomizations.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::local::Local;
use crate::process::{Process, free_port};
use crate::programs;

/// Mounts the certificate of Kueue's metrics where Kueue reads it. Only the started program sees the mount.
const WITH_CERTIFICATE_OF_METRICS: &str = r#"certificates=/etc/kueue/metrics/certs
mount -t tmpfs none /etc && mkdir -p $certificates && cp tls.crt tls.key $certificates && exec "$@""#;

/// A controller of a kind of workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkloadController {
    /// sigs.k8s.io/jobset
    JobSet,
    /// sigs.k8s.io/lws
    LeaderWorkerSet,
    /// sigs.k8s.io/kueue
    Kueue,
    /// github.com/argoproj/argo-rollouts
    Rollouts,
}

impl WorkloadController {
    /// All controllers.
    pub const ALL: [Self; 4] = [
        Self::JobSet,
        Self::LeaderWorkerSet,
        Self::Rollouts,
        Self::Kueue,
    ];

    /// Its name in `workloads/build`.
    pub fn name(self) -> &'static str {
        match self {
            Self::JobSet => "jobset",
            Self::LeaderWorkerSet => "lws",
            Self::Kueue => "kueue",
            Self::Rollouts => "rollouts",
        }
    }

    /// Returns why the controller cannot run on this machine; `None` if it can.
    pub fn missing(self) -> Option<String> {
        if let Some(why) = programs::missing_workloads() {
            return Some(why);
        }
        if self != Self::Kueue {
            return None;
        }
        let tried = Command::new("unshare")
            .args(["--map-root-user", "--mount"])
            .args(["mount", "-t", "tmpfs", "none", "/etc"])
            .stderr(Stdio::null())
            .status();
        if tried.is_ok_and(|status| status.success()) {
            return None;
        }
        Some("it needs a certificate in /etc, and unshare may not mount it here".to_owned())
    }

    /// Returns the directory with the controller's source.
    async fn source(self) -> PathBuf {
        let (module_file, module) = match self {
            Self::JobSet => ("sets.mod", "sigs.k8s.io/jobset"),
            Self::LeaderWorkerSet => ("sets.mod", "sigs.k8s.io/lws"),
            Self::Kueue => ("go.mod", "sigs.k8s.io/kueue"),
            Self::Rollouts => ("rollouts.mod", "github.com/argoproj/argo-rollouts"),
        };
        programs::workload_module(module_file, module).await
    }

    /// The kustomization with the controller's definitions and webhooks.
    fn kustomization(self) -> &'static str {
        match self {
            Self::JobSet | Self::LeaderWorkerSet | Self::Kueue => "config/default",
            Self::Rollouts => "manifests/crds",
        }
    }

    /// Returns the controller's arguments, with these ports for its webhooks and its health.
    fn arguments(self, directory: &Path, webhooks: u16, health: u16) -> Vec<String> {
        let version = match self {
            Self::JobSet => "config.jobset.x-k8s.io/v1alpha1",
            Self::LeaderWorkerSet => "config.lws.x-k8s.io/v1alpha1",
            Self::Kueue => "config.kueue.x-k8s.io/v1beta2",
            Self::Rollouts => {
                return vec![
                    "--leader-elect=false".to_owned(),
                    format!("--healthzPort={health}"),
                    format!("--metricsPort={webhooks}"),
                ];
            }
        };
        let mut configuration = json!({
            "apiVersion": version,
            "kind": "Configuration",
            "leaderElection": {"leaderElect": false},
            "internalCertManagement": {"enable": false},
            "webhook": {"host": "127.0.0.1", "port": webhooks, "certDir": directory},
            "health": {"healthProbeBindAddress": format!("127.0.0.1:{health}")},
            "metrics": {"bindAddress": "0"},
        });
        let file = directory.join("configuration.yaml");
        let mut arguments = vec![format!("--config={}", file.display())];
        if self == Self::Kueue {
            configuration["integrations"] = json!({"frameworks": ["batch/job", "pod"]});
            arguments.push("--feature-gates=VisibilityOnDemand=false".to_owned());
        }
        // JSON is YAML.
        fs::write(file, configuration.to_string()).unwrap();
        arguments
    }

    /// Installs and starts the controller, in a cluster that nothing else uses. It has all rights. Dropping the returned
    /// process kills it.
    pub async fn start(self, cluster: &Cluster) -> Process {
        let local = cluster.local();
        let program = programs::workload_controller(self.name()).await;
        let directory = local.directory().join(self.name());
        fs::create_dir(&directory).unwrap();
        local.pki.leaf(&["127.0.0.1"]).write(&directory).unwrap();
        let webhooks = free_port();
        let health = free_port();
        let url = format!("https://127.0.0.1:{webhooks}");
        let (definitions, configurations) = self.manifests(local, &directory, &url).await;
        apply(local, &directory.join("definitions.json"), &definitions).await;
        let names: Vec<&str> = definitions
            .iter()
            .map(|definition| definition["metadata"]["name"].as_str().expect("a name"))
            .collect();
        local.until_established(&names).await;

        let environment = [("KUBECONFIG", local.kubeconfig().display().to_string())];
        let mut arguments = self.arguments(&directory, webhooks, health);
        let mut command = program.clone();
        if self == Self::Kueue {
            command = "unshare".into();
            let program = program.display().to_string();
            let wrapper = [
                "--map-root-user",
                "--mount",
                "sh",
                "-c",
                WITH_CERTIFICATE_OF_METRICS,
                "sh",
                &program,
            ];
            arguments.splice(0..0, wrapper.map(str::to_owned));
        }
        let mut process =
            Process::start_with(self.name(), &command, &arguments, &environment, &directory).await;
        // Argo Rollouts has no webhooks.
        let port = if configurations.is_empty() {
            health
        } else {
            webhooks
        };
        process.until_listening(self.name(), port).await;
        if !configurations.is_empty() {
            apply(local, &directory.join("webhooks.json"), &configurations).await;
        }
        process
    }

    /// Returns the controller's definitions, and the configurations of its webhooks, which lead to this URL.
    async fn manifests(
        self,
        local: &Local,
        directory: &Path,
        url: &str,
    ) -> (Vec<Value>, Vec<Value>) {
        let kustomization = self.source().await.join(self.kustomization());
        let text = local
            .kubectl(&["kustomize", &kustomization.display().to_string()])
            .await;
        let documents: Vec<&str> = text.split("\n---\n").filter(|one| is_wanted(one)).collect();
        let file = directory.join("manifests.yaml");
        fs::write(&file, documents.join("\n---\n")).unwrap();
        let create = ["create", "--dry-run=client", "-o", "json", "-f"];
        let file = file.display().to_string();
        let text = local
            .kubectl(&[&create[..], &[file.as_str()]].concat())
            .await;
        let objects = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        let mut objects: Vec<Value> = objects
            .map(|one| one.expect("kubectl prints JSON"))
            .collect();
        for object in &mut objects {
            replace_service(object, local, url);
        }
        objects
            .into_iter()
            .partition(|object| object["kind"] == "CustomResourceDefinition")
    }
}

/// Whether a document is a definition or a webhook configuration. The others, such as the Deployment, are not needed.
fn is_wanted(document: &str) -> bool {
    let kinds = [
        "kind: CustomResourceDefinition",
        "kind: MutatingWebhookConfiguration",
        "kind: ValidatingWebhookConfiguration",
    ];
    document.lines().any(|line| kinds.contains(&line))
}

/// Replaces the controller's Service in the client configurations of an object by this URL.
fn replace_service(object: &mut Value, local: &Local, url: &str) {
    let replace = |client_config: &mut Value| {
        let path = client_config["service"]["path"]
            .as_str()
            .unwrap_or_default();
        *client_config = local.client_config(&format!("{url}{path}"));
    };
    if let Some(webhooks) = object.get_mut("webhooks").and_then(Value::as_array_mut) {
        for webhook in webhooks {
            replace(&mut webhook["clientConfig"]);
        }
    }
    if let Some(conversion) = object.pointer_mut("/spec/conversion/webhook/clientConfig") {
        replace(conversion);
    }
}

async fn apply(local: &Local, file: &Path, objects: &[Value]) {
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    fs::write(file, list.to_string()).unwrap();
    let file = file.display().to_string();
    local
        .kubectl(&["apply", "--server-side", "-f", &file])
        .await;
}
