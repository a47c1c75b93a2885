//! An image that failed on an architecture is kept away from it, and a tenant cannot cause this for others. An owner that
//! deletes changed Pods gets unchanged ones.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams};
use scenarios::{Cluster, Namespace, PodExt, Tolerarch, pod, until};
use serde_json::{Value, json};
use testregistry::Registry;
use tokio::time::{Duration, Instant, interval};

use crate::certificates::{RELEASE, kubeconfig_of};
use crate::controller::{client_of, give_rights, until_on_a_node};

/// What gVisor reports if a container's own program fails.
const PROGRAM_FAILED: &str = "failed to start containerd task \"app\": OCI runtime start failed: starting container: starting sub-container [/app]: creating process: failed to load /app: exec format error: unknown";
/// What runc reports if a hook fails.
const HOOK_FAILED: &str = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: error running createContainer hook #0: fork/exec /usr/bin/nvidia-ctk: exec format error";
/// Keys of two nodes for arm64, which Pods select and tolerate. An extended resource would be another possible cause.
const NODES: [&str; 2] = ["e2e.test/first", "e2e.test/second"];
/// Tags of images for amd64, arm64 and one more platform, which makes their digests different.
const TAGS: [(&str, &str); 4] = [
    ("lies", "linux/s390x"),
    ("other", "linux/ppc64le"),
    ("victim", "linux/riscv64"),
    ("heals", "linux/mips64le"),
];

pub(crate) async fn failed_image_is_kept_away_and_tenants_affect_no_others(cluster: &Cluster) {
    let mut setup = Setup::start(cluster).await;
    setup.forged_failures_affect_only_their_namespace().await;
    setup.failing_hooks_prove_nothing().await;
    setup.failures_on_two_nodes_affect_all_namespaces().await;
    setup.nodes_show_their_failing_hook().await;
    setup.pod_of_a_workload_is_evicted_and_replaced().await;
    setup
        .owners_that_delete_changed_pods_get_unchanged_ones()
        .await;
    setup.record_survives_a_restart().await;
    setup.webhook_may_only_read_the_record().await;
    setup.deleted_record_is_forgotten().await;
}

/// A webhook that uses the record of failed images, and a leading controller that writes it.
struct Setup<'c> {
    cluster: &'c Cluster,
    registry: Registry,
    /// Where the controller's objects are.
    home: Namespace,
    team: Namespace,
    tenant: Namespace,
    webhook: Tolerarch,
    webhook_account: PathBuf,
    leader: Option<Tolerarch>,
    controller_account: PathBuf,
}

impl<'c> Setup<'c> {
    async fn start(cluster: &'c Cluster) -> Self {
        let local = cluster.local();
        let registry = Registry::builder().pki(local.pki.clone()).start().await;
        let repo = registry.repo("app");
        for (tag, more) in TAGS {
            repo.index(Some(tag), ["linux/amd64", "linux/arm64", more]);
        }
        let address = registry.address();
        let home = cluster.namespace_opted_out("learns").await;
        let controller_account = give_rights(cluster, &home).await;
        home.apply(
            &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": RELEASE}}),
        )
        .await;
        let webhook_account = kubeconfig_of(cluster, &home, RELEASE).await;
        let settings = json!({"server": {"failedImages": true}, "controller": {"lease": lease()}});
        let webhook = local
            .tolerarch_for_as(&address, &webhook_account, settings)
            .await;
        let team = cluster.namespace_with("learned", &webhook.url).await;
        let tenant = cluster.namespace_with("forging", &webhook.url).await;
        for namespace in [&team, &tenant] {
            cluster.until_called_without_effect(namespace).await;
            namespace.offer(0, 10).await;
            opt_in(cluster, namespace).await;
        }
        let settings = json!({"controller": {"lease": lease(), "repair": false, "census": "0", "evictFailed": true}});
        let leader = local
            .controller_as(&controller_account, &address, settings)
            .await;
        for (name, key) in [("first-arm64", NODES[0]), ("second-arm64", NODES[1])] {
            cluster.add_node_of("arm64", name, key).await;
        }
        Self {
            cluster,
            registry,
            home,
            team,
            tenant,
            webhook,
            webhook_account,
            leader: Some(leader),
            controller_account,
        }
    }

