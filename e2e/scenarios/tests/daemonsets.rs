//! DaemonSets with the real controller: what tolerarch adds, and that it causes no rollouts.

use std::time::{SystemTime, UNIX_EPOCH};

use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use scenarios::{Cluster, Namespace, PodExt, Tolerarch, pod, until};
use serde_json::{Value, json};

/// The path of the terms of the required node affinity in the result of [`placement_of`].
const REQUIRED_TERMS: &str =
    "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";

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

/// Returns the fields of the Pod template that tolerarch may change.
fn placement_of(set: &DaemonSet) -> Value {
    let template = serde_json::to_value(&set.spec.as_ref().unwrap().template).unwrap();
    json!({
        "tolerations": template["spec"]["tolerations"],
        "affinity": template["spec"]["affinity"],
        "annotations": template["metadata"]["annotations"],
    })
}

/// Returns the annotation that names the requirements which tolerarch has added.
fn managed_requirements(set: &DaemonSet) -> Value {
    placement_of(set)["annotations"]["tolerarch.io/required"].clone()
}

/// Returns the expressions of the first term of the required node affinity.
fn required_expressions(set: &DaemonSet) -> Value {
    let placement = placement_of(set);
    let terms = placement.pointer(REQUIRED_TERMS);
    terms
        .map(|terms| terms[0]["matchExpressions"].clone())
        .unwrap_or_default()
}

/// A tolerarch that is called for the DaemonSets of a namespace.
struct Setup {
    namespace: Namespace,
    multi: String,
    amd64: String,
    _tolerarch: Tolerarch,
}

impl Setup {
    async fn start(cluster: &Cluster, settings: Value) -> Self {
        let tolerarch = cluster.local().tolerarch(settings).await;
        let namespace = cluster.namespace_with("daemonsets", &tolerarch.url).await;
        cluster.review_daemon_sets(&namespace, &tolerarch.url).await;
        Self {
            namespace,
            multi: cluster.images.tag("multi"),
            amd64: cluster.images.tag("amd64"),
            _tolerarch: tolerarch,
        }
    }

    /// Waits until a dry run shows that the webhook is called for a DaemonSet.
    async fn until_called(&self, set: &Value, is_changed: impl Fn(&DaemonSet) -> bool) {
        let set: DaemonSet = serde_json::from_value(set.clone()).unwrap();
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let sets = self.namespace.api::<DaemonSet>();
        until("the webhook is called", async || {
            let created = sets.create(&dry_run, &set).await.ok()?;
            is_changed(&created).then_some(())
        })
        .await;
    }

    async fn stored(&self) -> DaemonSet {
        self.namespace.api().get("agent").await.unwrap()
    }

    /// Changes the Pod template, as another client than the owner.
    async fn merge(&self, template: Value) {
        let change = Patch::Merge(json!({"spec": {"template": template}}));
        self.namespace
            .api::<DaemonSet>()
            .patch("agent", &PatchParams::default(), &change)
            .await
            .unwrap();
    }

    /// Asserts the generation of the DaemonSet, and whether it has the pool's toleration.
    async fn assert_stored(&self, generation: i64, tolerates: bool, why: &str) {
        let set = self.stored().await;
        let actual = (set.metadata.generation, tolerates_pool(&set));
        assert_eq!(actual, (Some(generation), tolerates), "{why}");
    }
}

pub(crate) async fn daemon_sets_run_in_the_pool_without_extra_rollouts(cluster: &Cluster) {
    let setup = Setup::start(cluster, json!({"daemonSets": true})).await;
    let namespace = &setup.namespace;
    let multi = agent(&setup.multi, &json!({}));
    setup.until_called(&multi, tolerates_pool).await;

    namespace.apply(&multi).await;
    namespace
        .until_pods("agent", 2, PodExt::tolerates_pool)
        .await;
    setup.assert_stored(1, true, "created").await;

    // Its applier owns the tolerations that its first request got, so this request removes them.
    let labelled = agent(&setup.multi, &json!({"team": "blue"}));
    namespace.apply(&labelled).await;
    setup.assert_stored(1, true, "nothing is rolled out").await;
    let revisions = namespace.api::<ControllerRevision>();
    let revisions = revisions.list(&ListParams::default()).await.unwrap();
    assert_eq!(revisions.items.len(), 1);

    let unknown = format!("{}-not-pushed-yet", setup.multi);
    namespace.apply(&agent(&unknown, &json!({}))).await;
    setup
        .assert_stored(2, true, "kept, as the image is unknown")
        .await;

    namespace.apply(&agent(&setup.amd64, &json!({}))).await;
    setup.assert_stored(3, false, "amd64 only").await;
    namespace
        .until_pods("agent", 1, |pod| namespace.is_on_plain_node(pod))
        .await;
}

