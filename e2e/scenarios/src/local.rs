//! What only a cluster on this machine has.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use testregistry::{Internet, Pki};
use tokio::process::Command;

use crate::control_plane::ControlPlane;
use crate::programs;
use crate::tolerarch::Tolerarch;
use crate::wait::until;

/// The parts of a cluster on this machine, and programs that run beside it.
pub struct Local {
    /// The authority of all certificates.
    pub pki: Arc<Pki>,
    pub(crate) program: PathBuf,
    pub(crate) control_plane: ControlPlane,
    pub(crate) registry: String,
    pub(crate) _tolerarch: Tolerarch,
    pub(crate) started: AtomicUsize,
    pub(crate) directory: PathBuf,
}

impl Local {
    /// Starts another tolerarch, which trusts the cluster's authority for the cluster's registry. `settings` override its
    /// configuration.
    pub async fn tolerarch(&self, settings: Value) -> Tolerarch {
        self.tolerarch_for(&self.registry, settings).await
    }

    /// Starts another tolerarch, which trusts the cluster's authority for this registry.
    pub async fn tolerarch_for(&self, registry: &str, settings: Value) -> Tolerarch {
        self.start("tolerarch", registry, settings, Vec::new())
            .await
    }

    /// Starts a tolerarch that uses the Kubernetes API by this kubeconfig.
    pub async fn tolerarch_as(&self, kubeconfig: &Path, settings: Value) -> Tolerarch {
        self.tolerarch_for_as(&self.registry, kubeconfig, settings)
            .await
    }

    /// Starts a tolerarch that uses the Kubernetes API by this kubeconfig, and trusts the cluster's authority for this
    /// registry.
    pub async fn tolerarch_for_as(
        &self,
        registry: &str,
        kubeconfig: &Path,
        settings: Value,
    ) -> Tolerarch {
        let environment = vec![("KUBECONFIG", kubeconfig.display().to_string())];
        self.start("tolerarch", registry, settings, environment)
            .await
    }

    /// Starts a tolerarch that reads pull secrets, reaches registries through this [`Internet`], and has its authority in
    /// the system's trust store.
    pub async fn tolerarch_on(&self, internet: &Internet, mut settings: Value) -> Tolerarch {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let authorities = self.directory.join(format!("authorities-{number}.pem"));
        std::fs::write(&authorities, internet.pki().ca_pem()).unwrap();
        settings["credentials"] = json!({"pullSecrets": true});
        let environment = vec![
            ("KUBECONFIG", self.kubeconfig().display().to_string()),
            ("SSL_CERT_FILE", authorities.display().to_string()),
            ("HTTPS_PROXY", internet.proxy()),
            ("NO_PROXY", "127.0.0.1".to_owned()),
        ];
        self.start("tolerarch", &self.registry, settings, environment)
            .await
    }

    /// Starts a controller that uses the Kubernetes API by this kubeconfig, and trusts the cluster's authority for this
    /// registry.
    pub async fn controller_as(
        &self,
        kubeconfig: &Path,
        registry: &str,
        settings: Value,
    ) -> Tolerarch {
        let environment = vec![("KUBECONFIG", kubeconfig.display().to_string())];
        self.start("controller", registry, settings, environment)
            .await
    }

    /// Starts the issuer of certificates, which uses the Kubernetes API by this kubeconfig.
    pub async fn issuer_as(&self, kubeconfig: &Path, settings: Value) -> Tolerarch {
        let environment = vec![("KUBECONFIG", kubeconfig.display().to_string())];
        self.start("certificates", &self.registry, settings, environment)
            .await
    }