    fn digest(&self, tag: &str) -> String {
        self.registry.repo("app").digest_of(tag).unwrap()
    }

    fn reference(&self, tag: &str) -> String {
        self.registry.repo("app").reference(tag)
    }

    /// Returns a Pod that takes a place in the pool.
    fn named(&self, namespace: &Namespace, name: &str, tag: &str) -> Value {
        let mut pod = namespace.takes_a_place(&pod(&[&self.reference(tag)]));
        pod["metadata"] = json!({"name": name});
        pod
    }

    /// Returns a Pod that selects and tolerates one of the [`NODES`].
    fn on_node(&self, name: &str, tag: &str, key: &str) -> Value {
        let mut pod = pod(&[&self.reference(tag)]);
        pod["metadata"] = json!({"name": name});
        pod["spec"]["nodeSelector"] = json!({key: ""});
        pod["spec"]["tolerations"] = json!([{"key": key, "operator": "Exists"}]);
        pod
    }

    /// Whether the next Pod with this image gets the toleration.
    async fn is_tolerated(&self, namespace: &Namespace, tag: &str) -> bool {
        let next = self.named(namespace, "next", tag);
        namespace.dry_run(&next).await.unwrap().tolerates_pool()
    }

    /// A tenant writes a termination message, or chooses a program that fails, with an image that others run, on both
    /// nodes.
    async fn forged_failures_affect_only_their_namespace(&self) {
        let written =
            json!({"exitCode": 255, "reason": "Error", "message": "exec /app: exec format error"});
        for (index, key) in NODES.into_iter().enumerate() {
            for (name, command, ended) in [
                ("written", None, &written),
                ("chosen", Some("/own"), &by_the_program()),
            ] {
                let name = format!("{name}-{index}");
                let mut forged = self.on_node(&name, "victim", key);
                forged["spec"]["containers"][0]["command"] =
                    command.map(|program| json!([program])).into();
                self.tenant.pod(&forged).await;
                report_failure(&self.tenant, &name, &self.digest("victim"), ended).await;
            }
        }
        until("the tenant's Pods are kept away", async || {
            (!self.is_tolerated(&self.tenant, "victim").await).then_some(())
        })
        .await;
        let is_tolerated = self.is_tolerated(&self.team, "victim").await;
        assert!(is_tolerated, "no other namespace is affected");
    }

    /// Both nodes have a hook for another architecture.
    async fn failing_hooks_prove_nothing(&self) {
        let by_a_hook = json!({"exitCode": 128, "reason": "StartError", "message": HOOK_FAILED});
        for (name, key) in [("hooked-0", NODES[0]), ("hooked-1", NODES[1])] {
            let pod = self.on_node(name, "other", key);
            self.team.pod(&pod).await;
            report_failure(&self.team, name, &self.digest("other"), &by_a_hook).await;
        }
    }

    async fn failures_on_two_nodes_affect_all_namespaces(&self) {
        let digest = self.digest("lies");
        let lies = self.on_node("lies", "lies", NODES[0]);
        let created = self.team.pod(&lies).await;
        assert!(created.tolerates_pool());
        report_failure(&self.team, "lies", &digest, &by_the_program()).await;
        let failed = Instant::now();
        until("a failed image is kept away", async || {
            (!self.is_tolerated(&self.team, "lies").await).then_some(())
        })
        .await;
        print!("failed images: learned in {:.1?}; ", failed.elapsed());
        let is_tolerated = self.is_tolerated(&self.tenant, "lies").await;
        assert!(is_tolerated, "one node may be broken");

        let lies_again = self.on_node("lies-again", "lies", NODES[1]);
        self.team.pod(&lies_again).await;
        report_failure(&self.team, "lies-again", &digest, &by_the_program()).await;
        until(
            "what failed on two nodes is kept away in all namespaces",
            async || (!self.is_tolerated(&self.tenant, "lies").await).then_some(()),
        )
        .await;
    }

