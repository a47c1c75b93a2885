//! What there is only on this machine, beside the cluster.

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

/// What there is only on this machine.
pub struct Local {
    /// Signs all certificates.
    pub pki: Arc<Pki>,
    pub(crate) program: PathBuf,
    pub(crate) control_plane: ControlPlane,
    pub(crate) registry: String,
    pub(crate) _tolerarch: Tolerarch,
    pub(crate) started: AtomicUsize,
    pub(crate) directory: PathBuf,
}

impl Local {
    /// Another tolerarch, with the authority and the registry of the cluster, and `settings` over its configuration.
    pub async fn tolerarch(&self, settings: Value) -> Tolerarch {
        self.tolerarch_for(&self.registry, settings).await
    }

    /// Another tolerarch, that trusts the cluster's authority for this registry.
    pub async fn tolerarch_for(&self, registry: &str, settings: Value) -> Tolerarch {
        let name = format!("tolerarch-{}", self.started.fetch_add(1, Ordering::Relaxed));
        Tolerarch::start(
            &self.program,
            &self.directory,
            &name,
            &self.pki,
            registry,
            settings,
            Vec::new(),
        )
        .await
    }

    /// A tolerarch that uses the Kubernetes API as this kubeconfig says.
    pub async fn tolerarch_as(&self, kubeconfig: &Path, settings: Value) -> Tolerarch {
        self.tolerarch_for_as(&self.registry, kubeconfig, settings)
            .await
    }

    /// The same, for this registry.
    pub async fn tolerarch_for_as(
        &self,
        registry: &str,
        kubeconfig: &Path,
        settings: Value,
    ) -> Tolerarch {
        let name = format!("tolerarch-{}", self.started.fetch_add(1, Ordering::Relaxed));
        let environment = vec![("KUBECONFIG", kubeconfig.display().to_string())];
        let start = Tolerarch::start(
            &self.program,
            &self.directory,
            &name,
            &self.pki,
            registry,
            settings,
            environment,
        );
        start.await
    }

    /// A tolerarch that finds registries on this internet, whose authority it trusts as a system's, and reads pull secrets.
    pub async fn tolerarch_on(&self, internet: &Internet, mut settings: Value) -> Tolerarch {
        let name = format!("tolerarch-{}", self.started.fetch_add(1, Ordering::Relaxed));
        let authorities = self.directory.join(format!("{name}.pem"));
        std::fs::write(&authorities, internet.pki().ca_pem()).unwrap();
        settings["credentials"] = json!({"pullSecrets": true});
        let environment = vec![
            ("KUBECONFIG", self.kubeconfig().display().to_string()),
            ("SSL_CERT_FILE", authorities.display().to_string()),
            ("HTTPS_PROXY", internet.proxy()),
            ("NO_PROXY", "127.0.0.1".to_owned()),
        ];
        let program = &self.program;
        let directory = &self.directory;
        let registry = &self.registry;
        Tolerarch::start(
            program,
            directory,
            &name,
            &self.pki,
            registry,
            settings,
            environment,
        )
        .await
    }

    /// A controller that uses the Kubernetes API as this kubeconfig says, and trusts the cluster's authority for this registry.
    pub async fn controller_as(
        &self,
        kubeconfig: &Path,
        registry: &str,
        settings: Value,
    ) -> Tolerarch {
        let name = format!(
            "controller-{}",
            self.started.fetch_add(1, Ordering::Relaxed)
        );
        let environment = vec![("KUBECONFIG", kubeconfig.display().to_string())];
        let program = &self.program;
        let directory = &self.directory;
        Tolerarch::start(
            program,
            directory,
            &name,
            &self.pki,
            registry,
            settings,
            environment,
        )
        .await
    }

    /// What issues certificates, using the Kubernetes API as this kubeconfig says.
    pub async fn issuer_as(&self, kubeconfig: &Path, settings: Value) -> Tolerarch {
        let name = format!(
            "certificates-{}",
            self.started.fetch_add(1, Ordering::Relaxed)
        );
        let environment = vec![("KUBECONFIG", kubeconfig.display().to_string())];
        let program = &self.program;
        let directory = &self.directory;
        let registry = &self.registry;
        Tolerarch::start(
            program,
            directory,
            &name,
            &self.pki,
            registry,
            settings,
            environment,
        )
        .await
    }

    /// Runs kubectl, of the control plane's version, to its good end. Gives its standard output.
    pub async fn kubectl(&self, arguments: &[&str]) -> String {
        self.control_plane.kubectl(arguments).await
    }

    /// Runs a command line of bash as the administrator, with kubectl, to its good end. Gives its standard output.
    ///
    /// # Panics
    /// If it, or a part of a pipe, exits with another status than 0.
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

    /// The conditions that the chart renders with `webhook.skipInApiServer`, and one of a user behind them.
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

    /// Defines the kinds of cert-manager, for what names them.
    pub async fn define_cert_manager(&self) {
        let cert_manager =
            programs::go_module("manifests", "github.com/cert-manager/cert-manager").await;
        let definitions = cert_manager.join("deploy/crds").display().to_string();
        self.kubectl(&["apply", "--server-side", "-f", &definitions])
            .await;
        let kinds = ["issuers.cert-manager.io", "certificates.cert-manager.io"];
        self.until_established(&kinds).await;
    }

    /// Waits until the API server serves these kinds, which are defined. `kubectl wait` fails on a definition that has no
    /// conditions yet, as in the first moment after its creation.
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

    /// Runs a command of tolerarch as the administrator. Gives its status and its standard output.
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

    /// How Prometheus scrapes the API server, and these.
    pub fn scraped(&self, programs: &[&Tolerarch]) -> Value {
        let targets: Vec<String> = programs
            .iter()
            .map(|program| program.scraped_at())
            .collect();
        let own = json!({"job_name": "tolerarch", "static_configs": [{"targets": targets}]});
        json!([self.control_plane.scraped(), own])
    }

    /// For programs that use the API.
    pub fn kubeconfig(&self) -> &Path {
        &self.control_plane.kubeconfig
    }

    /// Where logs go.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// How a webhook configuration leads to a URL.
    pub fn client_config(&self, url: &str) -> Value {
        client_config(url, &self.pki)
    }
}

pub(crate) fn client_config(url: &str, pki: &Pki) -> Value {
    json!({"url": url, "caBundle": k8s_openapi::ByteString(pki.ca_pem().into_bytes())})
}
