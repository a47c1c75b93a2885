//! What DaemonSets get, on the real controller, and that nothing is rolled out that the user did not change.

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

fn is_open(set: &DaemonSet) -> bool {
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

async fn generation(namespace: &Namespace) -> (Option<i64>, bool) {
    let set = namespace.api::<DaemonSet>().get("agent").await.unwrap();
    (set.metadata.generation, is_open(&set))
}

pub(crate) async fn daemon_sets_run_in_the_pool_and_are_not_rolled_out_by_themselves(
    cluster: &Cluster,
) {
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
        is_open(&stored).then_some(())
    })
    .await;

    namespace.apply(&agent(&multi, &json!({}))).await;
    namespace
        .until_pods("agent", 2, PodExt::tolerates_pool)
        .await;
    assert_eq!(generation(&namespace).await, (Some(1), true));

    // Who applies this owns the tolerations that came of its first request, and so takes them away.
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
        "kept, as the image is not known"
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

/// The pool has two tolerations, of which the user's own list has one.
pub(crate) async fn what_is_managed_in_a_daemon_set_survives_those_who_drop_half_of_it(
    cluster: &Cluster,
) {
    let own = json!([
        {"key": "team", "operator": "Exists", "effect": "NoSchedule"},
        {"key": scenarios::POOL, "operator": "Exists", "effect": "NoSchedule"},
    ]);
    let pool = json!({"name": "multi-arch", "platforms": ["linux/amd64", "linux/arm64"], "tolerations": own});
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
        set["spec"]["template"]["spec"]["tolerations"] = json!([own[0]]);
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
        is_open(&stored).then_some(())
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
        json!([own[0], own[0], own[1]])
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

    // In one change the annotation goes, and an image comes that is for one architecture.
    let container = |image: &str| json!([{"name": "c0", "image": image}]);
    merge(json!({
        "metadata": {"annotations": {"tolerarch.io/pools": null}}, "spec": {"containers": container(&amd64)},
    }))
    .await;
    let placed = template(&stored().await);
    assert_eq!(
        placed["tolerations"],
        json!([own[0]]),
        "the user's own stays"
    );
    assert_eq!(
        placed["annotations"],
        json!({"tolerarch.io/required": "amd64"})
    );
    assert!(placed["affinity"].to_string().contains("amd64"), "{placed}");

    // One that is not known beside one that is known to lack an architecture.
    namespace
        .apply(&with(&[&amd64, &format!("{multi}-not-pushed-yet")]))
        .await;
    assert_eq!(template(&stored().await), placed);
    namespace.apply(&with(&[&multi])).await;
    assert_eq!(template(&stored().await), template(&first));
}

/// By whom lists are owned, and since when, is what the API server says in `managedFields`.
pub(crate) async fn what_the_owner_of_a_daemon_set_applies_is_never_taken_away(cluster: &Cluster) {
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
    let marks = |set: &DaemonSet| template(set)["annotations"]["tolerarch.io/required"].clone();
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
        (marks(&set) == "amd64").then_some(())
    })
    .await;

    // The owner applies what was added: the template stays, and nobody is asked.
    namespace.apply(&agent(&amd64, &json!({}))).await;
    assert_eq!(
        (expressions(&stored().await), marks(&stored().await)),
        (json!([arch]), json!("amd64"))
    );
    namespace.apply(&requiring(&amd64, json!([arch]))).await;
    assert_eq!(
        (stored().await.metadata.generation, marks(&stored().await)),
        (Some(1), json!("amd64"))
    );
    // An image for both, by another one.
    let change =
        json!({"spec": {"template": {"spec": {"containers": [{"name": "c0", "image": multi}]}}}});
    namespace
        .api::<DaemonSet>()
        .patch("agent", &PatchParams::default(), &Patch::Merge(change))
        .await
        .unwrap();
    assert_eq!(
        (expressions(&stored().await), marks(&stored().await)),
        (json!([arch]), Value::Null)
    );
    namespace
        .api::<DaemonSet>()
        .delete("agent", &DeleteParams::default())
        .await
        .unwrap();

    // The owner has a list of terms, and completes it by what was added; an entry says to the second when it was applied.
    let begun = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    namespace.apply(&requiring(&amd64, json!([zone]))).await;
    assert_eq!(
        (expressions(&stored().await), marks(&stored().await)),
        (json!([zone, arch]), json!("amd64"))
    );
    until("another second has begun", async || {
        (SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs()
            > begun + 1)
            .then_some(())
    })
    .await;
    namespace
        .apply(&requiring(&multi, json!([zone, arch])))
        .await;
    assert_eq!(
        (expressions(&stored().await), marks(&stored().await)),
        (json!([zone, arch]), Value::Null)
    );

    // An empty list is owned as well.
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
