//! From the release before to this one, back, and to this one again. Each finds what the other has left: the authority of the
//! certificates, answers in the shared cache, the record of images that failed.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use scenarios::{Cluster, Kind, Namespace, PodExt, pod, until};
use serde_json::{Value, json};

use super::releases::{NOW, rolled_out, version_before};
use crate::documentation::commands_of;

/// What one release leaves for the other.
struct Traces {
    /// Begin of the tags whose platforms it stores in the shared cache.
    stored: &'static str,
    /// Tag of the image that fails while it is installed.
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
/// How many tags are stored. On a busy machine the cache may answer too late for some, and the registry is asked.
const STORED: usize = 10;

/// The state that both releases share, as it was before the upgrade.
struct Upgrade<'c> {
    cluster: &'c Cluster,
    namespace: Namespace,
    ca_bundle: Value,
    /// Calls that had failed by TLS before the upgrade, as the API server logged them.
    tls_failures: BTreeSet<String>,
}

pub(super) async fn there_and_back(cluster: &Cluster, enable_test: &str) {
    let shell = async |command: &str| drop(cluster.kind().shell(Kind::repository(), command).await);
    let upgrade = Upgrade::begin(cluster).await;
    upgrade.leave(&OF_BEFORE).await;

    for command in commands_of("docs/upgrade.md") {
        shell(&command).await;
        upgrade.arrives(NOW, &[OF_BEFORE]).await;
    }
    upgrade.leave(&OF_NOW).await;

    shell("helm rollback tolerarch 1 --namespace tolerarch").await;
    upgrade
        .arrives(&version_before(), &[OF_BEFORE, OF_NOW])
        .await;

    shell(enable_test).await;
    upgrade.arrives(NOW, &[OF_BEFORE, OF_NOW]).await;
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

    async fn leave(&self, traces: &Traces) {
        let kind = self.cluster.kind();
        for tag in stored(traces) {
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
        // What the container writes is evidence for its namespace.
        failing["spec"]["containers"][0]["terminationMessagePolicy"] =
            "FallbackToLogsOnError".into();
        self.namespace.pod(&failing).await;
        self.until_kept_closed(traces).await;
        // Without the Pod the controller cannot record the failure a second time.
        let at_once = DeleteParams::default().grace_period(0);
        self.namespace.pods().delete(name, &at_once).await.unwrap();
    }

    /// Waits for a release, and looks for what was left to it.
    async fn arrives(&self, version: &str, left: &[Traces]) {
        rolled_out(self.cluster, version).await;
        assert_eq!(ca_bundle(self.cluster).await, self.ca_bundle);
        for traces in left {
            let answered = self.answered_by_the_cache(traces).await;
            print!(
                "chart: {version} finds {answered} of {STORED} {}; ",
                traces.stored
            );
            assert!(answered > 0, "the registry was asked");
            self.until_kept_closed(traces).await;
        }
    }

    async fn answered_by_the_cache(&self, traces: &Traces) -> usize {
        let mut answered = 0;
        for tag in stored(traces) {
            // Who asks the registry finds one platform only.
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

    /// Waits until an image is kept from the pool as it has failed. A replica may get Pods before it has read the record.
    async fn until_kept_closed(&self, traces: &Traces) {
        let image = self.cluster.images.program(traces.failing);
        until(&format!("{image} is kept closed"), async || {
            let created = self.dry_run(&image).await;
            reason(&created).starts_with("failed-there").then_some(())
        })
        .await;
    }

    async fn dry_run(&self, image: &str) -> Pod {
        self.namespace.dry_run(&pod(&[image])).await.unwrap()
    }
}

/// The tags that one release has stored.
fn stored(traces: &Traces) -> impl Iterator<Item = String> {
    (0..STORED).map(|number| format!("{}-{number}", traces.stored))
}

async fn ca_bundle(cluster: &Cluster) -> Value {
    cluster.shipped_webhook().await["clientConfig"]["caBundle"].clone()
}

/// What the API server has logged of calls that failed by a certificate.
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

/// Why a Pod was left unchanged, and nothing where it was not.
fn reason(pod: &Pod) -> &str {
    let annotations = pod.metadata.annotations.as_ref();
    let reason = annotations.and_then(|annotations| annotations.get("tolerarch.io/reason"));
    reason.map_or("", String::as_str)
}