    async fn start(
        &self,
        service: &str,
        registry: &str,
        settings: Value,
        environment: Vec<(&'static str, String)>,
    ) -> Tolerarch {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let name = format!("{service}-{number}");
        let program = &self.program;
        let directory = &self.directory;
        let pki = &self.pki;
        Tolerarch::start(
            program,
            directory,
            &name,
            pki,
            registry,
            settings,
            environment,
        )
        .await
    }

    /// Runs kubectl of the control plane's version, which must succeed. Returns its standard output.
    pub async fn kubectl(&self, arguments: &[&str]) -> String {
        self.control_plane.kubectl(arguments).await
    }

    /// Runs a command line of bash as the administrator, with kubectl. Returns its standard output.
    ///
    /// # Panics
    /// If the command, or a part of a pipe, exits with a status other than 0.
    pub async fn shell(&self, line: &str) -> String {
        let program = self.control_plane.program().display().to_string();
        let line = format!("kubectl() {{ '{program}' kubectl \"$@\"; }}\n{line}");
        let mut command = Command::new("bash");
        command
            .args(["-o", "pipefail", "-c", &line])
            .env("KUBECONFIG", self.kubeconfig())
            .kill_on_drop(true);
        let output = command.output().await.unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{line}\n{}\n{errors}",
            output.status
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Returns the match conditions that the chart renders with `webhook.skipInApiServer`, and a user's one after them.
    pub async fn conditions(&self) -> Value {
        let file = programs::repository().join("e2e/manifests/testdata/chart/webhook.yaml");
        let file = file.display().to_string();
        let rendered = self
            .kubectl(&["create", "--dry-run=client", "-o", "json", "-f", &file])
            .await;
        let mut objects = serde_json::Deserializer::from_str(&rendered).into_iter::<Value>();
        let webhooks = objects.find_map(|object| {
            let object = object.expect("kubectl prints JSON");
            (object["kind"] == "MutatingWebhookConfiguration").then(|| object["webhooks"].clone())
        });
        webhooks.expect("a webhook configuration")[0]["matchConditions"].clone()
    }

    /// Defines the kinds of cert-manager.
    pub async fn define_cert_manager(&self) {
        let cert_manager =
            programs::go_module("manifests", "github.com/cert-manager/cert-manager").await;
        let definitions = cert_manager.join("deploy/crds").display().to_string();
        self.kubectl(&["apply", "--server-side", "-f", &definitions])
            .await;
        let kinds = ["issuers.cert-manager.io", "certificates.cert-manager.io"];
        self.until_established(&kinds).await;
    }

    /// Waits until the API server serves kinds that were just defined. `kubectl wait` would fail on a definition that does
    /// not have conditions yet.
    pub async fn until_established(&self, definitions: &[&str]) {
        for definition in definitions {
            let get = ["get", "crd", definition, "-o", "json"];
            until(&format!("{definition} is established"), async || {
                let text = self.kubectl(&get).await;
                let object: Value = serde_json::from_str(&text).unwrap();
                let mut conditions = object["status"]["conditions"].as_array()?.iter();
                let is_established = |condition: &Value| {
                    condition["type"] == "Established" && condition["status"] == "True"
                };
                conditions.any(is_established).then_some(())
            })
            .await;
        }
    }

    /// Runs a command of tolerarch as the administrator. Returns its exit status and its standard output.
    pub async fn run_tolerarch(&self, arguments: &[&str]) -> (i32, String) {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .env("KUBECONFIG", self.kubeconfig())
            .kill_on_drop(true);
        let output = command.output().await.unwrap();
        (
            output.status.code().unwrap_or(-1),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    }

    /// Returns how Prometheus scrapes the API server and these programs.
    pub fn scrape_configs(&self, programs: &[&Tolerarch]) -> Value {
        let targets: Vec<String> = programs
            .iter()
            .map(|program| program.metrics_address())
            .collect();
        let tolerarch = json!({"job_name": "tolerarch", "static_configs": [{"targets": targets}]});
        json!([self.control_plane.scrape_config(), tolerarch])
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.control_plane.kubeconfig
    }

    /// The directory of the cluster's data and logs.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the client configuration by which the API server calls a webhook at `url`.
    pub fn client_config(&self, url: &str) -> Value {
        client_config(url, &self.pki)
    }
}

pub(crate) fn client_config(url: &str, pki: &Pki) -> Value {
    json!({"url": url, "caBundle": k8s_openapi::ByteString(pki.ca_pem().into_bytes())})
}
