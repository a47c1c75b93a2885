//! DaemonSets with the real controller: what tolerarch adds, and that it causes no rollouts.

use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use scenarios::{Cluster, Namespace, PodExt, pod, until};
use serde_json::{Value, json};

fn agent(image: &str, labels: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent", "labels": labels},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {"metadata": {"labels": {"app": "agent"}}, "spec": pod(&[image])["spec"]},
        },
    })
}

fn tolerates_pool(set: &DaemonSet) -> bool {
    let spec = set
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref());
    let tolerations = spec
        .and_then(|spec| spec.tolerations.as_deref())
        .unwrap_or_default();
    tolerations
        .iter()
        .any(|toleration| toleration.key.as_deref() == Some(scenarios::POOL))
}

/// Returns the generation of the DaemonSet, and whether it has the pool's toleration.
async fn generation(namespace: &Namespace) -> (Option<i64>, bool) {
    let set = namespace.api::<DaemonSet>().get("agent").await.unwrap();
    (set.metadata.generation, tolerates_pool(&set))
}

pub(crate) async fn daemon_sets_run_in_the_pool_without_extra_rollouts(cluster: &Cluster) {
    let tolerarch = cluster.local().tolerarch(json!({"daemonSets": true})).await;
    let namespace = cluster.namespace_with("daemonsets", &tolerarch.url).await;
    cluster.review_daemon_sets(&namespace, &tolerarch.url).await;
    let multi = cluster.images.tag("multi");
    let amd64 = cluster.images.tag("amd64");
    until("the webhook is called", async || {
        let set: DaemonSet = serde_json::from_value(agent(&multi, &json!({}))).unwrap();
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let stored = namespace
            .api::<DaemonSet>()
            .create(&dry_run, &set)
            .await
            .ok()?;
        tolerates_pool(&stored).then_some(())
    })
    .await;

    namespace.apply(&agent(&multi, &json!({}))).await;
    namespace
        .until_pods("agent", 2, PodExt::tolerates_pool)
        .await;
    assert_eq!(generation(&namespace).await, (Some(1), true));

    // Its applier owns the tolerations that its first request got, so this request removes them.
    namespace
        .apply(&agent(&multi, &json!({"team": "blue"})))
        .await;
    assert_eq!(
        generation(&namespace).await,
        (Some(1), true),
        "nothing is rolled out"
    );
    let revisions = namespace
        .api::<ControllerRevision>()
        .list(&ListParams::default())
        .await
        .unwrap();
    assert_eq!(revisions.items.len(), 1);

    let unknown = format!("{multi}-not-pushed-yet");
    namespace.apply(&agent(&unknown, &json!({}))).await;
    assert_eq!(
        generation(&namespace).await,
        (Some(2), true),
        "kept, as the image is unknown"
    );

    namespace.apply(&agent(&amd64, &json!({}))).await;
    assert_eq!(generation(&namespace).await, (Some(3), false));
    namespace
        .until_pods("agent", 1, |pod| namespace.is_on_plain_node(pod))
        .await;
}

fn template(set: &DaemonSet) -> Value {
    let template = serde_json::to_value(&set.spec.as_ref().unwrap().template).unwrap();
    json!({
        "tolerations": template["spec"]["tolerations"],
        "affinity": template["spec"]["affinity"],
        "annotations": template["metadata"]["annotations"],
    })
}

fn unix_seconds() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.unwrap().as_secs()
}

/// The pool has two tolerations. The user's list has one of them.
pub(crate) async fn managed_fields_of_a_daemon_set_survive_partial_updates(cluster: &Cluster) {
    let pool_tolerations = json!([
        {"key": "team", "operator": "Exists", "effect": "NoSchedule"},
        {"key": scenarios::POOL, "operator": "Exists", "effect": "NoSchedule"},
    ]);
    let pool = json!({"name": "multi-arch", "platforms": ["linux/amd64", "linux/arm64"], "tolerations": pool_tolerations});
    let settings =
        json!({"daemonSets": true, "pools": [pool], "placement": {"require": "affinity"}});
    let tolerarch = cluster.local().tolerarch(settings).await;
    let namespace = cluster.namespace_with("daemonsets", &tolerarch.url).await;
    cluster.review_daemon_sets(&namespace, &tolerarch.url).await;
    let multi = cluster.images.tag("multi");
    let amd64 = cluster.images.tag("amd64");
    let with = |images: &[&str]| {
        let mut set = agent(images[0], &json!({}));
        set["spec"]["template"]["spec"] = pod(images)["spec"].clone();
        set["spec"]["template"]["spec"]["tolerations"] = json!([pool_tolerations[0]]);
        set
    };
    until("the webhook is called", async || {
        let set: DaemonSet = serde_json::from_value(with(&[&multi])).unwrap();
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let stored = namespace
            .api::<DaemonSet>()
            .create(&dry_run, &set)
            .await
            .ok()?;
        tolerates_pool(&stored).then_some(())
    })
    .await;
    let stored = async || namespace.api::<DaemonSet>().get("agent").await.unwrap();
    let merge = async |template: Value| {
        let change = json!({"spec": {"template": template}});
        let sets = namespace.api::<DaemonSet>();
        sets.patch("agent", &PatchParams::default(), &Patch::Merge(change))
            .await
            .unwrap();
    };

    namespace.apply(&with(&[&multi])).await;
    let first = stored().await;
    assert_eq!(
        template(&first)["tolerations"],
        json!([
            pool_tolerations[0],
            pool_tolerations[0],
            pool_tolerations[1]
        ])
    );
    namespace.apply(&with(&[&multi])).await;
    assert_eq!(
        (
            stored().await.metadata.generation,
            template(&stored().await)
        ),
        (Some(1), template(&first))
    );
    merge(json!({"metadata": {"annotations": {"tolerarch.io/pools": null}}})).await;
    assert_eq!(
        (
            stored().await.metadata.generation,
            template(&stored().await)
        ),
        (Some(1), template(&first))
    );

    // One change removes the annotation and sets an image for one architecture.
    let container = |image: &str| json!([{"name": "c0", "image": image}]);
    merge(json!({
        "metadata": {"annotations": {"tolerarch.io/pools": null}}, "spec": {"containers": container(&amd64)},
    }))
    .await;
    let placed = template(&stored().await);
    assert_eq!(
        placed["tolerations"],
        json!([pool_tolerations[0]]),
        "the user's toleration stays"
    );
    assert_eq!(
        placed["annotations"],
        json!({"tolerarch.io/required": "amd64"})
    );
    assert!(placed["affinity"].to_string().contains("amd64"), "{placed}");

    // An unknown image beside one that lacks an architecture.
    namespace
        .apply(&with(&[&amd64, &format!("{multi}-not-pushed-yet")]))
        .await;
    assert_eq!(template(&stored().await), placed);
    namespace.apply(&with(&[&multi])).await;
    assert_eq!(template(&stored().await), template(&first));
}

