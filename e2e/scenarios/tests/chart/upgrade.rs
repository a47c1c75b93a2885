//! Upgrades from the previous release to this one, rolls back, and upgrades again. Each release uses what the other has
//! left: the authority of the certificates, answers in the shared cache, and the record of failed images.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use scenarios::{Cluster, Kind, Namespace, PodExt, pod, until};
use serde_json::{Value, json};

use super::releases::{NOW, rolled_out, version_before};
use crate::documentation::commands_of;

/// What a release leaves for the other.
struct Traces {
    /// The prefix of the tags whose platforms the release stores in the shared cache.
    stored: &'static str,
    /// The tag of the image that fails while the release is installed.
    failing: &'static str,
}

const OF_BEFORE: Traces = Traces {
    stored: "stored-before",
    failing: "lies",
};
const OF_NOW: Traces = Traces {
    stored: "stored-now",
    failing: "lies-too",
};
/// How many tags are stored. On a busy machine the cache may answer too late for some, and the registry is used.
const STORED: usize = 10;

/// The state before the upgrade that both releases share.
struct Upgrade<'c> {
    cluster: &'c Cluster,
    namespace: Namespace,
    ca_bundle: Value,
    /// The API server's log lines of calls that failed by TLS before the upgrade.
    tls_failures: BTreeSet<String>,
}

pub(super) async fn upgrade_and_roll_back(cluster: &Cluster, enable_test: &str) {
    let shell = async |command: &str| drop(cluster.kind().shell(Kind::repository(), command).await);
    let upgrade = Upgrade::begin(cluster).await;
    upgrade.leave_traces(&OF_BEFORE).await;

    for command in commands_of("docs/upgrade.md") {
        shell(&command).await;
        upgrade.until_installed(NOW, &[OF_BEFORE]).await;
    }
    upgrade.leave_traces(&OF_NOW).await;

    shell("helm rollback tolerarch 1 --namespace tolerarch").await;
    upgrade
        .until_installed(&version_before(), &[OF_BEFORE, OF_NOW])
        .await;

    shell(enable_test).await;
    upgrade.until_installed(NOW, &[OF_BEFORE, OF_NOW]).await;
    assert_eq!(tls_failures(cluster.kind()).await, upgrade.tls_failures);
}

impl<'c> Upgrade<'c> {
    async fn begin(cluster: &'c Cluster) -> Self {
        let namespace = cluster.namespace("upgraded").await;
        cluster.until_called(&namespace).await;
        Self {
            cluster,
            namespace,
            ca_bundle: ca_bundle(cluster).await,
            tls_failures: tls_failures(cluster.kind()).await,
        }
    }

    /// Stores answers in the shared cache, and lets an image fail.
    async fn leave_traces(&self, traces: &Traces) {
        let kind = self.cluster.kind();
        for tag in stored_tags(traces) {
            kind.push_index(&tag, &["linux/amd64", "linux/arm64"]).await;
            let image = self.cluster.images.tag(&tag);
            until(&format!("{tag} is looked up"), async || {
                let created = self.dry_run(&image).await;
                created.tolerates_pool().then_some(())
            })
            .await;
        }
        let name = traces.failing;
        let mut failing = pod(&[&self.cluster.images.program(name)]);
        failing["metadata"] = json!({"name": name});
        failing["spec"]["nodeSelector"] = json!({"e2e.tolerarch.io/node": "plain"});
        // The container's output is evidence for its namespace.
        failing["spec"]["containers"][0]["terminationMessagePolicy"] =
            "FallbackToLogsOnError".into();
        self.namespace.pod(&failing).await;
        self.until_kept_away(traces).await;
        // Without the Pod the controller cannot record the failure a second time.
        let at_once = DeleteParams::default().grace_period(0);
        self.namespace.pods().delete(name, &at_once).await.unwrap();
    }

    /// Waits until a release is installed, and checks that it uses these traces.
    async fn until_installed(&self, version: &str, left: &[Traces]) {
        rolled_out(self.cluster, version).await;
        assert_eq!(ca_bundle(self.cluster).await, self.ca_bundle);
        for traces in left {
            let answered = self.answered_by_the_cache(traces).await;
            print!(
                "chart: {version} finds {answered} of {STORED} {}; ",
                traces.stored
            );
            assert!(answered > 0, "all answers came from the registry");
            self.until_kept_away(traces).await;
        }
    }

    async fn answered_by_the_cache(&self, traces: &Traces) -> usize {
        let mut answered = 0;
        for tag in stored_tags(traces) {
            // The registry now has only one platform.
            let one = ["linux/amd64"];
            self.cluster.kind().push_index(&tag, &one).await;
            let created = self.dry_run(&self.cluster.images.tag(&tag)).await;
            if created.tolerates_pool() {
                answered += 1;
            } else {
                print!("chart: {}; ", reason(&created));
            }
        }
        answered
    }

    /// Waits until a failed image is kept out of the pool. A replica may decide Pods before it has read the record.
    async fn until_kept_away(&self, traces: &Traces) {
        let image = self.cluster.images.program(traces.failing);
        until(&format!("{image} is kept away"), async || {
            let created = self.dry_run(&image).await;
            reason(&created).starts_with("failed-there").then_some(())
        })
        .await;
    }

    async fn dry_run(&self, image: &str) -> Pod {
        self.namespace.dry_run(&pod(&[image])).await.unwrap()
    }
}

/// Returns the tags whose platforms a release has stored.
fn stored_tags(traces: &Traces) -> impl Iterator<Item = String> {
    (0..STORED).map(|number| format!("{}-{number}", traces.stored))
}

async fn ca_bundle(cluster: &Cluster) -> Value {
    cluster.shipped_webhook().await["clientConfig"]["caBundle"].clone()
}

/// Returns the API server's log lines of calls that failed by TLS.
async fn tls_failures(kind: &Kind) -> BTreeSet<String> {
    let logs = [
        "--namespace",
        "kube-system",
        "logs",
        "--selector=component=kube-apiserver",
        "--tail=-1",
    ];
    let mut failures = BTreeSet::new();
    for line in kind.kubectl(&logs).await.lines() {
        let is_by_tls = line.contains("tls:") || line.contains("x509:");
        if line.contains("failed calling webhook") && is_by_tls {
            failures.insert(line.to_owned());
        }
    }
    failures
}

/// Returns the reason for which a Pod stayed unchanged, or an empty text.
fn reason(pod: &Pod) -> &str {
    let annotations = pod.metadata.annotations.as_ref();
    let reason = annotations.and_then(|annotations| annotations.get("tolerarch.io/reason"));
    reason.map_or("", String::as_str)
}