/// The pool has two tolerations. The user's list has one of them.
pub(crate) async fn managed_fields_of_a_daemon_set_survive_partial_updates(cluster: &Cluster) {
    let user_toleration = json!({"key": "team", "operator": "Exists", "effect": "NoSchedule"});
    let other_toleration =
        json!({"key": scenarios::POOL, "operator": "Exists", "effect": "NoSchedule"});
    let pool = json!({
        "name": "multi-arch",
        "platforms": ["linux/amd64", "linux/arm64"],
        "tolerations": [user_toleration, other_toleration],
    });
    let settings =
        json!({"daemonSets": true, "pools": [pool], "placement": {"require": "affinity"}});
    let setup = Setup::start(cluster, settings).await;
    let namespace = &setup.namespace;
    let with_images = |images: &[&str]| {
        let mut set = agent(images[0], &json!({}));
        set["spec"]["template"]["spec"] = pod(images)["spec"].clone();
        set["spec"]["template"]["spec"]["tolerations"] = json!([user_toleration]);
        set
    };
    let multi = with_images(&[&setup.multi]);
    setup.until_called(&multi, tolerates_pool).await;

    namespace.apply(&multi).await;
    let first = placement_of(&setup.stored().await);
    let all_tolerations = json!([user_toleration, user_toleration, other_toleration]);
    assert_eq!(first["tolerations"], all_tolerations);
    let assert_unchanged = async || {
        let set = setup.stored().await;
        assert_eq!(set.metadata.generation, Some(1));
        assert_eq!(placement_of(&set), first);
    };
    namespace.apply(&multi).await;
    assert_unchanged().await;
    let without_annotation = json!({"annotations": {"tolerarch.io/pools": null}});
    setup.merge(json!({"metadata": without_annotation})).await;
    assert_unchanged().await;

    // One change removes the annotation and sets an image for one architecture.
    let containers = json!([{"name": "c0", "image": setup.amd64}]);
    setup
        .merge(json!({"metadata": without_annotation, "spec": {"containers": containers}}))
        .await;
    let required = placement_of(&setup.stored().await);
    let user_tolerations = json!([user_toleration]);
    assert_eq!(required["tolerations"], user_tolerations);
    let annotations = json!({"tolerarch.io/required": "amd64"});
    assert_eq!(required["annotations"], annotations);
    let affinity = required["affinity"].to_string();
    assert!(affinity.contains("amd64"), "{required}");

    // An unknown image beside one that lacks an architecture.
    let unknown = format!("{}-not-pushed-yet", setup.multi);
    namespace
        .apply(&with_images(&[&setup.amd64, &unknown]))
        .await;
    assert_eq!(placement_of(&setup.stored().await), required);
    namespace.apply(&multi).await;
    assert_eq!(placement_of(&setup.stored().await), first);
}

/// `managedFields` tells who owns a list, and since when.
pub(crate) async fn fields_applied_by_the_owner_of_a_daemon_set_stay(cluster: &Cluster) {
    let settings = json!({"daemonSets": true, "placement": {"require": "affinity"}});
    let setup = Setup::start(cluster, settings).await;
    let amd64 = agent(&setup.amd64, &json!({}));
    let is_changed = |set: &DaemonSet| managed_requirements(set) == "amd64";
    setup.until_called(&amd64, is_changed).await;
    owner_applies_what_was_added(&setup).await;
    owner_completes_its_list(&setup).await;
    empty_lists_have_an_owner(&setup).await;
}

fn expression(key: &str, value: &str) -> Value {
    json!({"key": key, "operator": "In", "values": [value]})
}

/// Returns a DaemonSet that requires these expressions.
fn requiring(image: &str, expressions: &Value) -> Value {
    let terms = json!([{"matchExpressions": expressions}]);
    let mut set = agent(image, &json!({}));
    set["spec"]["template"]["spec"]["affinity"] = json!({"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
    }});
    set
}

async fn assert_requirements(setup: &Setup, expressions: &Value, managed: Value) {
    let set = setup.stored().await;
    assert_eq!(required_expressions(&set), *expressions);
    assert_eq!(managed_requirements(&set), managed);
}

async fn owner_applies_what_was_added(setup: &Setup) {
    let namespace = &setup.namespace;
    let architecture = json!([expression("kubernetes.io/arch", "amd64")]);
    namespace.apply(&agent(&setup.amd64, &json!({}))).await;
    assert_requirements(setup, &architecture, json!("amd64")).await;

    // The template stays the same, so the webhook is not called.
    namespace
        .apply(&requiring(&setup.amd64, &architecture))
        .await;
    let set = setup.stored().await;
    assert_eq!(set.metadata.generation, Some(1));
    assert_eq!(managed_requirements(&set), "amd64");

    // Another client sets an image for both architectures.
    let containers = json!([{"name": "c0", "image": setup.multi}]);
    setup
        .merge(json!({"spec": {"containers": containers}}))
        .await;
    assert_requirements(setup, &architecture, Value::Null).await;
    namespace
        .api::<DaemonSet>()
        .delete("agent", &DeleteParams::default())
        .await
        .unwrap();
}

/// The owner has a list of terms, and adds what tolerarch added. `managedFields` has times in whole seconds.
async fn owner_completes_its_list(setup: &Setup) {
    let namespace = &setup.namespace;
    let zone = expression("zone", "a");
    let architecture = expression("kubernetes.io/arch", "amd64");
    let both = json!([zone, architecture]);
    let begun = unix_seconds();
    namespace
        .apply(&requiring(&setup.amd64, &json!([zone])))
        .await;
    assert_requirements(setup, &both, json!("amd64")).await;
    until("another second has begun", async || {
        (unix_seconds() > begun + 1).then_some(())
    })
    .await;
    namespace.apply(&requiring(&setup.multi, &both)).await;
    assert_requirements(setup, &both, Value::Null).await;
}

async fn empty_lists_have_an_owner(setup: &Setup) {
    let mut set = agent(&setup.multi, &json!({}));
    set["metadata"]["name"] = json!("empty");
    set["spec"]["template"]["spec"]["tolerations"] = json!([]);
    set["spec"]["template"]["spec"]["nodeSelector"] = json!({});
    let applied = setup.namespace.apply(&set).await;
    let fields = serde_json::to_value(&applied.metadata.managed_fields).unwrap();
    let spec = &fields[0]["fieldsV1"]["f:spec"]["f:template"]["f:spec"];
    assert!(!spec["f:tolerations"].is_null(), "{fields}");
    assert!(!spec["f:nodeSelector"].is_null(), "{fields}");
}

fn unix_seconds() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    since_epoch.unwrap().as_secs()
}
