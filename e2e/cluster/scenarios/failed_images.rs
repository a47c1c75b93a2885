//! What failed once on an architecture is not made to fail there again, and no tenant makes that up for others.

use std::path::PathBuf;

use e2e::{Cluster, Namespace, PodExt, pod, until};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{EvictParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use testregistry::Registry;
use tokio::time::Instant;

use crate::certificates::{RELEASE, kubeconfig_of};
use crate::controller::{client_of, give_rights};

const SAYS: &str = "failed to start container \"app\": exec /app: exec format error: unknown";

pub(crate) async fn what_failed_on_an_architecture_is_kept_from_it_and_no_tenant_closes_what_others_run(
    cluster: &Cluster,
) {
    let local = cluster.local();
    let registry = Registry::builder().pki(local.pki.clone()).start().await;
    let repo = registry.repo("app");
    let tags = [
        ("lies", "linux/s390x"),
        ("other", "linux/ppc64le"),
        ("victim", "linux/riscv64"),
        ("heals", "linux/mips64le"),
    ];
    for (tag, more) in tags {
        repo.index(Some(tag), ["linux/amd64", "linux/arm64", more]);
    }
    let address = registry.address();
    let home = cluster.namespace_opted_out("learns").await;
    let controller = give_rights(cluster, &home).await;
    home.apply(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": RELEASE}})).await;
    let account = kubeconfig_of(cluster, &home, RELEASE).await;
    let lease = format!("{RELEASE}-controller");
    let settings = json!({"server": {"failedImages": true}, "controller": {"lease": lease}});
    let mut webhook = local.tolerarch_for_as(&address, &account, settings.clone()).await;
    let team = cluster.namespace_with("learned", &webhook.url).await;
    let tenant = cluster.namespace_with("forging", &webhook.url).await;
    for namespace in [&team, &tenant] {
        cluster.until_called_in_vain(namespace).await;
        namespace.offer(0, 10).await;
        // They have opted out of the installed webhook.
        let opted_in = json!({"metadata": {"labels": {"tolerarch.io/mode": null}}});
        let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(cluster.client.clone());
        namespaces.patch(&namespace.name, &PatchParams::default(), &Patch::Merge(opted_in)).await.unwrap();
    }
    let settings =
        json!({"controller": {"lease": lease, "repair": false, "census": "0", "evictFailed": true}});
    let leader = local.controller_as(&controller, &address, settings).await;

    let digest = |tag: &str| repo.digest_of(tag).unwrap();
    let named = |namespace: &Namespace, name: &str, tag: &str| {
        let mut pod = namespace.takes_a_place(&pod(&[&repo.reference(tag)]));
        pod["metadata"] = json!({"name": name});
        pod
    };
    let is_tolerated = async |namespace: &Namespace, tag: &str| {
        namespace.dry_run(&named(namespace, "next", tag)).await.unwrap().tolerates_pool()
    };
    let runtime = json!({"exitCode": 128, "reason": "StartError", "message": SAYS});
    let own = json!({"exitCode": 255, "reason": "Error", "message": "exec /app: exec format error"});

    // A tenant's own word, and a program of its own choice, with an image that others run.
    for (name, command, ended) in [("written", None, &own), ("chosen", Some("/own"), &runtime)] {
        let mut forged = named(&tenant, name, "victim");
        forged["spec"]["containers"][0]["command"] = command.map(|own| json!([own])).into();
        tenant.pod(&forged).await;
        fails(&tenant, name, &digest("victim"), ended).await;
    }
    until("the tenant has closed its own pool", async || {
        (!is_tolerated(&tenant, "victim").await).then_some(())
    })
    .await;
    assert!(is_tolerated(&team, "victim").await, "and no other");

    assert!(team.pod(&named(&team, "lies", "lies")).await.tolerates_pool());
    fails(&team, "lies", &digest("lies"), &runtime).await;
    let failed = Instant::now();
    until("what failed is kept from where it did", async || {
        (!is_tolerated(&team, "lies").await).then_some(())
    })
    .await;
    print!("failed images: learned in {:.1?}; ", failed.elapsed());
    assert!(!is_tolerated(&tenant, "lies").await, "in all namespaces");
    assert!(is_tolerated(&team, "other").await, "of another digest");
    assert!(is_tolerated(&team, "victim").await);
    assert_eq!(webhook.metric("tolerarch_failed_images").await, 2);
    assert!(webhook.process.log().contains(r#""reason":"failed-there""#), "{}", webhook.process.log());
    assert!(
        team.pods().get("lies").await.unwrap().metadata.deletion_timestamp.is_none(),
        "nobody replaces it"
    );

    // The Pod of a workload is evicted, and the next one stays away.
    evictions_are_allowed(&team, &home, &controller).await;
    let template = named(&team, "heals", "heals");
    let template = json!({"metadata": {"labels": {"app": "heals"}}, "spec": template["spec"]});
    let selector = json!({"matchLabels": {"app": "heals"}});
    team.apply(&json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "heals"},
        "spec": {"replicas": 1, "selector": selector, "template": template},
    }))
    .await;
    let first = team.until_pods("heals", 1, Pod::tolerates_pool).await.remove(0);
    let first = first.metadata.name.unwrap();
    fails(&team, &first, &digest("heals"), &runtime).await;
    let replaced = until("a Pod is evicted and replaced", async || {
        let pods = team.pods().list(&ListParams::default().labels("app=heals")).await.ok()?.items;
        let is_gone = pods.iter().all(|pod| {
            pod.metadata.name.as_ref() != Some(&first) || pod.metadata.deletion_timestamp.is_some()
        });
        pods.into_iter().find(|pod| is_gone && pod.metadata.name.as_ref() != Some(&first))
    })
    .await;
    assert!(!replaced.tolerates_pool(), "{replaced:?}");
    assert_eq!(leader.metric(r#"tolerarch_controller_evictions_total{result="evicted"}"#).await, 1);

    // It outlives them both.
    drop(leader);
    webhook.process.kill().await;
    webhook.start_again().await;
    until("the record is read again", async || {
        (webhook.metric("tolerarch_failed_images").await == 3).then_some(())
    })
    .await;
    assert!(!is_tolerated(&team, "lies").await && is_tolerated(&team, "other").await);

    // The webhook, which untrusted input reaches, may read the one object.
    let client = client_of(&account).await;
    let maps = format!("/api/v1/namespaces/{}/configmaps", home.name);
    let record = format!("{maps}/{lease}-failed-images");
    let ask = async |method: &str, path: &str| {
        let request = http::Request::builder().method(method).uri(path);
        let request = request.header("content-type", "application/merge-patch+json").body(b"{}".to_vec());
        match client.request::<Value>(request.unwrap()).await {
            Ok(_) => 200,
            Err(kube::Error::Api(status)) => status.code,
            Err(error) => panic!("{method} {path}: {error}"),
        }
    };
    assert_eq!(ask("GET", &record).await, 200);
    for (method, path) in [("PATCH", &record), ("DELETE", &record), ("GET", &maps)] {
        assert_eq!(ask(method, path).await, 403, "{method} {path}");
    }
    // Where people delete it, all is forgotten.
    let request = http::Request::delete(&record).body(Vec::new()).unwrap();
    cluster.client.request::<Value>(request).await.unwrap();
    until("what was deleted is forgotten", async || is_tolerated(&team, "lies").await.then_some(())).await;
}

/// Gives the controller the right that the chart gives with `controller.evictFailed`, and shows how a disruption budget
/// answers, by which an eviction is held back.
async fn evictions_are_allowed(team: &Namespace, home: &Namespace, controller: &PathBuf) {
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
    team.pods().patch_status("held", &PatchParams::default(), &Patch::Merge(running)).await.unwrap();
    let pods = Api::<Pod>::namespaced(client_of(controller).await, &team.name);
    match pods.evict("held", &EvictParams::default()).await {
        Err(kube::Error::Api(status)) => assert_eq!(status.code, 429, "{status:?}"),
        other => panic!("not held back: {other:?}"),
    }
}

/// Plays the kubelet of a node on which the container of this Pod, with this image, ends like this.
async fn fails(namespace: &Namespace, pod: &str, digest: &str, ended: &Value) {
    let on_a_node = until(&format!("{pod} is on a node"), async || {
        namespace.pods().get(pod).await.ok().filter(|pod| pod.node().is_some())
    })
    .await;
    let container = &on_a_node.spec.as_ref().unwrap().containers[0].name;
    let mut ended = ended.clone();
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    ended["startedAt"] = now.clone().into();
    ended["finishedAt"] = now.into();
    let status = json!({"status": {"phase": "Running", "containerStatuses": [{
        "name": container, "image": "app", "imageID": format!("registry.test/app@{digest}"), "ready": false,
        "restartCount": 1, "state": {"terminated": ended},
    }]}});
    namespace.pods().patch_status(pod, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}
