//! A cluster on which commands of an administrator run: another control plane, nodes whose kubelets kwok plays, and a
//! shell that finds the real kubectl, helm and tolerarch.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::SystemTime;

use k8s_openapi::api::admissionregistration::v1::WebhookClientConfig;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::cluster::exchange_client_config;
use crate::control_plane::ControlPlane;
use crate::local::Local;
use crate::pods::POOL;
use crate::process::{Process, free_port};
use crate::tolerarch::Tolerarch;
use crate::{kwok, programs};

/// A cluster, and a shell in a directory with the repository's `manifests/`.
pub struct AdminCluster {
    /// A client with all rights.
    pub client: Client,
    control_plane: ControlPlane,
    directory: PathBuf,
    _kwok: Process,
}

impl AdminCluster {
    /// Starts the cluster. Commands of tolerarch use the configuration of `tolerarch`, unless they name another.
    pub async fn start(local: &Local, tolerarch: &Tolerarch) -> Self {
        let directory = local.directory().join("admin-cluster");
        fs::create_dir(&directory).unwrap();
        let control_plane = ControlPlane::start(&directory, &local.pki).await;
        let client = control_plane.client.clone();
        let kwok = start_kwok(local, &control_plane.kubeconfig, &directory).await;
        add_node(&client, "plain", "amd64", json!([])).await;
        let taint = json!({"key": POOL, "value": "true", "effect": "NoSchedule"});
        add_node(&client, "multi-arch", "arm64", json!([taint])).await;

        let bin = directory.join("bin");
        fs::create_dir(&bin).unwrap();
        let kubectl = control_plane.program().display();
        write_script(&bin, "kubectl", &format!("exec '{kubectl}' kubectl \"$@\""));
        let helm = programs::helm().await;
        write_script(&bin, "helm", &format!("exec '{}' \"$@\"", helm.display()));
        let program = local.program.display();
        let config = tolerarch.config().display().to_string();
        let with_config = format!("*' --config '*) exec '{program}' \"$@\" ;;");
        let without_config = format!("*) exec '{program}' --config '{config}' \"$@\" ;;");
        write_script(
            &bin,
            "tolerarch",
            &format!("case \" $* \" in\n{with_config}\n{without_config}\nesac"),
        );
        let cluster = Self {
            client,
            control_plane,
            directory,
            _kwok: kwok,
        };
        fs::create_dir(cluster.folder()).unwrap();
        let manifests = programs::repository().join("manifests");
        cluster
            .run(&format!("cp -r '{}' .", manifests.display()))
            .await;
        cluster
    }

    /// The directory in which commands run.
    pub fn folder(&self) -> PathBuf {
        self.directory.join("work")
    }

    /// Runs a command of the shell. Returns its standard output.
    ///
    /// # Panics
    /// If the command, or a part of a pipe, exits with a status other than 0.
    pub async fn run(&self, command: &str) -> String {
        let Output {
            status,
            stdout,
            stderr,
        } = self.shell(command).output().await.unwrap();
        let stdout = String::from_utf8_lossy(&stdout);
        let stderr = String::from_utf8_lossy(&stderr);
        assert!(status.success(), "{command}\n{status}\n{stdout}\n{stderr}");
        stdout.into_owned()
    }

    fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("bash");
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", self.directory.join("bin").display());
        shell
            .args(["-o", "pipefail", "-c", command])
            .current_dir(self.folder())
            .env("PATH", path)
            .env("KUBECONFIG", &self.control_plane.kubeconfig)
            // For caches.
            .env("HOME", &self.directory)
            .kill_on_drop(true);
        shell
    }

    /// Sets the log of every container, each line with the current time: tolerarch runs beside the cluster, so no
    /// kubelet has its log.
    pub fn set_container_log(&self, text: &str) {
        let now = Timestamp::try_from(SystemTime::now()).expect("a time of this age");
        // The format of a container runtime's log files: timestamp, stream, tag, line.
        let lines: String = text
            .lines()
            .map(|line| format!("{now} stdout F {line}\n"))
            .collect();
        fs::write(container_log(&self.directory), lines).unwrap();
    }

    /// Replaces the client configuration of the shipped webhook. Returns the former one.
    pub async fn exchange_client_config(&self, new: WebhookClientConfig) -> WebhookClientConfig {
        exchange_client_config(&self.client, new).await
    }
}

fn write_script(bin: &Path, name: &str, text: &str) {
    let file = bin.join(name);
    fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Returns the file that kwok serves as every container's log.
fn container_log(directory: &Path) -> PathBuf {
    directory.join("containers.log")
}

/// Starts kwok with a kubelet's server, which serves logs.
async fn start_kwok(local: &Local, kubeconfig: &Path, directory: &Path) -> Process {
    let file = |name: &str| directory.join("kubelet").join(name);
    fs::create_dir(directory.join("kubelet")).unwrap();
    local
        .pki
        .leaf(&["127.0.0.1"])
        .write(&directory.join("kubelet"))
        .unwrap();
    fs::write(container_log(directory), "").unwrap();
    let logs = json!({
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "ClusterLogs",
        "metadata": {"name": "all"},
        "spec": {"logs": [{"logsFile": container_log(directory)}]},
    });
    // JSON is YAML.
    fs::write(file("logs.yaml"), logs.to_string()).unwrap();
    let port = free_port();
    let arguments = [
        format!("--config={}", file("logs.yaml").display()),
        "--node-ip=127.0.0.1".to_owned(),
        format!("--node-port={port}"),
        format!("--tls-cert-file={}", file("tls.crt").display()),
        format!("--tls-private-key-file={}", file("tls.key").display()),
    ];
    kwok::start(kubeconfig, directory, port, &arguments).await
}

/// Adds a node that kwok makes ready.
async fn add_node(client: &Client, name: &str, architecture: &str, taints: Value) {
    let node = json!({
        "metadata": {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/arch": architecture,
                "kubernetes.io/os": "linux",
            },
        },
        "spec": {"taints": taints},
    });
    let nodes = Api::<Node>::all(client.clone());
    nodes
        .create(
            &PostParams::default(),
            &serde_json::from_value(node).unwrap(),
        )
        .await
        .unwrap();
}
