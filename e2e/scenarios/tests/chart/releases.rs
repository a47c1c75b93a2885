//! This release and the previous one: their versions, their images, and their Pods.

use std::fs;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use scenarios::{Cluster, Kind, until};

use crate::nodes::{ROLLED_OUT, TOLERARCH, runs};

/// The version of this release.
pub(super) const NOW: &str = env!("CARGO_PKG_VERSION");

/// Returns the version of the previous release.
pub(super) fn version_before() -> String {
    let chart = Kind::repository_before().join("manifests/helm/tolerarch/Chart.yaml");
    let chart = fs::read_to_string(chart).expect("a chart");
    let version = chart
        .lines()
        .find_map(|line| line.strip_prefix("version: "));
    version.expect("a version").to_owned()
}

/// Pushes the images of both releases, tagged as in their charts.
pub(super) async fn push_images(kind: &Kind) {
    kind.push_tolerarch_before(&version_before()).await;
    kind.push_tolerarch(NOW).await;
}

/// Waits until all Pods of the installation have this version and run, so that no other version answers the API server.
pub(super) async fn rolled_out(cluster: &Cluster, version: &str) {
    cluster.kind().kubectl(&ROLLED_OUT).await;
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), TOLERARCH);
    let is_of_version = |pod: &Pod| {
        let spec = pod.spec.as_ref().expect("a specification");
        let image = spec.containers[0].image.as_deref().unwrap_or_default();
        image.ends_with(&format!(":{version}"))
    };
    until(&format!("all Pods have {version}"), async || {
        let pods = pods.list(&ListParams::default()).await.ok()?.items;
        pods.iter()
            .all(|pod| is_of_version(pod) && runs(pod))
            .then_some(())
    })
    .await;
}