    async fn nodes_show_their_failing_hook(&self) {
        let events = Api::<Event>::namespaced(self.cluster.client.clone(), "default");
        until("both nodes show the hook", async || {
            let events = events.list(&ListParams::default()).await.ok()?.items;
            let on_nodes = events
                .iter()
                .filter(|event| event.reason.as_deref() == Some("NodeProgramFailed"));
            (on_nodes.count() == 2).then_some(())
        })
        .await;
        let is_tolerated = self.is_tolerated(&self.team, "other").await;
        assert!(is_tolerated, "another digest");
        assert!(self.is_tolerated(&self.team, "victim").await);
        assert_eq!(self.webhook.metric("tolerarch_failed_images").await, 2);
        let log = self.webhook.process.log();
        assert!(log.contains(r#""reason":"failed-there""#), "{log}");
        let lies = self.team.pods().get("lies").await.unwrap();
        let deletion = lies.metadata.deletion_timestamp;
        assert!(deletion.is_none(), "a Pod without an owner is not evicted");
    }

    async fn pod_of_a_workload_is_evicted_and_replaced(&self) {
        let team = &self.team;
        allow_evictions(team, &self.home, &self.controller_account).await;
        let template = self.named(team, "heals", "heals");
        let template = json!({"metadata": {"labels": {"app": "heals"}}, "spec": template["spec"]});
        let selector = json!({"matchLabels": {"app": "heals"}});
        team.apply(&json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "heals"},
            "spec": {"replicas": 1, "selector": selector, "template": template},
        }))
        .await;
        let mut pods = team.until_pods("heals", 1, Pod::tolerates_pool).await;
        let first = pods.remove(0).metadata.name.unwrap();
        report_failure(team, &first, &self.digest("heals"), &by_the_program()).await;
        let labelled = ListParams::default().labels("app=heals");
        let replacement = until("a Pod is evicted and replaced", async || {
            let mut replacement = None;
            for pod in team.pods().list(&labelled).await.ok()?.items {
                let is_first = pod.metadata.name.as_ref() == Some(&first);
                if !is_first {
                    replacement = Some(pod);
                } else if pod.metadata.deletion_timestamp.is_none() {
                    return None;
                }
            }
            replacement
        })
        .await;
        assert!(!replacement.tolerates_pool(), "{replacement:?}");
        let evicted = r#"tolerarch_controller_evictions_total{result="evicted"}"#;
        let leader = self.leader.as_ref().unwrap();
        assert_eq!(leader.metric(evicted).await, 1);
    }

    async fn owners_that_delete_changed_pods_get_unchanged_ones(&self) {
        let team = &self.team;
        define_brokers(self.cluster).await;
        let settle = async |name: &str, scheduler: &str| {
            let mut owned = self.named(team, name, "other");
            owned["spec"]["schedulerName"] = scheduler.into();
            until_operator_settles(team, owned).await
        };
        let created = tokio::join!(
            settle("without-a-node", "nobody"),
            settle("on-a-node", "default-scheduler")
        );
        let created = <[usize; 2]>::from(created);
        print!("operators: settled after {created:?} Pods; ");
        for count in created {
            assert!((6..=8).contains(&count), "{created:?}");
        }
        let is_tolerated = self.is_tolerated(team, "other").await;
        assert!(is_tolerated, "Pods of other owners are not affected");
        until("two owners are recorded", async || {
            let owners = self.webhook.metric("tolerarch_recreating_owners").await;
            (owners == 2).then_some(())
        })
        .await;
        let events = Api::<Event>::namespaced(self.cluster.client.clone(), &team.name);
        until("both owners have an event", async || {
            let events = events.list(&ListParams::default()).await.ok()?.items;
            let of_owners = events.iter().filter(|event| is_about_a_broker(event));
            (of_owners.count() == 2).then_some(())
        })
        .await;
    }

    async fn record_survives_a_restart(&mut self) {
        self.leader = None;
        self.webhook.process.kill().await;
        self.webhook.start_again().await;
        until("the record is read again", async || {
            let images = self.webhook.metric("tolerarch_failed_images").await;
            (images == 3).then_some(())
        })
        .await;
        assert!(!self.is_tolerated(&self.team, "lies").await);
        assert!(self.is_tolerated(&self.team, "other").await);
    }

    /// The paths of all ConfigMaps of the controller's namespace, and of the record.
    fn record_paths(&self) -> (String, String) {
        let maps = format!("/api/v1/namespaces/{}/configmaps", self.home.name);
        let record = format!("{maps}/{}-failed-images", lease());
        (maps, record)
    }

    /// The webhook, which untrusted input reaches, has rights for this one object.
    async fn webhook_may_only_read_the_record(&self) {
        let client = client_of(&self.webhook_account).await;
        let (maps, record) = self.record_paths();
        let status_of = async |method: &str, path: &str| {
            let request = http::Request::builder().method(method).uri(path);
            let request = request
                .header("content-type", "application/merge-patch+json")
                .body(b"{}".to_vec());
            match client.request::<Value>(request.unwrap()).await {
                Ok(_) => 200,
                Err(kube::Error::Api(status)) => status.code,
                Err(error) => panic!("{method} {path}: {error}"),
            }
        };
        assert_eq!(status_of("GET", &record).await, 200);
        for (method, path) in [("PATCH", &record), ("DELETE", &record), ("GET", &maps)] {
            assert_eq!(status_of(method, path).await, 403, "{method} {path}");
        }
    }

    async fn deleted_record_is_forgotten(&self) {
        let (_, record) = self.record_paths();
        let request = http::Request::delete(&record).body(Vec::new()).unwrap();
        self.cluster.client.request::<Value>(request).await.unwrap();
        until("the failed image is forgotten", async || {
            self.is_tolerated(&self.team, "lies").await.then_some(())
        })
        .await;
    }
}

