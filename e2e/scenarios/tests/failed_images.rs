//! What failed once on an architecture is not made to fail there again, and no tenant makes that up for others. An owner
//! that deletes changed Pods gets unchanged ones.

use std::path::PathBuf;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams};
use scenarios::{Cluster, Namespace, PodExt, pod, until};
use serde_json::{Value, json};
use testregistry::Registry;
use tokio::time::{Duration, Instant, interval};

use crate::certificates::{RELEASE, kubeconfig_of};
use crate::controller::{client_of, give_rights};

/// What gVisor says of a container's own program, and runc of a hook.
const OWN: &str = "failed to start containerd task \"app\": OCI runtime start failed: starting container: starting sub-container [/app]: creating process: failed to load /app: exec format error: unknown";
const HOOK: &str = "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: error running createContainer hook #0: fork/exec /usr/bin/nvidia-ctk: exec format error";
/// Keys of two nodes for arm64, which Pods select and tolerate: an extended resource would be another reason to doubt.
const NODES: [&str; 2] = ["e2e.test/first", "e2e.test/second"];

pub(crate) async fn failed_image_is_kept_away_and_tenants_affect_no_others(cluster: &Cluster) {
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
    home.apply(
        &json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": RELEASE}}),
    )
    .await;
    let account = kubeconfig_of(cluster, &home, RELEASE).await;
    let lease = format!("{RELEASE}-controller");
    let settings = json!({"server": {"failedImages": true}, "controller": {"lease": lease}});
    let mut webhook = local
        .tolerarch_for_as(&address, &account, settings.clone())
        .await;
    let team = cluster.namespace_with("learned", &webhook.url).await;
    let tenant = cluster.namespace_with("forging", &webhook.url).await;
    for namespace in [&team, &tenant] {
        cluster.until_called_without_effect(namespace).await;
        namespace.offer(0, 10).await;
        // They have opted out of the installed webhook.
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
    let settings = json!({"controller": {"lease": lease, "repair": false, "census": "0", "evictFailed": true}});
    let leader = local.controller_as(&controller, &address, settings).await;

    let digest = |tag: &str| repo.digest_of(tag).unwrap();
    let named = |namespace: &Namespace, name: &str, tag: &str| {
        let mut pod = namespace.takes_a_place(&pod(&[&repo.reference(tag)]));
        pod["metadata"] = json!({"name": name});
        pod
    };
    let is_tolerated = async |namespace: &Namespace, tag: &str| {
        namespace
            .dry_run(&named(namespace, "next", tag))
            .await
            .unwrap()
            .tolerates_pool()
    };
    for (name, key) in [("first-arm64", NODES[0]), ("second-arm64", NODES[1])] {
        cluster.add_node_of("arm64", name, key).await;
    }
    let on_node = |name: &str, tag: &str, key: &str| {
        let mut pod = pod(&[&repo.reference(tag)]);
        pod["metadata"] = json!({"name": name});
        pod["spec"]["nodeSelector"] = json!({key: ""});
        pod["spec"]["tolerations"] = json!([{"key": key, "operator": "Exists"}]);
        pod
    };
    let runtime = json!({"exitCode": 128, "reason": "StartError", "message": OWN});
    let by_a_hook = json!({"exitCode": 128, "reason": "StartError", "message": HOOK});
    let own =
        json!({"exitCode": 255, "reason": "Error", "message": "exec /app: exec format error"});

    // A tenant's own word, and a program of its own choice, with an image that others run, on both nodes.
    for (at, key) in NODES.into_iter().enumerate() {
        for (name, command, ended) in [("written", None, &own), ("chosen", Some("/own"), &runtime)]
        {
            let name = format!("{name}-{at}");
            let mut forged = on_node(&name, "victim", key);
            forged["spec"]["containers"][0]["command"] = command.map(|own| json!([own])).into();
            tenant.pod(&forged).await;
            fails(&tenant, &name, &digest("victim"), ended).await;
        }
    }
    until("the tenant has closed its own pool", async || {
        (!is_tolerated(&tenant, "victim").await).then_some(())
    })
    .await;
    assert!(is_tolerated(&team, "victim").await, "and no other");

    // Both nodes have a hook for another architecture, which says nothing of the image.
    for (name, key) in [("hooked-0", NODES[0]), ("hooked-1", NODES[1])] {
        team.pod(&on_node(name, "other", key)).await;
        fails(&team, name, &digest("other"), &by_a_hook).await;
    }

    assert!(
        team.pod(&on_node("lies", "lies", NODES[0]))
            .await
            .tolerates_pool()
    );
    fails(&team, "lies", &digest("lies"), &runtime).await;
    let failed = Instant::now();
    until("what failed is kept from where it did", async || {
        (!is_tolerated(&team, "lies").await).then_some(())
    })
    .await;
    print!("failed images: learned in {:.1?}; ", failed.elapsed());
    assert!(
        is_tolerated(&tenant, "lies").await,
        "one node may be broken"
    );
    team.pod(&on_node("lies-again", "lies", NODES[1])).await;
    fails(&team, "lies-again", &digest("lies"), &runtime).await;
    until(
        "what failed on two nodes is kept from all namespaces",
        async || (!is_tolerated(&tenant, "lies").await).then_some(()),
    )
    .await;
    until("both nodes show the hook", async || {
        let events = Api::<Event>::namespaced(cluster.client.clone(), "default");
        let told = events.list(&ListParams::default()).await.ok()?.items;
        let on_nodes = told
            .iter()
            .filter(|event| event.reason.as_deref() == Some("NodeProgramFailed"));
        (on_nodes.count() == 2).then_some(())
    })
    .await;
    assert!(is_tolerated(&team, "other").await, "of another digest");
    assert!(is_tolerated(&team, "victim").await);
    assert_eq!(webhook.metric("tolerarch_failed_images").await, 2);
    assert!(
        webhook.process.log().contains(r#""reason":"failed-there""#),
        "{}",
        webhook.process.log()
    );
    assert!(
        team.pods()
            .get("lies")
            .await
            .unwrap()
            .metadata
            .deletion_timestamp
            .is_none(),
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
    let first = team
        .until_pods("heals", 1, Pod::tolerates_pool)
        .await
        .remove(0);
    let first = first.metadata.name.unwrap();
    fails(&team, &first, &digest("heals"), &runtime).await;
    let replaced = until("a Pod is evicted and replaced", async || {
        let pods = team
            .pods()
            .list(&ListParams::default().labels("app=heals"))
            .await
            .ok()?
            .items;
        let is_gone = pods.iter().all(|pod| {
            pod.metadata.name.as_ref() != Some(&first) || pod.metadata.deletion_timestamp.is_some()
        });
        pods.into_iter()
            .find(|pod| is_gone && pod.metadata.name.as_ref() != Some(&first))
    })
    .await;
    assert!(!replaced.tolerates_pool(), "{replaced:?}");
    assert_eq!(
        leader
            .metric(r#"tolerarch_controller_evictions_total{result="evicted"}"#)
            .await,
        1
    );

    let owned = async |name: &str, scheduler: &str| {
        let mut own = named(&team, name, "other");
        own["spec"]["schedulerName"] = scheduler.into();
        an_operator_settles(&team, own).await
    };
    brokers_are_known(cluster).await;
    let created = tokio::join!(
        owned("without-a-node", "nobody"),
        owned("on-a-node", "default-scheduler")
    );
    let created = <[usize; 2]>::from(created);
    print!("operators: settled after {created:?} Pods; ");
    assert!(
        created
            .into_iter()
            .all(|created| (6..=8).contains(&created)),
        "{created:?}"
    );
    assert!(
        is_tolerated(&team, "other").await,
        "of others nothing is learned"
    );
    until("two owners are known", async || {
        (webhook.metric("tolerarch_recreating_owners").await == 2).then_some(())
    })
    .await;
    until("both owners show it", async || {
        let events = Api::<Event>::namespaced(cluster.client.clone(), &team.name);
        let told = events.list(&ListParams::default()).await.ok()?.items;
        let is_told = |event: &&Event| {
            event.reason.as_deref() == Some("OwnerRecreates")
                && event
                    .regarding
                    .as_ref()
                    .is_some_and(|on| on.kind.as_deref() == Some("Broker"))
        };
        (told.iter().filter(is_told).count() == 2).then_some(())
    })
    .await;

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
        let request = request
            .header("content-type", "application/merge-patch+json")
            .body(b"{}".to_vec());
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
    until("what was deleted is forgotten", async || {
        is_tolerated(&team, "lies").await.then_some(())
    })
    .await;
}

/// Makes a kind whose objects own Pods.
pub(crate) async fn brokers_are_known(cluster: &Cluster) {
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
            .any(|has| has.type_ == "Established" && has.status == "True")
            .then_some(())
    })
    .await;
}

/// Plays an operator that deletes its Pod if that differs from its text, and creates it again, once a second. Gives how
/// many Pods it has created until one is as it wants it.
async fn an_operator_settles(team: &Namespace, mut own: Value) -> usize {
    let name = own["metadata"]["name"].as_str().unwrap().to_owned();
    let broker = json!({"apiVersion": "e2e.test/v1", "kind": "Broker", "metadata": {"name": name}});
    let uid = team.apply(&broker).await.metadata.uid;
    own["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "e2e.test/v1", "kind": "Broker", "name": name, "uid": uid, "controller": true,
    }]);
    // No kubelet ends a Pod here.
    let at_once = DeleteParams::default().grace_period(0);
    let mut turns = interval(Duration::from_secs(1));
    let mut created = 0;
    loop {
        turns.tick().await;
        match team.pods().get_opt(&name).await.unwrap() {
            None => {
                team.pod(&own).await;
                created += 1;
            }
            Some(pod) if pod.tolerates_pool() => {
                team.pods().delete(&name, &at_once).await.unwrap();
                assert!(created < 20, "it goes on");
            }
            Some(_) => return created,
        }
    }
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
    team.pods()
        .patch_status("held", &PatchParams::default(), &Patch::Merge(running))
        .await
        .unwrap();
    let pods = Api::<Pod>::namespaced(client_of(controller).await, &team.name);
    match pods.evict("held", &EvictParams::default()).await {
        Err(kube::Error::Api(status)) => assert_eq!(status.code, 429, "{status:?}"),
        other => panic!("not held back: {other:?}"),
    }
}

/// Plays the kubelet of a node on which the container of this Pod, with this image, ends like this.
async fn fails(namespace: &Namespace, pod: &str, digest: &str, ended: &Value) {
    let on_a_node = until(&format!("{pod} is on a node"), async || {
        namespace
            .pods()
            .get(pod)
            .await
            .ok()
            .filter(|pod| pod.node().is_some())
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
    namespace
        .pods()
        .patch_status(pod, &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
}
