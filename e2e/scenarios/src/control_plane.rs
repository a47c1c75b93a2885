//! etcd, the API server, the controller manager and the scheduler, on free ports, with their data in one directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use testregistry::Pki;

use crate::process::{Process, free_port};
use crate::programs;

/// The token of the administrator. The API server listens on loopback only.
const TOKEN: &str = "e2e";

/// A running control plane. Dropping it kills its processes.
pub(crate) struct ControlPlane {
    pub(crate) client: Client,
    /// The administrator's kubeconfig.
    pub(crate) kubeconfig: PathBuf,
    /// The port of the API server.
    port: u16,
    program: PathBuf,
    directory: PathBuf,
    processes: Vec<Process>,
}

impl ControlPlane {
    pub(crate) async fn start(directory: &Path, pki: &Arc<Pki>) -> Self {
        let program = programs::control_plane().await;
        let etcd = free_port();
        let api = free_port();
        let kubeconfig = credentials(directory, pki, api);
        let config = Kubeconfig::read_from(&kubeconfig).unwrap();
        let mut config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
            .await
            .unwrap();
        // A scenario is to see a request that hangs.
        config.read_timeout = None;
        let client = Client::try_from(config).unwrap();

        let mut processes = Vec::new();
        for (name, arguments) in [
            ("etcd", etcd_arguments(directory, etcd, free_port())),
            ("kube-apiserver", api_arguments(directory, etcd, api)),
        ] {
            let arguments: Vec<String> = [vec![name.to_owned()], arguments].concat();
            processes.push(Process::start(name, &program, &arguments, directory).await);
        }
        let server = processes.last_mut().expect("two were started");
        server
            .until("the API server is ready", async || ready(&client).await)
            .await;
        for (name, arguments) in [
            (
                "kube-controller-manager",
                controller_arguments(directory, &kubeconfig),
            ),
            ("kube-scheduler", scheduler_arguments(&kubeconfig)),
        ] {
            let arguments: Vec<String> = [vec![name.to_owned()], arguments].concat();
            processes.push(Process::start(name, &program, &arguments, directory).await);
        }
        Self {
            client,
            kubeconfig,
            port: api,
            program,
            directory: directory.to_owned(),
            processes,
        }
    }

    /// Returns the program of etcd, the control plane and kubectl; its first argument chooses one.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// Ends all processes, and waits until they write no more files.
    pub(crate) async fn stop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            process.kill().await;
        }
    }

    /// Returns how Prometheus scrapes the API server's counts of requests and of webhook calls.
    pub(crate) fn scrape_config(&self) -> Value {
        json!({
            "job_name": "apiserver",
            "scheme": "https",
            "authorization": {"credentials": TOKEN},
            "tls_config": {"ca_file": self.directory.join("ca.crt")},
            "static_configs": [{"targets": [format!("127.0.0.1:{}", self.port)]}],
            // All others would be some ten thousand series.
            "metric_relabel_configs": [{"source_labels": ["__name__"], "action": "keep",
                "regex": "apiserver_admission_webhook_.*|apiserver_request_total"}],
        })
    }

    /// Writes the files that a Pod has of its service account into a directory. Returns the variables of its environment.
    pub(crate) fn write_service_account(&self, directory: &Path) -> [(&'static str, String); 2] {
        fs::write(directory.join("token"), TOKEN).unwrap();
        fs::copy(self.directory.join("ca.crt"), directory.join("ca.crt")).unwrap();
        [
            ("KUBERNETES_SERVICE_HOST", "127.0.0.1".to_owned()),
            ("KUBERNETES_SERVICE_PORT", self.port.to_string()),
        ]
    }

    /// Runs kubectl, which must succeed. Returns its standard output.
    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> String {
        let output = tokio::process::Command::new(&self.program)
            .arg("kubectl")
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(arguments)
            // For its cache.
            .env("HOME", &self.directory)
            .kill_on_drop(true)
            .output()
            .await
            .unwrap();
        assert!(
            output.status.success(),
            "kubectl {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

async fn ready(client: &Client) -> Option<()> {
    let request = http::Request::get("/readyz").body(Vec::new()).unwrap();
    let answer = client.request_text(request).await.ok()?;
    (answer == "ok").then_some(())
}

/// Writes the certificates, the token and the kubeconfig. Returns the kubeconfig's file.
fn credentials(directory: &Path, pki: &Pki, api: u16) -> PathBuf {
    let file = |name: &str| directory.join(name);
    for (name, names) in [
        (
            "api",
            vec!["127.0.0.1", "localhost", "kubernetes.default.svc"],
        ),
        ("accounts", vec!["accounts"]),
    ] {
        fs::create_dir(file(name)).unwrap();
        pki.leaf(&names).write(&file(name)).unwrap();
    }
    fs::write(file("ca.crt"), pki.ca_pem()).unwrap();
    fs::write(
        file("tokens.csv"),
        format!("{TOKEN},e2e,e2e,\"system:masters\"\n"),
    )
    .unwrap();
    // JSON is YAML.
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "e2e", "cluster": {
            "server": format!("https://127.0.0.1:{api}"),
            "certificate-authority": file("ca.crt"),
        }}],
        "users": [{"name": "e2e", "user": {"token": TOKEN}}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
        "current-context": "e2e",
    });
    fs::write(file("kubeconfig"), kubeconfig.to_string()).unwrap();
    file("kubeconfig")
}