fn lease() -> String {
    format!("{RELEASE}-controller")
}

/// The end of a container whose program is for another architecture, as the runtime reports it.
fn by_the_program() -> Value {
    json!({"exitCode": 128, "reason": "StartError", "message": PROGRAM_FAILED})
}

fn is_about_a_broker(event: &Event) -> bool {
    let kind = event
        .regarding
        .as_ref()
        .and_then(|object| object.kind.as_deref());
    event.reason.as_deref() == Some("OwnerRecreates") && kind == Some("Broker")
}

/// Opts a namespace in that has opted out of the installed webhook.
async fn opt_in(cluster: &Cluster, namespace: &Namespace) {
    let opted_in = json!({"metadata": {"labels": {"tolerarch.io/mode": null}}});
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(cluster.client.clone());
    namespaces
        .patch(
            &namespace.name,
            &PatchParams::default(),
            &Patch::Merge(opted_in),
        )
        .await
        .unwrap();
}

/// Defines a kind whose objects own Pods.
pub(crate) async fn define_brokers(cluster: &Cluster) {
    let version = json!({
        "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
    });
    let name = "brokers.e2e.test";
    let kind = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
        "spec": {
            "group": "e2e.test", "scope": "Namespaced", "names": {"plural": "brokers", "kind": "Broker"},
            "versions": [version],
        },
    });
    let kinds = Api::<CustomResourceDefinition>::all(cluster.client.clone());
    kinds
        .patch(
            name,
            &PatchParams::apply("e2e").force(),
            &Patch::Apply(&kind),
        )
        .await
        .unwrap();
    until("the kind is served", async || {
        let conditions = kinds.get(name).await.ok()?.status?.conditions?;
        conditions
            .iter()
            .any(|condition| condition.type_ == "Established" && condition.status == "True")
            .then_some(())
    })
    .await;
}

