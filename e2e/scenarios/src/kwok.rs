//! kwok, which plays the kubelets of nodes annotated `kwok.x-k8s.io/node: fake`. Their Pods start and end at once.

use std::path::Path;

use crate::process::Process;
use crate::programs;

/// The files that define what kwok does with nodes and Pods.
const STAGES: [&str; 5] = [
    "node/fast/node-initialize.yaml",
    "node/heartbeat/node-heartbeat.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
];

/// Starts kwok with a server at this port.
pub(crate) async fn start(
    kubeconfig: &Path,
    directory: &Path,
    port: u16,
    more_arguments: &[String],
) -> Process {
    let program = programs::kwok().await;
    let module = programs::go_module("scenarios/controlplane", "sigs.k8s.io/kwok").await;
    let stages = module.join("kustomize/stage");
    let mut arguments = vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake".to_owned(),
        format!("--server-address=127.0.0.1:{port}"),
    ];
    for stage in STAGES {
        arguments.push(format!("--config={}", stages.join(stage).display()));
    }
    arguments.extend_from_slice(more_arguments);
    Process::start("kwok", &program, &arguments, directory).await
}
