//! Installed by Helm as the README says, from a registry that the kubelets pull from; tested, upgraded and taken away as the
//! docs print it. Comes last: tolerarch is gone afterwards.

use std::path::Path;

use e2e::{Cluster, Kind, until};

use crate::creations::{PATIENCE, Times, unchanged};
use crate::documentation::{NAME, commands_of};
use crate::node_files;
use crate::nodes::{HELD_UP, LONGEST, ROLLED_OUT, create_during};

/// What the images of an older release are called.
const OLDER: &str = "0.0.9";
/// Which objects there are of tolerarch, but for events, Pods, and the rights of other namespaces, which the docs leave to
/// those who gave them; the nodes bear its name, too.
const LEFT: &str = r#"kinds=$(kubectl api-resources --verbs=list --output name | grep -vE '^(events|pods$)' | paste -sd,)
    kubectl get "$kinds" --all-namespaces --ignore-not-found --output name |
        grep tolerarch | grep -vE 'tolerarch-e2e|/tolerarch-pull-secrets$' || true"#;
/// What is in its namespace, but for what Kubernetes puts there.
const WITHIN: &str = r#"kinds=$(kubectl api-resources --verbs=list --namespaced --output name | grep -v ^events | paste -sd,)
    kubectl get "$kinds" --namespace tolerarch --ignore-not-found --output name |
        grep -vE '^(configmap/kube-root-ca.crt|serviceaccount/default)$' || true"#;

pub(crate) async fn the_chart_is_installed_upgraded_and_taken_away_as_the_docs_print_it(
    cluster: &Cluster,
) {
    let kind = cluster.kind();
    let older = tempfile::tempdir().expect("a directory");
    an_older_release(kind, older.path()).await;
    node_files::write(cluster).await;

    // The other way to install it, and to take it away.
    let remove = format!("kubectl delete --kustomize '{}'", kind.overlay().display());
    let exchanged = async {
        kind.shell(older.path(), &remove).await;
        until_left(kind, LEFT, |left| left.is_empty()).await;
        install(cluster, older.path()).await;
    };
    let (creations, longest) = create_during(cluster, exchanged).await;
    assert!(Times::of(&creations).percentile(100) < LONGEST + longest);

    let chart = commands_of("manifests/helm/tolerarch/README.md");
    let [.., enable_test, test] = &chart[..] else {
        panic!("{chart:?}")
    };
    let upgraded = async {
        for command in commands_of("docs/upgrade.md") {
            kind.shell(Kind::repository(), &command).await;
            rolled_out(kind, env!("CARGO_PKG_VERSION")).await;
        }
        kind.shell(
            Kind::repository(),
            "helm rollback tolerarch --namespace tolerarch",
        )
        .await;
        rolled_out(kind, OLDER).await;
        kind.shell(Kind::repository(), enable_test).await;
        rolled_out(kind, env!("CARGO_PKG_VERSION")).await;
    };
    let (creations, longest) = create_during(cluster, upgraded).await;
    let unchanged = unchanged(&creations, longest, PATIENCE);
    assert!(unchanged <= HELD_UP, "{unchanged}");
    assert!(Times::of(&creations).percentile(100) < LONGEST + longest);

    let told = kind
        .shell(Kind::repository(), &format!("{test} --logs"))
        .await;
    assert!(told.contains("✓ dry-run"), "{told}");

    node_files::are_taken_over(cluster).await;
    node_files::take_away(cluster).await;

    let removed = async {
        for command in commands_of("docs/uninstall.md") {
            // What is about DaemonSets only reads.
            kind.shell(Kind::repository(), &command).await;
            if command.starts_with("helm uninstall") {
                let stays = |name: &str| name.starts_with("lease") || name == "pod/tolerarch-test";
                until_left(kind, WITHIN, |left| left.lines().all(stays)).await;
            }
        }
        until_left(kind, LEFT, |left| left.is_empty()).await;
    };
    let (creations, longest) = create_during(cluster, removed).await;
    assert!(Times::of(&creations).percentile(100) < LONGEST + longest);
}

/// `manifests/` as they were with another version, whose image is there as well as today's.
async fn an_older_release(kind: &Kind, directory: &Path) {
    let manifests = Kind::repository().join("manifests");
    let version = env!("CARGO_PKG_VERSION");
    let copy = format!(
        "cp -r '{}' . && sed -i '/ersion: /s/{version}/{OLDER}/' manifests/helm/tolerarch/Chart.yaml",
        manifests.display()
    );
    kind.shell(directory, &copy).await;
    for tag in [OLDER, version] {
        kind.push_tolerarch(tag).await;
    }
}

/// As the README says; the registry of the images is named as it is on the nodes.
async fn install(cluster: &Cluster, directory: &Path) {
    let readme = commands_of("README.md");
    let command = readme
        .iter()
        .find(|command| command.starts_with("helm install"))
        .expect("helm install");
    let command = command.replace(NAME, &cluster.images.registry);
    let values = format!(
        "{} --set controller.enabled=true",
        node_files::values(cluster.kind())
    );
    cluster
        .kind()
        .shell(directory, &format!("{command} {values}"))
        .await;
    rolled_out(cluster.kind(), OLDER).await;
}

/// Waits for the Pods of this version.
async fn rolled_out(kind: &Kind, version: &str) {
    kind.kubectl(&ROLLED_OUT).await;
    let image = [
        "--namespace",
        "tolerarch",
        "get",
        "deployment/tolerarch",
        "--output",
        "jsonpath={..image}",
    ];
    let image = kind.kubectl(&image).await;
    assert!(image.ends_with(&format!(":{version}")), "{image}");
}

/// Waits until what is left is as wanted.
async fn until_left(kind: &Kind, command: &str, wanted: impl Fn(&str) -> bool) {
    until("nothing is left but what the docs say", async || {
        let left = kind.shell(Kind::repository(), command).await;
        wanted(&left).then(|| println!("chart: left is {left:?}"))
    })
    .await;
}