/// `managedFields` tells who owns a list, and since when.
pub(crate) async fn fields_applied_by_the_owner_of_a_daemon_set_stay(cluster: &Cluster) {
    let settings = json!({"daemonSets": true, "placement": {"require": "affinity"}});
    let tolerarch = cluster.local().tolerarch(settings).await;
    let namespace = cluster.namespace_with("daemonsets", &tolerarch.url).await;
    cluster.review_daemon_sets(&namespace, &tolerarch.url).await;
    let multi = cluster.images.tag("multi");
    let amd64 = cluster.images.tag("amd64");
    let arch = json!({"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]});
    let zone = json!({"key": "zone", "operator": "In", "values": ["a"]});
    let requiring = |image: &str, expressions: Value| {
        let mut set = agent(image, &json!({}));
        set["spec"]["template"]["spec"]["affinity"] = json!({"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution":
                {"nodeSelectorTerms": [{"matchExpressions": expressions}]},
        }});
        set
    };
    let expressions = |set: &DaemonSet| {
        let terms = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        template(set)
            .pointer(terms)
            .map(|terms| terms[0]["matchExpressions"].clone())
            .unwrap_or_default()
    };
    let stored = async || namespace.api::<DaemonSet>().get("agent").await.unwrap();
    let required = |set: &DaemonSet| template(set)["annotations"]["tolerarch.io/required"].clone();
    until("the webhook is called", async || {
        let set: DaemonSet = serde_json::from_value(agent(&amd64, &json!({}))).unwrap();
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let set = namespace
            .api::<DaemonSet>()
            .create(&dry_run, &set)
            .await
            .ok()?;
        (required(&set) == "amd64").then_some(())
    })
    .await;

    // The owner applies what was added: the template stays the same, so the webhook is not called.
    namespace.apply(&agent(&amd64, &json!({}))).await;
    assert_eq!(
        (expressions(&stored().await), required(&stored().await)),
        (json!([arch]), json!("amd64"))
    );
    namespace.apply(&requiring(&amd64, json!([arch]))).await;
    assert_eq!(
        (
            stored().await.metadata.generation,
            required(&stored().await)
        ),
        (Some(1), json!("amd64"))
    );
    // Another client sets an image for both architectures.
    let change =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "c0", "image": multi}]}}}});
    namespace
        .api::<DaemonSet>()
        .patch("agent", &PatchParams::default(), &Patch::Merge(change))
        .await
        .unwrap();
    assert_eq!(
        (expressions(&stored().await), required(&stored().await)),
        (json!([arch]), Value::Null)
    );
    namespace
        .api::<DaemonSet>()
        .delete("agent", &DeleteParams::default())
        .await
        .unwrap();

    // The owner has a list of terms, and adds what tolerarch added. `managedFields` has times in whole seconds.
    let begun = unix_seconds();
    namespace.apply(&requiring(&amd64, json!([zone]))).await;
    assert_eq!(
        (expressions(&stored().await), required(&stored().await)),
        (json!([zone, arch]), json!("amd64"))
    );
    until("another second has begun", async || {
        (unix_seconds() > begun + 1).then_some(())
    })
    .await;
    namespace
        .apply(&requiring(&multi, json!([zone, arch])))
        .await;
    assert_eq!(
        (expressions(&stored().await), required(&stored().await)),
        (json!([zone, arch]), Value::Null)
    );

    // An empty list is owned, too.
    let mut set = agent(&multi, &json!({}));
    set["metadata"]["name"] = json!("empty");
    set["spec"]["template"]["spec"]["tolerations"] = json!([]);
    set["spec"]["template"]["spec"]["nodeSelector"] = json!({});
    let applied = namespace.apply(&set).await;
    let fields = serde_json::to_value(&applied.metadata.managed_fields).unwrap();
    let spec = &fields[0]["fieldsV1"]["f:spec"]["f:template"]["f:spec"];
    assert!(
        !spec["f:tolerations"].is_null() && !spec["f:nodeSelector"].is_null(),
        "{fields}"
    );
}
