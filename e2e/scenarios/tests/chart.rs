//! The chart of the previous release, installed by Helm as the README says, from a registry that the kubelets can pull
//! from; upgraded, tested and removed as documented. Runs last, because it removes tolerarch.

mod releases;
mod upgrade;

use scenarios::{Cluster, Kind, until};

use self::releases::{push_images, rolled_out, version_before};
use crate::creations::{PATIENCE, Times, unchanged};
use crate::documentation::commands_of;
use crate::node_files;
use crate::nodes::{HELD_UP, LONGEST, create_at_rate_during};

/// Pods a second.
const RATE: u32 = 50;
/// The server of the shared cache.
const CACHE: &str = "tolerarch-e2e-cache";
/// Lists the objects of tolerarch. Left out are events, Pods, the test's own objects such as nodes, and rights in other
/// namespaces, which the docs leave to those who gave them.
const LEFT: &str = r#"kinds=$(kubectl api-resources --verbs=list --output name | grep -vE '^(events|pods$)' | paste -sd,)
    kubectl get "$kinds" --all-namespaces --ignore-not-found --output name |
        grep tolerarch | grep -vE 'tolerarch-e2e|/tolerarch-pull-secrets$' || true"#;
/// Lists the objects in the namespace of tolerarch, except those that Kubernetes creates.
const WITHIN: &str = r#"kinds=$(kubectl api-resources --verbs=list --namespaced --output name | grep -v ^events | paste -sd,)
    kubectl get "$kinds" --namespace tolerarch --ignore-not-found --output name |
        grep -vE '^(configmap/kube-root-ca.crt|serviceaccount/default)$' || true"#;

pub(crate) async fn chart_is_installed_upgraded_and_removed_as_documented(cluster: &Cluster) {
    let kind = cluster.kind();
    push_images(kind).await;
    node_files::write(cluster).await;
    kind.start_redis(CACHE).await;

    // Removes the kustomization, and installs the chart.
    under_load(cluster, exchange_installations(cluster)).await;

    let chart = commands_of("manifests/helm/tolerarch/README.md");
    let [.., enable_test, test] = &chart[..] else {
        panic!("{chart:?}")
    };
    let upgrade = upgrade::upgrade_and_roll_back(cluster, enable_test);
    let unchanged = under_load(cluster, upgrade).await;
    assert!(unchanged <= HELD_UP, "{unchanged}");

    let test_output = kind
        .shell(Kind::repository(), &format!("{test} --logs"))
        .await;
    assert!(test_output.contains("✓ dry-run"), "{test_output}");

    node_files::assert_files_are_used(cluster).await;
    node_files::remove_plugin(cluster).await;
    under_load(cluster, uninstall(kind)).await;
}

/// Creates Pods until `event` is over. Asserts that no creation fails or takes long. Returns how many Pods stayed
/// unchanged.
async fn under_load(cluster: &Cluster, event: impl Future<Output = ()>) -> usize {
    let (creations, longest) = create_at_rate_during(cluster, RATE, event).await;
    assert!(Times::of(&creations).percentile(100) < LONGEST + longest);
    unchanged(&creations, longest, PATIENCE)
}

async fn exchange_installations(cluster: &Cluster) {
    let kind = cluster.kind();
    let remove = format!("kubectl delete --kustomize '{}'", kind.overlay().display());
    kind.shell(Kind::repository(), &remove).await;
    until_left(kind, LEFT, |left| left.is_empty()).await;
    install_before(cluster).await;
}

/// Installs the previous release as the README says, with the registry and the cache of this cluster.
async fn install_before(cluster: &Cluster) {
    let readme = commands_of("README.md");
    let install = readme
        .iter()
        .find(|command| command.starts_with("helm install"))
        .expect("helm install");
    let registry = &cluster.images.registry;
    let node_files = node_files::values(cluster.kind());
    let command = format!(
        "{install} {node_files} --set image.registry={registry} \
         --set controller.enabled=true --set config.explain=true \
         --set config.cache.shared.url=redis://{CACHE}:6379 \
         --set-json 'networkPolicy.extraEgress=[{{\"ports\": [{{\"port\": 6379}}]}}]'"
    );
    let directory = Kind::repository_before();
    cluster.kind().shell(&directory, &command).await;
    rolled_out(cluster, &version_before()).await;
}

async fn uninstall(kind: &Kind) {
    for command in commands_of("docs/uninstall.md") {
        // The commands about DaemonSets change nothing.
        kind.shell(Kind::repository(), &command).await;
        if command.starts_with("helm uninstall") {
            until_left(kind, WITHIN, |left| left.lines().all(stays)).await;
        }
    }
    until_left(kind, LEFT, |left| left.is_empty()).await;
}

/// Whether an object stays until its namespace is deleted, according to the docs.
fn stays(name: &str) -> bool {
    name.starts_with("lease")
        || name == "configmap/tolerarch-controller-failed-images"
        || name == "pod/tolerarch-test"
}

/// Waits until the output of a command is as wanted.
async fn until_left(kind: &Kind, command: &str, wanted: impl Fn(&str) -> bool) {
    until("nothing is left but what the docs say", async || {
        let left = kind.shell(Kind::repository(), command).await;
        wanted(&left).then(|| println!("chart: left is {left:?}"))
    })
    .await;
}
