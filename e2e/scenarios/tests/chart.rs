//! The chart of the release before, installed by Helm as the README says, from a registry that the kubelets pull from; upgraded,
//! tested and taken away as the docs print it. Comes last: tolerarch is gone afterwards.

mod releases;
mod upgrade;

use scenarios::{Cluster, Kind, until};

use self::releases::{push_images, rolled_out, version_before};
use crate::creations::{PATIENCE, Times, unchanged};
use crate::documentation::commands_of;
use crate::node_files;
use crate::nodes::{HELD_UP, LONGEST, create_so_many_during};

/// Pods in a second.
const RATE: u32 = 50;
/// The server of the shared cache.
const CACHE: &str = "tolerarch-e2e-cache";
/// Which objects there are of tolerarch, but for events, Pods, and the rights of other namespaces, which the docs leave to
/// those who gave them; the nodes bear its name, too.
const LEFT: &str = r#"kinds=$(kubectl api-resources --verbs=list --output name | grep -vE '^(events|pods$)' | paste -sd,)
    kubectl get "$kinds" --all-namespaces --ignore-not-found --output name |
        grep tolerarch | grep -vE 'tolerarch-e2e|/tolerarch-pull-secrets$' || true"#;
/// What is in its namespace, but for what Kubernetes puts there.
const WITHIN: &str = r#"kinds=$(kubectl api-resources --verbs=list --namespaced --output name | grep -v ^events | paste -sd,)
    kubectl get "$kinds" --namespace tolerarch --ignore-not-found --output name |
        grep -vE '^(configmap/kube-root-ca.crt|serviceaccount/default)$' || true"#;

pub(crate) async fn chart_is_installed_upgraded_and_removed_as_documented(cluster: &Cluster) {
    let kind = cluster.kind();
    push_images(kind).await;
    node_files::write(cluster).await;
    kind.start_redis(CACHE).await;

    // The other way to install it, and to take it away.
    under_load(cluster, exchange_installations(cluster)).await;

    let chart = commands_of("manifests/helm/tolerarch/README.md");
    let [.., enable_test, test] = &chart[..] else {
        panic!("{chart:?}")
    };
    let unchanged = under_load(cluster, upgrade::there_and_back(cluster, enable_test)).await;
    assert!(unchanged <= HELD_UP, "{unchanged}");

    let told = kind
        .shell(Kind::repository(), &format!("{test} --logs"))
        .await;
    assert!(told.contains("✓ dry-run"), "{told}");

    node_files::are_taken_over(cluster).await;
    node_files::take_away(cluster).await;
    under_load(cluster, uninstall(kind)).await;
}

/// Creates Pods all the time, none of which may fail or wait for long. Gives how many were left unchanged.
async fn under_load(cluster: &Cluster, event: impl Future<Output = ()>) -> usize {
    let (creations, longest) = create_so_many_during(cluster, RATE, event).await;
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

/// Installs the release before as the README says, with the registry and the cache of this cluster.
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
        // What is about DaemonSets only reads.
        kind.shell(Kind::repository(), &command).await;
        if command.starts_with("helm uninstall") {
            until_left(kind, WITHIN, |left| left.lines().all(stays)).await;
        }
    }
    until_left(kind, LEFT, |left| left.is_empty()).await;
}

/// Whether the docs say of an object in tolerarch's namespace that it stays until that goes.
fn stays(name: &str) -> bool {
    name.starts_with("lease")
        || name == "configmap/tolerarch-controller-failed-images"
        || name == "pod/tolerarch-test"
}

/// Waits until what is left is as wanted.
async fn until_left(kind: &Kind, command: &str, wanted: impl Fn(&str) -> bool) {
    until("nothing is left but what the docs say", async || {
        let left = kind.shell(Kind::repository(), command).await;
        wanted(&left).then(|| println!("chart: left is {left:?}"))
    })
    .await;
}