fn etcd_arguments(directory: &Path, port: u16, peers: u16) -> Vec<String> {
    let client = format!("http://127.0.0.1:{port}");
    let peer = format!("http://127.0.0.1:{peers}");
    vec![
        format!("--data-dir={}", directory.join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--log-level=warn".into(),
        // Nothing reads the data after a crash.
        "--unsafe-no-fsync".into(),
    ]
}

fn api_arguments(directory: &Path, etcd: u16, port: u16) -> Vec<String> {
    let file = |name: &str| directory.join(name).display().to_string();
    vec![
        format!("--etcd-servers=http://127.0.0.1:{etcd}"),
        "--bind-address=127.0.0.1".into(),
        "--advertise-address=127.0.0.1".into(),
        format!("--secure-port={port}"),
        format!("--tls-cert-file={}", file("api/tls.crt")),
        format!("--tls-private-key-file={}", file("api/tls.key")),
        format!("--client-ca-file={}", file("ca.crt")),
        format!("--token-auth-file={}", file("tokens.csv")),
        "--authorization-mode=RBAC".into(),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-key-file={}", file("accounts/tls.crt")),
        format!(
            "--service-account-signing-key-file={}",
            file("accounts/tls.key")
        ),
        "--service-cluster-ip-range=10.0.0.0/24".into(),
        "--endpoint-reconciler-type=none".into(),
        "--allow-privileged=true".into(),
        // Affects only namespaces with an annotation for it.
        "--enable-admission-plugins=PodTolerationRestriction".into(),
    ]
}

fn controller_arguments(directory: &Path, kubeconfig: &Path) -> Vec<String> {
    let file = |name: &str| directory.join(name).display().to_string();
    let mut arguments = common_arguments(kubeconfig);
    arguments.extend([
        "--use-service-account-credentials".into(),
        format!(
            "--service-account-private-key-file={}",
            file("accounts/tls.key")
        ),
        format!("--root-ca-file={}", file("ca.crt")),
        // Nothing sends heartbeats for the nodes.
        "--node-monitor-grace-period=2h".into(),
    ]);
    arguments
}

fn scheduler_arguments(kubeconfig: &Path) -> Vec<String> {
    common_arguments(kubeconfig)
}

fn common_arguments(kubeconfig: &Path) -> Vec<String> {
    let kubeconfig = kubeconfig.display();
    vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={}", free_port()),
        "--leader-elect=false".into(),
        // By default controllers send 20 requests a second, and scenarios would measure that.
        "--kube-api-qps=1000".into(),
        "--kube-api-burst=2000".into(),
    ]
}
