//! A tenant cannot affect the Pods of others, whatever Pods the API server accepts from it.

use kube::api::{Patch, PatchParams};
use scenarios::{Cluster, Namespace, PodExt, pod, until};
use serde_json::{Value, json};
use testregistry::Registry;

use crate::certificates::RELEASE;
use crate::controller::give_rights;

/// Nested levels of managed fields, more than JSON readers usually allow.
const LEVELS: usize = 200;
/// How many large Pods there are.
const LARGE: usize = 6;
/// Entries of a large Pod, as many as etcd's limit allows.
const ENTRIES: usize = 200_000;
/// The maximum memory of the controller in MiB, even as a debug build.
const MEMORY: usize = 128;

pub(crate) async fn large_and_deep_pods_do_not_affect_other_pods(cluster: &Cluster) {
    let local = cluster.local();
    let registry = Registry::builder().pki(local.pki.clone()).start().await;
    let repo = registry.repo("app");
    repo.index(Some("v1"), ["linux/amd64", "linux/arm64"]);
    let address = registry.address();
    let webhook = local.tolerarch_for(&address, json!({})).await;
    let namespace = cluster.namespace_with("hostile", &webhook.url).await;
    cluster.until_called_without_effect(&namespace).await;
    namespace.offer(0, 0).await;
    let tenant = Tenant {
        cluster,
        namespace,
        image: repo.reference("v1"),
    };
    tenant.create_hostile_pods().await;
    tenant.create_before_the_webhook("victim").await;
    let namespace = &tenant.namespace;
    namespace
        .until_pods("victim", 1, PodExt::is_unschedulable)
        .await;

    tenant.controller_repairs_the_other_pods(&address).await;
    tenant.warm_start_reads_running_pods().await;
    tenant.report_counts_every_pod().await;
    let all = http::Request::delete(tenant.pods_path());
    tenant.send(all.body(Vec::new()).unwrap()).await;
}

/// The namespace of a tenant that creates hostile Pods.
struct Tenant<'c> {
    cluster: &'c Cluster,
    namespace: Namespace,
    image: String,
}

impl Tenant<'_> {
    fn pods_path(&self) -> String {
        format!("/api/v1/namespaces/{}/pods", self.namespace.name)
    }

    /// Sends a request without decoding the answer, which the typed client cannot do for all of these Pods.
    async fn send(&self, request: http::Request<Vec<u8>>) -> String {
        self.cluster.client.request_text(request).await.unwrap()
    }

    async fn create(&self, pod: String) -> String {
        let request =
            http::Request::post(self.pods_path()).header("content-type", "application/json");
        self.send(request.body(pod.into_bytes()).unwrap()).await
    }

    fn named(&self, name: &str) -> Value {
        let mut pod = self.namespace.takes_a_place(&pod(&[&self.image]));
        pod["metadata"] = json!({"name": name, "labels": {"app": "hostile"}});
        pod
    }

    /// Creates a deep Pod, large ones, and one whose text needs escapes.
    async fn create_hostile_pods(&self) {
        let fields = format!("{}{{}}{}", r#"{"f:a":"#.repeat(LEVELS), "}".repeat(LEVELS));
        let mut deep = self.named("deep");
        deep["metadata"]["managedFields"] = json!([{
            "manager": "tenant", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": "FIELDS",
        }]);
        let deep = deep.to_string().replace(r#""FIELDS""#, &fields);
        let stored = self.create(deep).await;
        let all_levels = r#"{"f:a":"#.repeat(LEVELS);
        assert!(
            stored.contains(&all_levels),
            "the API server stores all levels"
        );
        let entries = vec![r#"{"name":"a"}"#; ENTRIES].join(",");
        for index in 0..LARGE {
            let mut large = self.named(&format!("large-{index}"));
            large["spec"]["containers"][0]["env"] = "ENTRIES".into();
            let large = large
                .to_string()
                .replace(r#""ENTRIES""#, &format!("[{entries}]"));
            self.create(large).await;
        }
        let mut escaped = self.named("escaped");
        escaped["spec"]["containers"][0]["args"] = json!(["<".repeat(1_400_000)]);
        self.create(escaped.to_string()).await;
    }

    /// Creates a Pod without tolerarch, as before an installation, and opts it in afterwards.
    async fn create_before_the_webhook(&self, name: &str) {
        let mut pod = self.named(name);
        pod["metadata"]["labels"] = json!({"app": name, "tolerarch.io/mode": "off"});
        self.namespace.pod(&pod).await;
        self.set_labels(name, &json!({"tolerarch.io/mode": null}))
            .await;
    }

    async fn set_labels(&self, name: &str, labels: &Value) {
        let patch = json!({"metadata": {"labels": labels}});
        self.namespace
            .pods()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    async fn controller_repairs_the_other_pods(&self, registry: &str) {
        let namespace = &self.namespace;
        let account = give_rights(self.cluster, namespace).await;
        let settings = json!({"controller": {
            "webhookConfigurations": [self.cluster.configuration_of(namespace)],
            "lease": format!("{RELEASE}-controller"),
        }});
        let local = self.cluster.local();
        let controller = local.controller_as(&account, registry, settings).await;
        namespace
            .until_pods("victim", 1, PodExt::tolerates_pool)
            .await;
        until("the census has counted", async || {
            let counted = controller
                .metric_if_any(r#"tolerarch_cluster_workloads{support="all"}"#)
                .await?;
            (counted > LARGE).then_some(())
        })
        .await;
        let at_start = controller.process.peak_memory();
        // The watch delivers each changed Pod as a whole.
        for index in 0..LARGE {
            self.set_labels(&format!("large-{index}"), &json!({"changed": "true"}))
                .await;
        }
        self.create_before_the_webhook("next").await;
        namespace
            .until_pods("next", 1, PodExt::tolerates_pool)
            .await;
        let peak = controller.process.peak_memory();
        print!("controller: {at_start} MiB after its start, {peak} MiB after the watch; ");
        assert!(peak < MEMORY, "{peak} MiB");
        let unread = r#"tolerarch_cluster_unread_objects_total{resource="pods"}"#;
        assert_eq!(controller.metric(unread).await, 0);
    }

    async fn warm_start_reads_running_pods(&self) {
        for name in ["deep", "large-0", "escaped"] {
            let request = http::Request::patch(format!("{}/{name}/status", self.pods_path()));
            let request = request.header("content-type", "application/merge-patch+json");
            let running = json!({"status": {"phase": "Running"}}).to_string();
            self.send(request.body(running.into_bytes()).unwrap()).await;
        }
        let local = self.cluster.local();
        let warm = json!({"cache": {"warm": {"fromPods": true}}});
        let warmed = local.tolerarch_as(local.kubeconfig(), warm).await;
        until("the images of running Pods are looked up", async || {
            let log = warmed.process.log();
            log.contains("looked up the images of running Pods")
                .then_some(())
        })
        .await;
    }

    async fn report_counts_every_pod(&self) {
        let arguments = ["report", "-n", &self.namespace.name, "-o", "json"];
        let (status, output) = self.cluster.local().run_tolerarch(&arguments).await;
        assert_eq!(status, 0, "{output}");
        let report: Value = serde_json::from_str(&output).unwrap();
        let mut counted = 0;
        for support in ["all", "partial", "unknown", "skipped"] {
            let pods = &report["totals"][support]["pods"];
            counted += pods.as_u64().unwrap_or_default();
        }
        assert_eq!(counted, LARGE as u64 + 4, "{:#}", report["totals"]);
    }
}
