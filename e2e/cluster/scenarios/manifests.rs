//! What `manifests/` installs. The cluster has been started with it: applied by the server, validated strictly.

use e2e::{Cluster, PodExt, until};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;

pub(crate) async fn the_deployment_gets_its_pods(cluster: &Cluster) {
    // Its namespace enforces the restricted Pod security standard, and tolerarch is not called for itself.
    let pods = Api::<Pod>::namespaced(cluster.client.clone(), "tolerarch");
    let its = ListParams::default().labels("app.kubernetes.io/name=tolerarch");
    let pods = until("two Pods of tolerarch", async || {
        let pods = pods.list(&its).await.unwrap().items;
        (pods.len() == 2).then_some(pods)
    })
    .await;
    assert!(pods.iter().all(|pod| pod.pools().is_none() && !pod.tolerates_pool()), "{pods:?}");
}
