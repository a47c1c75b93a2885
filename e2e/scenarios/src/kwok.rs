//! kwok plays the kubelets of the nodes that are annotated `kwok.x-k8s.io/node: fake`: their Pods run at once, and end at once.

use std::path::Path;

use crate::process::Process;
use crate::programs;

/// What it does with nodes and Pods.
const STAGES: [&str; 5] = [
    "node/fast/node-initialize.yaml",
    "node/heartbeat/node-heartbeat.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
];

/// Starts it with a server at this port, and with these arguments as well.
pub(crate) async fn start(
    kubeconfig: &Path,
    directory: &Path,
    port: u16,
    further: &[String],
) -> Process {
    let program = programs::kwok().await;
    let module = programs::go_module("controlplane", "sigs.k8s.io/kwok").await;
    let stage = |stage| {
        format!(
            "--config={}",
            module.join("kustomize/stage").join(stage).display()
        )
    };
    let mut arguments = vec![
        format!("--kubeconfig={}", kubeconfig.display()),
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake".to_owned(),
        format!("--server-address=127.0.0.1:{port}"),
    ];
    arguments.extend(STAGES.map(stage));
    arguments.extend_from_slice(further);
    Process::start("kwok", &program, &arguments, directory).await
}