/// Acts as an operator that once a second deletes its Pod if tolerarch has changed it, and creates it again. Returns how
/// many Pods it created until one stayed unchanged.
async fn until_operator_settles(team: &Namespace, mut owned: Value) -> usize {
    let name = owned["metadata"]["name"].as_str().unwrap().to_owned();
    let broker = json!({"apiVersion": "e2e.test/v1", "kind": "Broker", "metadata": {"name": name}});
    let uid = team.apply(&broker).await.metadata.uid;
    owned["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "e2e.test/v1", "kind": "Broker", "name": name, "uid": uid, "controller": true,
    }]);
    // No kubelet ends the Pods.
    let at_once = DeleteParams::default().grace_period(0);
    let mut turns = interval(Duration::from_secs(1));
    let mut created = 0;
    loop {
        turns.tick().await;
        match team.pods().get_opt(&name).await.unwrap() {
            None => {
                team.pod(&owned).await;
                created += 1;
            }
            Some(pod) if pod.tolerates_pool() => {
                team.pods().delete(&name, &at_once).await.unwrap();
                assert!(created < 20, "it does not settle");
            }
            Some(_) => return created,
        }
    }
}

/// Gives the controller the right that the chart gives with `controller.evictFailed`. Asserts that a disruption budget
/// refuses an eviction.
async fn allow_evictions(team: &Namespace, home: &Namespace, controller_account: &PathBuf) {
    let account = format!("{RELEASE}-controller");
    let subject = json!({"kind": "ServiceAccount", "name": account, "namespace": home.name});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "evicts"});
    let rule = json!({"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]});
    let api = "rbac.authorization.k8s.io/v1";
    for object in [
        json!({"apiVersion": api, "kind": "Role", "metadata": {"name": "evicts"}, "rules": [rule]}),
        json!({
            "apiVersion": api, "kind": "RoleBinding", "metadata": {"name": "evicts"}, "roleRef": role,
            "subjects": [subject],
        }),
        json!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "held"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "held"}}},
        }),
    ] {
        team.apply(&object).await;
    }
    let mut held = team.takes_a_place(&pod(&["registry.test/held"]));
    held["metadata"] = json!({"name": "held", "labels": {"app": "held"}});
    team.pod(&held).await;
    let running = json!({"status": {"phase": "Running"}});
    team.pods()
        .patch_status("held", &PatchParams::default(), &Patch::Merge(running))
        .await
        .unwrap();
    let pods = Api::<Pod>::namespaced(client_of(controller_account).await, &team.name);
    match pods.evict("held", &EvictParams::default()).await {
        Err(kube::Error::Api(status)) => assert_eq!(status.code, 429, "{status:?}"),
        other => panic!("not refused: {other:?}"),
    }
}

/// Writes the status that a kubelet reports if the container of a Pod, with this image, has ended like this.
async fn report_failure(namespace: &Namespace, pod: &str, digest: &str, ended: &Value) {
    let on_a_node = until_on_a_node(namespace, pod).await;
    let container = &on_a_node.spec.as_ref().unwrap().containers[0].name;
    let mut ended = ended.clone();
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    ended["startedAt"] = now.clone().into();
    ended["finishedAt"] = now.into();
    let status = json!({"status": {"phase": "Running", "containerStatuses": [{
        "name": container, "image": "app", "imageID": format!("registry.test/app@{digest}"), "ready": false,
        "restartCount": 1, "state": {"terminated": ended},
    }]}});
    namespace
        .pods()
        .patch_status(pod, &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
}
